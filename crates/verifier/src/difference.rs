//! What two images of one record differ in, if anything. Pure.
//!
//! Not every difference is one. A mark that the source has forgotten may stand on at the target, and a record that
//! has expired may be collected on one side and not yet on the other: neither can be seen by anybody. The other way
//! round a missing mark counts: an image that comes late would bring back what was removed (W26).

use std::fmt;

use engine_api::{Content, Part, PartKey, Record, RecordKey, Timestamp};
use layout::PartKind;

/// A record that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub key: RecordKey,
    pub discord: Discord,
}

/// The first thing that two images do not agree in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discord {
    /// The source has the record, the target has not.
    Missing,
    /// The target has a record that the source never had, or has forgotten.
    Extra,
    /// It was removed at the source and lives at the target.
    LivesOn,
    /// The mark of a removal has not arrived.
    MarkMissing,
    /// The same record under another revision.
    Revision,
    /// The same revision with other fields.
    Fields,
    Expiry,
    /// A part that is missing, extra, of another revision or of another content.
    Part(PartKey),
    /// The target breaks a rule of the shop that the source keeps.
    Breaks(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.discord)
    }
}

impl fmt::Display for Discord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Discord::Missing => f.write_str("missing at the target"),
            Discord::Extra => f.write_str("at the target only"),
            Discord::LivesOn => f.write_str("removed at the source, alive at the target"),
            Discord::MarkMissing => f.write_str("the mark of its removal is missing at the target"),
            Discord::Revision => f.write_str("of another revision at the target"),
            Discord::Fields => f.write_str("of other content at the target"),
            Discord::Expiry => f.write_str("expires at another time at the target"),
            Discord::Part(part) => write!(f, "{part} is another one at the target"),
            Discord::Breaks(rule) => write!(f, "{rule}, at the target only"),
        }
    }
}

/// What is wrong with the target's image, given the source's.
pub(crate) fn discord(
    source: Option<&Record>,
    target: Option<&Record>,
    now: Timestamp,
) -> Option<Discord> {
    let (source_lives, target_lives) = (lives(source, now), lives(target, now));
    match (source, target) {
        (Some(source), Some(target)) if source_lives && target_lives => between(source, target),
        (Some(_), _) if source_lives => Some(Discord::Missing),
        (None, _) if target_lives => Some(Discord::Extra),
        (Some(source), _) if target_lives => Some(match source.header.content {
            Content::Removed => Discord::LivesOn,
            // It was touched at the target, or it was not at the source.
            Content::Live(_) => Discord::Expiry,
        }),
        (Some(source), None) if is_mark(source) => Some(Discord::MarkMissing),
        _ => None,
    }
}

fn lives(image: Option<&Record>, now: Timestamp) -> bool {
    image.is_some_and(|image| image.live_at(now).is_some())
}

fn is_mark(image: &Record) -> bool {
    image.header.content == Content::Removed
}

fn between(source: &Record, target: &Record) -> Option<Discord> {
    if source.header.revision != target.header.revision {
        return Some(Discord::Revision);
    }
    if source.header != target.header {
        return Some(Discord::Fields);
    }
    let keys = source.parts.keys().chain(target.parts.keys());
    let mut keys: Vec<&PartKey> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    let differs = |key: &&PartKey| !agree(source.parts.get(*key), target.parts.get(*key));
    let key = keys.into_iter().find(differs)?;
    Some(match key.kind() {
        PartKind::Expiry => Discord::Expiry,
        _ => Discord::Part(key.clone()),
    })
}

fn agree(source: Option<&Part>, target: Option<&Part>) -> bool {
    match (source, target) {
        (Some(source), Some(target)) => source == target,
        // Forgotten at the source; nobody sees it.
        (None, Some(target)) => target.content == Content::Removed,
        (Some(_), None) => false,
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use engine_api::{Header, RecordId, Revision, Writer, expiry_fields};
    use layout::{Collection, Field, Fields, Value};

    use super::*;

    const NOW: i64 = 1_000_000_000;

    fn revision(number: i64) -> Revision {
        Revision::at(
            Timestamp::from_unix_micros(number * 1_000),
            Writer::numbered(1),
        )
    }

    fn image(content: Content) -> Record {
        Record {
            key: RecordKey::by_id(Collection::Carts, RecordId::new("c").unwrap()),
            header: Header {
                revision: revision(5),
                cleared: Revision::ZERO,
                content,
            },
            parts: Default::default(),
        }
    }

    fn live() -> Record {
        let fields = Fields::new().with(Field::Status, Value::text("active"));
        image(Content::Live(fields))
    }

    fn with(mut image: Record, key: PartKey, part: Part) -> Record {
        image.parts.insert(key, part);
        image
    }

    fn line(number: i64, quantity: i64) -> Part {
        let fields = Fields::new().with(Field::Quantity, Value::Int(quantity));
        Part::live(revision(number), fields)
    }

    fn expiring(at: i64) -> Record {
        let fields = expiry_fields(Timestamp::from_unix_micros(at));
        with(live(), PartKey::expiry(), Part::live(revision(6), fields))
    }

    #[test]
    fn every_way_to_be_different_has_its_name() {
        let mark = image(Content::Removed);
        let key = PartKey::line("p");
        let lined = with(live(), key.clone(), line(6, 2));
        let mut other_revision = live();
        other_revision.header.revision = revision(4);
        let mut other_fields = live();
        other_fields.header.content = Content::Live(Fields::new());
        let part = Some(Discord::Part(key.clone()));
        let check = |source: Option<Record>, target: Option<Record>, expected: Option<Discord>| {
            let now = Timestamp::from_unix_micros(NOW);
            let found = discord(source.as_ref(), target.as_ref(), now);
            assert_eq!(found, expected, "{source:?} against {target:?}");
        };
        check(None, None, None);
        check(Some(live()), Some(live()), None);
        check(Some(live()), None, Some(Discord::Missing));
        check(Some(live()), Some(mark.clone()), Some(Discord::Missing));
        check(None, Some(live()), Some(Discord::Extra));
        check(Some(mark.clone()), Some(live()), Some(Discord::LivesOn));
        check(Some(mark.clone()), None, Some(Discord::MarkMissing));
        check(None, Some(mark.clone()), None);
        check(Some(mark.clone()), Some(mark), None);
        check(Some(live()), Some(other_revision), Some(Discord::Revision));
        check(Some(live()), Some(other_fields), Some(Discord::Fields));
        check(Some(lined.clone()), Some(live()), part.clone());
        check(Some(live()), Some(lined.clone()), part.clone());
        let older = with(live(), key.clone(), line(5, 2));
        check(Some(lined.clone()), Some(older), part.clone());
        let altered = with(live(), key.clone(), line(6, 3));
        check(Some(lined), Some(altered), part.clone());
        let marked = with(live(), key, Part::mark(revision(7)));
        check(Some(marked.clone()), Some(live()), part);
        check(Some(live()), Some(marked), None);
        check(Some(expiring(NOW + 9)), Some(live()), Some(Discord::Expiry));
        check(
            Some(expiring(NOW + 9)),
            Some(expiring(NOW + 8)),
            Some(Discord::Expiry),
        );
        check(
            Some(expiring(NOW)),
            Some(expiring(NOW + 8)),
            Some(Discord::Expiry),
        );
        check(Some(expiring(NOW)), None, None);
        check(None, Some(expiring(NOW)), None);
        check(Some(expiring(NOW)), Some(expiring(NOW - 8)), None);
    }
}
