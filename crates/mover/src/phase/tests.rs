use proptest::prelude::*;

use super::*;

const G: Generation = Generation(7);

fn at(number: u8) -> Position {
    Position(vec![number, 255])
}

fn settled() -> Settled {
    Settled {
        barrier: G,
        back_from: at(1),
        generation: Generation(9),
    }
}

fn proven() -> Proven {
    Proven {
        generation: Generation(9),
        seal: at(3),
        records: 5,
        left_root: "a".into(),
        entered_root: "b".into(),
        looked_again: 1,
        frozen_at_unix_us: 1,
        proven_at_unix_us: 2,
    }
}

fn ways() -> Vec<Way> {
    vec![
        Way::Forward {
            barrier: G,
            back_from: at(1),
        },
        Way::Back { settled: settled() },
    ]
}

fn phases() -> Vec<Phase> {
    let barrier = G;
    let mut phases = vec![
        Phase::first(),
        Phase::Planned { barrier: Some(G) },
        Phase::Backfilling { barrier },
        Phase::CatchingUp { barrier },
        Phase::Verifying { barrier },
        Phase::Ready {
            barrier,
            back_from: at(1),
        },
        Phase::Settling { settled: settled() },
        Phase::Resting {
            settled: settled(),
            grace_ms: 5_000,
        },
        Phase::Cleaning { settled: settled() },
        Phase::Cleaned { settled: settled() },
        Phase::Completed { settled: settled() },
        Phase::Aborted {
            why: "asked".into(),
        },
        Phase::RolledBack {
            settled: settled(),
            generation: Generation(12),
        },
    ];
    for way in ways() {
        phases.push(Phase::Noticed {
            way: way.clone(),
            generation: Generation(8),
        });
        for proven in [None, Some(proven())] {
            phases.push(Phase::Frozen {
                way: way.clone(),
                noticed: Generation(8),
                generation: Generation(9),
                proven,
            });
        }
    }
    phases
}

fn events() -> Vec<Event> {
    let generation = Generation(10);
    vec![
        Event::BarrierPublished { generation },
        Event::BarrierAcknowledged,
        Event::Copied,
        Event::CaughtUp,
        Event::Verified { back_from: at(2) },
        Event::Differs,
        Event::NoticePublished { generation },
        Event::Freezing { generation },
        Event::Proven { proven: proven() },
        Event::CutOver,
        Event::GivenUp,
        Event::Completed {
            grace_ms: Some(9_000),
        },
        Event::Completed { grace_ms: None },
        Event::Rested { grace_ms: 1 },
        Event::GraceOver,
        Event::Cleaned,
        Event::Kept,
        Event::Aborted { why: "why".into() },
    ]
}

fn edges() -> Vec<(Phase, Event, Phase)> {
    let mut edges = Vec::new();
    for phase in phases() {
        for event in events() {
            if let Some(next) = phase.step(event.clone()) {
                edges.push((phase.clone(), event, next));
            }
        }
    }
    edges
}

#[test]
fn nothing_leads_out_of_an_end() {
    for phase in phases().into_iter().filter(Phase::is_over) {
        for event in events() {
            assert_eq!(phase.step(event.clone()), None, "{phase:?} by {event:?}");
        }
    }
}

#[test]
fn the_owner_changes_through_a_proven_freeze_alone() {
    for (phase, event, next) in edges() {
        let (before, after) = (phase.write_owner(), next.write_owner());
        if before == after || after == WriteOwner::Nobody {
            continue;
        }
        let Phase::Frozen { way, proven, .. } = &phase else {
            panic!("{phase:?} leads to {next:?} by {event:?}");
        };
        match event {
            Event::CutOver => {
                assert!(proven.is_some(), "{phase:?} cuts over unproven");
                assert_ne!(after, way.write_owner());
            }
            _ => assert_eq!(after, way.write_owner(), "{event:?} gives the keys away"),
        }
    }
}

#[test]
fn only_what_was_noticed_is_frozen_and_only_ready_or_settling_is_noticed() {
    for (phase, event, next) in edges() {
        match next {
            Phase::Frozen { .. } => assert!(
                matches!(phase, Phase::Noticed { .. } | Phase::Frozen { .. }),
                "{phase:?} by {event:?}"
            ),
            Phase::Noticed { .. } => assert!(
                matches!(
                    phase,
                    Phase::Ready { .. } | Phase::Settling { .. } | Phase::Noticed { .. }
                ),
                "{phase:?} by {event:?}"
            ),
            _ => {}
        }
    }
}

#[test]
fn a_freeze_that_is_given_up_leads_to_where_it_came_from() {
    for way in ways() {
        let frozen = Phase::Frozen {
            way: way.clone(),
            noticed: G,
            generation: G,
            proven: Some(proven()),
        };
        let back = frozen.step(Event::GivenUp).unwrap();
        assert_eq!(back, way.before());
        assert_eq!(back.write_owner(), way.write_owner());
        assert_eq!(frozen.step(Event::Aborted { why: "no".into() }), None);
    }
}

#[test]
fn a_wish_is_accepted_or_refused_with_what_to_do() {
    let check = |phase: &Phase, wish: Wish, expected: bool| {
        let answer = phase.accepts(wish);
        assert_eq!(answer.is_ok(), expected, "{phase:?}, {wish:?}: {answer:?}");
    };
    for phase in phases() {
        check(&phase, Wish::Cutover, phase.name() == "ready");
        check(&phase, Wish::Rollback, phase.name() == "settling");
        let can_complete = matches!(phase, Phase::Settling { .. } | Phase::Resting { .. });
        check(&phase, Wish::Complete, can_complete);
        let precedes = phase.write_owner() == WriteOwner::Source && !phase.is_over();
        assert_eq!(phase.precedes_its_cutover(), precedes, "{phase:?}");
        check(&phase, Wish::Abort, precedes || phase.is_tidying());
    }
}

#[test]
fn a_source_is_cleaned_after_its_grace_and_only_while_nobody_keeps_it() {
    for (phase, event, next) in edges() {
        match next {
            Phase::Cleaning { .. } => assert!(
                matches!(phase, Phase::Resting { .. }) && event == Event::GraceOver,
                "{phase:?} by {event:?}"
            ),
            Phase::Cleaned { .. } => {
                assert!(
                    matches!(phase, Phase::Cleaning { .. }),
                    "{phase:?} by {event:?}"
                );
            }
            _ => {}
        }
        if phase.is_tidying() {
            assert_eq!(next.write_owner(), WriteOwner::Target);
        }
    }
}

#[test]
fn a_phase_comes_back_from_its_text_as_it_was() {
    for phase in phases() {
        let text = serde_json::to_string(&phase).unwrap();
        assert_eq!(serde_json::from_str::<Phase>(&text).unwrap(), phase);
    }
}

proptest! {
    /// Whatever happens in whatever order: between two owners there was a freeze with a proof, the position of the
    /// way back was taken before it, and generations of the cutover are those that were proven.
    #[test]
    fn any_history_keeps_the_order(choices in prop::collection::vec(0..18usize, 0..120)) {
        let (mut phase, events) = (Phase::first(), events());
        for choice in choices {
            let Some(next) = phase.step(events[choice].clone()) else { continue };
            if let Phase::Settling { settled } = &next
                && phase.write_owner() == WriteOwner::Nobody
                && events[choice] == Event::CutOver
            {
                prop_assert_eq!(&settled.back_from, &at(2));
                prop_assert_eq!(settled.generation, proven().generation);
                prop_assert_eq!(settled.barrier, Generation(10));
            }
            prop_assert!(!phase.is_over());
            phase = next;
        }
    }
}
