//! How an id is stored: ids are opaque text to the shop, but a cluster may keep
//! them as sixteen or twelve bytes. An encoding loses nothing: a text that would
//! not come back exactly as it was is refused, not repaired.

use std::fmt;

use serde::{Deserialize, Serialize};

const UUID_HYPHENS_AT: [usize; 4] = [8, 13, 18, 23];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdEncoding {
    /// Any id.
    #[default]
    Text,
    /// 8-4-4-4-12 lower-case hexadecimal digits, of any UUID version.
    Uuid,
    /// 24 lower-case hexadecimal digits.
    ObjectId,
}

/// An id as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EncodedId {
    Text(String),
    Uuid([u8; 16]),
    ObjectId([u8; 12]),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("id {id:?} is not {form}: send such ids, or encode this field as text in the layout", form = encoding.form())]
pub struct IdDoesNotFit {
    pub id: String,
    pub encoding: IdEncoding,
}

impl IdEncoding {
    pub fn encode(self, id: &str) -> Result<EncodedId, IdDoesNotFit> {
        let encoded = match self {
            IdEncoding::Text => Some(EncodedId::Text(id.to_owned())),
            IdEncoding::Uuid => uuid_digits(id)
                .and_then(|digits| from_hex(&digits))
                .map(EncodedId::Uuid),
            IdEncoding::ObjectId => from_hex(id.as_bytes()).map(EncodedId::ObjectId),
        };
        encoded.ok_or_else(|| IdDoesNotFit {
            id: id.to_owned(),
            encoding: self,
        })
    }

    const fn form(self) -> &'static str {
        match self {
            IdEncoding::Text => "a text",
            IdEncoding::Uuid => "a lower-case UUID (8-4-4-4-12 hexadecimal digits)",
            IdEncoding::ObjectId => "an ObjectId (24 lower-case hexadecimal digits)",
        }
    }
}

impl EncodedId {
    pub fn encoding(&self) -> IdEncoding {
        match self {
            EncodedId::Text(_) => IdEncoding::Text,
            EncodedId::Uuid(_) => IdEncoding::Uuid,
            EncodedId::ObjectId(_) => IdEncoding::ObjectId,
        }
    }

    /// The id as the shop knows it.
    pub fn decode(&self) -> String {
        match self {
            EncodedId::Text(text) => text.clone(),
            EncodedId::ObjectId(bytes) => to_hex(bytes),
            EncodedId::Uuid(bytes) => {
                let mut text = to_hex(bytes);
                for at in UUID_HYPHENS_AT {
                    text.insert(at, '-');
                }
                text
            }
        }
    }
}

impl fmt::Display for IdEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IdEncoding::Text => "text",
            IdEncoding::Uuid => "uuid",
            IdEncoding::ObjectId => "object_id",
        })
    }
}

/// The digits without the hyphens, when the hyphens are exactly where they belong.
fn uuid_digits(id: &str) -> Option<Vec<u8>> {
    let mut digits = Vec::with_capacity(32);
    for (at, byte) in id.bytes().enumerate() {
        match (UUID_HYPHENS_AT.contains(&at), byte) {
            (true, b'-') => {}
            (false, byte) => digits.push(byte),
            (true, _) => return None,
        }
    }
    Some(digits)
}

fn from_hex<const LENGTH: usize>(digits: &[u8]) -> Option<[u8; LENGTH]> {
    if digits.len() != 2 * LENGTH {
        return None;
    }
    let mut bytes = [0; LENGTH];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ENCODINGS: [IdEncoding; 3] = [IdEncoding::Text, IdEncoding::Uuid, IdEncoding::ObjectId];

    #[test]
    fn ids_of_the_papers_are_taken_by_the_encoding_they_were_made_for() {
        fn check(id: &str, fitting: &[IdEncoding]) {
            for encoding in ENCODINGS {
                let encoded = encoding.encode(id);
                assert_eq!(
                    encoded.is_ok(),
                    fitting.contains(&encoding),
                    "{id} as {encoding}"
                );
            }
        }
        use IdEncoding::{ObjectId, Text, Uuid};
        check("USER-98765", &[Text]);
        check("12345678-1234-1234-1234-123456789abc", &[Text, Uuid]);
        check("12345678-1234-1234-1234-123456789ABC", &[Text]);
        check("123456781234-1234-1234-123456789abc-", &[Text]);
        check("12345678123412341234123456789abc", &[Text]);
        check("507f1f77bcf86cd799439011", &[Text, ObjectId]);
        check("507F1f77bcf86cd799439011", &[Text]);
        check("", &[Text]);
    }

    #[test]
    fn a_refused_id_is_told_what_would_fit() {
        let message = IdEncoding::Uuid.encode("USER-1").unwrap_err().to_string();
        assert!(
            message.contains("8-4-4-4-12") && message.contains("encode this field as text"),
            "{message}"
        );
    }

    proptest! {
        #[test]
        fn whatever_is_taken_comes_back_the_same(id in prop_oneof![
            any::<String>(), "[0-9a-fA-F]{24}", "[0-9a-f]{24}",
            "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "[0-9a-f-]{36}",
        ]) {
            for encoding in ENCODINGS {
                if let Ok(encoded) = encoding.encode(&id) {
                    prop_assert_eq!(encoded.encoding(), encoding);
                    prop_assert_eq!(encoded.decode(), id.clone());
                }
            }
        }

        #[test]
        fn every_stored_id_has_a_text(uuid in any::<[u8; 16]>(), object_id in any::<[u8; 12]>()) {
            for id in [EncodedId::Uuid(uuid), EncodedId::ObjectId(object_id)] {
                prop_assert_eq!(id.encoding().encode(&id.decode()).unwrap(), id);
            }
        }
    }
}
