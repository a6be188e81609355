//! Live moves, as their records said when this process last looked: every process shows the same.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use mover::{MoveName, MoveState, Shown};
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

/// Moves that ended are shown until so many others have ended since.
const ENDED_SHOWN_MAX: usize = 16;

/// What was seen last of each move.
#[derive(Debug, Default)]
pub struct MoveFigures {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Under way, and some that ended.
    moves: BTreeMap<MoveName, Figure>,
    /// Oldest first.
    ended: Vec<MoveName>,
}

#[derive(Clone, Debug)]
struct Figure {
    phase: &'static str,
    shown: Shown,
}

/// `None`: not known.
type OfMove = fn(&Shown) -> Option<f64>;

const GAUGES: [(&str, &str, OfMove); 6] = [
    (
        "caravan_moves_records_copied",
        "Images that the target was given, repeats included",
        |shown| Some(shown.records_copied as f64),
    ),
    (
        "caravan_moves_records_copied_back",
        "Images that the source was given on the way back",
        |shown| Some(shown.records_copied_back as f64),
    ),
    (
        "caravan_moves_lag_entries",
        "Journal entries read and not yet carried over",
        |shown| Some(shown.lag_entries as f64),
    ),
    (
        "caravan_moves_lag_seconds",
        "Age of the moment up to which every change was carried over",
        |shown| Some(shown.lag_ms? as f64 / 1e3),
    ),
    (
        "caravan_moves_freeze_ms",
        "How long the last cutover or rollback held requests",
        |shown| Some(shown.freeze_ms? as f64),
    ),
    (
        "caravan_moves_differences",
        "Records that differ between source and target",
        |shown| Some(shown.differences as f64),
    ),
];

impl MoveFigures {
    pub fn show(&self, name: &MoveName, state: &MoveState) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let figure = Figure {
            phase: state.phase.name(),
            shown: state.shown.clone(),
        };
        seen.moves.insert(name.clone(), figure);
        if state.phase.is_over() && !seen.ended.contains(name) {
            seen.ended.push(name.clone());
            if seen.ended.len() > ENDED_SHOWN_MAX {
                let oldest = seen.ended.remove(0);
                seen.moves.remove(&oldest);
            }
        }
    }

    pub fn encode(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let moves = seen.moves.clone();
        drop(seen);
        if moves.is_empty() {
            return Ok(());
        }
        let help = "1 for the phase that a move is in";
        let mut family =
            encoder.encode_descriptor("caravan_moves_phase", help, None, MetricType::Gauge)?;
        for (name, figure) in &moves {
            let labels = [("move", name.as_str()), ("phase", figure.phase)];
            family.encode_family(&labels)?.encode_gauge(&1u64)?;
        }
        for (gauge, help, of_move) in GAUGES {
            let mut family = encoder.encode_descriptor(gauge, help, None, MetricType::Gauge)?;
            for (name, figure) in &moves {
                let Some(value) = of_move(&figure.shown) else {
                    continue;
                };
                family
                    .encode_family(&[("move", name.as_str())])?
                    .encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use layout::{Collection, Scope};
    use mover::{Moved, Phase, Plan};
    use prometheus_client::collector::Collector;
    use prometheus_client::registry::Registry;
    use router::ShardName;
    use std::sync::Arc;

    use super::*;

    #[derive(Debug)]
    struct Shows(Arc<MoveFigures>);

    impl Collector for Shows {
        fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
            self.0.encode(&mut encoder)
        }
    }

    fn state(phase: Phase) -> MoveState {
        let mut state = MoveState::first(Plan {
            collection: Collection::Carts,
            moved: Moved::Keys {
                scope: Scope::All,
                source: ShardName::new("a").unwrap(),
                target: ShardName::new("b").unwrap(),
            },
            freeze_ms_max: 100,
        });
        state.phase = phase;
        state.shown.records_copied = 7;
        state
    }

    fn text(figures: &Arc<MoveFigures>) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Shows(figures.clone())));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn a_move_shows_one_phase_and_of_those_that_ended_the_oldest_go() {
        let figures = Arc::new(MoveFigures::default());
        assert!(!text(&figures).contains("caravan_moves"));
        let name = |name: &str| MoveName::new(name).unwrap();
        figures.show(&name("first"), &state(Phase::first()));
        let shown = text(&figures);
        let planned = r#"caravan_moves_phase{move="first",phase="planned"} 1"#;
        assert!(shown.contains(planned), "{shown}");
        assert!(shown.contains(r#"caravan_moves_records_copied{move="first"} 7"#));
        assert!(!shown.contains("caravan_moves_lag_seconds{"), "{shown}");

        let over = state(Phase::Aborted { why: "so".into() });
        figures.show(&name("first"), &over);
        assert!(!text(&figures).contains(planned));
        for number in 1..=ENDED_SHOWN_MAX {
            figures.show(&name(&format!("move-{number}")), &over);
        }
        let shown = text(&figures);
        assert!(!shown.contains(r#"move="first""#), "{shown}");
        assert!(shown.contains(r#"move="move-1""#), "{shown}");
    }
}
