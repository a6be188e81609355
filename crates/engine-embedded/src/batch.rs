//! What one commit writes, as the bytes that stand in the log.
//!
//! Rows lie one behind the other in one buffer: the judge writes them once, the
//! log takes them as they are, and only the memory table makes keys and values of them.

use crate::places::Arrival;

/// Separate key spaces; a commit spans them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Space {
    /// Record bodies, by collection and id.
    Records,
    /// Parts that stand apart from their record's body.
    Parts,
    /// Rows of derived tables, which point to bodies.
    Paths,
    Journal,
    /// When something falls due: expiry, age of marks.
    Due,
    /// Fences, terms, control values, tables, what the tables on disk hold.
    Meta,
}

impl Space {
    pub(crate) const ALL: [Space; 6] = [
        Space::Records,
        Space::Parts,
        Space::Paths,
        Space::Journal,
        Space::Due,
        Space::Meta,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Space::Records => "records",
            Space::Parts => "parts",
            Space::Paths => "paths",
            Space::Journal => "journal",
            Space::Due => "due",
            Space::Meta => "meta",
        }
    }
}

/// Set in a row's first byte when it removes its key.
const REMOVAL: u8 = 0x80;

/// Set when nothing stood under the key before.
const ARRIVAL: u8 = 0x40;

/// Space and kind, length of the key, length of the value.
const ROW_HEAD_BYTES: usize = 1 + 2 + 4;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write<'a> {
    pub space: Space,
    pub key: &'a [u8],
    /// `None` removes the key.
    pub value: Option<&'a [u8]>,
    pub arrival: Arrival,
}

impl Batch {
    pub(crate) fn put(&mut self, space: Space, key: &[u8], value: &[u8]) {
        self.push(space as u8, key, value);
    }

    /// A body, and whether it is the first one of its record.
    pub(crate) fn put_body(&mut self, key: &[u8], body: &[u8], arrival: Arrival) {
        let flag = match arrival {
            Arrival::New => ARRIVAL,
            Arrival::Known => 0,
        };
        self.push(Space::Records as u8 | flag, key, body);
    }

    pub(crate) fn remove(&mut self, space: Space, key: &[u8]) {
        self.push(space as u8 | REMOVAL, key, &[]);
    }

    fn push(&mut self, kind: u8, key: &[u8], value: &[u8]) {
        let key_length = u16::try_from(key.len()).expect("ids and key fields are bounded");
        let value_length = u32::try_from(value.len()).expect("records are bounded");
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&key_length.to_le_bytes());
        self.bytes.extend_from_slice(&value_length.to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn writes(&self) -> impl Iterator<Item = Write<'_>> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || split_row(&mut rest))
    }

    /// Bytes of the log as a batch, or `None` if they are not whole rows.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Batch> {
        let mut rest = bytes;
        while split_row(&mut rest).is_some() {}
        let batch = || Batch {
            bytes: bytes.to_vec(),
        };
        rest.is_empty().then(batch)
    }
}

fn split_row<'a>(rest: &mut &'a [u8]) -> Option<Write<'a>> {
    let (head, after) = rest.split_first_chunk::<ROW_HEAD_BYTES>()?;
    let space = *Space::ALL.get(usize::from(head[0] & !(REMOVAL | ARRIVAL)))?;
    let key_length = usize::from(u16::from_le_bytes([head[1], head[2]]));
    let value_length = u32::from_le_bytes([head[3], head[4], head[5], head[6]]);
    let (key, after) = after.split_at_checked(key_length)?;
    let (value, after) = after.split_at_checked(usize::try_from(value_length).ok()?)?;
    *rest = after;
    Some(Write {
        space,
        key,
        value: (head[0] & REMOVAL == 0).then_some(value),
        arrival: match head[0] & ARRIVAL {
            0 => Arrival::Known,
            _ => Arrival::New,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_they_were_and_cut_bytes_are_refused() {
        let mut batch = Batch::default();
        batch.put_body(b"key", b"value", Arrival::New);
        batch.remove(Space::Due, b"gone");
        batch.put(Space::Meta, b"empty", b"");
        let write = |space, key, value, arrival| Write {
            space,
            key,
            value,
            arrival,
        };
        let expected: [Write<'_>; 3] = [
            write(Space::Records, b"key", Some(b"value"), Arrival::New),
            write(Space::Due, b"gone", None, Arrival::Known),
            write(Space::Meta, b"empty", Some(b""), Arrival::Known),
        ];
        assert_eq!(batch.writes().collect::<Vec<_>>(), expected);
        assert_eq!(Batch::parse(batch.bytes()).as_ref(), Some(&batch));
        let ends = [0, 15, 26];
        for cut in 0..batch.bytes().len() {
            let whole = Batch::parse(&batch.bytes()[..cut]).is_some();
            assert_eq!(whole, ends.contains(&cut), "cut at {cut}");
        }
    }
}
