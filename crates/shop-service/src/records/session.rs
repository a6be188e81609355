//! A shopper session as a record: what stays in the header, activity and expiry in
//! parts of their own, so that a touch rewrites a few bytes.

use std::collections::BTreeMap;

use engine_api::{PartKey, Record, RecordKey, Revision, SharedRecord, expiry_fields};
use layout::path::STATUS_ACTIVE;
use layout::{Field, Fields, Value};
use model::{Attributes, SessionDetails, SessionTimes, ShopperSession};

use super::{Reader, header, text, with_optional};
use crate::error::ShopError;
use crate::shop::{Stored, shared};

const STATUS_CLOSED: &str = "closed";

/// A stored session, with what its record says beyond the session itself.
#[derive(Clone, Debug)]
pub(crate) struct SessionRecord {
    pub session: Stored<ShopperSession>,
    pub key: RecordKey,
    /// What a conditional change has to expect.
    pub header_revision: Revision,
    pub newest_revision: Revision,
}

impl SessionRecord {
    /// Reads an expired record, too: it still tells when it expired.
    pub(crate) fn read(record: &SharedRecord) -> Result<SessionRecord, ShopError> {
        let session = shared(record, session_of)?;
        Ok(SessionRecord {
            key: record.key.clone(),
            header_revision: record.header.revision,
            newest_revision: session.revision,
            session,
        })
    }

    pub(crate) fn stored(self) -> Stored<ShopperSession> {
        self.session.at(self.newest_revision)
    }
}

pub(crate) fn session_of(record: &Record) -> Result<ShopperSession, ShopError> {
    let header = header(record)?;
    let session = ShopperSession::restore(read_details(header)?, read_times(header, record)?);
    session.map_err(|error| header.damaged(error))
}

pub(crate) fn session_header(session: &ShopperSession) -> Fields {
    let (details, times) = (session.details(), session.times());
    let status = match times.closed_at {
        Some(_) => STATUS_CLOSED,
        None => STATUS_ACTIVE,
    };
    let data = details
        .attributes
        .iter()
        .map(|(name, value)| (name.to_string(), text(value)))
        .collect::<BTreeMap<String, Value>>();
    let fields = Fields::new()
        .with(Field::SessionId, text(&details.id))
        .with(Field::Status, Value::text(status))
        .with(Field::CreatedAt, Value::Timestamp(times.opened_at));
    with_optional(
        fields,
        [
            (Field::UserId, details.user.as_ref().map(text)),
            (Field::IpAddress, details.ip_address.map(Value::Inet)),
            (Field::UserAgent, details.user_agent.as_ref().map(text)),
            (Field::DeviceType, details.device_type.as_ref().map(text)),
            (Field::GeoZone, details.geo_zone.as_ref().map(text)),
            (
                Field::SessionData,
                (!data.is_empty()).then_some(Value::Map(data)),
            ),
            (Field::ClosedAt, times.closed_at.map(Value::Timestamp)),
        ],
    )
}

/// What a touch rewrites.
pub(crate) fn session_parts(session: &ShopperSession) -> [(PartKey, Fields); 2] {
    let times = session.times();
    let activity = Fields::new().with(Field::LastActive, Value::Timestamp(times.last_active_at));
    [
        (PartKey::activity(), activity),
        (PartKey::expiry(), expiry_fields(times.expires_at)),
    ]
}

fn read_details(header: Reader<'_>) -> Result<SessionDetails, ShopError> {
    Ok(SessionDetails {
        id: header.noun(Field::SessionId)?,
        user: header.optional(Field::UserId)?,
        ip_address: match header.fields.get(Field::IpAddress) {
            None => None,
            Some(Value::Inet(address)) => Some(*address),
            Some(_) => return Err(header.damaged("the ip address is none")),
        },
        user_agent: header.optional(Field::UserAgent)?,
        device_type: header.optional(Field::DeviceType)?,
        geo_zone: header.optional(Field::GeoZone)?,
        attributes: read_attributes(header)?,
    })
}

fn read_attributes(header: Reader<'_>) -> Result<Attributes, ShopError> {
    let entries = match header.fields.get(Field::SessionData) {
        None => return Ok(Attributes::default()),
        Some(Value::Map(entries)) => entries,
        Some(_) => return Err(header.damaged("the session's data is no map")),
    };
    let entry = |(name, value): (&String, &Value)| {
        let name = name.parse().map_err(|error| header.damaged(error))?;
        let value = value.as_text();
        let value = value.ok_or_else(|| header.damaged("a value of the session is no text"))?;
        let value = value.parse().map_err(|error| header.damaged(error))?;
        Ok((name, value))
    };
    let entries = entries
        .iter()
        .map(entry)
        .collect::<Result<BTreeMap<_, _>, ShopError>>()?;
    Attributes::new(entries).map_err(|error| header.damaged(error))
}

fn read_times(header: Reader<'_>, record: &Record) -> Result<SessionTimes, ShopError> {
    let closed_at = header.optional_timestamp(Field::ClosedAt);
    match (header.text(Field::Status)?, closed_at) {
        (STATUS_ACTIVE, None) | (STATUS_CLOSED, Some(_)) => {}
        (status, _) => {
            let reason = format_args!("the status {status:?} contradicts its closing time");
            return Err(header.damaged(reason));
        }
    }
    let part = |key: PartKey| match record.part(&key) {
        Some(fields) => Ok(header.part(fields)),
        None => Err(header.damaged(format_args!("the part {key} is missing"))),
    };
    Ok(SessionTimes {
        opened_at: header.timestamp(Field::CreatedAt)?,
        last_active_at: part(PartKey::activity())?.timestamp(Field::LastActive)?,
        expires_at: part(PartKey::expiry())?.timestamp(Field::ExpiresAt)?,
        closed_at,
    })
}

#[cfg(test)]
mod tests {
    use engine_api::{Content, Header, Part, RecordId, Timestamp, Writer};
    use model::{AttributeName, AttributeValue, Lifetime};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_unix_micros(second * 1_000_000)
    }

    fn revision(second: i64) -> Revision {
        Revision::at(at(second), Writer::numbered(1))
    }

    /// One of every combination of what a session may have or lack.
    fn session(having: u32) -> ShopperSession {
        fn noun<T: std::str::FromStr<Err: std::fmt::Debug>>(there: bool, text: &str) -> Option<T> {
            there.then(|| text.parse().unwrap())
        }
        let has = |bit: u32| having & (1 << bit) != 0;
        let attributes = has(5).then(|| {
            let name = AttributeName::parse("язык").unwrap();
            let value = AttributeValue::parse("").unwrap();
            Attributes::new(BTreeMap::from([(name, value)])).unwrap()
        });
        let details = SessionDetails {
            id: "s-1".parse().unwrap(),
            user: noun(has(0), "u-1"),
            ip_address: noun(has(1), if has(0) { "::1" } else { "203.0.113.7" }),
            user_agent: noun(has(2), "browser"),
            device_type: noun(has(3), "phone"),
            geo_zone: noun(has(4), "north"),
            attributes: attributes.unwrap_or_default(),
        };
        let minute = Lifetime::from_seconds(60).unwrap();
        let mut session = ShopperSession::open(details, minute, at(0));
        if has(6) {
            session.touch(minute, at(30)).unwrap();
        }
        if has(7) {
            session.close(at(40));
        }
        session
    }

    fn record(session: &ShopperSession) -> Record {
        let part = |(key, fields)| (key, Part::live(revision(2), fields));
        Record {
            key: RecordKey::by_id(
                layout::Collection::Sessions,
                RecordId::new(session.id().as_str()).unwrap(),
            ),
            header: Header {
                revision: revision(1),
                cleared: Revision::ZERO,
                content: Content::Live(session_header(session)),
            },
            parts: session_parts(session).into_iter().map(part).collect(),
        }
    }

    #[test]
    fn every_session_comes_back_from_its_record() {
        for having in 0..1 << 8 {
            let session = session(having);
            let read = SessionRecord::read(&record(&session).into()).unwrap();
            assert_eq!(read.session.value, session);
            assert_eq!(read.header_revision, revision(1));
            assert_eq!(read.newest_revision, revision(2));
        }
    }

    #[test]
    fn what_no_session_could_have_written_is_damaged() {
        fn check(damage: impl Fn(&mut Record, &mut Fields), expected: &str) {
            let mut record = record(&session(u32::MAX));
            let mut header = record.header.content.live().unwrap().clone();
            damage(&mut record, &mut header);
            record.header.content = Content::Live(header);
            match SessionRecord::read(&record.into()) {
                Err(ShopError::Damaged { reason }) => {
                    assert!(reason.contains(expected), "{reason}");
                }
                other => panic!("{expected}: {other:?}"),
            }
        }
        check(
            |_, header| _ = header.remove(Field::ClosedAt),
            "contradicts its closing time",
        );
        check(
            |record, _| _ = record.parts.remove(&PartKey::activity()),
            "activity is missing",
        );
        check(
            |record, _| {
                let late = Fields::new().with(Field::LastActive, Value::Timestamp(at(999)));
                let part = Part::live(revision(2), late);
                record.parts.insert(PartKey::activity(), part);
            },
            "times of session s-1 contradict",
        );
        check(
            |_, header| {
                let data = BTreeMap::from([("language".to_owned(), Value::Int(1))]);
                header.insert(Field::SessionData, Value::Map(data)).unwrap();
            },
            "is no text",
        );
    }
}
