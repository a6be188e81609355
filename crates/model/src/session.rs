//! A shopper session: opened, touched while the shopper is there, closed or left to
//! expire. Expiry is a field and decides; what an engine collects later is garbage (W7).
//!
//! Whose session it is never changes (W8): signing in opens a new one.

use crate::attributes::Attributes;
use crate::id::{ShopperSessionId, UserId, ZoneName};
use crate::text::{DeviceType, UserAgent};
use crate::time::{Lifetime, Timestamp};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use thiserror::Error;

/// What is known when the session opens, and stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionDetails {
    pub id: ShopperSessionId,
    /// `None` for a guest.
    pub user: Option<UserId>,
    pub ip_address: Option<IpAddr>,
    pub user_agent: Option<UserAgent>,
    pub device_type: Option<DeviceType>,
    pub geo_zone: Option<ZoneName>,
    pub attributes: Attributes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionTimes {
    pub opened_at: Timestamp,
    pub last_active_at: Timestamp,
    pub expires_at: Timestamp,
    pub closed_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShopperSession {
    details: SessionDetails,
    times: SessionTimes,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionError {
    #[error("the session was closed at {closed_at}, open a new one")]
    Closed { closed_at: Timestamp },
    #[error("the session expired at {expires_at}, open a new one")]
    Expired { expires_at: Timestamp },
    #[error("the stored times of session {id} contradict each other, restore it from a good copy")]
    TimesContradict { id: ShopperSessionId },
}

impl ShopperSession {
    pub fn open(details: SessionDetails, lifetime: Lifetime, now: Timestamp) -> Self {
        let times = SessionTimes {
            opened_at: now,
            last_active_at: now,
            expires_at: now.end_of(lifetime),
            closed_at: None,
        };
        Self { details, times }
    }

    pub fn restore(details: SessionDetails, times: SessionTimes) -> Result<Self, SessionError> {
        let ordered = times.opened_at <= times.last_active_at
            && times.last_active_at <= times.expires_at
            && times.closed_at.is_none_or(|at| at >= times.opened_at);
        if !ordered {
            return Err(SessionError::TimesContradict { id: details.id });
        }
        Ok(Self { details, times })
    }

    /// Keeps the session alive. A touch that comes late, or from a clock behind, moves
    /// neither activity nor expiry back.
    pub fn touch(&mut self, lifetime: Lifetime, now: Timestamp) -> Result<(), SessionError> {
        self.check_live(now)?;
        self.times.last_active_at = self.times.last_active_at.max(now);
        self.times.expires_at = self.times.expires_at.max(now.end_of(lifetime));
        Ok(())
    }

    /// Closing again keeps the first moment, so that a retry changes nothing.
    pub fn close(&mut self, now: Timestamp) {
        let closing = now.max(self.times.opened_at);
        self.times.closed_at.get_or_insert(closing);
    }

    pub fn check_live(&self, now: Timestamp) -> Result<(), SessionError> {
        match self.times.closed_at {
            Some(closed_at) => Err(SessionError::Closed { closed_at }),
            None if now >= self.times.expires_at => Err(SessionError::Expired {
                expires_at: self.times.expires_at,
            }),
            None => Ok(()),
        }
    }

    pub fn id(&self) -> &ShopperSessionId {
        &self.details.id
    }

    pub fn details(&self) -> &SessionDetails {
        &self.details
    }

    pub fn times(&self) -> SessionTimes {
        self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_unix_micros(second * 1_000_000)
    }

    fn session() -> ShopperSession {
        let details = SessionDetails {
            id: ShopperSessionId::parse("s-1").unwrap(),
            user: None,
            ip_address: Some(IpAddr::from([127, 0, 0, 1])),
            user_agent: None,
            device_type: None,
            geo_zone: None,
            attributes: Attributes::default(),
        };
        ShopperSession::open(details, minute(), at(0))
    }

    fn minute() -> Lifetime {
        Lifetime::from_seconds(60).unwrap()
    }

    #[test]
    fn a_touched_session_lives_on_and_an_untouched_one_expires() {
        let mut session = session();
        session.touch(minute(), at(59)).unwrap();
        session.touch(minute(), at(30)).unwrap();
        assert_eq!(session.times().last_active_at, at(59));
        assert_eq!(session.check_live(at(118)), Ok(()));
        let expired = SessionError::Expired {
            expires_at: at(119),
        };
        assert_eq!(session.touch(minute(), at(119)), Err(expired));
        assert_eq!(session.times().expires_at, at(119));
    }

    #[test]
    fn a_closed_session_stays_closed() {
        let mut session = session();
        session.close(at(10));
        session.close(at(20));
        let closed = SessionError::Closed { closed_at: at(10) };
        assert_eq!(session.touch(minute(), at(11)), Err(closed));
        assert_eq!(session.times().last_active_at, at(0));
    }

    #[test]
    fn stored_times_that_contradict_each_other_are_refused() {
        let session = session();
        let restored = ShopperSession::restore(session.details().clone(), session.times());
        assert_eq!(restored.as_ref(), Ok(&session));
        let mut times = session.times();
        times.last_active_at = at(-1);
        assert!(ShopperSession::restore(session.details().clone(), times).is_err());
    }
}
