//! Scans of a whole collection, in the servers' own order of tokens.

use engine_api::{EngineError, PAGE_RECORDS_MAX, Record, Scan, ScanPage, ScanPosition};
use futures::{StreamExt, TryStreamExt, stream};
use scylla::response::PagingState;

use crate::authority::ScannedKey;
use crate::engine::{CassandraEngine, Tables};

/// Records read at once for one page.
const READS_AT_ONCE: usize = 32;
/// Keys looked at for one page; beyond it the page is cut short.
const SCAN_KEYS_MAX: usize = 100_000;

pub(crate) async fn page(
    engine: &CassandraEngine,
    tables: &Tables,
    scan: &Scan,
) -> Result<ScanPage, EngineError> {
    let limit = scan.limit.clamp(1, PAGE_RECORDS_MAX);
    let after = scan.after.as_ref().map(parse).transpose()?;
    let mut pieces = tables.authority.pieces_after(after.as_ref()).into_iter();
    let (mut images, mut looked_at) = (Vec::new(), 0);
    let (mut piece, mut paging) = (pieces.next(), PagingState::start());
    while let Some(of) = &piece {
        let keys = tables
            .authority
            .keys(engine.connection(), of, paging, limit + 2);
        let (keys, next) = keys.await?;
        looked_at += keys.len();
        let last = keys.last().map(position);
        let ended = scan
            .until
            .as_ref()
            .zip(last.as_ref())
            .is_some_and(|(until, last)| last >= until);
        let wanted: Vec<_> = keys
            .into_iter()
            .filter(|key| is_wanted(scan, key))
            .map(|key| image(engine, tables, key))
            .collect();
        let mut loaded = stream::iter(wanted).buffered(READS_AT_ONCE.min(limit + 1));
        while images.len() <= limit
            && let Some(loaded) = loaded.try_next().await?
        {
            images.extend(loaded);
        }
        if images.len() > limit || ended {
            break;
        }
        if looked_at >= SCAN_KEYS_MAX && next.is_some() {
            return Ok(ScanPage {
                images: images.into_iter().map(|(_, image)| image).collect(),
                next: last,
            });
        }
        match next {
            Some(next) => paging = next,
            None => (piece, paging) = (pieces.next(), PagingState::start()),
        }
    }
    let more = images.len() > limit;
    images.truncate(limit);
    let next = images
        .last()
        .filter(|_| more)
        .map(|(position, _)| position.clone());
    Ok(ScanPage {
        images: images.into_iter().map(|(_, image)| image).collect(),
        next,
    })
}

async fn image(
    engine: &CassandraEngine,
    tables: &Tables,
    key: ScannedKey,
) -> Result<Option<(ScanPosition, Record)>, EngineError> {
    let connection = engine.connection();
    let stored = tables.authority.load_from_every_copy(connection, &key.id);
    let stored = stored.await?;
    Ok(stored.record.map(|record| (position(&key), record)))
}

fn is_wanted(scan: &Scan, key: &ScannedKey) -> bool {
    let at = position(key);
    key.shard_key
        .as_ref()
        .is_some_and(|shard_key| scan.scope.contains(shard_key))
        && scan.after.as_ref().is_none_or(|after| at > *after)
        && scan.until.as_ref().is_none_or(|until| at <= *until)
}

/// The servers' own order: by token, and by id where two have the same.
fn position(key: &ScannedKey) -> ScanPosition {
    let token = (key.token as u64) ^ (1 << 63);
    ScanPosition([&token.to_be_bytes(), key.id.as_bytes()].concat())
}

fn parse(position: &ScanPosition) -> Result<(i64, String), EngineError> {
    let invalid = || EngineError::Invalid {
        reason: "not a scan position of this engine".to_owned(),
    };
    let (token, id) = position.0.split_first_chunk::<8>().ok_or_else(invalid)?;
    let token = (u64::from_be_bytes(*token) ^ (1 << 63)) as i64;
    let id = String::from_utf8(id.to_vec()).map_err(|_| invalid())?;
    Ok((token, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_sort_like_tokens_and_give_them_back() {
        let at = |token| {
            position(&ScannedKey {
                token,
                id: "x".to_owned(),
                shard_key: None,
            })
        };
        let tokens = [i64::MIN, -1, 0, 1, i64::MAX];
        assert!(tokens.windows(2).all(|pair| at(pair[0]) < at(pair[1])));
        for token in tokens {
            assert_eq!(parse(&at(token)), Ok((token, "x".to_owned())));
        }
        assert!(parse(&ScanPosition(vec![1])).is_err());
    }
}
