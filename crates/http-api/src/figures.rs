//! Live figures of the last minute, for the first page.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::meter::{BUCKETS, Totals, quantile_us};

/// One sample a second, for a minute.
const SAMPLES_MAX: usize = 60;
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// Sums as they stood a while ago; what happened since is the difference.
#[derive(Debug)]
pub(crate) struct Figures {
    started: Duration,
    samples: Mutex<VecDeque<(Duration, Totals)>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct FiguresView {
    /// Seconds since the start.
    uptime_s: u64,
    /// Seconds that rates and latencies are taken over: up to a minute.
    window_s: f64,
    requests_per_s: f64,
    /// Milliseconds; null without requests in the window.
    latency_p50_ms: Option<f64>,
    latency_p99_ms: Option<f64>,
    requests: u64,
    /// Answers with a status of 500 or more.
    errors: u64,
    orders_placed: u64,
    carts_changed: u64,
    requests_in_flight: usize,
}

impl Figures {
    pub(crate) fn new(started: Duration) -> Figures {
        Figures {
            started,
            samples: Mutex::default(),
        }
    }

    pub(crate) fn sample(&self, elapsed: Duration, totals: Totals) {
        let mut samples = self.lock();
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back((elapsed, totals));
    }

    /// Since the oldest sample, or since the start before there is one.
    pub(crate) fn view(&self, elapsed: Duration, now: &Totals, in_flight: usize) -> FiguresView {
        let start = (self.started, Totals::default());
        let (since, then) = self.lock().front().cloned().unwrap_or(start);
        let window_s = elapsed.saturating_sub(since).as_secs_f64();
        let requests = now.requests.saturating_sub(then.requests);
        let mut latency = [0; BUCKETS];
        for (bucket, count) in latency.iter_mut().enumerate() {
            *count = now.latency[bucket].saturating_sub(then.latency[bucket]);
        }
        let ms = |of_all| quantile_us(&latency, of_all).map(|us| us / 1000.0);
        FiguresView {
            uptime_s: elapsed.saturating_sub(self.started).as_secs(),
            window_s,
            requests_per_s: if window_s > 0.0 {
                requests as f64 / window_s
            } else {
                0.0
            },
            latency_p50_ms: ms(0.50),
            latency_p99_ms: ms(0.99),
            requests: now.requests,
            errors: now.errors,
            orders_placed: now.orders_placed,
            carts_changed: now.carts_changed,
            requests_in_flight: in_flight,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(Duration, Totals)>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FiguresView {
    /// Name, value and note of each figure, as the first page shows them.
    pub(crate) fn tiles(&self) -> [(&'static str, &'static str, String); 6] {
        let ms = |value: Option<f64>| value.map_or("–".to_owned(), |ms| format!("{ms:.2} ms"));
        [
            (
                "requests_per_s",
                "requests a second",
                format!("{:.0}", self.requests_per_s),
            ),
            (
                "latency_p50_ms",
                "latency, half below",
                ms(self.latency_p50_ms),
            ),
            (
                "latency_p99_ms",
                "latency, 99 % below",
                ms(self.latency_p99_ms),
            ),
            (
                "orders_placed",
                "orders placed",
                self.orders_placed.to_string(),
            ),
            (
                "carts_changed",
                "carts changed",
                self.carts_changed.to_string(),
            ),
            ("errors", "errors of the shop", self.errors.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(requests: u64) -> Totals {
        let mut totals = Totals {
            requests,
            ..Totals::default()
        };
        totals.latency[3] = requests;
        totals
    }

    #[test]
    fn rates_are_of_the_last_minute_and_counts_of_all_time() {
        let at = Duration::from_secs;
        let figures = Figures::new(at(100));
        let early = figures.view(at(102), &totals(10), 1);
        assert_eq!((early.requests_per_s, early.uptime_s), (5.0, 2));
        for second in 0..120 {
            figures.sample(at(100 + second), totals(second * 7));
        }
        let view = figures.view(at(220), &totals(840), 3);
        assert_eq!((view.window_s, view.requests_per_s), (60.0, 7.0));
        assert_eq!((view.requests, view.requests_in_flight), (840, 3));
        let p50 = view.latency_p50_ms.unwrap();
        assert!((0.15..=0.2).contains(&p50), "{p50}");
    }
}
