//! Upkeep of one shard: expired records, old marks and old journal entries go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use anyhow::{Result, ensure};
use engine_api::{Engine, EngineError, Maintenance, Timestamp, World};
use model::Lifetime;
use mover::Kept;
use router::ShardName;
use serde::Deserialize;

use crate::metrics::TaskCounts;

/// Items in one piece. Nothing else is written meanwhile, so it has to be short.
const PIECE_ITEMS_MAX: usize = 500;

/// Marks and entries outlive every request that may still be under way, by far.
const KEPT_S_LEAST: u32 = 900;

const HOUR_S: u32 = 3_600;

/// Nothing is older.
const EARLIEST: Timestamp = Timestamp::from_unix_micros(i64::MIN);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Upkeep {
    /// The pause between two rounds.
    pub every_s: Lifetime,
    /// How long the mark of a removal is kept.
    pub marks_kept_s: Lifetime,
    /// How long a journal entry is kept: who follows and falls behind further, starts anew.
    pub journal_kept_s: Lifetime,
}

impl Default for Upkeep {
    fn default() -> Upkeep {
        let seconds = |seconds| Lifetime::from_seconds(seconds).expect("the default is in range");
        Upkeep {
            every_s: seconds(10),
            marks_kept_s: seconds(24 * HOUR_S),
            journal_kept_s: seconds(HOUR_S),
        }
    }
}

impl Upkeep {
    pub fn check(&self) -> Result<()> {
        let kept = [
            ("marks_kept_s", self.marks_kept_s),
            ("journal_kept_s", self.journal_kept_s),
        ];
        for (name, kept) in kept {
            let seconds = kept.seconds();
            ensure!(
                seconds >= KEPT_S_LEAST,
                "upkeep.{name} is {seconds}: choose at least {KEPT_S_LEAST}, requests under way need them"
            );
        }
        Ok(())
    }
}

/// What moves under way still need of each shard (W26, W28).
#[derive(Debug, Default)]
pub struct Needs(Mutex<Known>);

#[derive(Debug, Default)]
enum Known {
    /// The list of moves was not read yet: everything is kept.
    #[default]
    Nothing,
    Kept(BTreeMap<ShardName, Kept>),
}

impl Needs {
    pub fn learn(&self, kept: BTreeMap<ShardName, Kept>) {
        *self.lock() = Known::Kept(kept);
    }

    fn of(&self, shard: &ShardName) -> Option<Kept> {
        match &*self.lock() {
            Known::Nothing => Some(Kept {
                marks_from: EARLIEST,
                journal_from: EARLIEST,
            }),
            Known::Kept(kept) => kept.get(shard).copied(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        let known = self.0.lock();
        known.expect("no code panics while it holds the lock")
    }
}

/// Piece after piece until nothing is left to do. Between two pieces the shard has
/// as long for requests as the piece took.
pub async fn round(
    (shard, engine): (&ShardName, &dyn Engine),
    world: &dyn World,
    upkeep: &Upkeep,
    needs: &Needs,
    counts: &TaskCounts,
) -> Result<(), EngineError> {
    loop {
        let now = world.now();
        let began = world.elapsed();
        let done = engine.maintain(work(upkeep, needs.of(shard), now)).await?;
        let add = |counter: &AtomicU64, count: usize| {
            counter.fetch_add(count as u64, Ordering::Relaxed);
        };
        add(&counts.expired_collected, done.expired);
        add(&counts.marks_forgotten, done.marks);
        add(&counts.journal_trimmed, done.journal_entries);
        if !done.reached(PIECE_ITEMS_MAX) {
            return Ok(());
        }
        world.sleep(world.elapsed().saturating_sub(began)).await;
    }
}

fn work(upkeep: &Upkeep, kept: Option<Kept>, now: Timestamp) -> Maintenance {
    let (marks, journal) = (
        before(now, upkeep.marks_kept_s),
        before(now, upkeep.journal_kept_s),
    );
    Maintenance {
        now,
        marks_before: kept.map_or(marks, |kept| marks.min(kept.marks_from)),
        journal_before: kept.map_or(journal, |kept| journal.min(kept.journal_from)),
        items_max: PIECE_ITEMS_MAX,
    }
}

fn before(now: Timestamp, kept: Lifetime) -> Timestamp {
    now.checked_add_seconds(-i64::from(kept.seconds()))
        .unwrap_or(EARLIEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W26: a move of two days needs marks of two days.
    #[test]
    fn what_a_move_needs_is_kept_and_before_moves_are_known_everything() {
        let hours = |hours: i64| Timestamp::from_unix_micros(hours * 3_600_000_000);
        let (upkeep, now) = (Upkeep::default(), hours(1_000));
        let shard = |name| ShardName::new(name).unwrap();
        let needs = Needs::default();
        let asked = |name| {
            let work = work(&upkeep, needs.of(&shard(name)), now);
            (work.marks_before, work.journal_before)
        };
        assert_eq!(asked("a"), (EARLIEST, EARLIEST));
        needs.learn(BTreeMap::from([(
            shard("a"),
            Kept {
                marks_from: hours(950),
                journal_from: hours(999),
            },
        )]));
        assert_eq!(asked("a"), (hours(950), hours(999)));
        assert_eq!(
            asked("b"),
            (hours(976), hours(999)),
            "no move takes part in it"
        );
        needs.learn(BTreeMap::new());
        assert_eq!(asked("a"), (hours(976), hours(999)));
    }

    #[test]
    fn the_defaults_hold_and_what_forgets_too_early_is_refused() {
        Upkeep::default().check().unwrap();
        let hasty = Upkeep {
            journal_kept_s: Lifetime::from_seconds(KEPT_S_LEAST - 1).unwrap(),
            ..Upkeep::default()
        };
        let refusal = hasty.check().unwrap_err().to_string();
        assert!(refusal.contains("journal_kept_s is 899"), "{refusal}");
    }
}
