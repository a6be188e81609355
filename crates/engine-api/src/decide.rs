//! The rules of changes, pure: what is stored, what is asked, what becomes of it.
//!
//! Engines that judge in their own process (memory, embedded) call this inside
//! their commit; it is also the yardstick for those whose server judges.

use std::borrow::Borrow;

use layout::Fields;
use model::Timestamp;

use crate::change::{Change, Guard, Outcome, PartChange, PartsChange};
use crate::context::WriteContext;
use crate::error::EngineError;
use crate::journal::ChangeKind;
use crate::record::{Content, Header, Merged, Part, PartKey, RECORD_PARTS_MAX, Record, RecordKey};
use crate::revision::Revision;
use crate::stock;
use crate::validate::invalid;

/// What becomes of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The record becomes this; the journal gets an entry.
    Write {
        record: Record,
        kind: ChangeKind,
        revision: Revision,
    },
    /// Nothing is written.
    Answer(Outcome),
}

/// Judges a change against what is stored under its key.
pub fn decide(
    stored: Option<&Record>,
    change: &Change,
    context: &WriteContext,
) -> Result<Decision, EngineError> {
    if let Some(stored) = stored
        && stored.key.shard_key != change.key().shard_key
    {
        return Err(invalid(format!(
            "{} has shard key {}, the change says {}: shard keys never change",
            stored.key,
            stored.key.shard_key,
            change.key().shard_key
        )));
    }
    Ok(match change {
        Change::CreateIfAbsent { key, header, parts } => {
            create(stored, key, header, parts, context)
        }
        Change::ChangeIf {
            expected,
            header,
            parts,
            ..
        } => change_if(stored, *expected, header, parts, context),
        Change::Patch { guard, parts, .. } => patch(stored, guard, parts, context),
        Change::Remove { expected, .. } => remove(stored, *expected, context),
        Change::Stock {
            part,
            price,
            action,
            ..
        } => stock::decide(stored, part, *price, action, context)?,
        Change::PutImage { image } => put_image(stored, image),
    })
}

/// What becomes of changes that go together: all of these, or the one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupDecision {
    Write {
        writes: Vec<(Record, ChangeKind, Revision)>,
        revision: Revision,
    },
    Answer(Outcome),
}

/// Judges changes that stand or fall together. `stored` looks a key up as it
/// is before any of them.
pub fn decide_together<S: Borrow<Record>>(
    changes: &[Change],
    context: &WriteContext,
    mut stored: impl FnMut(&RecordKey) -> Result<Option<S>, EngineError>,
) -> Result<GroupDecision, EngineError> {
    let mut writes: Vec<(Record, ChangeKind, Revision)> = Vec::with_capacity(changes.len());
    for change in changes {
        let key = change.key();
        let earlier = writes.iter().position(|(record, ..)| record.key == *key);
        let decision = match earlier {
            Some(index) => decide(Some(&writes[index].0), change, context)?,
            None => decide(stored(key)?.as_ref().map(S::borrow), change, context)?,
        };
        match (decision, earlier) {
            (
                Decision::Write {
                    record,
                    kind,
                    revision,
                },
                Some(index),
            ) => {
                writes[index] = (record, kind, revision.max(writes[index].2));
            }
            (
                Decision::Write {
                    record,
                    kind,
                    revision,
                },
                None,
            ) => {
                writes.push((record, kind, revision));
            }
            // The guard bears this commit's revision already: an earlier
            // attempt was applied, and with it everything beside it.
            (Decision::Answer(Outcome::Done { revision }), _) if change.is_conditional() => {
                return Ok(GroupDecision::Answer(Outcome::Done { revision }));
            }
            (Decision::Answer(Outcome::Done { .. }), _) => {}
            // What an earlier attempt sold out must not refuse its repeat.
            (Decision::Answer(refusal), _) => {
                let before = applied_before(changes, context, stored)?;
                return Ok(GroupDecision::Answer(before.unwrap_or(refusal)));
            }
        }
    }
    let revision = writes
        .iter()
        .map(|(_, _, revision)| *revision)
        .max()
        .unwrap_or(context.revision);
    Ok(GroupDecision::Write { writes, revision })
}

/// The answer of a guard that bears this commit's revision already.
fn applied_before<S: Borrow<Record>>(
    changes: &[Change],
    context: &WriteContext,
    mut stored: impl FnMut(&RecordKey) -> Result<Option<S>, EngineError>,
) -> Result<Option<Outcome>, EngineError> {
    for change in changes.iter().filter(|change| change.is_conditional()) {
        let decision = decide(
            stored(change.key())?.as_ref().map(S::borrow),
            change,
            context,
        )?;
        if let Decision::Answer(done @ Outcome::Done { .. }) = decision {
            return Ok(Some(done));
        }
    }
    Ok(None)
}

fn create(
    stored: Option<&Record>,
    key: &RecordKey,
    header: &Fields,
    parts: &[(PartKey, Fields)],
    context: &WriteContext,
) -> Decision {
    if let Some(stored) = stored {
        if stored.live_at(context.now).is_some() {
            return Decision::Answer(if stored.header.revision == context.revision {
                Outcome::Done {
                    revision: context.revision,
                }
            } else {
                Outcome::Exists {
                    record: Box::new(stored.clone()),
                }
            });
        }
        if let Some(stale) = stale(stored.newest_revision(), context) {
            return stale;
        }
    }
    write(
        Record {
            key: key.clone(),
            header: fresh_header(context.revision, Content::Live(header.clone())),
            parts: fresh_parts(parts, context.revision),
        },
        context.revision,
    )
}

fn change_if(
    stored: Option<&Record>,
    expected: Revision,
    header: &Fields,
    parts: &PartsChange,
    context: &WriteContext,
) -> Decision {
    let Some(stored) = live(stored, context.now) else {
        return Decision::Answer(Outcome::NoRecord);
    };
    if let Some(answer) = unless_expected(stored, expected, context) {
        return answer;
    }
    let content = Content::Live(header.clone());
    let mut record = stored.clone();
    match parts {
        PartsChange::Keep => {
            if let Some(stale) = stale(stored.header.revision, context) {
                return stale;
            }
            record.header.revision = context.revision;
            record.header.content = content;
        }
        PartsChange::Replace(parts) => {
            if let Some(stale) = stale(stored.newest_revision(), context) {
                return stale;
            }
            record.header = fresh_header(context.revision, content);
            record.parts = fresh_parts(parts, context.revision);
        }
        PartsChange::Put(parts) => {
            let newest = parts
                .iter()
                .filter_map(|(key, _)| Some(stored.parts.get(key)?.revision))
                .fold(stored.header.revision, Revision::max);
            if let Some(stale) = stale(newest, context) {
                return stale;
            }
            record.header.revision = context.revision;
            record.header.content = content;
            record.parts.extend(fresh_parts(parts, context.revision));
            if record.parts.len() > RECORD_PARTS_MAX {
                return Decision::Answer(Outcome::TooManyParts {
                    parts_max: RECORD_PARTS_MAX,
                });
            }
        }
    }
    write(record, context.revision)
}

fn patch(
    stored: Option<&Record>,
    guard: &Guard,
    parts: &[(PartKey, PartChange)],
    context: &WriteContext,
) -> Decision {
    let Some(stored) = live(stored, context.now) else {
        return Decision::Answer(Outcome::NoRecord);
    };
    let newest = |key: &PartKey| stored.parts.get(key).map(|part| part.revision);
    // A patch is one change: one part that bears its revision shows that all were written.
    if parts
        .iter()
        .any(|(key, _)| newest(key) == Some(context.revision))
    {
        return Decision::Answer(Outcome::Done {
            revision: context.revision,
        });
    }
    if !holds(guard, &stored.header) {
        return Decision::Answer(Outcome::GuardFailed {
            header: stored.header.clone(),
        });
    }
    let floor = parts
        .iter()
        .filter_map(|(key, _)| newest(key))
        .fold(stored.header.cleared, Revision::max);
    if let Some(stale) = stale(floor, context) {
        return stale;
    }
    let mut record = stored.clone();
    for (key, change) in parts {
        let content = match change {
            PartChange::Set(fields) => Content::Live(fields.clone()),
            PartChange::Remove => Content::Removed,
        };
        record.parts.insert(
            key.clone(),
            Part {
                revision: context.revision,
                content,
            },
        );
    }
    if record.parts.len() > RECORD_PARTS_MAX {
        return Decision::Answer(Outcome::TooManyParts {
            parts_max: RECORD_PARTS_MAX,
        });
    }
    write(record, context.revision)
}

fn remove(stored: Option<&Record>, expected: Revision, context: &WriteContext) -> Decision {
    if let Some(stored) = stored
        && stored.header.content == Content::Removed
        && stored.header.revision == context.revision
    {
        return Decision::Answer(Outcome::Done {
            revision: context.revision,
        });
    }
    let Some(stored) = live(stored, context.now) else {
        return Decision::Answer(Outcome::NoRecord);
    };
    if let Some(answer) = unless_expected(stored, expected, context) {
        return answer;
    }
    if let Some(stale) = stale(stored.newest_revision(), context) {
        return stale;
    }
    let record = Record {
        key: stored.key.clone(),
        header: fresh_header(context.revision, Content::Removed),
        parts: Default::default(),
    };
    Decision::Write {
        record,
        kind: ChangeKind::Removed,
        revision: context.revision,
    }
}

fn put_image(stored: Option<&Record>, image: &Record) -> Decision {
    let revision = image.newest_revision();
    let mut record = stored.unwrap_or(image).clone();
    // Merging also drops parts that the image's own header has cleared.
    let merged = record.merge(image);
    if stored.is_some() && merged == Merged::Unchanged {
        return Decision::Answer(Outcome::Done { revision });
    }
    Decision::Write {
        kind: record.change_kind(),
        record,
        revision,
    }
}

pub(crate) fn live(stored: Option<&Record>, now: Timestamp) -> Option<&Record> {
    stored.filter(|record| record.live_at(now).is_some())
}

pub(crate) fn write(record: Record, revision: Revision) -> Decision {
    Decision::Write {
        record,
        kind: ChangeKind::Written,
        revision,
    }
}

/// The answer when the header is not the expected one; an earlier attempt of
/// this very change is recognised by its revision, which nobody else has.
fn unless_expected(
    stored: &Record,
    expected: Revision,
    context: &WriteContext,
) -> Option<Decision> {
    if stored.header.revision == expected {
        return None;
    }
    Some(Decision::Answer(
        if stored.header.revision == context.revision {
            Outcome::Done {
                revision: context.revision,
            }
        } else {
            Outcome::Conflict {
                header: stored.header.clone(),
            }
        },
    ))
}

fn stale(stored: Revision, context: &WriteContext) -> Option<Decision> {
    (context.revision <= stored).then_some(Decision::Answer(Outcome::Stale { stored }))
}

fn fresh_header(revision: Revision, content: Content) -> Header {
    Header {
        revision,
        cleared: revision.just_before(),
        content,
    }
}

fn fresh_parts(
    parts: &[(PartKey, Fields)],
    revision: Revision,
) -> std::collections::BTreeMap<PartKey, Part> {
    parts
        .iter()
        .map(|(key, fields)| (key.clone(), Part::live(revision, fields.clone())))
        .collect()
}

fn holds(guard: &Guard, header: &Header) -> bool {
    header.content.live().is_some_and(|fields| {
        guard
            .header
            .iter()
            .all(|(field, value)| fields.get(*field) == Some(value))
    })
}
