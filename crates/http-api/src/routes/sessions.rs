//! Shopper sessions: `/v1/sessions`.

pub(crate) mod change;
pub(crate) mod read;

use std::net::IpAddr;

use model::{Attributes, ShopperSession, Timestamp};
use utoipa::ToSchema;

use crate::answer;
use crate::schema::{Free, Id, Moment};

const FOLDER: &str = "/v1/sessions";

#[derive(serde::Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct SessionAnswer<'a> {
    #[schema(value_type = Id)]
    session_id: &'a str,
    /// Null for a guest.
    #[schema(value_type = Option<Id>, required)]
    user_id: Option<&'a str>,
    #[serde(serialize_with = "answer::time")]
    #[schema(value_type = Moment)]
    created_at: Timestamp,
    #[serde(serialize_with = "answer::time")]
    #[schema(value_type = Moment)]
    last_active: Timestamp,
    #[serde(serialize_with = "answer::time")]
    #[schema(value_type = Moment)]
    expires_at: Timestamp,
    #[schema(value_type = Option<String>, required)]
    ip_address: Option<IpAddr>,
    #[schema(required)]
    user_agent: Option<&'a str>,
    #[schema(required)]
    device_type: Option<&'a str>,
    #[schema(value_type = Option<Id>, required)]
    geo_zone: Option<&'a str>,
    #[schema(value_type = Free)]
    data: &'a Attributes,
}

impl<'a> SessionAnswer<'a> {
    pub(crate) fn of(session: &'a ShopperSession) -> SessionAnswer<'a> {
        let details = session.details();
        let times = session.times();
        SessionAnswer {
            session_id: details.id.as_str(),
            user_id: details.user.as_ref().map(|user| user.as_str()),
            created_at: times.opened_at,
            last_active: times.last_active_at,
            expires_at: times.expires_at,
            ip_address: details.ip_address,
            user_agent: details.user_agent.as_ref().map(|agent| agent.as_str()),
            device_type: details.device_type.as_ref().map(|kind| kind.as_str()),
            geo_zone: details.geo_zone.as_ref().map(|zone| zone.as_str()),
            data: &details.attributes,
        }
    }
}
