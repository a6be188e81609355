//! Who sees everything at the moment a map is published: whether the shard that is entered holds what the
//! one that is left does, without asking anybody.

use std::sync::{Arc, OnceLock};

use engine_api::{Engine, FenceKind, Merged, Record, Scan};
use layout::{Collection, Scope};
use router::{Map, ShardName};

use crate::engine::Server;
use crate::recording::Recording;

#[derive(Clone, Debug)]
pub struct Witness {
    recording: Recording,
    servers: Arc<OnceLock<Vec<Arc<Server>>>>,
}

impl Witness {
    pub fn new(recording: Recording) -> Witness {
        Witness {
            recording,
            servers: Arc::default(),
        }
    }

    /// From here on it sees these.
    pub fn watch(&self, servers: Vec<Arc<Server>>) {
        let watched = self.servers.set(servers);
        watched.expect("a seed has its servers once");
    }

    /// Behind a fence in the store both hold the same at a cutover. By lease, stragglers that nobody was
    /// told of may stay behind.
    pub async fn sees(&self, before: &Map, next: &Map) {
        for collection in Collection::ALL {
            let cut = |map: &Map| {
                let collection = map.collection(collection).ok()?;
                Some((collection.cut.clone(), collection.pinned.clone()))
            };
            if cut(before) == cut(next) {
                continue;
            }
            for server in self.servers.get().into_iter().flatten() {
                if server.fence_kind() == FenceKind::InStore {
                    self.sees_left(server, collection, (before, next)).await;
                }
            }
        }
    }

    async fn sees_left(&self, left: &Server, collection: Collection, maps: (&Map, &Map)) {
        let (before, next) = maps;
        for image in all(left, collection).await {
            let (from, to) = (before.owner(&image.key), next.owner(&image.key));
            let (Ok(from), Ok(to)) = (from, to) else {
                continue;
            };
            if *from != left.shard || from == to {
                continue;
            }
            if let Some(wrong) = self.differs(&image, to).await {
                let key = &image.key;
                self.recording
                    .breach(format!("{key} {wrong} at {to} at the cutover"));
            }
        }
    }

    async fn differs(&self, image: &Record, to: &ShardName) -> Option<&'static str> {
        let servers = self.servers.get()?;
        let entered = servers.iter().find(|server| server.shard == *to)?;
        let Some(copy) = entered.peek(&image.key).await else {
            return Some("is missing");
        };
        if copy.clone().merge(image) == Merged::Changed {
            return Some("is older");
        }
        (image.clone().merge(&copy) == Merged::Changed).then_some("is newer")
    }
}

async fn all(server: &Server, collection: Collection) -> Vec<Record> {
    let scan = Scan {
        collection,
        scope: Scope::All,
        after: None,
        until: None,
        limit: engine_api::PAGE_RECORDS_MAX,
    };
    let page = server.memory.scan(&scan).await;
    page.expect("the memory engine answers every scan").images
}
