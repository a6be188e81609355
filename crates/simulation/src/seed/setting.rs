//! What a seed makes: which servers, which processes, in what weather, and who comes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::time::Duration;

use engine_api::{ControlStore, Engine, FenceKind, Together};
use model::Lifetime;
use router::Limits;
use shop_service::{OrderHistory, Settings};
use tokio::time::Instant;

use super::servers::{Finished, Kinds, Servers};
use super::{Company, HISTORY_STATUSES, Stage};
use crate::chance::Chance;
use crate::clock::SimulatedWorld;
use crate::control::FaultyControl;
use crate::link::{Link, Weather};
use crate::recording::Recording;
use crate::scenery::{GOODS_PIECES, Marks};
use crate::serving::{Moving, Process, Right, Site};
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
/// Seeds in which the shipped movers run; in the others a script does what they would.
const SHIPPED_PERCENT: u64 = 60;
/// How long people think before they ask; longer where moves take their time, so that they meet.
const THINKS_MS_MAX: u64 = 70;
const THINKS_DURING_MOVES_MS_MAX: u64 = 160;
const BY_LEASE_PERCENT: u64 = 30;
/// How old an open order is when a sweeper takes it up.
const SWEEP_AFTER_S: u32 = 1;
/// How far ahead the clocks of impatient sweepers are.
const IMPATIENCE: Duration = Duration::from_millis(850);
/// Among the seeds without shoppers, who know nothing of a history.
const HISTORY_PERCENT: u64 = 60;
/// Among the same: shoppers sell an order with its stock in one commit.
const ORDERS_APART_PERCENT: u64 = 45;
/// Longer than clocks differ here, as it must be.
const ARCHIVE_AFTER_MS: u64 = 650;

impl Stage {
    pub(super) fn set(seed: u64) -> Stage {
        let mut chance = Chance::new(seed).stream("stage");
        let mut chance_of_company = Chance::new(seed).stream("company");
        let by_lease = chance.percent(BY_LEASE_PERCENT);
        let moving = match Chance::new(seed).stream("moving").percent(SHIPPED_PERCENT) {
            true => Moving::Shipped,
            false => Moving::HandMade,
        };
        let weather = match moving {
            Moving::Shipped => Weather::of_seed(&mut chance).milder(),
            Moving::HandMade => Weather::of_seed(&mut chance),
        };
        let started = Instant::now();
        let recording = Recording::new();
        let company = *chance_of_company.pick(&COMPANIES);
        let mut servers = Servers::of_seed(
            Self::kinds(seed, company, by_lease),
            weather,
            &Chance::new(seed),
            &mut chance,
            &recording,
        );
        let link = Link::new(weather, Chance::new(seed).stream("control"));
        let control = Arc::new(FaultyControl::new(link, recording.clone()));
        let watched = servers.shards.values();
        let watched = watched.map(|engine| Arc::clone(engine.server()));
        control.witness.watch(watched.collect());
        let lease_ms = chance_of_company.between(LEASE_MS_LEAST, LEASE_MS_MOST);
        let limits = Limits {
            hold_ms_max: chance.between(200, 2_000),
            held_requests_max: if chance.percent(30) { 2 } else { 100 },
            hold_poll_ms: 20,
            lease_ms,
            lease_renew_ms: lease_ms / 5,
            lease_look_ms: lease_ms / 10,
            notice_look_ms: 20,
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
            shards: servers.engines(),
            control: Arc::clone(&control) as Arc<dyn ControlStore>,
            history: servers.archive.as_ref().map(|archive| {
                let statuses = HISTORY_STATUSES.map(str::to_owned);
                let name = archive.server().shard.clone();
                OrderHistory::new(name, Arc::clone(archive) as Arc<dyn Engine>, &statuses)
                    .expect("these are finished")
            }),
            limits: limits.clone(),
            moving,
            is_calm: AtomicBool::new(true),
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
        let thinks_ms_max = match moving {
            Moving::Shipped => THINKS_DURING_MOVES_MS_MAX,
            Moving::HandMade => THINKS_MS_MAX,
        };
        let shared = Arc::new(Shared {
            processes: processes.clone(),
            recording: recording.clone(),
            marks: Marks::default(),
            thinks_ms_max,
            together: match servers.kinds {
                Kinds::Alike(FenceKind::InStore) => Together::Atomic,
                Kinds::Alike(FenceKind::ByLease) | Kinds::OrdersApart => Together::Unsupported,
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
            interest: match &servers.archive {
                Some(_) => Interest::Orders,
                None => Interest::Everything,
            },
            thinks_ms_max,
        });
        servers.spread(&mut chance);
        Stage {
            chance,
            started,
            recording,
            servers,
            control,
            company,
            moving,
            site,
            limits,
            shared,
            hall,
            origins: BTreeMap::new(),
        }
    }

    /// Drawn apart from everything else, so that a seed without them stays as it was.
    fn kinds(seed: u64, company: Company, by_lease: bool) -> (Kinds, Finished) {
        let draws = |what: &str, percent: u64| {
            company.shoppers == 0 && Chance::new(seed).stream(what).percent(percent)
        };
        let kinds = match (draws("engines", ORDERS_APART_PERCENT), by_lease) {
            (true, _) => Kinds::OrdersApart,
            (false, true) => Kinds::Alike(FenceKind::ByLease),
            (false, false) => Kinds::Alike(FenceKind::InStore),
        };
        let finished = match draws("history", HISTORY_PERCENT) {
            true => Finished::GoToTheArchive,
            false => Finished::StayLive,
        };
        (kinds, finished)
    }
}
