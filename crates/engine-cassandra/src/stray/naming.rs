//! Places and rows as bytes: opaque outside this engine.

use engine_api::{EngineError, ScanPosition, Timestamp};
use layout::Value;
use scylla::response::PagingState;

use crate::failure::damaged;

/// The table's number, then how far the servers have come in it.
pub(super) fn position(table: usize, paging: &PagingState) -> ScanPosition {
    let mut bytes = vec![u8::try_from(table).expect("a collection has few tables")];
    if let Some(state) = paging.as_bytes_slice() {
        bytes.extend_from_slice(state);
    }
    ScanPosition(bytes)
}

pub(super) fn parse(position: Option<&ScanPosition>) -> Result<(usize, PagingState), EngineError> {
    let Some(position) = position else {
        return Ok((0, PagingState::start()));
    };
    let (table, state) = position
        .0
        .split_first()
        .ok_or_else(|| EngineError::Invalid {
            reason: "not a position of this engine".to_owned(),
        })?;
    let paging = match state {
        [] => PagingState::start(),
        state => PagingState::new_from_raw_bytes(state),
    };
    Ok((usize::from(*table), paging))
}

/// A row's key and timestamp. Key columns hold texts, numbers and moments.
pub(super) fn encode(key: &[Value], stamp: i64) -> Result<Vec<u8>, EngineError> {
    let mut bytes = stamp.to_be_bytes().to_vec();
    for value in key {
        let (tag, content) = match value {
            Value::Text(text) => (b't', text.as_bytes().to_vec()),
            Value::Int(int) => (b'i', int.to_be_bytes().to_vec()),
            Value::Timestamp(at) => (b'm', at.unix_micros().to_be_bytes().to_vec()),
            other => return Err(damaged(format!("{other} stands in a key"))),
        };
        let length = u32::try_from(content.len()).map_err(damaged)?;
        bytes.push(tag);
        bytes.extend(length.to_be_bytes());
        bytes.extend(content);
    }
    Ok(bytes)
}

pub(super) fn decode(bytes: &[u8]) -> Result<(Vec<Value>, i64), EngineError> {
    let invalid = || EngineError::Invalid {
        reason: "not a row of this engine".to_owned(),
    };
    let (stamp, mut rest) = bytes.split_first_chunk::<8>().ok_or_else(invalid)?;
    let mut key = Vec::new();
    while let Some((tag, more)) = rest.split_first() {
        let (length, more) = more.split_first_chunk::<4>().ok_or_else(invalid)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (content, more) = more.split_at_checked(length).ok_or_else(invalid)?;
        let number = || Some(i64::from_be_bytes(content.try_into().ok()?));
        let value = match tag {
            b't' => String::from_utf8(content.to_vec()).ok().map(Value::Text),
            b'i' => number().map(Value::Int),
            b'm' => number().map(|at| Value::Timestamp(Timestamp::from_unix_micros(at))),
            _ => None,
        };
        key.push(value.ok_or_else(invalid)?);
        rest = more;
    }
    Ok((key, i64::from_be_bytes(*stamp)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_positions_are_read_as_they_are_written() {
        let key = vec![
            Value::text("ann"),
            Value::Int(-3),
            Value::Timestamp(Timestamp::from_unix_micros(7)),
            Value::text(""),
        ];
        let bytes = encode(&key, -5).unwrap();
        assert_eq!(decode(&bytes), Ok((key, -5)));
        assert!(decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(encode(&[Value::Blob(vec![1])], 0).is_err());
        let state = PagingState::new_from_raw_bytes(&[1, 2, 3][..]);
        let (table, paging) = parse(Some(&position(2, &state))).unwrap();
        let bytes = paging.as_bytes_slice().map(|bytes| bytes.to_vec());
        assert_eq!((table, bytes), (2, Some(vec![1, 2, 3])));
        assert_eq!(parse(None).unwrap().0, 0);
        assert!(parse(Some(&ScanPosition(Vec::new()))).is_err());
    }
}
