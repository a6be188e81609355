//! What happens in the shop, counted, so that a reader sees that it does.

use std::collections::BTreeMap;

use engine_api::{Change, Outcome, Record, StockAction};
use layout::Collection;
use model::OrderStatus;
use mover::Phase;
use shop_service::{Made, MergeEnd, ShopError};

use crate::ledger::{Deed, Told, Wish};
use crate::recording::{Applied, History};
use crate::scenery::GOODS;

/// Every kind of event that is counted, in the order in which they are told.
pub const EVENTS: [&str; 51] = [
    "sessions opened",
    "sessions touched",
    "sessions closed",
    "carts opened",
    "carts found",
    "carts closed",
    "items put",
    "items removed",
    "items refused by a closed cart",
    "merges",
    "merges repeated",
    "merges of nothing",
    "orders placed",
    "orders repeated",
    "orders sold out",
    "orders at a price that moved",
    "orders of a closed cart",
    "orders given up",
    "keys reused",
    "lists of orders",
    "commits of an order with its stock",
    "reservations",
    "reservations sold",
    "reservations given back",
    "orders cancelled",
    "status changes",
    "status changes refused",
    "prices changed",
    "deliveries",
    "sweeps",
    "orders finished by a sweeper",
    "orders aborted by a sweeper",
    "processes that stood still",
    "leases that ran out meanwhile",
    "orders archived",
    "archived orders brought back",
    "feeds taken over",
    "orders read",
    "worlds with orders and stock on two engines",
    "worlds with the shipped mover",
    "moves begun",
    "moves completed",
    "moves rolled back",
    "moves aborted",
    "cutovers given up",
    "moves taken over",
    "movers killed",
    "movers that stood still",
    "moves let go",
    "wishes refused",
    "moves refused",
];

/// What happened, and how often. Answers that never came are not in it.
pub(super) fn events(history: &History) -> Vec<(&'static str, u64)> {
    let told = history.deeds.iter().filter_map(told);
    let applied = history.applied.iter().flat_map(applied);
    let sweeps = &history.sweeps;
    let moves = moves(history);
    told.chain(applied)
        .chain(moves)
        .map(|event| (event, 1))
        .chain([
            ("sweeps", sweeps.passes),
            ("orders finished by a sweeper", sweeps.finished),
            ("orders aborted by a sweeper", sweeps.aborted),
            ("processes that stood still", history.pauses),
            ("leases that ran out meanwhile", history.leases_run_out),
            ("feeds taken over", taken_over(history)),
            (
                "worlds with orders and stock on two engines",
                u64::from(has_two_engines(history)),
            ),
            (
                "worlds with the shipped mover",
                u64::from(!history.records.is_empty()),
            ),
            ("movers killed", history.moving.killed),
            ("movers that stood still", history.moving.stood_still),
            ("wishes refused", history.moving.wishes_refused),
            ("moves refused", history.moving.starts_refused),
            ("records forgotten", history.moving.forgotten),
        ])
        .collect()
}

/// Cutovers of shipped movers, there and back: each has its certificate.
pub(super) fn cutovers(history: &History) -> u64 {
    history.certificates.len() as u64
}

/// What records say that those before them did not.
fn moves(history: &History) -> Vec<&'static str> {
    let (mut events, mut standing) = (Vec::new(), BTreeMap::new());
    for recorded in &history.records {
        let to = &recorded.record;
        let Some(from) = standing.insert(&recorded.name, to) else {
            events.push("moves begun");
            continue;
        };
        if from.state.phase != to.state.phase {
            events.extend(match (&from.state.phase, &to.state.phase) {
                // Whether its source is cleaned up after a grace or keeps its copy.
                (Phase::Settling { .. }, Phase::Resting { .. } | Phase::Completed { .. }) => {
                    Some("moves completed")
                }
                (_, Phase::Cleaned { .. }) => Some("moves cleaned up"),
                (_, Phase::RolledBack { .. }) => Some("moves rolled back"),
                (_, Phase::Aborted { .. }) => Some("moves aborted"),
                _ => None,
            });
        }
        if from.state.given_up != to.state.given_up {
            events.push("cutovers given up");
        }
        if from.term > 0 && from.term < to.term {
            events.push("moves taken over");
        }
        if from.holder.is_some() && to.holder.is_none() {
            events.push("moves let go");
        }
    }
    events
}

fn has_two_engines(history: &History) -> bool {
    let Some(first) = history.maps.first() else {
        return false;
    };
    let by_lease = |collection: Collection| {
        let cut = first.map.collection(collection);
        cut.is_ok_and(|cut| {
            let mut shards = cut.shards().into_iter();
            shards.any(|shard| history.by_lease.contains(shard))
        })
    };
    by_lease(Collection::Orders) && !by_lease(Collection::Products)
}

fn taken_over(history: &History) -> u64 {
    let feeds = history.terms.iter().map(|claimed| &claimed.term);
    let later = feeds.filter(|term| term.move_name.starts_with("feed-") && term.term > 1);
    later.count() as u64
}

/// What became of an order's record when it moved between the live ones and the archive.
fn moved(change: &Change, before: Option<&Record>) -> Option<&'static str> {
    if change.key().collection != Collection::Orders {
        return None;
    }
    match change {
        Change::Remove { .. } => Some("orders archived"),
        Change::CreateIfAbsent { .. } if before.is_some() => Some("archived orders brought back"),
        _ => None,
    }
}

fn told(deed: &Deed) -> Option<&'static str> {
    match (&deed.wish, &deed.told) {
        (_, Told::Nothing | Told::Unknown { .. }) => None,
        (wish, Told::Refused { why }) => refused(wish, why),
        (Wish::OpenSession, _) => Some("sessions opened"),
        (Wish::TouchSession { .. }, _) => Some("sessions touched"),
        (Wish::CloseSession { .. }, _) => Some("sessions closed"),
        (Wish::OpenCart { .. }, Told::Cart { made, .. }) => match made {
            Some(Made::Now) => Some("carts opened"),
            _ => Some("carts found"),
        },
        (Wish::CloseCart { .. }, _) => Some("carts closed"),
        (Wish::PutItem { .. }, _) => Some("items put"),
        (Wish::RemoveItem { .. }, _) => Some("items removed"),
        (Wish::SignIn { .. }, Told::Merged { end }) => match end {
            MergeEnd::Merged => Some("merges"),
            MergeEnd::AlreadyMerged => Some("merges repeated"),
            MergeEnd::NothingToMerge => Some("merges of nothing"),
            MergeEnd::Refused { .. } => None,
        },
        (Wish::PlaceOrder(_), Told::Order { made, .. }) => match made {
            Some(Made::Now) => Some("orders placed"),
            _ => Some("orders repeated"),
        },
        (Wish::ReadOrder { .. }, _) => Some("orders read"),
        (Wish::ListOrders { .. }, _) => Some("lists of orders"),
        (Wish::ChangeStatus { status, .. }, _) => match status {
            OrderStatus::Cancelled => Some("orders cancelled"),
            _ => Some("status changes"),
        },
        (Wish::SetPrice { .. }, _) => Some("prices changed"),
        (Wish::Receive { .. }, _) => Some("deliveries"),
        _ => None,
    }
}

fn refused(wish: &Wish, why: &ShopError) -> Option<&'static str> {
    match (wish, why) {
        (Wish::PutItem { .. }, ShopError::CartClosed { .. }) => {
            Some("items refused by a closed cart")
        }
        (Wish::PlaceOrder(_), ShopError::SoldOut { .. }) => Some("orders sold out"),
        (Wish::PlaceOrder(_), ShopError::PriceMoved { .. }) => Some("orders at a price that moved"),
        (Wish::PlaceOrder(_), ShopError::CartClosed { .. }) => Some("orders of a closed cart"),
        (Wish::PlaceOrder(_), ShopError::OrderAborted { .. }) => Some("orders given up"),
        (Wish::PlaceOrder(_), ShopError::KeyReused) => Some("keys reused"),
        (Wish::ChangeStatus { .. }, ShopError::IllegalStatus(_)) => Some("status changes refused"),
        _ => None,
    }
}

/// What servers did for the shop, by the changes that changed something.
fn applied(applied: &Applied) -> Vec<&'static str> {
    if !matches!(applied.answer, Ok(Outcome::Done { .. })) {
        return Vec::new();
    }
    let changed = applied.changes.iter().zip(&applied.images);
    let changed = changed.filter(|(_, (before, after))| before != after);
    let moved = changed
        .clone()
        .filter_map(|(change, (before, _))| moved(change, before.as_ref()));
    let moved: Vec<&'static str> = moved.collect();
    let goods = changed.filter(|(change, _)| {
        let key = change.key();
        key.collection == Collection::Products && GOODS.contains(&key.id.as_str())
    });
    let mut events: Vec<&'static str> = goods
        .filter_map(|(change, _)| {
            let Change::Stock { action, .. } = change else {
                return None;
            };
            match action {
                StockAction::Sell { .. } => Some("commits of an order with its stock"),
                StockAction::Take { .. } => Some("reservations"),
                StockAction::Claim { .. } => Some("reservations sold"),
                StockAction::Give { .. } => Some("reservations given back"),
                _ => None,
            }
        })
        .collect();
    // One commit, however many lines.
    events.dedup();
    events.extend(moved);
    events
}
