//! Patches: parts by timestamp, judged before the write and again after it (W2).

use engine_api::{
    Change, Decision, EngineError, Guard, Outcome, PartChange, PartKey, Record, WriteContext,
    decide,
};

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
    let (authority, id) = (&tables.authority, key.id.as_str());
    let stored = authority.load_latest(connection, id).await?;
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
    let patched = parts
        .iter()
        .filter_map(|(part, _)| record.parts.get_key_value(part));
    let mut bound = authority.patch(&key.id, patched);
    let (before, read) = (stored.record.as_ref(), authority.levels.latest());
    for table in &tables.derived {
        let read = (context.now, authority.levels.rows(read));
        bound.extend(table.patch(connection, before, &record, read).await?);
    }
    let begun = journal.begin(connection, &entry).await?;
    if let Err(error) = connection
        .write_together(bound, authority.levels.patched)
        .await
    {
        match error {
            EngineError::OutcomeUnknown { .. } => journal.applied(connection, begun).await,
            _ => journal.void(connection, begun).await,
        }
        return Err(error);
    }
    // Whatever the answer will be, the rows are there: the entry stands.
    journal.applied(connection, begun).await;
    let after = authority.load_latest(connection, id).await;
    let after = after.map_err(|error| EngineError::OutcomeUnknown {
        reason: error.to_string(),
    })?;
    drop_misplaced(engine, tables, parts, &record, after.record.as_ref()).await;
    let sight = match authority.levels.overlapping {
        true => Sight::Certain,
        false => Sight::Perhaps,
    };
    Ok(judge(after.record.as_ref(), guard, parts, context, sight))
}

/// Whether a read after the write must show it: not where the layout writes to
/// fewer copies than reads are sure to meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    Certain,
    Perhaps,
}

/// A decision may have moved the record's rows while the patch was under way;
/// what it copied into the old ones would stay there for ever.
async fn drop_misplaced(
    engine: &CassandraEngine,
    tables: &Tables,
    parts: &[(PartKey, PartChange)],
    record: &Record,
    after: Option<&Record>,
) {
    let mut patched = record.clone();
    patched
        .parts
        .retain(|key, _| parts.iter().any(|(part, _)| part == key));
    let mut bound = Vec::new();
    for table in &tables.derived {
        let row = table.row(&record.header);
        if let Some(row) =
            row.filter(|row| after.and_then(|after| table.row(&after.header)).as_ref() != Some(row))
        {
            bound.extend(table.drop_parts(&patched, &row, |_| true));
        }
    }
    if bound.is_empty() {
        return;
    }
    let level = tables.authority.levels.patched;
    if let Err(error) = engine.connection().write_together(bound, level).await {
        tracing::warn!(%error, "a copied item stays in a row that its cart has outgrown");
    }
}

/// What a patch that was written is worth, by the record as it is afterwards.
fn judge(
    after: Option<&Record>,
    guard: &Guard,
    parts: &[(PartKey, PartChange)],
    context: &WriteContext,
    sight: Sight,
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
    if sight == Sight::Perhaps || parts.iter().all(shown) {
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

    fn judged_by(after: Option<&Record>, status: &str, sight: Sight) -> Outcome {
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
            sight,
        )
    }

    fn judged(after: Option<&Record>, status: &str) -> Outcome {
        judged_by(after, status, Sight::Certain)
    }

    #[test]
    fn a_write_to_one_copy_need_not_be_seen_but_its_header_must() {
        let done = Outcome::Done {
            revision: revision(5),
        };
        let unseen = Some(&cart(0, 4));
        assert_eq!(judged_by(unseen, "active", Sight::Perhaps), done);
        assert!(matches!(
            judged_by(unseen, "ordered", Sight::Perhaps),
            Outcome::GuardFailed { .. }
        ));
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
