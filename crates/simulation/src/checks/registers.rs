//! Every header and every part is a register: a read shows what was written
//! last, or what was being written meanwhile. Nothing acknowledged is lost,
//! nothing refused is seen, nothing replaced comes back.
//!
//! Values are unique, so that a value names its write. A write has happened at
//! the latest when it was acknowledged, or when somebody had read it.

use std::collections::BTreeSet;
use std::fmt::Debug;

use engine_api::{Change, PartChange, PartKey, PartsChange, Record, RecordKey};
use layout::Fields;

use crate::recording::{End, History, Moment, Operation};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Register {
    Header,
    Part(PartKey),
}

/// One write to a register.
pub(super) struct Write<V> {
    pub value: Option<V>,
    pub began: Moment,
    /// At the latest.
    pub happened: Option<Moment>,
    pub refused: bool,
}

pub(super) struct Read<V> {
    pub value: Option<V>,
    pub began: Moment,
    pub ended: Moment,
}

impl<V> Write<V> {
    /// The first of all: nothing is there.
    pub(super) fn nothing() -> Write<V> {
        Write {
            value: None,
            began: Moment(0),
            happened: Some(Moment(0)),
            refused: false,
        }
    }
}

pub fn check(history: &History) -> Vec<String> {
    let changes = || history.writes().flat_map(|(_, changes)| changes);
    let keys: BTreeSet<&RecordKey> = changes().map(Change::key).collect();
    let mut breaches = Vec::new();
    for key in keys {
        let parts: BTreeSet<&PartKey> = changes()
            .filter(|change| change.key() == key)
            .flat_map(named_parts)
            .collect();
        let parts = parts.into_iter().map(|part| Register::Part(part.clone()));
        for register in [Register::Header].into_iter().chain(parts) {
            breaches.extend(check_register(history, key, &register));
        }
    }
    breaches
}

fn check_register(history: &History, key: &RecordKey, register: &Register) -> Vec<String> {
    let reads: Vec<Read<&Fields>> = history
        .reads()
        .filter(|(_, of, _)| *of == key)
        .filter_map(|(operation, _, image)| read(operation, image, register))
        .collect();
    let mut writes = vec![Write::nothing()];
    for (operation, changes) in history.writes() {
        let effects = changes.iter().filter(|change| change.key() == key);
        for value in effects.filter_map(|change| effect(change, register)) {
            let acknowledged = operation.done().and(operation.ended);
            let seen = reads
                .iter()
                .filter(|read| value.is_some() && read.value == value);
            let happened = seen.map(|read| read.ended).chain(acknowledged).min();
            let refused = matches!(operation.end, End::Refused { .. });
            writes.push(Write {
                value,
                began: operation.invoked,
                happened,
                refused,
            });
        }
    }
    let told = |read: &Read<&Fields>| {
        let what = judge(read, &writes)?;
        Some(format!("{key} {register:?} {what}"))
    };
    reads.iter().filter_map(told).collect()
}

/// What is wrong with what a read shows, given all writes of the register.
pub(super) fn judge<V: PartialEq + Debug>(read: &Read<V>, writes: &[Write<V>]) -> Option<String> {
    let told = |what: &str| {
        let Moment(moment) = read.ended;
        Some(format!(
            "read at {moment} shows {:?}, which {what}",
            read.value
        ))
    };
    let source: Vec<&Write<V>> = writes
        .iter()
        .filter(|write| write.value == read.value)
        .collect();
    if source.is_empty() {
        return told("nobody wrote");
    }
    let possible: Vec<_> = source
        .into_iter()
        .filter(|write| !write.refused && write.began < read.ended)
        .collect();
    if possible.is_empty() {
        return told("was refused, or was not yet asked for");
    }
    let replaced = |write: &&Write<V>| {
        writes.iter().any(|later| {
            later.value != read.value
                && !later.refused
                && write
                    .happened
                    .is_some_and(|happened| happened < later.began)
                && later.happened.is_some_and(|happened| happened < read.began)
        })
    };
    if possible.iter().all(replaced) {
        return told("was replaced before the read began");
    }
    None
}

/// `None` where the read says nothing about the register.
fn read<'a>(
    operation: &Operation,
    image: Option<&'a Record>,
    register: &Register,
) -> Option<Read<&'a Fields>> {
    let header = image.and_then(|image| image.header.content.live());
    let value = match register {
        Register::Header => header,
        Register::Part(_) if header.is_none() => return None,
        Register::Part(part) => image.and_then(|image| image.part(part)),
    };
    Some(Read {
        value,
        began: operation.invoked,
        ended: operation.ended?,
    })
}

/// What the change makes of the register; `None` when it does not touch it.
fn effect<'a>(change: &'a Change, register: &Register) -> Option<Option<&'a Fields>> {
    let among = |parts: &'a [(PartKey, Fields)], part: &PartKey| {
        parts
            .iter()
            .find(|(of, _)| of == part)
            .map(|(_, fields)| fields)
    };
    match (change, register) {
        (
            Change::CreateIfAbsent { header, .. } | Change::ChangeIf { header, .. },
            Register::Header,
        ) => Some(Some(header)),
        (Change::CreateIfAbsent { parts, .. }, Register::Part(part)) => Some(among(parts, part)),
        (Change::ChangeIf { parts, .. }, Register::Part(part)) => match parts {
            PartsChange::Keep => None,
            PartsChange::Replace(parts) => Some(among(parts, part)),
            PartsChange::Put(parts) => among(parts, part).map(Some),
        },
        (Change::Remove { .. }, _) => Some(None),
        (Change::Patch { parts, .. }, Register::Part(part)) => parts
            .iter()
            .find(|(of, _)| of == part)
            .map(|(_, change)| match change {
                PartChange::Set(fields) => Some(fields),
                PartChange::Remove => None,
            }),
        (Change::Patch { .. }, Register::Header)
        | (Change::Stock { .. } | Change::PutImage { .. }, _) => None,
    }
}

fn named_parts(change: &Change) -> Vec<&PartKey> {
    match change {
        Change::CreateIfAbsent { parts, .. }
        | Change::ChangeIf {
            parts: PartsChange::Replace(parts) | PartsChange::Put(parts),
            ..
        } => parts.iter().map(|(part, _)| part).collect(),
        Change::Patch { parts, .. } => parts.iter().map(|(part, _)| part).collect(),
        Change::ChangeIf {
            parts: PartsChange::Keep,
            ..
        }
        | Change::Remove { .. }
        | Change::Stock { .. }
        | Change::PutImage { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use engine_api::{Content, Header, Part};

    use super::*;
    use crate::checks::story::{Story, revision};
    use crate::recording::Intent;
    use crate::scenery::{Marks, cart, cart_header, create, line, patch_while_active};

    struct Cart {
        key: RecordKey,
        header: Fields,
        lines: [Fields; 3],
    }

    fn a_cart() -> Cart {
        let marks = Marks::default();
        let lines = [line(&marks), line(&marks), line(&marks)];
        Cart {
            key: cart("ada"),
            header: cart_header("ada", "active", &marks),
            lines,
        }
    }

    impl Cart {
        fn set(&self, line: usize) -> Change {
            let set = PartChange::Set(self.lines[line].clone());
            patch_while_active(&self.key, vec![(PartKey::line("lamp"), set)])
        }

        fn image(&self, line: Option<usize>) -> Option<Record> {
            let header = Header {
                revision: revision(2),
                cleared: revision(1),
                content: Content::Live(self.header.clone()),
            };
            let part = |line: usize| {
                (
                    PartKey::line("lamp"),
                    Part::live(revision(4), self.lines[line].clone()),
                )
            };
            let parts = line.map(part).into_iter().collect();
            Some(Record {
                key: self.key.clone(),
                header,
                parts,
            })
        }

        fn created(&self) -> Story {
            let mut story = Story::begin();
            story.writes(create(&self.key, self.header.clone(), vec![]), 2);
            story
        }
    }

    #[test]
    fn what_was_written_last_or_meanwhile_may_be_read() {
        let cart = a_cart();
        let mut story = cart.created();
        story.reads(&cart.key, cart.image(None));
        story.writes(cart.set(0), 4);
        let under_way = story.asks(Intent::Write(vec![cart.set(1)]));
        story.reads(&cart.key, cart.image(Some(0)));
        story.reads(&cart.key, cart.image(Some(1)));
        story.is_told(
            under_way,
            End::Unknown {
                why: "lost".to_owned(),
            },
        );
        assert_eq!(check(&story.history), Vec::<String>::new());
    }

    #[test]
    fn a_lost_acknowledged_write_is_found() {
        let cart = a_cart();
        let mut story = cart.created();
        story.writes(cart.set(0), 4);
        story.reads(&cart.key, cart.image(None));
        assert_eq!(check(&story.history).len(), 1);
    }

    #[test]
    fn a_lost_record_is_found() {
        let cart = a_cart();
        let mut story = cart.created();
        story.reads(&cart.key, None);
        assert_eq!(check(&story.history).len(), 1);
    }

    #[test]
    fn a_replaced_value_that_comes_back_is_found() {
        let cart = a_cart();
        let mut story = cart.created();
        story.writes(cart.set(0), 4);
        story.writes(cart.set(1), 6);
        story.reads(&cart.key, cart.image(Some(0)));
        assert_eq!(check(&story.history).len(), 1);
    }

    #[test]
    fn what_was_read_once_does_not_vanish_though_its_write_was_never_answered() {
        let cart = a_cart();
        let mut story = cart.created();
        story.writes(cart.set(0), 4);
        story.asks(Intent::Write(vec![cart.set(1)]));
        story.reads(&cart.key, cart.image(Some(1)));
        story.reads(&cart.key, cart.image(Some(0)));
        assert_eq!(check(&story.history).len(), 1);
    }

    #[test]
    fn what_was_refused_or_never_written_is_not_read() {
        let cart = a_cart();
        let mut story = cart.created();
        story.is_refused(cart.set(0));
        story.reads(&cart.key, cart.image(Some(0)));
        story.writes(cart.set(1), 4);
        story.reads(&cart.key, cart.image(Some(2)));
        assert_eq!(check(&story.history).len(), 2);
    }
}
