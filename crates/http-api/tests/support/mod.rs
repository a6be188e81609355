//! A shop on memory shards behind a real socket, and a client that holds every answer
//! against the shop's own description.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use engine_api::memory::MemoryEngine;
use engine_api::{Engine, RealWorld, World, Writer};
use http_api::{App, AppConfig, BuildInfo, Drained, HttpLimits, Registry, Search, SearchRefusal};
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use layout::Collection;
use model::ProductId;
use router::{
    CollectionMap, Cut, Limits, Map, MapKeeper, MapView, Router, RouterConfig, ShardName,
};
use serde_json::Value;
use shop_service::{Settings, Shop, ShopConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub struct Served {
    pub address: SocketAddr,
    pub app: App,
    description: Value,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<Drained>>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A request in the making.
pub struct Asked<'a> {
    served: &'a Served,
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
}

/// Finds what it was told to find.
#[derive(Debug)]
pub enum StoriedSearch {
    Finds(Vec<&'static str>),
    Fails,
    Panics,
}

impl Search for StoriedSearch {
    fn search(&self, text: &str, limit: usize) -> Result<Vec<ProductId>, SearchRefusal> {
        match self {
            StoriedSearch::Finds(_) if text == "!" => {
                Err(SearchRefusal::Text("type a word".to_owned()))
            }
            StoriedSearch::Finds(ids) => {
                let ids = ids.iter().take(limit);
                Ok(ids.map(|id| ProductId::parse(id).unwrap()).collect())
            }
            StoriedSearch::Fails => {
                Err(SearchRefusal::Unavailable("the story wants it".to_owned()))
            }
            StoriedSearch::Panics => panic!("the story wants it"),
        }
    }
}

/// A build for tests is slow: nobody is to be refused for that.
pub fn unhurried() -> HttpLimits {
    HttpLimits {
        queue_ms_max: 5_000,
        ..HttpLimits::default()
    }
}

impl Served {
    pub async fn start() -> Served {
        Served::with(unhurried(), None).await
    }

    pub async fn limited(limits: HttpLimits) -> Served {
        Served::with(limits, None).await
    }

    pub async fn with(limits: HttpLimits, search: Option<StoriedSearch>) -> Served {
        let world: Arc<dyn World> = Arc::new(RealWorld::new());
        let router = two_shards(world.clone()).await;
        Served::over(router, world, limits, search).await
    }

    /// The HTTP side may live in another world than the router.
    pub async fn over(
        router: Arc<Router>,
        world: Arc<dyn World>,
        limits: HttpLimits,
        search: Option<StoriedSearch>,
    ) -> Served {
        let shop = Shop::new(ShopConfig {
            router,
            world: world.clone(),
            settings: Settings::default(),
        });
        Served::of(shop, world, limits, search).await
    }

    pub async fn of(
        shop: Shop,
        world: Arc<dyn World>,
        limits: HttpLimits,
        search: Option<StoriedSearch>,
    ) -> Served {
        let app = App::new(AppConfig {
            troubles: None,
            shop: Arc::new(shop),
            search: search.map(|search| Arc::new(search) as Arc<dyn Search>),
            world,
            limits,
            build: BuildInfo {
                version: "0.0.0-test".to_owned(),
                commit: Some("<commit>".to_owned()),
            },
            docs_link: None,
            registry: Registry::default(),
        })
        .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(http_api::serve(listener, app.clone(), async {
            let _ = stopped.await;
        }));
        let mut served = Served {
            address,
            app,
            description: Value::Null,
            stop: Some(stop),
            serving: Some(serving),
        };
        let description = served.get("/openapi.json").raw().await;
        served.description = description.json();
        served
    }

    pub fn get(&self, path: &str) -> Asked<'_> {
        self.ask(Method::GET, path)
    }

    pub fn delete(&self, path: &str) -> Asked<'_> {
        self.ask(Method::DELETE, path)
    }

    pub fn post(&self, path: &str, body: Value) -> Asked<'_> {
        self.ask(Method::POST, path).json(body)
    }

    pub fn put(&self, path: &str, body: Value) -> Asked<'_> {
        self.ask(Method::PUT, path).json(body)
    }

    pub fn ask(&self, method: Method, path: &str) -> Asked<'_> {
        Asked {
            served: self,
            method,
            path: path.to_owned(),
            headers: Vec::new(),
            body: None,
        }
    }

    pub fn description(&self) -> &Value {
        &self.description
    }

    pub fn begin_shutdown(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub async fn ended(&mut self) -> Drained {
        self.serving.take().unwrap().await.unwrap()
    }

    /// Sends bytes as they are and leaves the connection open.
    pub async fn connect(&self, bytes: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream
    }

    /// The description must know status and media type of every answer of a known route.
    fn check_described(&self, method: &Method, path: &str, answer: &Answer) {
        let path = path.split('?').next().unwrap();
        let Some(item) = self.item_of(path) else {
            assert_eq!(
                answer.status,
                StatusCode::NOT_FOUND,
                "{path} is not described"
            );
            return;
        };
        let Some(operation) = item.get(method.as_str().to_lowercase()) else {
            assert_eq!(
                answer.status,
                StatusCode::METHOD_NOT_ALLOWED,
                "{method} {path}"
            );
            return;
        };
        let described = &operation["responses"][answer.status.as_str()];
        assert!(
            described.is_object(),
            "{method} {path} gives {}: {answer:?}",
            answer.status
        );
        match answer.headers.get(CONTENT_TYPE) {
            None => assert!(
                described.get("content").is_none(),
                "{method} {path}: {answer:?}"
            ),
            Some(media_type) => {
                let media_type = media_type.to_str().unwrap().split(';').next().unwrap();
                let known = &described["content"][media_type];
                assert!(
                    known.is_object(),
                    "{method} {path}: {media_type} of {answer:?}"
                );
            }
        }
        for name in [
            "etag",
            "caravan-token",
            "location",
            "retry-after",
            "idempotent-replay",
        ] {
            let described = described["headers"]
                .as_object()
                .is_some_and(|known| known.keys().any(|key| key.eq_ignore_ascii_case(name)));
            if answer.headers.contains_key(name) {
                assert!(described, "{method} {path}: {name} of {answer:?}");
            }
        }
    }

    /// The template of a path, texts before ids.
    fn item_of(&self, path: &str) -> Option<&Value> {
        let pieces: Vec<&str> = path.split('/').collect();
        let fits = |template: &&String| {
            let wanted: Vec<&str> = template.split('/').collect();
            wanted.len() == pieces.len()
                && wanted
                    .iter()
                    .zip(&pieces)
                    .all(|(wanted, piece)| wanted.starts_with('{') || wanted == piece)
        };
        let paths = self.description["paths"].as_object()?;
        let template = paths
            .keys()
            .filter(fits)
            .min_by_key(|name| name.matches('{').count())?;
        Some(&paths[template])
    }
}

impl Asked<'_> {
    pub fn json(self, body: Value) -> Self {
        self.header("content-type", "application/json")
            .bytes(body.to_string().into_bytes())
    }

    pub fn bytes(mut self, body: Vec<u8>) -> Self {
        self.body = Some(body);
        self
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Sends it and holds the answer against the description.
    pub async fn send(self) -> Answer {
        let (served, method, path) = (self.served, self.method.clone(), self.path.clone());
        let answer = self.raw().await;
        assert!(answer.headers.contains_key("x-request-id"), "{answer:?}");
        served.check_described(&method, &path, &answer);
        answer
    }

    pub async fn raw(self) -> Answer {
        let stream = TcpStream::connect(self.served.address).await.unwrap();
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        let driver = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .header("host", "shop");
        for (name, value) in self.headers {
            request = request.header(name, value.as_bytes());
        }
        let body = Full::new(Bytes::from(self.body.unwrap_or_default()));
        let response = sender
            .send_request(request.body(body).unwrap())
            .await
            .unwrap();
        let (parts, body) = response.into_parts();
        let answer = Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        };
        driver.abort();
        answer
    }
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value
            .unwrap_or_else(|| panic!("{name} of {self:?}"))
            .to_str()
            .unwrap()
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }

    /// The problem's members, checked for what every problem has.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        let body = self.json();
        assert_eq!(body["type"], format!("/problems/{code}"), "{body}");
        assert_eq!(body["status"], status);
        assert_eq!(body["instance"], self.header("x-request-id"));
        assert!(
            body["title"].is_string() && body["detail"].is_string(),
            "{body}"
        );
        body
    }
}

/// All that the server sends until it closes the connection.
pub async fn read_all(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

pub async fn two_shards(world: Arc<dyn World>) -> Arc<Router> {
    let names = ["shard-1", "shard-2"].map(|name| ShardName::new(name).unwrap());
    let engine = |name: &ShardName| {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        (name.clone(), engine)
    };
    let shards = names.iter().map(engine).collect();
    let everywhere = |_: Collection| names.to_vec();
    routed(world, shards, everywhere, Limits::default()).await
}

/// A router over these shards, each collection cut evenly over those it is told.
pub async fn routed(
    world: Arc<dyn World>,
    shards: BTreeMap<ShardName, Arc<dyn Engine>>,
    shards_of: impl Fn(Collection) -> Vec<ShardName>,
    limits: Limits,
) -> Arc<Router> {
    let layout = layout::embedded();
    let of_collection = |collection: Collection| {
        let key = layout.collection(collection).shard_key.clone();
        let cut = Cut::even_slots(&shards_of(collection));
        let map = CollectionMap::cut_by(&layout.name, key, cut);
        (collection, map)
    };
    let map = Map::first(Collection::ALL.into_iter().map(of_collection).collect());
    let control = Arc::new(MemoryEngine::new());
    MapKeeper::new(control.clone()).publish(&map).await.unwrap();
    Router::open(RouterConfig {
        shards,
        control,
        world,
        writer: Writer::numbered(1),
        limits,
        map_view: MapView::ThisProcess,
    })
    .await
    .unwrap()
}
