//! Keeps the index at what the shards hold.
//!
//! ```text
//!   start ──▶ positions of all journals ──▶ scan of all owners ──▶ commit
//!                                                                    │
//!     ▲ a position is lost, or products have other owners            ▼
//!     └───────────────── journals, page by page: re-read, put or remove, commit
//! ```
//!
//! The journal says what changed, the owner says to what: an entry is only ever
//! a reason to read the product again. Positions are taken before the first
//! record is read (W24), so that nothing slips between scan and journal, and
//! reading an entry twice changes nothing.

mod journal;
mod rebuild;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use engine_api::{Engine, EngineError, Position, Record, RecordId, RecordKey, Revision, World};
use layout::{Collection, Field, Fields};
use model::{CategoryName, ProductId, ProductName, TextError};
use router::{CollectionMap, Map, Router, ShardName};

use crate::counts::Counts;
use crate::error::{FollowError, IndexError};
use crate::index::{ProductIndex, Put};
use journal::Waiting;

/// The pause between two passes when everything was read.
const POLL_MS: u64 = 200;

/// The longest pause after failed passes; the first is `POLL_MS`, each next twice as long.
const RETRY_MS_MAX: u64 = 30_000;

/// Rebuilds in one pass, before it is given up as unsteady.
const REBUILDS_MAX: u32 = 3;

/// One follower belongs to one index; nobody else changes it.
pub struct Follower {
    sources: Sources,
    /// `None`: the index has to be rebuilt.
    following: Option<Following>,
}

/// What one pass did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    pub rebuilds: u32,
    /// Journal entries read, of all collections.
    pub entries: u64,
    pub reached: Reached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Everything acknowledged before the pass can be found, unless its entry waits.
    End,
    /// There is more to read.
    Behind,
}

/// How far a rebuild is, after each page of its scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    pub shard: &'a ShardName,
    /// Records read from all shards so far, foreign copies and marks included.
    pub scanned: u64,
    /// Products found so far.
    pub products: u64,
}

struct Sources {
    index: Arc<ProductIndex>,
    router: Arc<Router>,
    world: Arc<dyn World>,
    counts: Arc<Counts>,
    progress: Box<dyn Fn(Progress<'_>) + Send + Sync>,
}

struct Following {
    owners: Owners,
    positions: BTreeMap<ShardName, Position>,
    waiting: BTreeMap<RecordKey, Waiting>,
    /// The headers as the index holds them. Name and category stand in the header: a
    /// product whose stock alone has changed is looked at and left.
    headers: HashMap<RecordId, Revision>,
}

/// Which shard serves which products. A freeze, other buckets or another
/// collection's move make a new map, but no reason to rebuild.
#[derive(Clone, PartialEq)]
struct Owners(CollectionMap);

impl Follower {
    pub fn new(index: Arc<ProductIndex>, router: Arc<Router>, world: Arc<dyn World>) -> Follower {
        Follower {
            sources: Sources {
                index,
                router,
                world,
                counts: Arc::default(),
                progress: Box::new(|_| {}),
            },
            following: None,
        }
    }

    /// Tells how far rebuilds are.
    #[must_use]
    pub fn on_progress(
        mut self,
        progress: impl Fn(Progress<'_>) + Send + Sync + 'static,
    ) -> Follower {
        self.sources.progress = Box::new(progress);
        self
    }

    pub fn counts(&self) -> Arc<Counts> {
        self.sources.counts.clone()
    }

    /// Follows until `stop`. Failed passes are logged and tried again.
    ///
    /// Commits block the thread for as long as a segment is made, some
    /// milliseconds: run this on a thread that nobody waits for.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let world = self.sources.world.clone();
        let mut stop = pin!(stop);
        let mut failures = 0u32;
        loop {
            let pass = tokio::select! {
                biased;
                () = &mut stop => return,
                pass = self.catch_up() => pass,
            };
            let pause_ms = match pass {
                Ok(caught) => {
                    failures = 0;
                    match caught.reached {
                        Reached::Behind if caught.entries > 0 => 0,
                        Reached::Behind | Reached::End => POLL_MS,
                    }
                }
                Err(error) => {
                    let factor = 1u64.checked_shl(failures).unwrap_or(u64::MAX);
                    let pause_ms = POLL_MS.saturating_mul(factor).min(RETRY_MS_MAX);
                    failures += 1;
                    tracing::warn!(%error, failures, pause_ms, "search does not follow the shards");
                    pause_ms
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => return,
                () = world.sleep(Duration::from_millis(pause_ms)) => {}
            }
        }
    }

    /// One pass: rebuilds the index if it has to, then reads every journal to
    /// its end. Dropping it half-way or an error loses nothing: the next pass
    /// takes up where this one left.
    pub async fn catch_up(&mut self) -> Result<Caught, FollowError> {
        let caught = self.pass().await;
        if caught.is_err() {
            self.sources.counts.passes_failed.add(1);
        }
        caught
    }

    async fn pass(&mut self) -> Result<Caught, FollowError> {
        let sources = &self.sources;
        let began = sources.world.now();
        let mut caught = Caught {
            rebuilds: 0,
            entries: 0,
            reached: Reached::End,
        };
        loop {
            // Another process may have published a map.
            sources.router.refresh().await?;
            let map = sources.router.map();
            let owners = Owners::of(&map)?;
            if let Some(following) = &self.following
                && following.owners != owners
            {
                tracing::warn!(generation = %map.generation, "products have other owners: rebuilding the search index");
                self.following = None;
            }
            let following = match &mut self.following {
                Some(following) => following,
                None if caught.rebuilds == REBUILDS_MAX => {
                    return Err(FollowError::Unsteady {
                        times: REBUILDS_MAX,
                    });
                }
                None => {
                    caught.rebuilds += 1;
                    match sources.rebuild(owners).await? {
                        Some(following) => self.following.insert(following),
                        None => continue,
                    }
                }
            };
            match sources.follow(following, &mut caught).await {
                Ok(reached) => {
                    caught.reached = reached;
                    if reached == Reached::End {
                        sources.counts.caught_up(began);
                    }
                    return Ok(caught);
                }
                Err(FollowError::Engine {
                    shard,
                    source: EngineError::PositionLost,
                }) => {
                    tracing::warn!(%shard, "the journal no longer reaches back: rebuilding the search index");
                    sources.counts.positions_lost.add(1);
                    self.following = None;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Sources {
    /// A record that no product can be read from is left out, loudly: the
    /// others have to be found all the same.
    fn take_over(&self, key: &RecordKey, image: Option<&Record>) -> Result<Put, IndexError> {
        let live = image.and_then(|image| image.live_at(self.world.now()));
        let searched = ProductId::parse(key.id.as_str())
            .and_then(|id| Ok((id, live.map(name_and_category).transpose()?)));
        match searched {
            Ok((id, Some((name, category)))) => {
                let put = self.index.put(&id, &name, &category)?;
                self.counts.products_put.add(u64::from(put == Put::Changed));
                Ok(put)
            }
            Ok((id, None)) => {
                let put = self.index.remove(&id)?;
                self.counts
                    .products_removed
                    .add(u64::from(put == Put::Changed));
                Ok(put)
            }
            Err(error) => {
                tracing::warn!(%key, %error, "a product cannot be searched for: repair its record");
                self.counts.unreadable.add(1);
                match ProductId::parse(key.id.as_str()) {
                    Ok(id) => self.index.remove(&id),
                    Err(_) => Ok(Put::Unchanged),
                }
            }
        }
    }

    fn engine(&self, shard: &ShardName) -> Result<&Arc<dyn Engine>, FollowError> {
        // The router has those too that came after this follower.
        self.router
            .shard(shard)
            .ok_or_else(|| FollowError::NoShard {
                shard: shard.clone(),
            })
    }
}

impl Owners {
    fn of(map: &Map) -> Result<Owners, FollowError> {
        let products = map.collection(Collection::Products)?;
        Ok(Owners(CollectionMap {
            frozen: Vec::new(),
            buckets: BTreeMap::new(),
            ..products.clone()
        }))
    }

    fn shards(&self) -> BTreeSet<&ShardName> {
        self.0.shards()
    }

    fn own(&self, shard: &ShardName, image: &Record) -> bool {
        self.0.owner(&image.key.shard_key) == shard
    }
}

fn name_and_category(header: &Fields) -> Result<(ProductName, CategoryName), TextError> {
    let text = |field| header.text(field).unwrap_or_default();
    Ok((
        ProductName::parse(text(Field::Name))?,
        CategoryName::parse(text(Field::Category))?,
    ))
}

fn of_shard(shard: &ShardName) -> impl FnOnce(EngineError) -> FollowError + '_ {
    move |source| FollowError::Engine {
        shard: shard.clone(),
        source,
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower")
            .field("index", &self.sources.index)
            .field("counts", &self.sources.counts)
            .finish_non_exhaustive()
    }
}
