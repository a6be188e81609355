//! Collecting: expired records, old marks, old journal entries.
//!
//! There is no index of due times: a call goes around the ring from where the
//! last one stopped, until it has collected enough or been everywhere.

use engine_api::{
    Content, EngineError, Maintained, Maintenance, Part, PartKey, Record, Revision, Timestamp,
};
use scylla::response::PagingState;

use crate::authority::{KeyPiece, SCAN_PAGE_KEYS_MAX};
use crate::connection::Decided;
use crate::engine::{CassandraEngine, Tables};

/// Why a record is collected.
#[derive(Debug)]
enum Due {
    Expired,
    OldMark,
    /// The record lives on without these marks of its parts.
    OldParts(Vec<(PartKey, Revision)>),
}

pub(crate) async fn maintain(
    engine: &CassandraEngine,
    work: Maintenance,
) -> Result<Maintained, EngineError> {
    let mut done = Maintained::default();
    // Derived rows of an expired record go with it; a listing passes over them until then.
    for tables in engine.all_tables() {
        sweep(engine, tables, &work, &mut done).await?;
    }
    let left = work.items_max - (done.expired + done.marks).min(work.items_max);
    if left > 0 {
        done.journal_entries = engine
            .journal()
            .trim(engine.connection(), work.journal_before, left)
            .await?;
    }
    Ok(done)
}

async fn sweep(
    engine: &CassandraEngine,
    tables: &Tables,
    work: &Maintenance,
    done: &mut Maintained,
) -> Result<(), EngineError> {
    let start = tables.swept_to();
    // The second way round covers what lies before the start.
    for from in [start, i64::MIN].map(KeyPiece::FromToken) {
        let mut paging = Some(PagingState::start());
        while let Some(page) = paging.take() {
            let authority = &tables.authority;
            let keys = authority.keys(engine.connection(), &from, page, SCAN_PAGE_KEYS_MAX);
            let (keys, next) = keys.await?;
            for key in keys {
                if done.expired + done.marks >= work.items_max {
                    tables.set_swept_to(key.token);
                    return Ok(());
                }
                match collect(engine, tables, &key.id, work).await? {
                    Some(Due::Expired) => done.expired += 1,
                    Some(Due::OldMark | Due::OldParts(_)) => done.marks += 1,
                    None => {}
                }
            }
            paging = next;
        }
        if start == i64::MIN {
            break;
        }
    }
    tables.set_swept_to(i64::MIN);
    Ok(())
}

async fn collect(
    engine: &CassandraEngine,
    tables: &Tables,
    id: &str,
    work: &Maintenance,
) -> Result<Option<Due>, EngineError> {
    let connection = engine.connection();
    let levels = &tables.authority.levels;
    let quorum = levels.rows(levels.latest());
    let stored = tables.authority.load(connection, id, quorum).await?;
    let Some(record) = &stored.record else {
        return Ok(None);
    };
    let Some(due) = due(record, work, engine.collect_margin_s()) else {
        return Ok(None);
    };
    let decided = match &due {
        Due::Expired | Due::OldMark => tables.authority.forget(connection, id, &stored).await?,
        Due::OldParts(marks) => {
            tables
                .authority
                .forget_marks(connection, &stored, record, marks)
                .await?
        }
    };
    if decided == Decided::Refused {
        return Ok(None);
    }
    if let Due::OldParts(_) = due {
        return Ok(Some(due));
    }
    for table in &tables.derived {
        if let Some(row) = table.row(&record.header) {
            table.forget(connection, record, &row, quorum).await?;
        }
    }
    Ok(Some(due))
}

fn due(record: &Record, work: &Maintenance, margin_s: u32) -> Option<Due> {
    let after_margin = |at: Timestamp| at.checked_add_seconds(i64::from(margin_s));
    if record
        .expires_at()
        .and_then(after_margin)
        .is_some_and(|at| at <= work.now)
    {
        return Some(Due::Expired);
    }
    if record.header.content == Content::Removed
        && record.header.revision.time() < work.marks_before
    {
        return Some(Due::OldMark);
    }
    let is_old = |(_, part): &(&PartKey, &Part)| {
        part.content == Content::Removed && part.revision.time() < work.marks_before
    };
    let marks: Vec<_> = record
        .parts
        .iter()
        .filter(is_old)
        .map(|(key, part)| (key.clone(), part.revision))
        .collect();
    (!marks.is_empty()).then_some(Due::OldParts(marks))
}
