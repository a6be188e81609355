//! Forgetting what this keyspace does not own any more (W47).
//!
//! There is no term to stop a late deletion. A record is condemned by a turn below zero, and deleted on the condition that
//! it still has that very turn. Whoever puts its image gives it another one, also if the image changes nothing. A decision
//! that was lost on its way is found by the next one on the same partition, before anything else is decided there.

use engine_api::{Condemned, EngineError, RecordKey};
use futures::future::join_all;

use crate::connection::Decided;
use crate::engine::CassandraEngine;

/// Partitions that are decided on at once.
const AT_ONCE_MAX: usize = 16;

pub(crate) async fn condemn(
    engine: &CassandraEngine,
    keys: &[RecordKey],
) -> Result<Vec<Condemned>, EngineError> {
    let mut condemned = Vec::with_capacity(keys.len());
    for some in keys.chunks(AT_ONCE_MAX) {
        for one in join_all(some.iter().map(|key| condemn_one(engine, key))).await {
            condemned.extend(one?);
        }
    }
    Ok(condemned)
}

/// One that others decide on is left out: it is met again.
async fn condemn_one(
    engine: &CassandraEngine,
    key: &RecordKey,
) -> Result<Option<Condemned>, EngineError> {
    let authority = &engine.tables(key.collection)?.authority;
    let (connection, id) = (engine.connection(), key.id.as_str());
    let stored = authority.load_latest(connection, id).await?;
    if stored.record.is_none() {
        return Ok(None);
    }
    let (decided, turn) = authority.condemn(connection, id, &stored).await?;
    Ok((decided == Decided::Applied).then(|| Condemned {
        key: key.clone(),
        mark: turn.to_be_bytes().to_vec(),
    }))
}

pub(crate) async fn forget(
    engine: &CassandraEngine,
    condemned: &[Condemned],
) -> Result<u64, EngineError> {
    let mut gone = 0;
    for some in condemned.chunks(AT_ONCE_MAX) {
        for one in join_all(some.iter().map(|one| forget_one(engine, one))).await {
            gone += one?;
        }
    }
    Ok(gone)
}

async fn forget_one(engine: &CassandraEngine, one: &Condemned) -> Result<u64, EngineError> {
    let tables = engine.tables(one.key.collection)?;
    let (connection, id) = (engine.connection(), one.key.id.as_str());
    let stored = tables.authority.load_latest(connection, id).await?;
    let turn = stored.turn().map(i64::to_be_bytes);
    let is_ours = turn.is_some_and(|turn| turn[..] == one.mark[..]);
    let (true, Some(record)) = (is_ours && stored.is_condemned(), &stored.record) else {
        return Ok(0);
    };
    let forgotten = tables.authority.forget(connection, id, &stored).await?;
    if forgotten == Decided::Refused {
        return Ok(0);
    }
    // By the time that stands in them: rows of an image that comes later stay.
    let level = tables.authority.levels.decided;
    for table in &tables.derived {
        if let Some(row) = table.row(&record.header) {
            table.forget(connection, record, &row, level).await?;
        }
    }
    Ok(1)
}
