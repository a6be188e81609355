//! Every bound of the HTTP side, with its unit.

use std::time::Duration;

use serde::Deserialize;

/// The largest body, in bytes. The biggest honest one is an order of 100 lines.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// The largest request head hyper can be told to take, and the least.
const HEAD_BYTES_LEAST: usize = 8 * 1024;
const HEAD_BYTES_MOST: usize = 256 * 1024;

/// What is kept of a request's time for giving the answer.
const ANSWERING_MAX: Duration = Duration::from_millis(20);

/// No wait may be set longer than this.
const DURATION_MS_MOST: u64 = 600_000;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpLimits {
    /// Bytes of one body; a larger one is refused before it is read.
    pub body_bytes_max: usize,
    /// How long the body of a request may take to arrive.
    pub body_read_ms_max: u64,
    /// Bytes of request line and headers together.
    pub head_bytes_max: usize,
    pub headers_max: usize,
    /// How long a connection may stay without a complete request head, idle time included.
    pub head_read_ms_max: u64,
    /// How long a request may take from its head to its answer.
    pub request_ms_max: u64,
    /// Requests at work at once. Browsing is refused first, then carts, checkout last.
    pub requests_in_flight_max: usize,
    /// How late requests may be taken up, all through a window, before browsing is
    /// refused, then carts, then checkout.
    pub queue_ms_max: u64,
    /// How long it is looked at before that is decided.
    pub queue_window_ms: u64,
    /// How much of a class is refused more after each window that was too late; more
    /// if it was later by far.
    pub shed_step_percent: u32,
    pub connections_max: usize,
    /// Requests a second of one peer address; 0: as many as it likes, because the
    /// callers are the shop's own services.
    pub client_requests_per_s: u32,
    /// How far a peer may run ahead of its rate at once.
    pub client_burst: u32,
    /// Records in one page of a listing.
    pub page_records_max: usize,
    /// Products in one answer of the search.
    pub search_records_max: usize,
    /// How far a client's token may be ahead of this machine's clock: as far as the
    /// router lets records be, and no further.
    pub token_ahead_ms_max: u64,
    /// An answer slower than this is logged.
    pub slow_ms: u64,
    /// How long readiness says no before new connections are refused: what a load
    /// balancer needs to notice.
    pub drain_notice_ms: u64,
    /// How long requests under way may go on after that.
    pub drain_ms_max: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}: choose {least} to {most}")]
pub struct HttpLimitsError {
    pub name: &'static str,
    pub value: u64,
    pub least: u64,
    pub most: u64,
}

impl Default for HttpLimits {
    fn default() -> HttpLimits {
        HttpLimits {
            body_bytes_max: BODY_BYTES_MAX,
            body_read_ms_max: 5_000,
            head_bytes_max: 16 * 1024,
            headers_max: 64,
            head_read_ms_max: 75_000,
            request_ms_max: 10_000,
            requests_in_flight_max: 10_000,
            queue_ms_max: 25,
            queue_window_ms: 100,
            shed_step_percent: 10,
            connections_max: 20_000,
            client_requests_per_s: 0,
            client_burst: 100,
            page_records_max: 100,
            search_records_max: 50,
            token_ahead_ms_max: 500,
            slow_ms: 1_000,
            drain_notice_ms: 0,
            drain_ms_max: 10_000,
        }
    }
}

impl HttpLimits {
    pub fn check(&self) -> Result<(), HttpLimitsError> {
        let counts = u64::from(u32::MAX);
        let size = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
        let ms = DURATION_MS_MOST;
        let bounds = [
            (
                "body_bytes_max",
                size(self.body_bytes_max),
                1,
                size(BODY_BYTES_MAX),
            ),
            ("body_read_ms_max", self.body_read_ms_max, 1, ms),
            (
                "head_bytes_max",
                size(self.head_bytes_max),
                size(HEAD_BYTES_LEAST),
                size(HEAD_BYTES_MOST),
            ),
            ("headers_max", size(self.headers_max), 16, 1_000),
            ("head_read_ms_max", self.head_read_ms_max, 1, ms),
            ("request_ms_max", self.request_ms_max, 1, ms),
            (
                "requests_in_flight_max",
                size(self.requests_in_flight_max),
                1,
                counts,
            ),
            ("queue_ms_max", self.queue_ms_max, 1, ms),
            ("queue_window_ms", self.queue_window_ms, 10, ms),
            (
                "shed_step_percent",
                u64::from(self.shed_step_percent),
                1,
                100,
            ),
            // The semaphore that counts them ends well above this.
            ("connections_max", size(self.connections_max), 1, 1_000_000),
            (
                "client_requests_per_s",
                u64::from(self.client_requests_per_s),
                0,
                1_000_000,
            ),
            ("client_burst", u64::from(self.client_burst), 1, 1_000_000),
            ("page_records_max", size(self.page_records_max), 1, 1_000),
            ("search_records_max", size(self.search_records_max), 1, 200),
            ("token_ahead_ms_max", self.token_ahead_ms_max, 1, ms),
            ("slow_ms", self.slow_ms, 1, ms),
            ("drain_notice_ms", self.drain_notice_ms, 0, ms),
            ("drain_ms_max", self.drain_ms_max, 0, ms),
        ];
        match bounds
            .into_iter()
            .find(|(_, value, least, most)| !(least..=most).contains(&value))
        {
            Some((name, value, least, most)) => Err(HttpLimitsError {
                name,
                value,
                least,
                most,
            }),
            None => Ok(()),
        }
    }

    pub(crate) fn body_read(&self) -> Duration {
        Duration::from_millis(self.body_read_ms_max)
    }

    pub(crate) fn request(&self) -> Duration {
        Duration::from_millis(self.request_ms_max)
    }

    /// What the shop has of a request's time. A little less, so that its own answer, which
    /// knows what became of a change, comes before the request is cut off.
    pub(crate) fn asking(&self) -> Duration {
        let request = self.request();
        request - ANSWERING_MAX.min(request / 10)
    }

    pub(crate) fn slow(&self) -> Duration {
        Duration::from_millis(self.slow_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold_and_what_cannot_work_is_named() {
        fn check(change: impl Fn(&mut HttpLimits), expected: &str) {
            let mut limits = HttpLimits::default();
            change(&mut limits);
            assert_eq!(limits.check().unwrap_err().name, expected);
        }
        HttpLimits::default().check().unwrap();
        check(
            |limits| limits.body_bytes_max = BODY_BYTES_MAX + 1,
            "body_bytes_max",
        );
        check(|limits| limits.head_bytes_max = 4096, "head_bytes_max");
        check(|limits| limits.request_ms_max = 0, "request_ms_max");
        check(|limits| limits.client_burst = 0, "client_burst");
        check(|limits| limits.page_records_max = 1_001, "page_records_max");
    }
}
