//! Connections: accepting them, and letting them end in peace.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout_at};
use tower_service::Service as _;

use crate::app::App;
use crate::figures::SAMPLE_EVERY;
use crate::limits::HttpLimits;
use crate::observe::Peer;

/// How long to wait when the system has no more sockets to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How the last requests ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still at work when their time was over.
    pub cut_off: usize,
}

/// Serves until `shutdown` is ready, then drains: readiness says no, nothing new is
/// accepted, requests under way are answered, within the limits' time.
pub async fn serve(
    listener: TcpListener,
    app: App,
    shutdown: impl Future<Output = ()> + Send,
) -> Drained {
    let connections = Connections::new(&app);
    let mut tasks = JoinSet::new();
    let (stop, stopped) = watch::channel(());
    {
        let accepting = async {
            tokio::join!(
                connections.accept(&listener, &mut tasks, &stopped),
                sample_figures(&app),
                app.admission.watch(&app.world),
            );
        };
        let ending = async {
            shutdown.await;
            app.start_draining();
            sleep(Duration::from_millis(app.limits.drain_notice_ms)).await;
        };
        tokio::select! {
            () = accepting => {}
            () = ending => {}
        }
    }
    drop(listener);
    let deadline = Instant::now() + Duration::from_millis(app.limits.drain_ms_max);
    drop(stop);
    while let Ok(Some(_)) = timeout_at(deadline, tasks.join_next()).await {}
    let cut_off = tasks.len();
    tasks.shutdown().await;
    Drained { cut_off }
}

struct Connections {
    router: Router,
    http: http1::Builder,
    free: Arc<Semaphore>,
    knows_peers: bool,
}

impl Connections {
    fn new(app: &App) -> Connections {
        let limits = &app.limits;
        Connections {
            router: crate::router(app.clone()),
            http: http_of(limits),
            free: Arc::new(Semaphore::new(limits.connections_max)),
            knows_peers: app.clients.is_some(),
        }
    }

    async fn accept(
        &self,
        listener: &TcpListener,
        tasks: &mut JoinSet<()>,
        stopped: &watch::Receiver<()>,
    ) {
        loop {
            while tasks.try_join_next().is_some() {}
            let Ok(place) = self.free.clone().acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let connection = self.serve_one(stream, peer, stopped.clone());
                    tasks.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "no connection can be accepted for now");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Errors of one connection are its client's affair: it went away, or spoke no HTTP.
    fn serve_one(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        mut stopped: watch::Receiver<()>,
    ) -> impl Future<Output = ()> + Send + 'static {
        // An answer is one small packet: it must not wait for an acknowledgement.
        let _ = stream.set_nodelay(true);
        let service = Caller {
            router: self.router.clone(),
            peer: self.knows_peers.then_some(peer.ip()),
        };
        let connection = self.http.serve_connection(TokioIo::new(stream), service);
        async move {
            tokio::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => return,
                _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        }
    }
}

fn http_of(limits: &HttpLimits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(limits.head_read_ms_max))
        .max_buf_size(limits.head_bytes_max)
        .max_headers(limits.headers_max);
    http
}

/// One connection's way into the routes.
struct Caller {
    router: Router,
    peer: Option<IpAddr>,
}

impl hyper::service::Service<Request<Incoming>> for Caller {
    type Response = axum::response::Response;
    type Error = std::convert::Infallible;
    type Future = axum::routing::future::RouteFuture<std::convert::Infallible>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(Peer(peer));
        }
        // Most requests have no body, and a body that is none needs no allocation.
        let request = request.map(|body| match body.is_end_stream() {
            true => Body::empty(),
            false => Body::new(body),
        });
        self.router.clone().call(request)
    }
}

async fn sample_figures(app: &App) {
    let mut ticks = interval(SAMPLE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let elapsed = app.world.elapsed();
        app.figures.sample(elapsed, app.meters.totals());
    }
}

fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
