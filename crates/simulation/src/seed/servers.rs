//! The servers of a seed: all alike, or two kinds of engines, as where orders live on one
//! that is fenced by lease only and stock on one that fences in the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine_api::{Engine, FenceKind};
use layout::Collection;
use router::ShardName;

use crate::chance::Chance;
use crate::engine::FaultyEngine;
use crate::link::{Link, Weather};
use crate::recording::Recording;
use crate::scenery::ARCHIVE;

const THREE_SHARDS_PERCENT: u64 = 40;
const ONE_SERVES_PERCENT: u64 = 60;
/// Orders move between these, where they have an engine of their own.
const ORDERS_SHARDS: [&str; 2] = ["orders-a", "orders-b"];

/// Which kinds of engines there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kinds {
    Alike(FenceKind),
    /// Orders by lease, everything else in the store: no commit holds both.
    OrdersApart,
}

/// Where finished orders go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finished {
    StayLive,
    GoToTheArchive,
}

pub(super) struct Servers {
    pub kinds: Kinds,
    pub shards: BTreeMap<ShardName, Arc<FaultyEngine>>,
    /// Keeps finished orders, in seeds that have it.
    pub archive: Option<Arc<FaultyEngine>>,
    /// Those of each kind, and how many of them serve under the first map.
    orders: Home,
    others: Home,
}

#[derive(Clone)]
struct Home {
    shards: Vec<ShardName>,
    serving: usize,
}

impl Servers {
    pub(super) fn of_seed(
        (kinds, finished): (Kinds, Finished),
        weather: Weather,
        seed: &Chance,
        chance: &mut Chance,
        recording: &Recording,
    ) -> Servers {
        let engine = |name: &str, fence_kind: FenceKind| {
            let link = Link::new(weather, seed.stream(name));
            let name = ShardName::new(name).expect("the scenery's names are in order");
            let engine = FaultyEngine::new(name.clone(), fence_kind, link, recording.clone());
            (name, Arc::new(engine))
        };
        let fence_kind = match kinds {
            Kinds::Alike(fence_kind) => fence_kind,
            Kinds::OrdersApart => FenceKind::InStore,
        };
        let three = chance.percent(THREE_SHARDS_PERCENT);
        let names = ["a", "b", "c"].into_iter().take(if three { 3 } else { 2 });
        let mut shards: BTreeMap<_, _> = names.map(|name| engine(name, fence_kind)).collect();
        let others = Home {
            shards: shards.keys().cloned().collect(),
            serving: 1,
        };
        let orders = match kinds {
            Kinds::Alike(_) => others.clone(),
            Kinds::OrdersApart => {
                let own = ORDERS_SHARDS.map(|name| engine(name, FenceKind::ByLease));
                let names = own.iter().map(|(name, _)| name.clone()).collect();
                shards.extend(own);
                Home {
                    shards: names,
                    serving: 1,
                }
            }
        };
        let archive = match finished {
            Finished::StayLive => None,
            Finished::GoToTheArchive => Some(engine(ARCHIVE, FenceKind::ByLease).1),
        };
        Servers {
            kinds,
            shards,
            archive,
            orders,
            others,
        }
    }

    /// Perhaps two serve from the beginning. By lease nothing moves back: all begin at
    /// one, so that there is somewhere to go.
    pub(super) fn spread(&mut self, chance: &mut Chance) {
        if self.kinds == Kinds::Alike(FenceKind::ByLease) || chance.percent(ONE_SERVES_PERCENT) {
            return;
        }
        self.others.serving = 2;
        if let Kinds::Alike(_) = self.kinds {
            self.orders.serving = 2;
        }
    }

    /// The shards that hold the collection under the first map.
    pub(super) fn serving(&self, collection: Collection) -> &[ShardName] {
        let home = self.home(collection);
        &home.shards[..home.serving]
    }

    /// The shards that it may move to.
    pub(super) fn shards_for(
        &self,
        collection: Collection,
    ) -> BTreeMap<ShardName, Arc<FaultyEngine>> {
        let names = self.home(collection).shards.iter();
        names
            .map(|name| (name.clone(), Arc::clone(&self.shards[name])))
            .collect()
    }

    pub(super) fn engines(&self) -> BTreeMap<ShardName, Arc<dyn Engine>> {
        let shards = self.shards.iter().map(|(name, engine)| {
            let engine: Arc<dyn Engine> = engine.clone();
            (name.clone(), engine)
        });
        shards.collect()
    }

    /// All shards, and the archive if there is one.
    pub(super) fn all(&self) -> impl Iterator<Item = (&ShardName, &Arc<FaultyEngine>)> {
        let archive = self.archive.iter();
        let archive = archive.map(|archive| (&archive.server().shard, archive));
        self.shards.iter().chain(archive)
    }

    fn home(&self, collection: Collection) -> &Home {
        match collection {
            Collection::Orders => &self.orders,
            Collection::Carts | Collection::Products | Collection::Sessions => &self.others,
        }
    }
}
