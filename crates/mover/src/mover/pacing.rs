//! How fast the copy goes: what the operator allows, what shoppers feel, and how busy both engines are.

use std::time::Duration;

use super::probing::Probes;
use super::{Pass, Runner};
use crate::error::MoveError;
use crate::phase::Phase;
use crate::record::FeltBefore;
use crate::throttle::{BASELINE, Felt, Governor, Latencies, Pacing, Strain, WINDOW};

/// A throttled copy goes in pieces of so many a second.
const PIECES_PER_SECOND: f64 = 5.0;
/// What a record is taken to weigh before the first has arrived.
const RECORD_BYTES: u64 = 1_000;

/// A read may take so many times as long as before the copy.
const ENGINE_TIMES_MAX: u64 = 3;
/// Below this no engine counts as busy, however fast it was before.
const ENGINE_US_LEAST: u64 = 5_000;

/// What this process remembers of the pace; none of it outlives the process.
#[derive(Debug, Default)]
pub(super) struct Pace {
    governor: Governor,
    window: Option<Window>,
    /// Requests are watched before the copy begins, from here on.
    watched: Option<(Duration, Latencies)>,
    /// When the throttle lets the next records through, by `World::elapsed`.
    resume_at: Duration,
    /// What the last pass left.
    pub(super) backlog: Backlog,
    pub(super) probes: Probes,
    pub shown: Pacing,
}

/// Whether more was there than the last pass took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Backlog {
    #[default]
    None,
    Some,
}

/// What is counted for the next look.
#[derive(Debug)]
struct Window {
    began: Duration,
    requests: Latencies,
    copied: u64,
}

impl Runner<'_> {
    /// Watches requests for a while before the first record is copied, so that there is something to compare
    /// with. `None`: there is nothing to wait for.
    pub(super) async fn watch_before(&mut self) -> Result<Option<Pass>, MoveError> {
        let state = &self.work.held.state;
        if state.felt_before.is_some() {
            return Ok(None);
        }
        let p99_us = match self.config.pressure.clone() {
            None => None,
            Some(pressure) => {
                let now = self.config.world.elapsed();
                let requests = pressure.requests();
                let watched = &mut self.work.pace.watched;
                let (since, before) = watched.get_or_insert((now, requests.clone()));
                if now.saturating_sub(*since) < BASELINE {
                    return Ok(Some(self.waiting()));
                }
                requests.since(before).p99_us()
            }
        };
        let engine_us = self.probe_at_rest().await?;
        self.update(|state| {
            state.felt_before = Some(FeltBefore { p99_us, engine_us });
            Ok(())
        })
        .await?;
        Ok(None)
    }

    /// For how long nothing more is let through.
    pub(super) fn throttled_ms(&self) -> Option<u64> {
        let left = self.work.pace.resume_at;
        let left = left.saturating_sub(self.config.world.elapsed());
        let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        (!left.is_zero()).then(|| ms.max(1))
    }

    /// Looks at what shoppers felt since the last look, once a window.
    pub(super) fn look_at_pressure(&mut self) {
        let now = self.config.world.elapsed();
        let requests = self.config.pressure.as_ref().map(|it| it.requests());
        let requests = requests.unwrap_or_default();
        let copied = self.copied().0;
        let Some(window) = &self.work.pace.window else {
            self.begin_window(now, requests, copied);
            return self.show_pace(self.felt(None, None));
        };
        let age = now.saturating_sub(window.began);
        if age < WINDOW {
            let shown = &self.work.pace.shown;
            return self.show_pace(self.felt(shown.p99_us, shown.engine_us));
        }
        let p99_us = requests.since(&window.requests).p99_us();
        let per_second = copied.saturating_sub(window.copied) as f64 / age.as_secs_f64();
        let felt = self.felt(p99_us, self.work.pace.probes.slower_us());
        self.work.pace.governor = self.work.pace.governor.next(felt, per_second);
        self.begin_window(now, requests, copied);
        self.show_pace(felt);
    }

    fn felt(&self, p99_us: Option<u64>, engine_us: Option<u64>) -> Felt {
        Felt {
            requests: Strain {
                us: p99_us,
                us_max: self.ceiling_us(),
            },
            engines: Strain {
                us: engine_us,
                us_max: self.engine_ceiling_us(),
            },
        }
    }

    fn begin_window(&mut self, began: Duration, requests: Latencies, copied: u64) {
        self.work.pace.probes.begin();
        self.work.pace.window = Some(Window {
            began,
            requests,
            copied,
        });
    }

    fn show_pace(&mut self, felt: Felt) {
        let throttle = &self.work.held.state.throttle;
        let governor = self.work.pace.governor;
        self.work.pace.shown = Pacing {
            records_per_second: governor.rate(throttle).map(|rate| rate as u32),
            p99_us: felt.requests.us,
            p99_us_max: felt.requests.us_max,
            engine_us: felt.engines.us,
            engine_us_max: felt.engines.us_max,
            why: governor.why(throttle, felt),
        };
    }

    /// What 99 of 100 requests may take.
    fn ceiling_us(&self) -> Option<u64> {
        let state = &self.work.held.state;
        if let Some(ms) = state.throttle.p99_ms_max {
            return Some(u64::from(ms) * 1_000);
        }
        let before = state.felt_before.and_then(|before| before.p99_us)?;
        Some(before.saturating_mul(3) / 2)
    }

    /// What a read of one record may take. An operator who says what shoppers may feel has said enough.
    fn engine_ceiling_us(&self) -> Option<u64> {
        let state = &self.work.held.state;
        let before = state.felt_before.and_then(|before| before.engine_us)?;
        let most = before.saturating_mul(ENGINE_TIMES_MAX).max(ENGINE_US_LEAST);
        state.throttle.p99_ms_max.is_none().then_some(most)
    }

    /// Records a second. What is felt slows the first copy down; what changes afterwards has to be followed, and a copy
    /// that falls behind for the sake of shoppers is never ready: then only the operator's limit counts.
    fn rate(&self) -> Option<f64> {
        let throttle = &self.work.held.state.throttle;
        let follows = !matches!(self.phase(), Phase::Backfilling { .. });
        match (follows, self.work.pace.backlog) {
            (true, Backlog::Some) => throttle.records_per_second_max.map(f64::from),
            (true, Backlog::None) | (false, _) => self.work.pace.governor.rate(throttle),
        }
    }

    /// Records in one piece of the copy.
    pub(super) fn piece(&self) -> usize {
        let throttle = &self.work.held.state.throttle;
        let by_rate = self.rate();
        let by_bytes = throttle.bytes_per_second_max.map(|most| {
            let (records, bytes) = self.copied();
            let weight = bytes.checked_div(records).unwrap_or(RECORD_BYTES).max(1);
            most as f64 / weight as f64
        });
        let rate = [by_rate, by_bytes].into_iter().flatten().reduce(f64::min);
        rate.map_or(usize::MAX, |rate| {
            ((rate / PIECES_PER_SECOND) as usize).max(1)
        })
    }

    /// After a pass that began then, with so much copied before it.
    pub(super) fn pause_after(&mut self, began: Duration, (records, bytes): (u64, u64)) {
        let throttle = &self.work.held.state.throttle;
        let (records_now, bytes_now) = self.copied();
        let by_rate = self.rate();
        let by_rate =
            by_rate.map(|rate| records_now.saturating_sub(records) as f64 / rate.max(1.0));
        let by_bytes = throttle
            .bytes_per_second_max
            .map(|most| bytes_now.saturating_sub(bytes) as f64 / most.max(1) as f64);
        let pause = by_rate.unwrap_or(0.0).max(by_bytes.unwrap_or(0.0));
        self.work.pace.resume_at = began + Duration::from_secs_f64(pause);
    }

    /// Records and bytes that the forward feed has put since this process opened it.
    pub(super) fn copied(&self) -> (u64, u64) {
        let counts = self.work.forward.as_ref().map(feed::Feed::counts);
        counts.map_or((0, 0), |counts| {
            (counts.applied.value(), counts.applied_bytes.value())
        })
    }
}
