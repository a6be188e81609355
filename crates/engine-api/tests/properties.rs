//! Properties of merging and of deciding, over whatever histories come about.

use engine_api::layout::{Collection, Field, Fields, Value};
use engine_api::{
    Authority, Change, Decision, Generation, Guard, Outcome, PartChange, PartKey, PartsChange,
    Record, RecordId, RecordKey, Revision, Timestamp, WriteContext, Writer, decide, expiry_fields,
};
use proptest::prelude::*;

/// One step of a history; numbers choose among what is there.
#[derive(Clone, Debug)]
enum Step {
    Create {
        lines: Vec<u8>,
    },
    Change {
        expectation: Expectation,
        replace: Option<Vec<u8>>,
    },
    Patch {
        parts: Vec<(u8, bool)>,
    },
    Expire {
        seconds: i64,
    },
    Remove {
        expectation: Expectation,
    },
    /// The image of an earlier moment arrives late.
    LateImage {
        moment: usize,
    },
}

#[derive(Clone, Copy, Debug)]
enum Expectation {
    Right,
    Wrong,
}

/// When a step is written: the writer's clock may be behind the newest revision,
/// by a time that never makes two steps bear the same one.
#[derive(Clone, Copy, Debug)]
struct Clock {
    writer: u8,
    behind: u64,
}

fn key() -> RecordKey {
    RecordKey::by_id(
        Collection::Carts,
        RecordId::new("cart").expect("the id is short"),
    )
}

fn header(status: &str) -> Fields {
    Fields::new()
        .with(Field::CartId, Value::text("cart"))
        .with(Field::Status, Value::text(status))
        .with(
            Field::CreatedAt,
            Value::Timestamp(Timestamp::from_unix_micros(0)),
        )
        .with(Field::Ordinal, Value::Int(1))
}

fn line_key(number: u8) -> PartKey {
    PartKey::line(&format!("p{number}"))
}

fn line(revision: Revision) -> Fields {
    Fields::new().with(Field::Quantity, Value::Int(revision.to_i64()))
}

fn steps() -> impl Strategy<Value = Vec<(Step, Clock)>> {
    let lines = || prop::collection::vec(0..4u8, 0..3);
    let expectation = || prop_oneof![3 => Just(Expectation::Right), 1 => Just(Expectation::Wrong)];
    let step = prop_oneof![
        2 => lines().prop_map(|lines| Step::Create { lines }),
        2 => (expectation(), prop::option::of(lines()))
            .prop_map(|(expectation, replace)| Step::Change { expectation, replace }),
        5 => prop::collection::vec((0..4u8, any::<bool>()), 1..3).prop_map(|parts| Step::Patch { parts }),
        1 => (-5i64..50).prop_map(|seconds| Step::Expire { seconds }),
        1 => expectation().prop_map(|expectation| Step::Remove { expectation }),
        1 => (0..30usize).prop_map(|moment| Step::LateImage { moment }),
    ];
    let clock = (0..4u8, prop_oneof![3 => Just(0u64), 1 => 0..4u64]);
    let clock = clock.prop_map(|(writer, behind)| Clock { writer, behind });
    prop::collection::vec((step, clock), 1..30)
}

/// A history as it happened: the images after each change, and what was applied.
#[derive(Debug, Default)]
struct History {
    moments: Vec<Record>,
    applied: Vec<(Change, WriteContext)>,
}

fn moment(second: usize) -> Timestamp {
    Timestamp::from_unix_micros(1_000_000 * (second as i64 + 1000))
}

fn play(steps: &[(Step, Clock)]) -> History {
    let mut history = History::default();
    for (second, (step, clock)) in steps.iter().enumerate() {
        let stored = history.moments.last();
        let writer = Writer::numbered(clock.writer);
        let now = moment(second);
        let written_at =
            Timestamp::from_unix_micros(now.unix_micros() - 1_300_000 * clock.behind as i64);
        let revision = Revision::at(written_at, writer);
        let context = WriteContext {
            authority: Authority::Router {
                generation: Generation(1),
            },
            now,
            revision,
        };
        let header_revision = stored.map_or(Revision::ZERO, |record| record.header.revision);
        let expected = |expectation: &Expectation| match expectation {
            Expectation::Right => header_revision,
            Expectation::Wrong => header_revision.just_before(),
        };
        let fresh = |lines: &[u8]| {
            lines
                .iter()
                .map(|number| (line_key(*number), line(revision)))
                .collect()
        };
        let change = match step {
            Step::Create { lines } => Change::CreateIfAbsent {
                key: key(),
                header: header("active"),
                parts: fresh(lines),
            },
            Step::Change {
                expectation,
                replace,
            } => Change::ChangeIf {
                key: key(),
                expected: expected(expectation),
                header: header("ordered"),
                parts: match replace {
                    None => PartsChange::Keep,
                    Some(lines) if lines.len() % 2 == 0 => PartsChange::Replace(fresh(lines)),
                    Some(lines) => PartsChange::Put(fresh(lines)),
                },
            },
            Step::Patch { parts } => Change::Patch {
                key: key(),
                guard: Guard::default(),
                parts: parts
                    .iter()
                    .map(|(number, set)| {
                        let change = if *set {
                            PartChange::Set(line(revision))
                        } else {
                            PartChange::Remove
                        };
                        (line_key(*number), change)
                    })
                    .collect(),
            },
            Step::Expire { seconds } => {
                let at = Timestamp::from_unix_micros(now.unix_micros() + seconds * 1_000_000);
                let parts = vec![(PartKey::expiry(), PartChange::Set(expiry_fields(at)))];
                Change::Patch {
                    key: key(),
                    guard: Guard::default(),
                    parts,
                }
            }
            Step::Remove { expectation } => Change::Remove {
                key: key(),
                expected: expected(expectation),
            },
            Step::LateImage { moment } => match history.moments.get(*moment) {
                Some(image) => Change::PutImage {
                    image: image.clone(),
                },
                None => continue,
            },
        };
        if let Decision::Write { record, .. } =
            decide(stored, &change, &context).expect("changes of carts are well formed")
        {
            history.moments.push(record);
            history.applied.push((change, context));
        }
    }
    history
}

fn merged(one: &Record, other: &Record) -> Record {
    let mut record = one.clone();
    let _ = record.merge(other);
    record
}

/// An image whose header was read at one moment and whose parts at another.
fn torn(header: &Record, parts: &Record) -> Record {
    let mut image = parts.clone();
    image.header = header.header.clone();
    let cleared = image.header.cleared;
    image.parts.retain(|_, part| part.revision > cleared);
    image
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn merging_does_not_depend_on_order_grouping_or_number(
        steps in steps(), picks in prop::collection::vec((0..30usize, 0..30usize), 3)
    ) {
        let history = play(&steps);
        prop_assume!(!history.moments.is_empty());
        let count = history.moments.len();
        let images: Vec<Record> = picks
            .iter()
            .map(|(header, parts)| torn(&history.moments[header % count], &history.moments[parts % count]))
            .collect();
        let [a, b, c] = &images[..] else { unreachable!("three were picked") };
        prop_assert_eq!(merged(a, b), merged(b, a));
        prop_assert_eq!(merged(&merged(a, b), c), merged(a, &merged(b, c)));
        prop_assert_eq!(&merged(a, a), a);
        let ab = merged(a, b);
        prop_assert_eq!(&merged(&ab, b), &ab);
        prop_assert_eq!(ab.clone().merge(b), engine_api::Merged::Unchanged);
    }

    #[test]
    fn images_of_all_moments_in_any_order_merge_to_the_last(
        (steps, seed) in (steps(), any::<prop::sample::Index>())
    ) {
        let history = play(&steps);
        prop_assume!(!history.moments.is_empty());
        let mut images = history.moments.clone();
        let start = seed.index(images.len());
        images.rotate_left(start);
        let mut copy = images[0].clone();
        for image in images.iter().rev() {
            let _ = copy.merge(image);
        }
        prop_assert_eq!(Some(&copy), history.moments.last());
    }

    #[test]
    fn what_was_applied_changes_nothing_when_it_is_sent_again(steps in steps()) {
        let history = play(&steps);
        for (index, (change, context)) in history.applied.iter().enumerate() {
            let right_after = decide(Some(&history.moments[index]), change, context).expect("it was applied before");
            if history.moments[index].live_at(context.now).is_some() || matches!(change, Change::Remove { .. }) {
                prop_assert!(
                    matches!(&right_after, Decision::Answer(Outcome::Done { .. })),
                    "{change:?} sent again became {right_after:?}"
                );
            }
            for later in &history.moments[index..] {
                let again = decide(Some(later), change, context).expect("it was applied before");
                prop_assert!(
                    matches!(&again, Decision::Answer(_)),
                    "{change:?} sent again after {later:?} became {again:?}"
                );
            }
        }
    }

    #[test]
    fn a_write_leaves_a_record_that_its_revision_explains(steps in steps()) {
        let history = play(&steps);
        let mut before: Option<&Record> = None;
        for ((change, context), after) in history.applied.iter().zip(&history.moments) {
            let cleared = after.header.cleared;
            prop_assert!(after.parts.values().all(|part| part.revision > cleared));
            if let (Change::Patch { parts, .. }, Some(before)) = (change, before) {
                prop_assert_eq!(&after.header, &before.header);
                for (key, part) in &after.parts {
                    if parts.iter().any(|(named, _)| named == key) {
                        prop_assert_eq!(part.revision, context.revision);
                    } else {
                        prop_assert_eq!(Some(part), before.parts.get(key));
                    }
                }
            }
            if let Some(before) = before {
                prop_assert!(after.newest_revision() >= before.newest_revision());
                prop_assert!(after.header.revision >= before.header.revision);
                prop_assert!(after.header.cleared >= before.header.cleared);
            }
            before = Some(after);
        }
    }
}
