//! Changes that decide: create, change, remove, image. Read, judge, write if
//! nobody decided in between, and from the beginning if somebody did.

use engine_api::{
    Change, Content, Decision, EngineError, Outcome, Record, Revision, WriteContext, decide,
};
use layout::Value;

use crate::authority::{Read, Stored};
use crate::connection::{Connection, Decided};
use crate::derived::{DerivedTable, stamp_of_image};
use crate::engine::{CassandraEngine, Tables};
use crate::journal::Entry;

/// How often a change is judged again because others decided first.
const ATTEMPTS_MAX: usize = 16;

/// A row of a derived table, as it is to be written or deleted.
type PlannedRow<'a> = (&'a DerivedTable, Vec<Value>);

pub(crate) async fn apply(
    engine: &CassandraEngine,
    tables: &Tables,
    change: &Change,
    context: &WriteContext,
) -> Result<Outcome, EngineError> {
    check_image(change)?;
    let connection = engine.connection();
    for _ in 0..ATTEMPTS_MAX {
        let stored = tables
            .authority
            .load(connection, change.key().id.as_str(), Read::Serial)
            .await?;
        let (record, kind, revision) = match decide(stored.record.as_ref(), change, context)? {
            Decision::Answer(outcome) => return Ok(outcome),
            Decision::Write {
                record,
                kind,
                revision,
            } => (record, kind, revision),
        };
        if let Some(stale) = hidden_by_orphans(&stored, &record) {
            return Ok(stale);
        }
        let entry = Entry {
            key: record.key.clone(),
            kind,
            revision,
            written_at: context.now,
        };
        match write(
            engine,
            tables,
            &stored,
            &record,
            entry,
            stamp(change, &record, context),
        )
        .await?
        {
            Decided::Applied => return Ok(Outcome::Done { revision }),
            Decided::Refused => {}
        }
    }
    Err(EngineError::Unavailable {
        reason: format!("{} is decided on by too many at once", change.key()),
    })
}

/// Entry, derived rows, decision; then what has become garbage.
async fn write(
    engine: &CassandraEngine,
    tables: &Tables,
    stored: &Stored,
    record: &Record,
    entry: Entry,
    stamp: i64,
) -> Result<Decided, EngineError> {
    let (connection, journal) = (engine.connection(), engine.journal());
    let begun = journal.begin(connection, &entry).await?;
    if let Err(error) = insert_rows(connection, tables, record, stamp).await {
        journal.void(connection, begun).await;
        // A row too many is no change: whoever reads it finds that the record does not answer.
        return Err(EngineError::Unavailable {
            reason: error.to_string(),
        });
    }
    let decided = tables.authority.replace(connection, stored, record).await;
    match &decided {
        Ok(Decided::Applied) => {
            collect_garbage(connection, tables, stored, record).await;
            journal.applied(connection, begun).await;
        }
        Err(EngineError::OutcomeUnknown { .. }) => journal.applied(connection, begun).await,
        Ok(Decided::Refused) | Err(_) => journal.void(connection, begun).await,
    }
    decided
}

async fn insert_rows(
    connection: &Connection,
    tables: &Tables,
    record: &Record,
    stamp: i64,
) -> Result<(), EngineError> {
    for (table, row) in rows(tables, record) {
        table.insert(connection, record, &row, stamp).await?;
    }
    Ok(())
}

/// Rows that the record has outgrown and parts that its header hides. What
/// fails here costs readers a look and nothing else, so the change is done.
async fn collect_garbage(
    connection: &Connection,
    tables: &Tables,
    stored: &Stored,
    record: &Record,
) {
    let now: Vec<PlannedRow<'_>> = rows(tables, record).collect();
    let kept = |(table, row): &PlannedRow<'_>| {
        now.iter()
            .any(|(other, same)| std::ptr::eq(*other, *table) && same == row)
    };
    let id = record.key.id.as_str();
    let before = record.header.revision.just_before().to_i64();
    let outgrown = stored
        .record
        .iter()
        .flat_map(|stored| rows(tables, stored))
        .filter(|row| !kept(row));
    for (table, row) in outgrown {
        if let Err(error) = table.delete(connection, id, &row, before).await {
            tracing::warn!(%error, "an outgrown derived row stays until a reader meets it");
        }
    }
    let cleared = tables
        .authority
        .clear_patched(connection, stored, &record.header, &record.key.id)
        .await;
    if let Err(error) = cleared {
        tracing::warn!(%error, "cleared parts stay until their record is cleared again");
    }
}

fn rows<'a>(tables: &'a Tables, record: &Record) -> impl Iterator<Item = PlannedRow<'a>> {
    let row = |table: &'a DerivedTable| Some((table, table.row(&record.header)?));
    tables
        .derived
        .iter()
        .filter_map(row)
        .collect::<Vec<_>>()
        .into_iter()
}

fn stamp(change: &Change, record: &Record, context: &WriteContext) -> i64 {
    match change {
        Change::PutImage { .. } => stamp_of_image(record, context.now),
        _ => record.header.revision.to_i64(),
    }
}

/// A header must not rise among rows that a collected record left above it:
/// they would become its parts.
fn hidden_by_orphans(stored: &Stored, record: &Record) -> Option<Outcome> {
    let newest = stored.orphans_newest;
    (newest > record.header.cleared && newest > Revision::ZERO)
        .then_some(Outcome::Stale { stored: newest })
}

/// Header fields are columns: what has none cannot be kept.
fn check_image(change: &Change) -> Result<(), EngineError> {
    let Change::PutImage { image } = change else {
        return Ok(());
    };
    let Content::Live(fields) = &image.header.content else {
        return Ok(());
    };
    let known = image.key.collection.header_fields();
    match fields.iter().find(|(field, _)| !known.contains(field)) {
        Some((field, _)) => Err(EngineError::Invalid {
            reason: format!("{field} is not a header field of {}", image.key.collection),
        }),
        None => Ok(()),
    }
}
