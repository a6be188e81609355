//! The names of all settings, and their values as a table.

use std::net::SocketAddr;

use http_api::HttpLimits;
use model::Lifetime;
use router::{Limits, ProcessName};
use shop_service::Settings;
use toml::{Table, Value};

use super::Config;
use crate::ops::OpsSettings;
use crate::serve::{MoveSettings, Runner, Upkeep};

/// A section as a table. Takes the settings apart field by field, so that a new
/// one does not compile before it is named here.
macro_rules! section {
    ($settings:expr => $kind:ident { $($key:ident),+ $(,)? }) => {{
        let $kind { $($key),+ } = $settings;
        let pairs = [$((stringify!($key).to_owned(), $key.shown())),+];
        Value::Table(Table::from_iter(pairs))
    }};
}

trait Shown {
    fn shown(&self) -> Value;
}

impl Shown for u32 {
    fn shown(&self) -> Value {
        Value::Integer(i64::from(*self))
    }
}

impl Shown for u64 {
    fn shown(&self) -> Value {
        Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
    }
}

impl Shown for usize {
    fn shown(&self) -> Value {
        Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
    }
}

impl Shown for Runner {
    fn shown(&self) -> Value {
        Value::String(self.name().to_owned())
    }
}

impl Shown for SocketAddr {
    fn shown(&self) -> Value {
        Value::String(self.to_string())
    }
}

impl Shown for Lifetime {
    fn shown(&self) -> Value {
        self.seconds().shown()
    }
}

pub fn table(config: &Config) -> Table {
    let mut table = Table::new();
    let mut put = |key: &str, value: Value| table.insert(key.to_owned(), value);
    put("data", Value::String(config.data.display().to_string()));
    put("listen", Value::String(config.listen.to_string()));
    put("log", Value::String(config.log.to_string()));
    if let Some(shards) = config.shards {
        put("shards", Value::Integer(i64::from(shards)));
    }
    if let Some(layout) = &config.layout {
        put("layout", Value::String(layout.display().to_string()));
    }
    if let Some(toward) = &config.toward {
        put("toward", Value::String(toward.display().to_string()));
    }
    if let Some(control) = &config.control {
        put("control", Value::String(control.display().to_string()));
    }
    put("addresses", Value::String(config.addresses.to_string()));
    if let Some(process) = &config.process {
        put("process", Value::String(process.to_string()));
    }
    put(
        "shop",
        section!(&config.shop => Settings {
            guest_cart_lifetime_s, session_lifetime_s, sweep_after_s, archive_after_ms,
        }),
    );
    put(
        "router",
        section!(&config.router => Limits {
            held_requests_max, hold_ms_max, hold_poll_ms, fenced_retries_max, stale_retries_max,
            unavailable_retries_max, unknown_resends_max, retry_pause_ms, read_restarts_max,
            readers_waiting_max, listing_restarts_max, listing_pages_max, shard_requests_max,
            shard_low_percent, shard_middle_percent, retry_percent, retries_saved_max,
            changes_together_max,
            clock_ahead_ms_max, lease_ms, lease_renew_ms, lease_look_ms, notice_look_ms, notice_ms_max, lease_margin_percent,
            writer_rest_ms,
        }),
    );
    put(
        "http",
        section!(&config.http => HttpLimits {
            body_bytes_max, body_read_ms_max, head_bytes_max, headers_max, head_read_ms_max,
            request_ms_max, requests_in_flight_max, queue_ms_max, queue_window_ms,
            shed_step_percent, connections_max, client_requests_per_s,
            client_burst, page_records_max, search_records_max, token_ahead_ms_max, slow_ms,
            drain_notice_ms, drain_ms_max,
        }),
    );
    put(
        "upkeep",
        section!(&config.upkeep => Upkeep { every_s, marks_kept_s, journal_kept_s }),
    );
    put("ops", section!(&config.ops => OpsSettings { listen }));
    put(
        "moves",
        section!(&config.moves => MoveSettings { take_over_ms, clean_grace_ms, runner }),
    );
    table
}

/// Every key, those of a section as `section.name`.
pub fn known() -> Vec<String> {
    let config = Config {
        shards: Some(1),
        layout: Some("layout.toml".into()),
        toward: Some("other.toml".into()),
        control: Some("layout.toml".into()),
        process: ProcessName::new("shop-1").ok(),
        ..Config::default()
    };
    let mut keys = Vec::new();
    for (key, value) in table(&config) {
        match value {
            Value::Table(section) => {
                keys.extend(section.keys().map(|name| format!("{key}.{name}")))
            }
            _ => keys.push(key),
        }
    }
    keys
}

pub fn is_number(key: &str) -> bool {
    key == "shards" || key.contains('.')
}

/// The keys of the section that a wrong one names, or all if it names none.
pub fn near(wrong: &str, separator: char) -> Vec<String> {
    let section = wrong
        .split_once(separator)
        .map(|(section, _)| format!("{section}."));
    let mut near = known();
    if let Some(section) = section.filter(|section| near.iter().any(|key| key.starts_with(section)))
    {
        near.retain(|key| key.starts_with(&section));
    }
    near
}
