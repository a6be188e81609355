//! Changes that decide: create, change, remove, image. Read, judge, write if
//! nobody decided in between, and from the beginning if somebody did.

use engine_api::{
    Change, Content, Decision, EngineError, Outcome, Record, Revision, WriteContext, decide,
};
use futures::future::join_all;
use layout::Value;

use crate::authority::Stored;
use crate::connection::{Connection, Decided};
use crate::derived::{DerivedTable, Moment};
use crate::engine::{CassandraEngine, Tables};
use crate::journal::Entry;

/// How often a change is judged again because others decided first.
const ATTEMPTS_MAX: usize = 16;

/// A derived table and a record's row in it.
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
        let id = change.key().id.as_str();
        let stored = tables.authority.load_latest(connection, id).await?;
        let (record, kind, revision) = match decide(stored.record.as_ref(), change, context)? {
            Decision::Answer(outcome) => {
                if let Change::PutImage { .. } = change
                    && stored.is_condemned()
                    && tables.authority.spare(connection, id, &stored).await? == Decided::Refused
                {
                    continue;
                }
                return Ok(outcome);
            }
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
            moment(change, &record, context),
        )
        .await?
        {
            Decided::Applied => {
                if let Change::PutImage { .. } = change {
                    drop_rows_of_images(connection, tables, &stored, &record).await?;
                }
                return Ok(Outcome::Done { revision });
            }
            Decided::Refused => {}
        }
    }
    Err(EngineError::Unavailable {
        reason: format!("{} is decided on by too many at once", change.key()),
    })
}

/// Makes the partition hold the image and nothing else, whatever stands there.
pub(crate) async fn restore(
    engine: &CassandraEngine,
    tables: &Tables,
    put: &Change,
    context: &WriteContext,
) -> Result<Outcome, EngineError> {
    check_image(put)?;
    let Change::PutImage { image } = put else {
        return Err(EngineError::Invalid {
            reason: "not an image".to_owned(),
        });
    };
    let (connection, id) = (engine.connection(), image.key.id.as_str());
    let revision = image.newest_revision();
    for _ in 0..ATTEMPTS_MAX {
        let found = tables.authority.load_latest(connection, id).await?;
        let entry = Entry {
            key: image.key.clone(),
            kind: image.change_kind(),
            revision,
            written_at: context.now,
        };
        let moment = moment(put, image, context);
        // Rows of patches outlive a decision, and were perhaps written at another time than they say.
        let patched = tables
            .authority
            .clear_to_now(connection, id, &found, context.now);
        patched.await?;
        // As if it held nothing: what has the image's own revision is written all the same.
        let (stored, was) = found.without_record();
        match write(engine, tables, &stored, image, entry, moment).await? {
            Decided::Applied => {
                let dropped = drop_outgrown(connection, tables, was.as_ref(), image);
                dropped.await?;
                return Ok(Outcome::Done { revision });
            }
            Decided::Refused => {}
        }
    }
    Err(EngineError::Unavailable {
        reason: format!("{} is decided on by too many at once", image.key),
    })
}

/// Rows of an earlier image were written by the clock, perhaps above the revision of the one that outgrows them: what a
/// router changed while the first was on its way. They go as they stand. Whoever is told nothing of that looks for
/// rows too many, and nobody reads them before.
async fn drop_rows_of_images(
    connection: &Connection,
    tables: &Tables,
    stored: &Stored,
    record: &Record,
) -> Result<(), EngineError> {
    let dropped = drop_outgrown(connection, tables, stored.record.as_ref(), record).await;
    dropped.map_err(|error| EngineError::OutcomeUnknown {
        reason: format!(
            "{} is there, and a row that it outgrew may be: {error}",
            record.key
        ),
    })
}

/// Rows of what stood there, which nobody reads from the record any more.
async fn drop_outgrown(
    connection: &Connection,
    tables: &Tables,
    was: Option<&Record>,
    image: &Record,
) -> Result<(), EngineError> {
    let level = tables.authority.levels.decided;
    let Some(was) = was else { return Ok(()) };
    for (table, row) in rows(tables, was) {
        if table.row(&image.header).as_ref() != Some(&row) {
            table.forget(connection, was, &row, level).await?;
        }
    }
    Ok(())
}

/// Entry, derived rows, decision; then what has become garbage.
async fn write(
    engine: &CassandraEngine,
    tables: &Tables,
    stored: &Stored,
    record: &Record,
    entry: Entry,
    moment: Moment,
) -> Result<Decided, EngineError> {
    let (connection, journal) = (engine.connection(), engine.journal());
    let begun = journal.begin(connection, &entry).await?;
    if let Err(error) = put_rows(engine, tables, stored, record, moment).await {
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

/// The rows of all derived tables at once, with the periods they fall into.
async fn put_rows(
    engine: &CassandraEngine,
    tables: &Tables,
    stored: &Stored,
    record: &Record,
    moment: Moment,
) -> Result<(), EngineError> {
    let mut bound = Vec::new();
    let mut periods = Vec::new();
    for table in &tables.derived {
        let rows = table.put(stored.record.as_ref(), record, moment);
        if let (false, Some(calendar), Some(header)) = (
            rows.is_empty(),
            engine.calendar(),
            record.header.content.live(),
        ) && let Some(period) = calendar.missing(&table.table, header)
        {
            bound.push(calendar.put(&period));
            periods.push(period);
        }
        bound.extend(rows);
    }
    let level = tables.authority.levels.decided;
    engine.connection().write_together(bound, level).await?;
    if let Some(calendar) = engine.calendar() {
        calendar.learn(periods);
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
    let before = record.header.revision.just_before().to_i64();
    let level = tables.authority.levels.decided;
    let outgrown = stored.record.iter().flat_map(|stored| {
        let kept = |table: &DerivedTable, row: &Vec<Value>| {
            table.row(&record.header).as_ref() == Some(row)
        };
        rows(tables, stored)
            .filter(move |(table, row)| !kept(table, row))
            .flat_map(move |(table, row)| table.drop_row(stored, &row, before))
    });
    let deleted = outgrown.map(|(statement, cells)| connection.write(statement, cells, level));
    for deleted in join_all(deleted).await {
        if let Err(error) = deleted {
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
    tables.derived.iter().filter_map(row)
}

fn moment(change: &Change, record: &Record, context: &WriteContext) -> Moment {
    match change {
        Change::PutImage { .. } => Moment::of_image(record, context.now),
        _ => Moment::of_record(record, context.now),
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
