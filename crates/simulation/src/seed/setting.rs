//! What a seed makes: which servers, which processes, in what weather, and who comes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::time::Duration;

use engine_api::{ControlStore, Engine, FenceKind, Together};
use model::Lifetime;
use router::{Limits, ShardName};
use shop_service::{OrderHistory, Settings};
use tokio::time::Instant;

use super::{Company, HISTORY_STATUSES, Stage};
use crate::chance::Chance;
use crate::clock::SimulatedWorld;
use crate::control::FaultyControl;
use crate::engine::FaultyEngine;
use crate::link::{Link, Weather};
use crate::recording::Recording;
use crate::scenery::{GOODS_PIECES, Marks};
use crate::serving::{Process, Right, Site};
use crate::shopper::Shared;
use crate::visitor::{Hall, Interest};

/// Who comes: those who use the router alone, those who use the shop, or both.
const COMPANIES: [Company; 3] = [
    Company {
        shoppers: 6,
        visitors: 0,
    },
    Company {
        shoppers: 0,
        visitors: 4,
    },
    Company {
        shoppers: 3,
        visitors: 3,
    },
];
/// Seeds whose processes have leases; in the others they ask the control store.
const LEASES_PERCENT: u64 = 75;
/// Short, so that much happens around their ends.
const LEASE_MS_LEAST: u64 = 150;
const LEASE_MS_MOST: u64 = 600;
/// A judge's margin: above what clocks of the simulated world run apart.
const LEASE_MARGIN_PERCENT: u32 = 25;
/// Longer than any change is under way.
const WRITER_REST_MS: u64 = 4_000;
const BY_LEASE_PERCENT: u64 = 30;
/// How old an open order is when a sweeper takes it up.
const SWEEP_AFTER_S: u32 = 1;
/// How far ahead the clocks of impatient sweepers are.
const IMPATIENCE: Duration = Duration::from_millis(850);
/// Among the seeds without shoppers, who know nothing of a history.
const HISTORY_PERCENT: u64 = 60;
/// Longer than clocks differ here, as it must be.
const ARCHIVE_AFTER_MS: u64 = 650;

impl Stage {
    pub(super) fn set(seed: u64) -> Stage {
        let mut chance = Chance::new(seed).stream("stage");
        let mut chance_of_company = Chance::new(seed).stream("company");
        let by_lease = chance.percent(BY_LEASE_PERCENT);
        let fence_kind = if by_lease {
            FenceKind::ByLease
        } else {
            FenceKind::InStore
        };
        let weather = Weather::of_seed(&mut chance);
        let started = Instant::now();
        let recording = Recording::new(fence_kind);
        let link = |name: &str| Link::new(weather, Chance::new(seed).stream(name));
        let names: Vec<ShardName> = ["a", "b", "c"]
            .into_iter()
            .take(if chance.percent(40) { 3 } else { 2 })
            .map(|name| ShardName::new(name).expect("a letter is a shard's name"))
            .collect();
        let shards: BTreeMap<ShardName, Arc<FaultyEngine>> = names
            .iter()
            .map(|name| {
                let link = link(name.as_str());
                let engine = FaultyEngine::new(name.clone(), fence_kind, link, recording.clone());
                (name.clone(), Arc::new(engine))
            })
            .collect();
        let control = Arc::new(FaultyControl::new(link("control"), recording.clone()));
        let engines = shards.iter().map(|(name, engine)| {
            let engine: Arc<dyn Engine> = engine.clone();
            (name.clone(), engine)
        });
        let company = *chance_of_company.pick(&COMPANIES);
        let keeps_apart =
            company.shoppers == 0 && Chance::new(seed).stream("history").percent(HISTORY_PERCENT);
        let archive = keeps_apart.then(|| {
            let name = ShardName::new("archive").expect("a word is a shard's name");
            let link = link("archive");
            let engine = FaultyEngine::new(name, fence_kind, link, recording.clone());
            Arc::new(engine)
        });
        let lease_ms = chance_of_company.between(LEASE_MS_LEAST, LEASE_MS_MOST);
        let limits = Limits {
            hold_ms_max: chance.between(200, 2_000),
            held_requests_max: if chance.percent(30) { 2 } else { 100 },
            hold_poll_ms: 20,
            lease_ms,
            lease_renew_ms: lease_ms / 5,
            lease_look_ms: lease_ms / 10,
            lease_margin_percent: LEASE_MARGIN_PERCENT,
            writer_rest_ms: WRITER_REST_MS,
            ..Limits::default()
        };
        let right = if chance_of_company.percent(LEASES_PERCENT) {
            Right::Lease
        } else {
            Right::ControlStore
        };
        let site = Arc::new(Site {
            shards: engines.collect(),
            control: Arc::clone(&control) as Arc<dyn ControlStore>,
            history: archive.as_ref().map(|archive| {
                let statuses = HISTORY_STATUSES.map(str::to_owned);
                let name = archive.server().shard.clone();
                OrderHistory::new(name, Arc::clone(archive) as Arc<dyn Engine>, &statuses)
                    .expect("these are finished")
            }),
            limits: limits.clone(),
            right,
            settings: Settings {
                sweep_after_s: Lifetime::from_seconds(SWEEP_AFTER_S)
                    .expect("a second is a lifetime"),
                archive_after_ms: ARCHIVE_AFTER_MS,
                ..Settings::default()
            },
            sweepers_ahead: if chance_of_company.percent(60) {
                IMPATIENCE
            } else {
                Duration::ZERO
            },
            recording: recording.clone(),
            writers: AtomicU8::new(0),
        });
        let processes = (0..if chance.percent(60) { 2 } else { 3 }).map(|number| {
            let own = Chance::new(seed).stream(&format!("process {number}"));
            let world = Arc::new(SimulatedWorld::skewed(started, own));
            Arc::new(Process::new(number, Arc::clone(&site), world))
        });
        let processes: Vec<Arc<Process>> = processes.collect();
        let shared = Arc::new(Shared {
            processes: processes.clone(),
            recording: recording.clone(),
            marks: Marks::default(),
            together: match fence_kind {
                FenceKind::InStore => Together::Atomic,
                FenceKind::ByLease => Together::Unsupported,
            },
            orders: Mutex::default(),
        });
        let hall = Arc::new(Hall {
            processes,
            recording: recording.clone(),
            guests: Mutex::default(),
            orders: Mutex::default(),
            received_orders: Mutex::default(),
            wishes: Mutex::default(),
            pieces: AtomicU32::new(0),
            keys: AtomicU64::new(0),
            received: AtomicU64::new(GOODS_PIECES),
            interest: match &archive {
                Some(_) => Interest::Orders,
                None => Interest::Everything,
            },
        });
        let serving = if fence_kind == FenceKind::ByLease || chance.percent(60) {
            vec![names[0].clone()]
        } else {
            names[..2].to_vec()
        };
        Stage {
            chance,
            started,
            fence_kind,
            recording,
            shards,
            control,
            archive,
            company,
            limits,
            shared,
            hall,
            serving,
            origins: BTreeMap::new(),
        }
    }
}
