//! Carts as shoppers see them through the router: a header under conditions, lines
//! while it is active.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use engine_api::{Change, Outcome, PartChange, PartKey, PartsChange, Record, RecordKey, Revision};
use layout::path::STATUS_ACTIVE;
use layout::{Collection, Field, Fields};

use super::{returned, told};
use crate::linear::{Call, Specification};
use crate::recording::{End, History, Intent, Operation};

pub(super) fn check(history: &History) -> Vec<String> {
    let writes = history.writes().flat_map(|(_, changes)| changes);
    let keys: BTreeSet<&RecordKey> = writes
        .map(Change::key)
        .filter(|key| key.collection == Collection::Carts)
        .collect();
    let one = |key: &RecordKey| {
        let mut cart = Cart::default();
        let calls = cart.calls(history, key);
        told(key, &cart, &calls)
    };
    keys.into_iter().filter_map(one).collect()
}

/// What stands for some fields: shoppers write every value once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Value(usize);

/// The values of one cart, and what shoppers know of them.
#[derive(Default)]
struct Cart<'a> {
    values: Vec<&'a Fields>,
    /// Which header a revision stands for, as somebody saw it.
    headers: BTreeMap<Revision, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Standing<'a> {
    header: Value,
    lines: BTreeMap<&'a PartKey, Value>,
}

#[derive(Debug)]
enum Act<'a> {
    Create(Standing<'a>),
    Change {
        expected: Option<Value>,
        header: Value,
        lines: Lines<'a>,
    },
    Patch(Vec<(&'a PartKey, Option<Value>)>),
    Remove {
        expected: Option<Value>,
    },
    Read(Option<Standing<'a>>),
    /// Told that something is there.
    Exists,
    NothingThere,
    /// Told that the header is another one.
    Conflict {
        expected: Option<Value>,
    },
    Closed,
}

#[derive(Debug)]
enum Lines<'a> {
    Kept,
    Replaced(BTreeMap<&'a PartKey, Value>),
    Put(BTreeMap<&'a PartKey, Value>),
}

impl fmt::Display for Act<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl<'a> Cart<'a> {
    fn calls(&mut self, history: &'a History, key: &RecordKey) -> Vec<Call<Act<'a>>> {
        for (_, _, image) in history.reads().filter(|(_, of, _)| *of == key) {
            if let Some((image, header)) = image.and_then(|image| Some((image, live(image)?))) {
                let value = self.value(header);
                self.headers.insert(image.header.revision, value);
            }
        }
        let of_key = history.operations.iter().filter_map(|operation| {
            let act = self.act(operation, key)?;
            Some(Call {
                operation: act,
                invoked: operation.invoked,
                returned: returned(operation),
            })
        });
        of_key.collect()
    }

    fn act(&mut self, operation: &'a Operation, key: &RecordKey) -> Option<Act<'a>> {
        match (&operation.intent, &operation.end) {
            (Intent::Read(of), End::Image(image)) if of == key => {
                Some(Act::Read(self.shown(image.as_ref())))
            }
            (Intent::Write(changes), end) => {
                let change = changes.iter().find(|change| change.key() == key)?;
                match end {
                    End::Refused { met, .. } => self.refused(change, met.as_ref()?),
                    _ => self.wanted(change),
                }
            }
            _ => None,
        }
    }

    fn wanted(&mut self, change: &'a Change) -> Option<Act<'a>> {
        match change {
            Change::CreateIfAbsent { header, parts, .. } => Some(Act::Create(Standing {
                header: self.value(header),
                lines: self.lines(parts),
            })),
            Change::ChangeIf {
                expected,
                header,
                parts,
                ..
            } => Some(Act::Change {
                expected: self.headers.get(expected).copied(),
                header: self.value(header),
                lines: match parts {
                    PartsChange::Keep => Lines::Kept,
                    PartsChange::Replace(parts) => Lines::Replaced(self.lines(parts)),
                    PartsChange::Put(parts) => Lines::Put(self.lines(parts)),
                },
            }),
            Change::Patch { parts, .. } => {
                let part = |(key, change): &'a (PartKey, PartChange)| match change {
                    PartChange::Set(fields) => (key, Some(self.value(fields))),
                    PartChange::Remove => (key, None),
                };
                Some(Act::Patch(parts.iter().map(part).collect()))
            }
            Change::Remove { expected, .. } => Some(Act::Remove {
                expected: self.headers.get(expected).copied(),
            }),
            Change::Stock { .. } | Change::PutImage { .. } => None,
        }
    }

    fn refused(&mut self, change: &Change, met: &Outcome) -> Option<Act<'a>> {
        let expected = match change {
            Change::ChangeIf { expected, .. } | Change::Remove { expected, .. } => {
                self.headers.get(expected).copied()
            }
            _ => None,
        };
        match met {
            Outcome::Exists { .. } => Some(Act::Exists),
            Outcome::NoRecord => Some(Act::NothingThere),
            Outcome::Conflict { .. } => Some(Act::Conflict { expected }),
            Outcome::GuardFailed { .. } => Some(Act::Closed),
            Outcome::Done { .. }
            | Outcome::Stale { .. }
            | Outcome::TooManyParts { .. }
            | Outcome::Stock(_) => None,
        }
    }

    fn shown(&mut self, image: Option<&'a Record>) -> Option<Standing<'a>> {
        let image = image?;
        let header = self.value(live(image)?);
        let lines = image.live_parts();
        Some(Standing {
            header,
            lines: lines
                .map(|(key, fields)| (key, self.value(fields)))
                .collect(),
        })
    }

    fn lines(&mut self, parts: &'a [(PartKey, Fields)]) -> BTreeMap<&'a PartKey, Value> {
        let lines = parts.iter();
        lines
            .map(|(key, fields)| (key, self.value(fields)))
            .collect()
    }

    fn value(&mut self, fields: &'a Fields) -> Value {
        let known = self.values.iter().position(|known| *known == fields);
        Value(known.unwrap_or_else(|| {
            self.values.push(fields);
            self.values.len() - 1
        }))
    }

    fn is_active(&self, header: Value) -> bool {
        self.values[header.0].text(Field::Status) == Some(STATUS_ACTIVE)
    }
}

fn live(image: &Record) -> Option<&Fields> {
    image.header.content.live()
}

impl<'a> Specification for Cart<'a> {
    type State = Option<Standing<'a>>;
    type Operation = Act<'a>;

    fn first(&self) -> Self::State {
        None
    }

    fn observes(&self, act: &Act<'a>) -> bool {
        match act {
            Act::Read(_) | Act::Exists | Act::NothingThere | Act::Conflict { .. } | Act::Closed => {
                true
            }
            Act::Create(_) | Act::Change { .. } | Act::Patch(_) | Act::Remove { .. } => false,
        }
    }

    fn step(&self, state: &Self::State, act: &Act<'a>) -> Option<Self::State> {
        let as_expected = |expected: &Option<Value>| {
            let standing = state.as_ref()?;
            let fits = expected.is_none_or(|expected| expected == standing.header);
            fits.then(|| standing.clone())
        };
        let unchanged = |holds: bool| holds.then(|| state.clone());
        match act {
            Act::Create(standing) => state.is_none().then(|| Some(standing.clone())),
            Act::Change {
                expected,
                header,
                lines,
            } => {
                let mut next = as_expected(expected)?;
                next.header = *header;
                match lines {
                    Lines::Kept => {}
                    Lines::Replaced(lines) => next.lines.clone_from(lines),
                    Lines::Put(lines) => next.lines.extend(lines.clone()),
                }
                Some(Some(next))
            }
            Act::Patch(lines) => {
                let mut next = state.clone()?;
                self.is_active(next.header).then_some(())?;
                for (key, value) in lines {
                    match value {
                        Some(value) => next.lines.insert(key, *value),
                        None => next.lines.remove(key),
                    };
                }
                Some(Some(next))
            }
            Act::Remove { expected } => as_expected(expected).map(|_| None),
            Act::Read(shown) => unchanged(state == shown),
            Act::Exists => unchanged(state.is_some()),
            Act::NothingThere => unchanged(state.is_none()),
            Act::Conflict { expected } => {
                unchanged(as_expected(expected).is_none() || expected.is_none())
            }
            Act::Closed => {
                let standing = state.as_ref();
                unchanged(standing.is_some_and(|standing| !self.is_active(standing.header)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use engine_api::{Content, Header, Part};

    use super::*;
    use crate::checks::story::{Story, revision};
    use crate::scenery::{
        Marks, cart, cart_header, change_if, create, line, patch_while_active, with_status,
    };

    struct Scene {
        key: RecordKey,
        open: Fields,
        ordered: Fields,
        lines: [Fields; 2],
    }

    fn scene() -> Scene {
        let marks = Marks::default();
        let open = cart_header("ada", STATUS_ACTIVE, &marks);
        Scene {
            key: cart("ada"),
            ordered: with_status(&open, "ordered", &marks),
            open,
            lines: [line(&marks), line(&marks)],
        }
    }

    impl Scene {
        fn begin(&self) -> Story {
            let mut story = Story::begin();
            story.writes(create(&self.key, self.open.clone(), vec![]), 2);
            story.reads(&self.key, self.image(&self.open, None));
            story
        }

        fn set(&self, line: usize) -> Change {
            let set = PartChange::Set(self.lines[line].clone());
            patch_while_active(&self.key, vec![(PartKey::line("lamp"), set)])
        }

        fn image(&self, header: &Fields, line: Option<usize>) -> Option<Record> {
            let number = if *header == self.open { 2 } else { 6 };
            let header = Header {
                revision: revision(number),
                cleared: revision(1),
                content: Content::Live(header.clone()),
            };
            let part = |line: usize| {
                let fields = self.lines[line].clone();
                (PartKey::line("lamp"), Part::live(revision(4), fields))
            };
            Some(Record {
                key: self.key.clone(),
                header,
                parts: line.map(part).into_iter().collect(),
            })
        }
    }

    fn found(story: &Story) -> usize {
        check(&story.history).len()
    }

    #[test]
    fn a_line_after_the_order_is_found_though_each_answer_alone_is_in_order() {
        let scene = scene();
        let mut story = scene.begin();
        let order = change_if(&scene.key, revision(2), scene.ordered.clone());
        story.writes(order, 4);
        assert_eq!(found(&story), 0);
        story.writes(scene.set(0), 6);
        assert_eq!(found(&story), 1);
    }

    #[test]
    fn header_and_lines_are_read_at_one_instant() {
        let scene = scene();
        let mut story = scene.begin();
        story.writes(scene.set(0), 4);
        let order = change_if(&scene.key, revision(2), scene.ordered.clone());
        let under_way = story.asks(Intent::Write(vec![order]));
        story.reads(&scene.key, scene.image(&scene.ordered, Some(0)));
        assert_eq!(found(&story), 0);
        story.reads(&scene.key, scene.image(&scene.open, Some(0)));
        assert_eq!(found(&story), 1, "ordered, and open again");
        story.is_told(
            under_way,
            End::Done {
                revision: revision(6),
            },
        );
        assert_eq!(found(&story), 1);
    }

    #[test]
    fn a_refusal_must_have_had_its_reason() {
        let scene = scene();
        let header = || match scene.image(&scene.open, None) {
            Some(image) => image.header,
            None => panic!("an image was asked for"),
        };
        let refused = |mut story: Story, change: Change, met: Outcome| {
            let number = story.asks(Intent::Write(vec![change]));
            let why = "said so".to_owned();
            story.is_told(
                number,
                End::Refused {
                    why,
                    met: Some(met),
                },
            );
            found(&story)
        };
        let closed = Outcome::GuardFailed { header: header() };
        assert_eq!(refused(scene.begin(), scene.set(0), closed), 1);
        assert_eq!(refused(scene.begin(), scene.set(0), Outcome::NoRecord), 1);
        let again = create(&scene.key, scene.open.clone(), vec![]);
        let record = scene.image(&scene.open, None).map(Box::new);
        let exists = |record: Box<Record>| Outcome::Exists { record };
        let exists = exists(record.expect("an image was asked for"));
        assert_eq!(refused(scene.begin(), again, exists), 0);
    }
}
