//! Where a move stands, and what leads on from there. Pure.
//!
//! ```text
//!   planned ─▶ backfilling ─▶ catching up ─▶ verifying ◀─▶ ready ─▶ noticed ─▶ frozen ─▶ settling ─▶ completed
//!                                                ▲                     │          │      │   ▲
//!                                                └──── given up ◀──────┴──────────┘      ▼   │ given up
//!   aborted ◀── everything before frozen            rolled back ◀─ frozen ◀─ noticed (the way back)
//!
//!   completed: kept ◀── resting (its grace) ─▶ cleaning ─▶ cleaned
//! ```
//!
//! `Frozen` is written before the freeze is published, and its proof before the cutover
//! is: whoever finds a phase here knows what may be under way in the map.

use engine_api::{Generation, Position};
use serde::{Deserialize, Serialize};

use crate::wish::Wish;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Phase {
    Planned {
        /// Published for everybody to acknowledge before the position is taken (W24).
        barrier: Option<Generation>,
    },
    /// Everything is copied once.
    Backfilling {
        barrier: Generation,
    },
    CatchingUp {
        barrier: Generation,
    },
    /// Both sides are compared; the copy goes on.
    Verifying {
        barrier: Generation,
    },
    /// Nothing differs, and the feed that would lead back has caught up once.
    Ready {
        barrier: Generation,
        /// Taken before the target's first write (W30).
        #[serde(with = "feed::hex")]
        back_from: Position,
    },
    /// Everybody is waited for while traffic flows (W18).
    Noticed {
        way: Way,
        generation: Generation,
    },
    /// From here on the scope may be frozen in the map, and with a proof moved.
    Frozen {
        way: Way,
        noticed: Generation,
        generation: Generation,
        proven: Option<Proven>,
    },
    /// The target serves; the source is kept up to date.
    Settling {
        settled: Settled,
    },
    /// The target keeps the keys; what the source holds of them stays for now.
    Resting {
        settled: Settled,
        /// What is left until it goes.
        grace_ms: u64,
    },
    /// The source forgets what it does not own any more (W47).
    Cleaning {
        settled: Settled,
    },
    /// It has.
    Cleaned {
        settled: Settled,
    },
    /// The target keeps the keys, and what the source holds of them stays there.
    Completed {
        settled: Settled,
    },
    Aborted {
        why: String,
    },
    RolledBack {
        settled: Settled,
        generation: Generation,
    },
}

/// In which direction a cutover goes, with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Way {
    Forward {
        barrier: Generation,
        #[serde(with = "feed::hex")]
        back_from: Position,
    },
    Back {
        settled: Settled,
    },
}

/// The cutover that the target serves by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settled {
    pub barrier: Generation,
    #[serde(with = "feed::hex")]
    pub back_from: Position,
    pub generation: Generation,
}

/// What a verifier has proven behind the freeze, kept before the map is published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proven {
    /// The generation that gives the keys away.
    pub generation: Generation,
    #[serde(with = "feed::hex")]
    pub seal: Position,
    pub records: u64,
    /// Digests of base 16: JSON has no numbers of 128 bits.
    pub left_root: String,
    pub entered_root: String,
    pub looked_again: u64,
    /// The mover's wall clock, microseconds since the epoch. Nothing is decided by them.
    pub frozen_at_unix_us: i64,
    pub proven_at_unix_us: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    BarrierPublished {
        generation: Generation,
    },
    BarrierAcknowledged,
    Copied,
    CaughtUp,
    Verified {
        back_from: Position,
    },
    Differs,
    NoticePublished {
        generation: Generation,
    },
    Freezing {
        generation: Generation,
    },
    Proven {
        proven: Proven,
    },
    CutOver,
    GivenUp,
    /// `None`: what the source holds is kept.
    Completed {
        grace_ms: Option<u64>,
    },
    Rested {
        grace_ms: u64,
    },
    GraceOver,
    Cleaned,
    /// Nothing more goes from the source.
    Kept,
    Aborted {
        why: String,
    },
}

/// Who may take shoppers' writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOwner {
    Source,
    Nobody,
    Target,
}

impl Way {
    /// Who serves until the cutover has been published.
    pub fn write_owner(&self) -> WriteOwner {
        match self {
            Way::Forward { .. } => WriteOwner::Source,
            Way::Back { .. } => WriteOwner::Target,
        }
    }

    /// Where a cutover that does not come about leads back to.
    fn before(&self) -> Phase {
        match self {
            Way::Forward { barrier, .. } => Phase::Verifying { barrier: *barrier },
            Way::Back { settled } => Phase::Settling {
                settled: settled.clone(),
            },
        }
    }

    fn after(&self, generation: Generation) -> Phase {
        match self {
            Way::Forward { barrier, back_from } => Phase::Settling {
                settled: Settled {
                    barrier: *barrier,
                    back_from: back_from.clone(),
                    generation,
                },
            },
            Way::Back { settled } => Phase::RolledBack {
                settled: settled.clone(),
                generation,
            },
        }
    }
}

impl Phase {
    pub fn first() -> Phase {
        Phase::Planned { barrier: None }
    }

    /// Spelled out per phase, so that a new one fails to compile here until someone decides.
    pub fn write_owner(&self) -> WriteOwner {
        match self {
            Phase::Planned { .. }
            | Phase::Backfilling { .. }
            | Phase::CatchingUp { .. }
            | Phase::Verifying { .. }
            | Phase::Ready { .. }
            | Phase::Aborted { .. }
            | Phase::RolledBack { .. } => WriteOwner::Source,
            Phase::Noticed { way, .. } => way.write_owner(),
            Phase::Frozen { .. } => WriteOwner::Nobody,
            Phase::Settling { .. }
            | Phase::Resting { .. }
            | Phase::Cleaning { .. }
            | Phase::Cleaned { .. }
            | Phase::Completed { .. } => WriteOwner::Target,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Phase::Planned { .. } => "planned",
            Phase::Backfilling { .. } => "backfilling",
            Phase::CatchingUp { .. } => "catching up",
            Phase::Verifying { .. } => "verifying",
            Phase::Ready { .. } => "ready",
            Phase::Noticed { .. } => "noticed",
            Phase::Frozen { .. } => "frozen",
            Phase::Settling { .. } => "settling",
            Phase::Resting { .. } | Phase::Completed { .. } => "completed",
            Phase::Cleaning { .. } => "cleaning up",
            Phase::Cleaned { .. } => "cleaned up",
            Phase::Aborted { .. } => "aborted",
            Phase::RolledBack { .. } => "rolled back",
        }
    }

    /// Whether nothing follows any more. Its keys may be moved by others then (W30).
    pub fn is_over(&self) -> bool {
        match self {
            Phase::Cleaned { .. }
            | Phase::Completed { .. }
            | Phase::Aborted { .. }
            | Phase::RolledBack { .. } => true,
            Phase::Planned { .. }
            | Phase::Backfilling { .. }
            | Phase::CatchingUp { .. }
            | Phase::Verifying { .. }
            | Phase::Ready { .. }
            | Phase::Noticed { .. }
            | Phase::Frozen { .. }
            | Phase::Settling { .. }
            | Phase::Resting { .. }
            | Phase::Cleaning { .. } => false,
        }
    }

    /// Whether all that is left is to clean the source: then only its keys there are not free for others (W47).
    pub fn is_tidying(&self) -> bool {
        matches!(self, Phase::Resting { .. } | Phase::Cleaning { .. })
    }

    /// Whether the keys may still be given to the target for the first time.
    pub fn precedes_its_cutover(&self) -> bool {
        self.accepts(Wish::Abort).is_ok() && !self.is_tidying()
    }

    /// Whether an operator may wish it now; otherwise why not, and what to do.
    pub fn accepts(&self, wish: Wish) -> Result<(), &'static str> {
        match (self, wish) {
            (Phase::Ready { .. }, Wish::Cutover) => Ok(()),
            (
                Phase::Planned { .. }
                | Phase::Backfilling { .. }
                | Phase::CatchingUp { .. }
                | Phase::Verifying { .. },
                Wish::Cutover,
            ) => Err("it is not ready: wait until nothing differs and the way back has caught up"),
            (
                Phase::Planned { .. }
                | Phase::Backfilling { .. }
                | Phase::CatchingUp { .. }
                | Phase::Verifying { .. }
                | Phase::Ready { .. }
                | Phase::Noticed {
                    way: Way::Forward { .. },
                    ..
                },
                Wish::Abort,
            ) => Ok(()),
            (Phase::Settling { .. }, Wish::Rollback | Wish::Complete)
            | (Phase::Resting { .. }, Wish::Complete | Wish::Abort)
            | (Phase::Cleaning { .. }, Wish::Abort) => Ok(()),
            (Phase::Cleaning { .. }, Wish::Complete) => {
                Err("its source is being cleaned up: abort that to keep what is left there")
            }
            (Phase::Settling { .. }, Wish::Abort | Wish::Cutover) => {
                Err("it has cut over already: roll it back or complete it")
            }
            (Phase::Noticed { .. }, Wish::Cutover | Wish::Rollback | Wish::Complete)
            | (
                Phase::Noticed {
                    way: Way::Back { .. },
                    ..
                },
                Wish::Abort,
            )
            | (
                Phase::Frozen { .. },
                Wish::Cutover | Wish::Rollback | Wish::Abort | Wish::Complete,
            ) => Err("it is cutting over right now: look again in a moment"),
            (
                Phase::Planned { .. }
                | Phase::Backfilling { .. }
                | Phase::CatchingUp { .. }
                | Phase::Verifying { .. }
                | Phase::Ready { .. },
                Wish::Rollback | Wish::Complete,
            ) => Err("it has not cut over yet: abort it, or cut over first"),
            (Phase::Resting { .. } | Phase::Cleaning { .. }, Wish::Cutover | Wish::Rollback)
            | (
                Phase::Completed { .. } | Phase::Cleaned { .. },
                Wish::Cutover | Wish::Rollback | Wish::Abort | Wish::Complete,
            ) => Err("it is completed: start a move in the other direction to bring the keys back"),
            (
                Phase::Aborted { .. } | Phase::RolledBack { .. },
                Wish::Cutover | Wish::Rollback | Wish::Abort | Wish::Complete,
            ) => Err("it has ended: start another move"),
        }
    }

    /// `None`: the event does not belong to this phase, and nothing follows from it.
    #[must_use]
    pub fn step(&self, event: Event) -> Option<Phase> {
        if let Event::Aborted { why } = event {
            return self
                .precedes_its_cutover()
                .then_some(Phase::Aborted { why });
        }
        match self {
            Phase::Planned { barrier } => match (barrier, event) {
                (_, Event::BarrierPublished { generation }) => Some(Phase::Planned {
                    barrier: Some(generation),
                }),
                (Some(barrier), Event::BarrierAcknowledged) => {
                    Some(Phase::Backfilling { barrier: *barrier })
                }
                _ => None,
            },
            Phase::Backfilling { barrier } => match event {
                Event::Copied => Some(Phase::CatchingUp { barrier: *barrier }),
                _ => None,
            },
            Phase::CatchingUp { barrier } => match event {
                Event::CaughtUp => Some(Phase::Verifying { barrier: *barrier }),
                _ => None,
            },
            Phase::Verifying { barrier } => match event {
                Event::Verified { back_from } => Some(Phase::Ready {
                    barrier: *barrier,
                    back_from,
                }),
                _ => None,
            },
            Phase::Ready { barrier, back_from } => match event {
                Event::Differs => Some(Phase::Verifying { barrier: *barrier }),
                Event::NoticePublished { generation } => Some(Phase::Noticed {
                    way: Way::Forward {
                        barrier: *barrier,
                        back_from: back_from.clone(),
                    },
                    generation,
                }),
                _ => None,
            },
            Phase::Noticed { way, generation } => match event {
                Event::Differs | Event::GivenUp => Some(way.before()),
                // The one before was too long ago.
                Event::NoticePublished { generation } => Some(Phase::Noticed {
                    way: way.clone(),
                    generation,
                }),
                Event::Freezing { generation: next } => Some(frozen(way, *generation, next, None)),
                _ => None,
            },
            Phase::Frozen {
                way,
                noticed,
                generation,
                proven,
            } => match (proven, event) {
                // Another map came first.
                (None, Event::Freezing { generation: next }) => {
                    Some(frozen(way, *noticed, next, None))
                }
                (_, Event::Proven { proven }) => {
                    Some(frozen(way, *noticed, *generation, Some(proven)))
                }
                (Some(proven), Event::CutOver) => Some(way.after(proven.generation)),
                (_, Event::GivenUp) => Some(way.before()),
                _ => None,
            },
            Phase::Settling { settled } => match event {
                Event::NoticePublished { generation } => Some(Phase::Noticed {
                    way: Way::Back {
                        settled: settled.clone(),
                    },
                    generation,
                }),
                Event::Completed { grace_ms } => Some(completed(settled, grace_ms)),
                _ => None,
            },
            Phase::Resting { settled, .. } => match event {
                Event::Completed { grace_ms } => Some(completed(settled, grace_ms)),
                Event::Rested { grace_ms } => Some(completed(settled, Some(grace_ms))),
                Event::GraceOver => Some(Phase::Cleaning {
                    settled: settled.clone(),
                }),
                Event::Kept => Some(completed(settled, None)),
                _ => None,
            },
            Phase::Cleaning { settled } => match event {
                Event::Cleaned => Some(Phase::Cleaned {
                    settled: settled.clone(),
                }),
                Event::Kept => Some(completed(settled, None)),
                _ => None,
            },
            Phase::Cleaned { .. }
            | Phase::Completed { .. }
            | Phase::Aborted { .. }
            | Phase::RolledBack { .. } => None,
        }
    }
}

fn completed(settled: &Settled, grace_ms: Option<u64>) -> Phase {
    let settled = settled.clone();
    match grace_ms {
        Some(grace_ms) => Phase::Resting { settled, grace_ms },
        None => Phase::Completed { settled },
    }
}

fn frozen(way: &Way, noticed: Generation, generation: Generation, proven: Option<Proven>) -> Phase {
    Phase::Frozen {
        way: way.clone(),
        noticed,
        generation,
        proven,
    }
}

#[cfg(test)]
mod tests;
