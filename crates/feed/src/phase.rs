//! Where a feed stands, and what leads on from there. Pure.
//!
//! ```text
//!   Rebuilding ── position taken ─▶ scanned … ─▶ the scan ends ─▶ Following ⟲ read to
//!       ▲                                                              │
//!       └────────── somebody asks for it ◀────── Lost ◀── position lost┘
//! ```

use engine_api::{Position, ScanPosition};
use serde::{Deserialize, Serialize};

use crate::hex;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Phase {
    /// Everything is copied once: a new feed, or one that lost its position.
    Rebuilding {
        /// Taken before the first record is read (W24); `None`: not yet taken.
        #[serde(with = "hex::optional")]
        from: Option<Position>,
        /// How far the scan is.
        #[serde(with = "hex::optional")]
        after: Option<ScanPosition>,
    },
    /// Everything before this position is done (W22).
    Following {
        #[serde(with = "hex")]
        at: Position,
    },
    /// The journal no longer reaches back to this position. The feed stands still
    /// until somebody asks for a rebuild (W28).
    Lost {
        #[serde(with = "hex")]
        at: Position,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    PositionTaken { at: Position },
    Scanned { after: ScanPosition },
    ScanEnded,
    ReadTo { at: Position },
    PositionLost,
    RebuildAsked,
}

impl Phase {
    /// Where a feed begins that has never run.
    pub fn first() -> Phase {
        Phase::Rebuilding {
            from: None,
            after: None,
        }
    }

    /// `None`: the event does not belong to this phase, and nothing follows from it.
    #[must_use]
    pub fn step(&self, event: Event) -> Option<Phase> {
        match (self, event) {
            (Phase::Rebuilding { from: None, .. }, Event::PositionTaken { at }) => {
                Some(Phase::Rebuilding {
                    from: Some(at),
                    after: None,
                })
            }
            (
                Phase::Rebuilding {
                    from: Some(from), ..
                },
                Event::Scanned { after },
            ) => Some(Phase::Rebuilding {
                from: Some(from.clone()),
                after: Some(after),
            }),
            (
                Phase::Rebuilding {
                    from: Some(from), ..
                },
                Event::ScanEnded,
            ) => Some(Phase::Following { at: from.clone() }),
            (Phase::Following { .. }, Event::ReadTo { at }) => Some(Phase::Following { at }),
            (Phase::Following { at }, Event::PositionLost) => Some(Phase::Lost { at: at.clone() }),
            // Also while one is under way: then it begins again.
            (
                Phase::Rebuilding { .. } | Phase::Following { .. } | Phase::Lost { .. },
                Event::RebuildAsked,
            ) => Some(Phase::first()),
            (
                Phase::Rebuilding { .. } | Phase::Following { .. } | Phase::Lost { .. },
                Event::PositionTaken { .. }
                | Event::Scanned { .. }
                | Event::ScanEnded
                | Event::ReadTo { .. }
                | Event::PositionLost,
            ) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u8) -> Position {
        Position(vec![0, number, 255])
    }

    #[test]
    fn a_rebuild_ends_at_the_position_that_was_taken_before_its_scan() {
        let begun = Phase::first().step(Event::PositionTaken { at: at(1) });
        let begun = begun.unwrap();
        let after = ScanPosition(vec![9]);
        let scanned = begun.step(Event::Scanned { after }).unwrap();
        let following = scanned.step(Event::ScanEnded).unwrap();
        assert_eq!(following, Phase::Following { at: at(1) });
        // A scan cannot end, nor a position be taken a second time, without the first.
        assert_eq!(Phase::first().step(Event::ScanEnded), None);
        assert_eq!(scanned.step(Event::PositionTaken { at: at(2) }), None);
    }

    #[test]
    fn only_somebody_who_asks_leads_out_of_a_lost_position() {
        let following = Phase::Following { at: at(1) };
        let lost = following.step(Event::PositionLost).unwrap();
        assert_eq!(lost, Phase::Lost { at: at(1) });
        for event in [
            Event::ReadTo { at: at(2) },
            Event::PositionTaken { at: at(2) },
            Event::ScanEnded,
        ] {
            assert_eq!(lost.step(event), None);
        }
        assert_eq!(lost.step(Event::RebuildAsked), Some(Phase::first()));
    }

    #[test]
    fn a_phase_comes_back_from_its_text_as_it_was() {
        for phase in [
            Phase::first(),
            Phase::Rebuilding {
                from: Some(at(3)),
                after: Some(ScanPosition(b"key".to_vec())),
            },
            Phase::Following { at: at(4) },
            Phase::Lost {
                at: Position(Vec::new()),
            },
        ] {
            let text = serde_json::to_string(&phase).unwrap();
            assert_eq!(serde_json::from_str::<Phase>(&text).unwrap(), phase);
        }
        for text in ["\"1\"", "\"zz\"", "\"+1\"", "\"я0\""] {
            let text = format!("{{\"following\":{{\"at\":{text}}}}}");
            assert!(serde_json::from_str::<Phase>(&text).is_err(), "{text}");
        }
    }
}
