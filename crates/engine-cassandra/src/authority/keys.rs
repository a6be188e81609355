//! All keys of the table, in the servers' order.

use engine_api::EngineError;
use layout::ShardKey;
use scylla::response::PagingState;
use scylla::value::Row;

use super::AuthorityTable;
use crate::connection::{Columns, Connection, PageStart, number};
use crate::failure::damaged;

/// The most keys that one page of a scan asks the servers for.
pub(crate) const SCAN_PAGE_KEYS_MAX: usize = 256;
/// The fewest: a scope may leave out most of them.
const SCAN_PAGE_KEYS_MIN: usize = 16;

/// A piece of all keys.
#[derive(Clone, Debug)]
pub(crate) enum KeyPiece {
    FromToken(i64),
    /// The bucket of this id, after it.
    RestOfBucket {
        after: String,
    },
}

/// A record's key as a scan meets it.
#[derive(Debug)]
pub(crate) struct ScannedKey {
    pub token: i64,
    pub id: String,
    /// `None` where only orphans are left.
    pub shard_key: Option<ShardKey>,
}

impl AuthorityTable {
    /// The pieces of the ring in which a scan finds what comes after a key. The
    /// rest of a bucket is read by id: from its token on, it would begin anew.
    pub fn pieces_after(&self, after: Option<&(i64, String)>) -> Vec<KeyPiece> {
        match after {
            None => vec![KeyPiece::FromToken(i64::MIN)],
            Some((token, _)) if self.select_rest.is_none() => vec![KeyPiece::FromToken(*token)],
            Some((token, id)) => {
                let mut pieces = vec![KeyPiece::RestOfBucket { after: id.clone() }];
                pieces.extend(token.checked_add(1).map(KeyPiece::FromToken));
                pieces
            }
        }
    }

    /// A page of keys in the order of tokens, within a bucket in the order of ids.
    pub async fn keys(
        &self,
        connection: &Connection,
        piece: &KeyPiece,
        from: PagingState,
        wanted: usize,
    ) -> Result<(Vec<ScannedKey>, Option<PagingState>), EngineError> {
        let wanted = wanted.clamp(SCAN_PAGE_KEYS_MIN, SCAN_PAGE_KEYS_MAX);
        let page = PageStart {
            from,
            rows: i32::try_from(wanted).expect("a page is small"),
        };
        let level = self.levels.rows(self.levels.latest());
        let (statement, cells) = match (piece, &self.select_rest) {
            (KeyPiece::RestOfBucket { after }, Some(rest)) => (rest, self.key(after)),
            (KeyPiece::RestOfBucket { .. }, None) => return Ok((Vec::new(), None)),
            (KeyPiece::FromToken(token), _) => (&self.select_keys, vec![number(*token)]),
        };
        let (rows, next) = connection.read_page(statement, cells, level, page).await?;
        let keys: Result<_, EngineError> = rows.into_iter().map(scanned_key).collect();
        Ok((keys?, next))
    }
}

fn scanned_key(row: Row) -> Result<ScannedKey, EngineError> {
    let mut columns = Columns::of(row);
    let missing = || damaged("a row has no id or no token");
    let id = columns.text()?.ok_or_else(missing)?;
    let token = columns.number()?.ok_or_else(missing)?;
    let shard_key = columns
        .bytes()?
        .map(ShardKey::from_bytes)
        .transpose()
        .map_err(damaged)?;
    Ok(ScannedKey {
        token,
        id,
        shard_key,
    })
}
