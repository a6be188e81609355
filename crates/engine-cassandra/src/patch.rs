//! Patches: parts by timestamp, judged before the write and again after it (W2).

use engine_api::{
    Change, Decision, EngineError, Guard, Outcome, PartChange, PartKey, Record, WriteContext,
    decide,
};

use crate::authority::Read;
use crate::engine::{CassandraEngine, Tables};
use crate::journal::Entry;

pub(crate) async fn apply(
    engine: &CassandraEngine,
    tables: &Tables,
    change: &Change,
    context: &WriteContext,
) -> Result<Outcome, EngineError> {
    let Change::Patch { key, guard, parts } = change else {
        return Err(EngineError::Invalid {
            reason: "not a patch".to_owned(),
        });
    };
    let (connection, journal) = (engine.connection(), engine.journal());
    let stored = tables
        .authority
        .load(connection, key.id.as_str(), Read::Serial)
        .await?;
    let (record, kind, revision) = match decide(stored.record.as_ref(), change, context)? {
        Decision::Answer(outcome) => return Ok(outcome),
        Decision::Write {
            record,
            kind,
            revision,
        } => (record, kind, revision),
    };
    let entry = Entry {
        key: key.clone(),
        kind,
        revision,
        written_at: context.now,
    };
    let begun = journal.begin(connection, &entry).await?;
    let patched = parts
        .iter()
        .filter_map(|(part, _)| record.parts.get_key_value(part));
    if let Err(error) = tables.authority.patch(connection, &key.id, patched).await {
        match error {
            EngineError::OutcomeUnknown { .. } => journal.applied(connection, begun).await,
            _ => journal.void(connection, begun).await,
        }
        return Err(error);
    }
    // Whatever the answer will be, the rows are there: the entry stands.
    journal.applied(connection, begun).await;
    let after = tables
        .authority
        .load(connection, key.id.as_str(), Read::Serial)
        .await;
    let after = after.map_err(|error| EngineError::OutcomeUnknown {
        reason: error.to_string(),
    })?;
    Ok(judge(after.record.as_ref(), guard, parts, context))
}

/// What a patch that was written is worth, by the record as it is afterwards.
fn judge(
    after: Option<&Record>,
    guard: &Guard,
    parts: &[(PartKey, PartChange)],
    context: &WriteContext,
) -> Outcome {
    let Some(record) = after else {
        return Outcome::NoRecord;
    };
    let Some(fields) = record.live_at(context.now) else {
        return Outcome::NoRecord;
    };
    if !guard
        .header
        .iter()
        .all(|(field, value)| fields.get(*field) == Some(value))
    {
        return Outcome::GuardFailed {
            header: record.header.clone(),
        };
    }
    if record.header.cleared >= context.revision {
        return Outcome::Stale {
            stored: record.header.cleared,
        };
    }
    let shown = |(key, _): &(PartKey, PartChange)| {
        record
            .parts
            .get(key)
            .is_some_and(|part| part.revision >= context.revision)
    };
    // Rows that do not show lie under the deletion of an earlier record of this
    // id: numbered below it, the patch changed nothing.
    if parts.iter().all(shown) {
        Outcome::Done {
            revision: context.revision,
        }
    } else {
        Outcome::Stale {
            stored: context.revision,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use engine_api::{
        Authority, Content, Generation, Header, Part, RecordId, RecordKey, Revision, Timestamp,
        Writer,
    };
    use layout::{Collection, Field, Fields, Value};

    use super::*;

    fn revision(step: i64) -> Revision {
        Revision::at(Timestamp::from_unix_micros(step * 128), Writer::numbered(0))
    }

    fn cart(cleared: i64, line: i64) -> Record {
        let key = RecordKey::by_id(Collection::Carts, RecordId::new("c").unwrap());
        let fields = Fields::new().with(Field::Status, Value::text("active"));
        let header = Header {
            revision: revision(1),
            cleared: revision(cleared),
            content: Content::Live(fields),
        };
        let parts = BTreeMap::from([(PartKey::line("lamp"), Part::mark(revision(line)))]);
        Record { key, header, parts }
    }

    fn judged(after: Option<&Record>, status: &str) -> Outcome {
        let guard = Guard {
            header: vec![(Field::Status, Value::text(status))],
        };
        let context = WriteContext {
            authority: Authority::Router {
                generation: Generation(1),
            },
            now: Timestamp::from_unix_micros(0),
            revision: revision(5),
        };
        judge(
            after,
            &guard,
            &[(PartKey::line("lamp"), PartChange::Remove)],
            &context,
        )
    }

    #[test]
    fn a_patch_is_worth_what_the_record_shows_afterwards() {
        let done = Outcome::Done {
            revision: revision(5),
        };
        assert_eq!(judged(Some(&cart(0, 5)), "active"), done);
        assert_eq!(judged(Some(&cart(0, 6)), "active"), done);
        assert_eq!(judged(None, "active"), Outcome::NoRecord);
        assert!(matches!(
            judged(Some(&cart(0, 5)), "ordered"),
            Outcome::GuardFailed { .. }
        ));
        assert_eq!(
            judged(Some(&cart(7, 8)), "active"),
            Outcome::Stale {
                stored: revision(7)
            }
        );
        assert_eq!(
            judged(Some(&cart(0, 4)), "active"),
            Outcome::Stale {
                stored: revision(5)
            }
        );
    }
}
