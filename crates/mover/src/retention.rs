//! What upkeep has to leave alone while moves are under way (W26, W28). Pure.
//!
//! Both sides keep the marks of removals from the beginning of a move to its end: an image that is late would bring a
//! removed record back. Both keep their journals from where the feeds have read them. Moments are those of the
//! mover's wall clock, so they are taken a margin earlier.

use std::collections::BTreeMap;

use engine_api::Timestamp;
use router::ShardName;

use crate::record::MoveState;

/// What clocks may run apart, and what entries wait to be shown, with room to spare.
const MARGIN_US: i64 = 15 * 60 * 1_000_000;

/// What one shard keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    pub marks_from: Timestamp,
    pub journal_from: Timestamp,
}

impl Kept {
    fn both(self, other: Kept) -> Kept {
        Kept {
            marks_from: self.marks_from.min(other.marks_from),
            journal_from: self.journal_from.min(other.journal_from),
        }
    }
}

/// What each shard that takes part in one of the moves has to keep. Moves that have ended, or not begun, need nothing.
pub fn kept_for<'a>(moves: impl IntoIterator<Item = &'a MoveState>) -> BTreeMap<ShardName, Kept> {
    let mut kept: BTreeMap<ShardName, Kept> = BTreeMap::new();
    for state in moves {
        let Some(began) = state.began_at_unix_us else {
            continue;
        };
        if state.phase.is_over() {
            continue;
        }
        let journal = state.shown.journal_from_unix_us.unwrap_or(began);
        let needed = Kept {
            marks_from: earlier(began),
            journal_from: earlier(journal),
        };
        for shard in state.plan.all_shards() {
            let standing = kept.get(shard).copied().unwrap_or(needed);
            kept.insert(shard.clone(), standing.both(needed));
        }
    }
    kept
}

fn earlier(unix_us: i64) -> Timestamp {
    Timestamp::from_unix_micros(unix_us.saturating_sub(MARGIN_US))
}

#[cfg(test)]
mod tests {
    use layout::{Collection, Scope};

    use super::*;
    use crate::phase::Phase;
    use crate::plan::{Moved, Plan};

    const DAY_US: i64 = 24 * 3_600 * 1_000_000;

    fn shard(name: &str) -> ShardName {
        ShardName::new(name).unwrap()
    }

    fn running(source: &str, target: &str, began: Option<i64>) -> MoveState {
        let mut state = MoveState::first(Plan {
            collection: Collection::Carts,
            moved: Moved::Keys {
                scope: Scope::All,
                source: shard(source),
                target: shard(target),
            },
            freeze_ms_max: 100,
        });
        state.began_at_unix_us = began;
        state
    }

    #[test]
    fn both_sides_keep_what_the_oldest_of_their_moves_needs() {
        let mut older = running("a", "b", Some(10 * DAY_US));
        older.shown.journal_from_unix_us = Some(20 * DAY_US);
        let newer = running("b", "c", Some(12 * DAY_US));
        let mut ended = running("a", "c", Some(DAY_US));
        ended.phase = Phase::Aborted { why: String::new() };
        let planned = running("d", "a", None);
        let kept = kept_for([&older, &newer, &ended, &planned]);
        let at = |unix_us: i64| Timestamp::from_unix_micros(unix_us - MARGIN_US);
        let of = |name: &str| kept.get(&shard(name)).copied();
        assert_eq!(
            of("a"),
            Some(Kept {
                marks_from: at(10 * DAY_US),
                journal_from: at(20 * DAY_US)
            })
        );
        assert_eq!(
            of("b"),
            Some(Kept {
                marks_from: at(10 * DAY_US),
                journal_from: at(12 * DAY_US)
            })
        );
        assert_eq!(of("c").map(|kept| kept.marks_from), Some(at(12 * DAY_US)));
        assert_eq!(of("d"), None);
    }
}
