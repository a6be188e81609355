//! Digests of images, and their sums by bucket.
//!
//! A digest covers everything that counts of an image: key, revisions, fields, parts, expiry, marks. It is written
//! here and nowhere else, from the values themselves: two engines may store them as differently as they like.

use engine_api::{Content, PartKey, Record, RecordId, Revision};
use layout::{Fields, Value};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// The ids of a collection fall into so many buckets. A million records make some 240 a bucket.
pub const BUCKETS: usize = 4096;

/// Room for the bytes of a usual image.
const IMAGE_BYTES: usize = 2_048;

/// The bucket of an id: the same on both sides, whatever the shard keys are.
pub(crate) fn bucket_of(id: &RecordId) -> usize {
    (xxh3_64(id.as_str().as_bytes()) % BUCKETS as u64) as usize
}

/// How many images of each bucket were met, and the sum of their digests: the order does not count, and an image
/// that is met twice does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    counts: Vec<u64>,
    /// Texts of base 16: JSON has no numbers of 128 bits.
    #[serde(with = "texts")]
    sums: Vec<u128>,
}

impl Default for Sums {
    fn default() -> Sums {
        Sums {
            counts: vec![0; BUCKETS],
            sums: vec![0; BUCKETS],
        }
    }
}

impl Sums {
    pub(crate) fn add(&mut self, bucket: usize, digest: u128) {
        self.counts[bucket] += 1;
        self.sums[bucket] = self.sums[bucket].wrapping_add(digest);
    }

    pub fn records(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// One number for all of it.
    pub fn root(&self) -> u128 {
        let mut bytes = Vec::with_capacity(BUCKETS * 24);
        for (count, sum) in self.counts.iter().zip(&self.sums) {
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(&sum.to_le_bytes());
        }
        xxh3_128(&bytes)
    }

    /// The buckets that are not as in `other`, each with the larger number of images.
    pub(crate) fn unequal(&self, other: &Sums) -> Vec<(usize, u64)> {
        let of = |sums: &Sums, bucket: usize| (sums.counts[bucket], sums.sums[bucket]);
        (0..BUCKETS)
            .filter(|bucket| of(self, *bucket) != of(other, *bucket))
            .map(|bucket| (bucket, self.counts[bucket].max(other.counts[bucket])))
            .collect()
    }

    /// Whether the vectors have the length that everything here relies on.
    pub(crate) fn is_whole(&self) -> bool {
        self.counts.len() == BUCKETS && self.sums.len() == BUCKETS
    }
}

pub(crate) fn digest(image: &Record) -> u128 {
    let mut bytes = Vec::with_capacity(IMAGE_BYTES);
    put_text(&mut bytes, image.key.collection.name());
    put_text(&mut bytes, image.key.id.as_str());
    put_revision(&mut bytes, image.header.revision);
    put_revision(&mut bytes, image.header.cleared);
    put_content(&mut bytes, &image.header.content);
    for (key, part) in &image.parts {
        put_part_key(&mut bytes, key);
        put_revision(&mut bytes, part.revision);
        put_content(&mut bytes, &part.content);
    }
    xxh3_128(&bytes)
}

fn put_revision(bytes: &mut Vec<u8>, revision: Revision) {
    bytes.extend_from_slice(&revision.to_i64().to_le_bytes());
}

fn put_part_key(bytes: &mut Vec<u8>, key: &PartKey) {
    put_text(bytes, key.kind().name());
    put_length(bytes, key.path().len());
    for text in key.path() {
        put_text(bytes, text);
    }
}

fn put_content(bytes: &mut Vec<u8>, content: &Content) {
    match content {
        Content::Removed => bytes.push(0),
        Content::Live(fields) => {
            bytes.push(1);
            put_fields(bytes, fields);
        }
    }
}

fn put_fields(bytes: &mut Vec<u8>, fields: &Fields) {
    put_length(bytes, fields.len());
    for (field, value) in fields.iter() {
        bytes.push(field.number());
        put_value(bytes, value);
    }
}

/// Kind, length and content, so that no two values have the same bytes.
fn put_value(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Text(text) => {
            bytes.push(b't');
            put_text(bytes, text);
        }
        Value::Int(number) => {
            bytes.push(b'i');
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        Value::Decimal(number) => {
            bytes.push(b'd');
            let number = number.normalize();
            bytes.extend_from_slice(&number.mantissa().to_le_bytes());
            bytes.extend_from_slice(&number.scale().to_le_bytes());
        }
        Value::Timestamp(moment) => {
            bytes.push(b'm');
            bytes.extend_from_slice(&moment.unix_micros().to_le_bytes());
        }
        Value::Inet(address) => {
            bytes.push(b'a');
            put_text(bytes, &address.to_string());
        }
        Value::Map(values) => {
            bytes.push(b'o');
            put_length(bytes, values.len());
            for (key, value) in values {
                put_text(bytes, key);
                put_value(bytes, value);
            }
        }
        Value::List(values) => {
            bytes.push(b'l');
            put_length(bytes, values.len());
            values.iter().for_each(|value| put_value(bytes, value));
        }
        Value::Blob(blob) => {
            bytes.push(b'b');
            put_length(bytes, blob.len());
            bytes.extend_from_slice(blob);
        }
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_length(bytes, text.len());
    bytes.extend_from_slice(text.as_bytes());
}

fn put_length(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend_from_slice(&(length as u64).to_le_bytes());
}

mod texts {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(sums: &[u128], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(sums.iter().map(|sum| format!("{sum:x}")))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u128>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        let number = |text: &String| u128::from_str_radix(text, 16).map_err(D::Error::custom);
        texts.iter().map(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use engine_api::{Header, Part, RecordKey, Timestamp, Writer};
    use layout::{Collection, Field};

    use super::*;

    fn revision(number: i64) -> Revision {
        Revision::at(Timestamp::from_unix_micros(number), Writer::numbered(1))
    }

    fn cart(id: &str) -> Record {
        let header = Fields::new()
            .with(Field::CartId, Value::text(id))
            .with(Field::Status, Value::text("active"));
        let line = Fields::new().with(Field::Quantity, Value::Int(2));
        Record {
            key: RecordKey::by_id(Collection::Carts, RecordId::new(id).unwrap()),
            header: Header {
                revision: revision(5_000),
                cleared: Revision::ZERO,
                content: Content::Live(header),
            },
            parts: [(PartKey::line("p"), Part::live(revision(6_000), line))].into(),
        }
    }

    #[test]
    fn whatever_changes_in_an_image_changes_its_digest() {
        let whole = cart("c");
        let changes: [fn(&mut Record); 7] = [
            |it| it.header.revision = revision(9_000),
            |it| it.header.cleared = revision(1_000),
            |it| it.header.content = Content::Removed,
            |it| it.key.id = RecordId::new("d").unwrap(),
            |it| drop(it.parts.pop_first()),
            |it| {
                drop(
                    it.parts
                        .insert(PartKey::line("p"), Part::mark(revision(6_000))),
                )
            },
            |it| {
                drop(
                    it.parts
                        .insert(PartKey::expiry(), Part::mark(revision(1_000))),
                )
            },
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut other = whole.clone();
            change(&mut other);
            assert_ne!(digest(&other), digest(&whole), "change {number}");
        }
        assert_eq!(digest(&whole.clone()), digest(&whole));
    }

    #[test]
    fn sums_do_not_ask_for_an_order_but_for_each_image_once() {
        let (one, two) = (cart("one"), cart("two"));
        let sums = |images: &[&Record]| {
            let mut sums = Sums::default();
            images
                .iter()
                .for_each(|image| sums.add(bucket_of(&image.key.id), digest(image)));
            sums
        };
        assert_eq!(sums(&[&one, &two]), sums(&[&two, &one]));
        assert_eq!(
            sums(&[&one, &two]).unequal(&sums(&[&one])),
            [(bucket_of(&two.key.id), 1)]
        );
        let twice = sums(&[&one, &one]);
        assert_eq!(twice.unequal(&sums(&[&one])).len(), 1);
        assert_ne!(twice.root(), sums(&[&one]).root());
    }

    #[test]
    fn sums_are_read_back_as_they_were_written() {
        let mut sums = Sums::default();
        sums.add(7, digest(&cart("one")));
        let text = serde_json::to_string(&sums).unwrap();
        let back: Sums = serde_json::from_str(&text).unwrap();
        assert_eq!(back, sums);
        assert!(back.is_whole());
    }
}
