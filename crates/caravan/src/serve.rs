//! `caravan serve`: the whole shop in one process.
//!
//! ```text
//!   signals ──▶ stop ──────────────┬──────────────┬───────────────┐
//!                                  ▼              ▼               ▼
//!   listener ─▶ http-api ─▶ shop ─▶ router ─▶ engines ◀── sweeper, upkeep, history, moves
//!   ops ─▶ desk ─▶ control store ─────────────────────────────────────────────────────▲
//!                   └────▶ search index ◀── follower ◀── journals
//! ```
//!
//! The address is taken first, so that a taken port fails before the data is
//! touched, and the data is closed last, when nobody can ask for it any more.

pub mod signals;

mod tasks;

mod late;

mod moves;

mod upkeep;

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use engine_api::{RealWorld, World};
use feed::Feed;
use http_api::{App, AppConfig, BuildInfo, Registry, SearchRefusal};
use model::ProductId;
use router::ShardName;
use search::{Follower, ProductIndex, SearchError};
use shop_service::{Shop, archive_feed};
use tokio::net::TcpListener;

use crate::config::Config;
use crate::logging;
use crate::metrics::{Figures, MoveFigures, TaskCounts};
use crate::ops::{Listening, OwnDesk};
use crate::sample::{Presence, Sample};
use crate::secrets;
use crate::shards::{LateShards, Shards};
use late::Late;
use moves::ShopRequests;
use signals::Stop;
use tasks::Tasks;

pub use moves::{MoveSettings, Moves, Runner};
pub use upkeep::{Needs, Upkeep};

/// What to do with the records of the directory before the shop opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    Sample,
    AsItIs,
}

pub fn run(config: &Config, filling: Filling, out: &mut dyn Write) -> Result<()> {
    logging::start(&config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the program cannot start its threads: check the limits of this user")?;
    let open = runtime.block_on(open_shop(config, filling, out))?;
    // Tasks that were cut off may hold the engines until their threads are gone.
    drop(runtime);
    drop(open);
    tracing::info!("closed");
    Ok(())
}

/// Until a signal; then drains and hands the data back to be closed.
async fn open_shop(
    config: &Config,
    filling: Filling,
    out: &mut dyn Write,
) -> Result<Option<Shards>> {
    let mut stop = signals::listen()?;
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        anyhow!(
            "{} cannot be served at ({error}): end who uses it, or choose another with --listen",
            config.listen
        )
    })?;
    let ops = Listening::start(&config.ops, &RealWorld::new()).await?;
    let mut shards = Shards::open(config).await?;
    let filled = tokio::select! {
        filled = fill(config, &shards, filling) => Some(filled),
        () = stop.asked() => None,
    };
    let served = match filled {
        Some(Ok(presence)) => serve(config, (listener, ops), &shards, presence, stop, out).await,
        Some(Err(error)) => Err(error),
        None => Ok(()),
    };
    shards.leave().await;
    served.map(|()| Some(shards))
}

/// A filling that was begun is completed, asked for or not: half a sample is no shop.
async fn fill(config: &Config, shards: &Shards, filling: Filling) -> Result<Presence> {
    let sample = Sample::generate()?;
    let presence = sample.presence(shards).await?;
    match (filling, presence) {
        (Filling::AsItIs, Presence::Absent | Presence::Found) => Ok(presence),
        (Filling::AsItIs, Presence::Begun | Presence::Written) | (Filling::Sample, _) => {
            sample.fill(shards, &config.shop).await
        }
    }
}

async fn serve(
    config: &Config,
    (listener, ops): (TcpListener, Listening),
    shards: &Shards,
    presence: Presence,
    stop: Stop,
    out: &mut dyn Write,
) -> Result<()> {
    let world: Arc<dyn World> = Arc::new(RealWorld::new());
    let shop = Arc::new(shards.shop(world.clone(), config.shop.clone()));
    let feeds = feeds(&shop, shards)?;
    let index = Arc::new(ProductIndex::new()?);
    let follower = Follower::new(index.clone(), shards.router.clone(), world.clone());
    let counts = Arc::new(TaskCounts::default());
    let move_figures = Arc::new(MoveFigures::default());
    let app = App::new(AppConfig {
        shop: shop.clone(),
        search: Some(Arc::new(Names(index.clone()))),
        world: world.clone(),
        limits: config.http.clone(),
        build: BuildInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("CARAVAN_BUILD_COMMIT").map(str::to_owned),
        },
        troubles: shards.late.clone().map(|late| Arc::new(late) as _),
        docs_link: None,
        registry: registry(Figures {
            shards: shards.engines.clone(),
            tasks: counts.clone(),
            search: follower.counts(),
            index,
            history: feeds
                .iter()
                .map(|(shard, feed)| (shard.clone(), feed.counts()))
                .collect(),
            moves: move_figures.clone(),
            world: world.clone(),
        }),
    })?;
    let address = listener
        .local_addr()
        .context("the system does not say what address it gave")?;
    let mut tasks = Tasks::start(follower)?;
    tasks.spawn(tasks::sweep(shop.clone(), counts.clone()));
    for (_, feed) in feeds {
        tasks.feed(feed);
    }
    let needs = Arc::new(Needs::default());
    let pressure = Arc::new(ShopRequests(app.clone()));
    tasks.moves(Moves::new(
        config,
        shards,
        world.clone(),
        move_figures,
        needs.clone(),
        Some(pressure),
    )?);
    // A layout's own commands work on its servers; a directory's have to find this process.
    let directory = shards.directory.as_deref();
    let _told = directory.map(|directory| ops.tell(directory)).transpose()?;
    tasks.operators(ops, OwnDesk::of_shards(shards, config, world.clone()));
    if let Some(late) = &shards.late {
        tasks.late(Late {
            shards: late.clone(),
            shop: shop.clone(),
            control: shards.control.clone(),
            world: world.clone(),
        });
    }
    let (engines, upkeep) = (shards.engines.clone(), config.upkeep.clone());
    tasks.spawn(tasks::maintain(engines, world, upkeep, needs, counts));
    let note = match presence {
        Presence::Written => ", sample: written now",
        Presence::Found => ", sample: there",
        Presence::Begun | Presence::Absent => "",
    };
    writeln!(
        out,
        "caravan is open at http://{address} (data: {}, shards: {}{note})",
        config.data.display(),
        shards.engines.all().len(),
    )?;
    out.flush()?;
    let mut asked = stop.clone();
    let drained = http_api::serve(listener, app, async move { asked.asked().await }).await;
    if drained.cut_off > 0 {
        tracing::warn!(
            connections = drained.cut_off,
            "requests were cut off when their time was over"
        );
    }
    tasks.end().await
}

/// One for each shard that may keep live orders, if finished ones are kept apart.
fn feeds(shop: &Shop, shards: &Shards) -> Result<Vec<(ShardName, Feed)>> {
    let mut feeds = Vec::new();
    for (name, history) in shards.history_sources() {
        let source = shards.engines.all()[name].clone();
        let control = shards.control.clone();
        let limits = feed::Limits::default();
        let feed = archive_feed(shop, history, name, source, control, limits)?;
        feeds.push((name.clone(), feed));
    }
    Ok(feeds)
}

fn registry(figures: Figures) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(figures));
    registry
}

impl http_api::Troubles for LateShards {
    fn troubles(&self) -> Vec<String> {
        let troubles = LateShards::troubles(self).into_iter();
        troubles.map(|trouble| secrets::masked(&trouble)).collect()
    }
}

/// The names of products, as the interface asks for them.
#[derive(Debug)]
struct Names(Arc<ProductIndex>);

impl http_api::Search for Names {
    fn search(&self, text: &str, limit: usize) -> Result<Vec<ProductId>, SearchRefusal> {
        self.0.search(text, limit).map_err(|error| match error {
            SearchError::NoWord | SearchError::TooLong | SearchError::TooManyWords { .. } => {
                SearchRefusal::Text(error.to_string())
            }
            SearchError::NotReady | SearchError::Index(_) => {
                SearchRefusal::Unavailable(error.to_string())
            }
        })
    }
}
