//! Every bound of the router, with its unit.

use std::time::Duration;

use serde::Deserialize;

/// No pause, hold or clock error may be set longer than this.
const DURATION_MS_MAX: u64 = 600_000;

/// Renewals that fit into the time of one lease: one or two may fail.
const LEASE_RENEWALS_LEAST: u64 = 3;

const LEASE_MARGIN_PERCENT_MAX: u64 = 100;

/// More than this is no budget.
const RETRIES_SAVED_MOST: u64 = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Requests that wait for frozen keys at once; one more is refused.
    pub held_requests_max: usize,
    /// How long one request waits, over all its holds.
    pub hold_ms_max: u64,
    /// How often a held request looks for a new map.
    pub hold_poll_ms: u64,
    /// How often one write goes again because a fence stopped it.
    pub fenced_retries_max: u32,
    /// How often one write proposes a higher revision.
    pub stale_retries_max: u32,
    /// How often one request goes again because the shard was not available.
    pub unavailable_retries_max: u32,
    /// How often one write is sent again to learn what became of it.
    pub unknown_resends_max: u32,
    /// The least pause before a request goes again; chance adds up to as much.
    pub retry_pause_ms: u64,
    /// How often one read goes again because the generation changed under it.
    pub read_restarts_max: u32,
    /// Readers of one key that wait for an answer at once.
    pub readers_waiting_max: usize,
    /// How often one listing starts again because the generation changed under it.
    pub listing_restarts_max: u32,
    /// Pages that one listing asks of one shard to fill its own.
    pub listing_pages_max: u32,
    /// Requests at work on one shard, or waiting there for another's answer; one more
    /// is refused. Far below what the process takes, so that a shard that hangs leaves
    /// room for the others.
    pub shard_requests_max: usize,
    /// Of those places, what requests of low precedence may take.
    pub shard_low_percent: u32,
    /// Of those places, what requests of low and middle precedence may take.
    pub shard_middle_percent: u32,
    /// What an answer of a shard adds to its budget of retries, in hundredths of one.
    pub retry_percent: u32,
    /// Retries that a shard's budget holds at most, and at the start.
    pub retries_saved_max: u32,
    /// Changes in one commit.
    pub changes_together_max: usize,
    /// How far records may be ahead of this process's clock (W5).
    pub clock_ahead_ms_max: u64,
    /// How long a lease runs without renewal. So long may the control store be
    /// away before this process stops serving, and so long does a move wait for
    /// a process that died.
    pub lease_ms: u64,
    /// How often the lease is renewed.
    pub lease_renew_ms: u64,
    /// How often a process with a lease looks for a new map.
    pub lease_look_ms: u64,
    /// How often it looks while a map says that the next one is near, and while keys
    /// are frozen: so much longer does every cutover take.
    pub notice_look_ms: u64,
    /// How long it does, counted from when it took that map: a notice that its mover
    /// has forgotten costs nothing afterwards.
    pub notice_ms_max: u64,
    /// How much longer than its holder others take a lease to run: what two
    /// machines' clocks may drift apart (W17).
    pub lease_margin_percent: u32,
    /// How long the writer number of a lease that ended rests: longer than a
    /// change can be under way (W5).
    pub writer_rest_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}: choose {least} to {most}")]
pub struct LimitsError {
    pub name: &'static str,
    pub value: u64,
    pub least: u64,
    pub most: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            held_requests_max: 10_000,
            hold_ms_max: 5_000,
            hold_poll_ms: 50,
            fenced_retries_max: 16,
            stale_retries_max: 16,
            unavailable_retries_max: 4,
            unknown_resends_max: 4,
            retry_pause_ms: 10,
            read_restarts_max: 16,
            readers_waiting_max: 10_000,
            listing_restarts_max: 16,
            listing_pages_max: 16,
            shard_requests_max: 1_000,
            shard_low_percent: 60,
            shard_middle_percent: 80,
            retry_percent: 20,
            retries_saved_max: 100,
            changes_together_max: 128,
            clock_ahead_ms_max: 500,
            lease_ms: 30_000,
            lease_renew_ms: 1_000,
            lease_look_ms: 250,
            notice_look_ms: 5,
            notice_ms_max: 10_000,
            lease_margin_percent: 5,
            writer_rest_ms: 60_000,
        }
    }
}

impl Limits {
    pub fn check(&self) -> Result<(), LimitsError> {
        let counts = u64::from(u32::MAX);
        let length = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        let bounds = [
            (
                "held_requests_max",
                length(self.held_requests_max),
                0,
                counts,
            ),
            ("hold_ms_max", self.hold_ms_max, 1, DURATION_MS_MAX),
            ("hold_poll_ms", self.hold_poll_ms, 1, self.hold_ms_max),
            ("retry_pause_ms", self.retry_pause_ms, 1, DURATION_MS_MAX),
            (
                "readers_waiting_max",
                length(self.readers_waiting_max),
                1,
                counts,
            ),
            (
                "listing_pages_max",
                u64::from(self.listing_pages_max),
                1,
                counts,
            ),
            (
                "shard_requests_max",
                length(self.shard_requests_max),
                1,
                counts,
            ),
            (
                "shard_middle_percent",
                u64::from(self.shard_middle_percent),
                1,
                100,
            ),
            (
                "shard_low_percent",
                u64::from(self.shard_low_percent),
                1,
                u64::from(self.shard_middle_percent),
            ),
            ("retry_percent", u64::from(self.retry_percent), 0, 100),
            (
                "retries_saved_max",
                u64::from(self.retries_saved_max),
                0,
                RETRIES_SAVED_MOST,
            ),
            (
                "changes_together_max",
                length(self.changes_together_max),
                1,
                counts,
            ),
            (
                "clock_ahead_ms_max",
                self.clock_ahead_ms_max,
                1,
                DURATION_MS_MAX,
            ),
            (
                "lease_ms",
                self.lease_ms,
                LEASE_RENEWALS_LEAST,
                DURATION_MS_MAX,
            ),
            (
                "lease_renew_ms",
                self.lease_renew_ms,
                1,
                self.lease_ms / LEASE_RENEWALS_LEAST,
            ),
            ("lease_look_ms", self.lease_look_ms, 1, self.lease_renew_ms),
            ("notice_look_ms", self.notice_look_ms, 1, 1_000),
            ("notice_ms_max", self.notice_ms_max, 0, DURATION_MS_MAX),
            (
                "lease_margin_percent",
                u64::from(self.lease_margin_percent),
                1,
                LEASE_MARGIN_PERCENT_MAX,
            ),
            ("writer_rest_ms", self.writer_rest_ms, 1, DURATION_MS_MAX),
        ];
        match bounds
            .into_iter()
            .find(|(_, value, least, most)| !(least..=most).contains(&value))
        {
            Some((name, value, least, most)) => Err(LimitsError {
                name,
                value,
                least,
                most,
            }),
            None => Ok(()),
        }
    }

    /// A pause before a retry is no longer than this.
    pub(crate) fn retry_pause_most(&self) -> Duration {
        Duration::from_millis(2 * self.retry_pause_ms)
    }

    pub(crate) fn hold(&self) -> Duration {
        Duration::from_millis(self.hold_ms_max)
    }

    pub(crate) fn hold_poll(&self) -> Duration {
        Duration::from_millis(self.hold_poll_ms)
    }

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    pub(crate) fn lease_renewal(&self) -> Duration {
        Duration::from_millis(self.lease_renew_ms)
    }

    pub(crate) fn lease_look(&self) -> Duration {
        Duration::from_millis(self.lease_look_ms)
    }

    /// Never more slowly than usual.
    pub(crate) fn notice_look(&self) -> Duration {
        Duration::from_millis(self.notice_look_ms.min(self.lease_look_ms))
    }

    pub(crate) fn notice(&self) -> Duration {
        Duration::from_millis(self.notice_ms_max)
    }

    pub(crate) fn writer_rest(&self) -> Duration {
        Duration::from_millis(self.writer_rest_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold_and_what_cannot_work_is_named() {
        fn check(limits: Limits, expected: &str) {
            assert_eq!(limits.check().unwrap_err().name, expected);
        }
        Limits::default().check().unwrap();
        check(
            Limits {
                hold_ms_max: 0,
                ..Limits::default()
            },
            "hold_ms_max",
        );
        check(
            Limits {
                hold_poll_ms: 5_001,
                ..Limits::default()
            },
            "hold_poll_ms",
        );
        check(
            Limits {
                readers_waiting_max: 0,
                ..Limits::default()
            },
            "readers_waiting_max",
        );
        check(
            Limits {
                clock_ahead_ms_max: 600_001,
                ..Limits::default()
            },
            "clock_ahead_ms_max",
        );
        check(
            Limits {
                lease_renew_ms: 10_001,
                ..Limits::default()
            },
            "lease_renew_ms",
        );
        check(
            Limits {
                lease_margin_percent: 0,
                ..Limits::default()
            },
            "lease_margin_percent",
        );
    }
}
