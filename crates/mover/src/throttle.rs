//! How fast is copied, so that shoppers do not feel it. Pure, but for where the figures come from.
//!
//! Once a second the governor looks at what shoppers' requests took meanwhile, and single reads of both engines. Above
//! one of the ceilings it halves the rate of the copy at once; well below both it raises the rate step by step (additive
//! increase, multiplicative decrease): whoever shares something with others and is told only "too much" ends up with a
//! fair part of it that way.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where a process tells how long shoppers' requests take in it.
pub trait Pressure: fmt::Debug + Send + Sync {
    /// Requests since the process began.
    fn requests(&self) -> Latencies;
}

/// Requests by how long they took: upper bounds in microseconds, rising, and how many lie below each and above the
/// one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies(pub Vec<(u64, u64)>);

/// What an operator allows. What is not given is not limited, but for the ceiling.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    pub records_per_second_max: Option<u32>,
    #[serde(default)]
    pub bytes_per_second_max: Option<u64>,
    /// The ceiling of what 99 of 100 requests take; `None`: half as much again as before the copy began.
    #[serde(default)]
    pub p99_ms_max: Option<u32>,
    /// The operator's.
    pub reason: String,
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = [
            self.records_per_second_max
                .map(|most| format!("{most} records a second")),
            self.bytes_per_second_max
                .map(|most| format!("{most} bytes a second")),
        ];
        let rates: Vec<String> = rates.into_iter().flatten().collect();
        match rates.is_empty() {
            true => f.write_str("as fast as both sides allow")?,
            false => write!(f, "at most {}", rates.join(" and "))?,
        }
        match self.p99_ms_max {
            Some(most) => write!(f, ", while 99 of 100 requests take {most} ms at most"),
            None => Ok(()),
        }
    }
}

/// How fast is copied now, and why not faster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pacing {
    /// `None`: as fast as both sides allow.
    pub records_per_second: Option<u32>,
    /// What 99 of 100 requests took in the last second that had enough of them.
    pub p99_us: Option<u64>,
    pub p99_us_max: Option<u64>,
    /// What a read of one record took in the last second, on the slower side.
    #[serde(default)]
    pub engine_us: Option<u64>,
    #[serde(default)]
    pub engine_us_max: Option<u64>,
    pub why: String,
}

/// What is felt of the copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Felt {
    /// What 99 of 100 of shoppers' requests took.
    pub requests: Strain,
    /// What a read of one record took, on the slower side.
    pub engines: Strain,
}

/// How long something took, and may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strain {
    /// `None`: it happened too seldom to tell.
    pub us: Option<u64>,
    /// `None`: as long as it likes.
    pub us_max: Option<u64>,
}

impl Strain {
    /// Of what is allowed; where nobody is, nobody is in the way.
    fn share(self) -> Option<f64> {
        let most = self.us_max?.max(1);
        Some(self.us.map_or(0.0, |us| us as f64 / most as f64))
    }
}

/// How often the rate is looked at.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);

/// How long requests are watched before the copy begins.
pub(crate) const BASELINE: Duration = Duration::from_secs(1);

/// Fewer requests than this tell nothing about one in a hundred.
const REQUESTS_LEAST: u64 = 50;

/// The copy never stands still because of shoppers: it would never end.
const RATE_LEAST: f64 = 50.0;
/// Below this share of the ceiling there is room.
const ROOM: f64 = 0.8;
/// What the rate grows by in a window: so much of itself, and so many records.
const GROWTH: f64 = 1.1;
const GROWTH_RECORDS: f64 = 50.0;
/// A rate that is so many times what was copied limits nothing.
const IDLE: f64 = 3.0;

/// What the governor allows; `None`: as fast as both sides can.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Governor {
    rate: Option<f64>,
}

impl Latencies {
    /// Those since `earlier`; a process that began anew counts from its beginning.
    #[must_use]
    pub fn since(&self, earlier: &Latencies) -> Latencies {
        let before = |index: usize| earlier.0.get(index).map_or(0, |(_, count)| *count);
        let left = self.0.iter().enumerate();
        let left =
            left.map(|(index, (bound, count))| (*bound, count.saturating_sub(before(index))));
        Latencies(left.collect())
    }

    /// What 99 of 100 took, evenly spread within its bucket; `None`: too few to tell.
    pub fn p99_us(&self) -> Option<u64> {
        let all: u64 = self.0.iter().map(|(_, count)| count).sum();
        if all < REQUESTS_LEAST {
            return None;
        }
        let rank = all as f64 * 0.99;
        let (mut below, mut least) = (0u64, 0u64);
        for (bound, count) in &self.0 {
            if *count > 0 && (below + count) as f64 >= rank {
                let share = (rank - below as f64) / *count as f64;
                let width = bound.saturating_sub(least) as f64;
                return Some(least + (share * width) as u64);
            }
            below += count;
            least = *bound;
        }
        None
    }
}

impl Governor {
    /// After a window in which this was felt and `copied` records a second arrived.
    #[must_use]
    pub fn next(self, felt: Felt, copied: f64) -> Governor {
        let shares = [felt.requests.share(), felt.engines.share()].into_iter();
        let Some(felt) = shares.flatten().reduce(f64::max) else {
            return Governor::default();
        };
        let rate = match self.rate {
            _ if felt > 1.0 => {
                // What was not used up does not count.
                let used = self
                    .rate
                    .map_or(copied, |rate| rate.min(copied.max(RATE_LEAST)));
                Some((used / 2.0).max(RATE_LEAST))
            }
            Some(rate) if felt <= ROOM => {
                let grown = rate * GROWTH + GROWTH_RECORDS;
                Some(grown).filter(|grown| *grown <= copied * IDLE + RATE_LEAST * IDLE)
            }
            rate => rate,
        };
        Governor { rate }
    }

    /// With what the operator allows.
    pub fn rate(self, throttle: &Throttle) -> Option<f64> {
        let fixed = throttle.records_per_second_max.map(f64::from);
        match (self.rate, fixed) {
            (Some(rate), Some(fixed)) => Some(rate.min(fixed)),
            (rate, fixed) => rate.or(fixed),
        }
    }

    /// Why it is not faster, for people.
    pub fn why(self, throttle: &Throttle, felt: Felt) -> String {
        let fixed = throttle.records_per_second_max.map(f64::from);
        match (self.rate, fixed) {
            (Some(rate), fixed) if fixed.is_none_or(|fixed| rate < fixed) => felt.why(),
            (_, Some(_)) => throttle.reason.clone(),
            _ if throttle.bytes_per_second_max.is_some() => throttle.reason.clone(),
            _ => String::new(),
        }
    }
}

impl Felt {
    /// What the copy is slow for: the more strained of both.
    fn why(self) -> String {
        let ms = |us: u64| us as f64 / 1e3;
        let (requests, engines) = (self.requests, self.engines);
        if engines.share() > requests.share() {
            let most = ms(engines.us_max.unwrap_or_default());
            let now = engines.us.map_or("too few to tell now".to_owned(), |us| {
                format!("{:.1} ms now", ms(us))
            });
            return format!("reads of the engines took more than {most:.1} ms; {now}");
        }
        let most = ms(requests.us_max.unwrap_or_default());
        let now = requests.us;
        let now = now.map_or("too few requests to tell now".to_owned(), |us| {
            format!("99 of 100 take {:.1} ms now", ms(us))
        });
        format!("shoppers' requests took more than {most:.1} ms; {now}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_slowest_hundredth_is_told_from_what_came_since() {
        let earlier = Latencies(vec![(1_000, 500), (2_000, 0), (u64::MAX, 7)]);
        let now = Latencies(vec![(1_000, 598), (2_000, 2), (u64::MAX, 7)]);
        assert_eq!(now.since(&earlier).p99_us(), Some(1_500));
        assert_eq!(
            earlier.since(&earlier).p99_us(),
            None,
            "no requests tell nothing"
        );
        let few = Latencies(vec![(1_000, 49)]);
        assert_eq!(few.p99_us(), None);
    }

    fn requests(us: Option<u64>, us_max: Option<u64>) -> Felt {
        Felt {
            requests: Strain { us, us_max },
            ..Felt::default()
        }
    }

    #[test]
    fn the_more_strained_of_shoppers_and_engines_decides() {
        let felt = |requests_us, engines_us| Felt {
            requests: Strain {
                us: requests_us,
                us_max: Some(10_000),
            },
            engines: Strain {
                us: Some(engines_us),
                us_max: Some(5_000),
            },
        };
        let unlimited = Governor::default();
        assert_eq!(unlimited.next(felt(Some(9_000), 4_900), 8_000.0).rate, None);
        let slow = felt(Some(9_000), 6_000);
        let breached = unlimited.next(slow, 8_000.0);
        assert_eq!(breached.rate, Some(4_000.0));
        let why = breached.why(&Throttle::default(), slow);
        assert!(why.contains("engines took more than 5.0 ms; 6.0"), "{why}");
        let busy = breached.next(felt(None, 6_000), 4_000.0);
        assert_eq!(busy.rate, Some(2_000.0), "also while nobody buys");
    }

    #[test]
    fn a_breach_halves_what_was_copied_and_calm_lets_it_go() {
        let unlimited = Governor::default();
        let breached = unlimited.next(requests(Some(20_000), Some(10_000)), 8_000.0);
        assert_eq!(breached.rate, Some(4_000.0));
        let close = requests(Some(9_000), Some(10_000));
        assert_eq!(breached.next(close, 4_000.0), breached);
        let calm = breached.next(requests(Some(5_000), Some(10_000)), 4_000.0);
        assert_eq!(calm.rate, Some(4_450.0));
        let mut governor = calm;
        for _ in 0..100 {
            governor = governor.next(requests(None, Some(10_000)), 300.0);
        }
        assert_eq!(
            governor.rate, None,
            "a rate far above what comes limits nothing"
        );
        let throttle = Throttle {
            records_per_second_max: Some(100),
            reason: "a sale".to_owned(),
            ..Throttle::default()
        };
        assert_eq!(calm.rate(&throttle), Some(100.0));
        assert_eq!(calm.why(&throttle, requests(None, Some(1))), "a sale");
        let why = calm.why(&Throttle::default(), requests(Some(12_340), Some(10_000)));
        assert!(
            why.contains("more than 10.0 ms; 99 of 100 take 12.3 ms"),
            "{why}"
        );
    }

    proptest! {
        #[test]
        fn it_never_stands_still_and_never_grows_on_a_breach(
            rate in proptest::option::of(50.0f64..1e6), copied in 0.0f64..1e6,
            p99 in proptest::option::of(0u64..1_000_000), ceiling in 1u64..1_000_000,
        ) {
            let next = Governor { rate }.next(requests(p99, Some(ceiling)), copied);
            prop_assert!(next.rate.is_none_or(|rate| rate >= RATE_LEAST));
            if p99.is_some_and(|p99| p99 > ceiling) {
                let before = rate.unwrap_or(f64::MAX).max(RATE_LEAST);
                prop_assert!(next.rate.expect("a breach limits") <= before);
            }
        }

        /// A shop whose requests get slower with every record that is copied: the copy settles below the ceiling, and
        /// still uses most of the room.
        #[test]
        fn it_settles_where_shoppers_hardly_feel_it(
            idle_us in 500.0f64..20_000.0, us_per_record in 0.5f64..20.0, most in 2_000.0f64..50_000.0,
        ) {
            let ceiling = (idle_us * 1.5) as u64;
            let room = (ceiling as f64 - idle_us) / us_per_record;
            prop_assume!(room > 4.0 * RATE_LEAST);
            let mut governor = Governor::default();
            let (mut breaches, mut copied_all) = (0, 0.0);
            for second in 0..300 {
                let copied = governor.rate.unwrap_or(most).min(most);
                let p99 = (idle_us + us_per_record * copied) as u64;
                governor = governor.next(requests(Some(p99), Some(ceiling)), copied);
                if second >= 100 {
                    breaches += u32::from(p99 > ceiling);
                    copied_all += copied;
                }
            }
            prop_assert!(breaches <= 60, "{breaches} of 200 seconds");
            prop_assert!(copied_all / 200.0 >= 0.4 * room.min(most), "{copied_all}");
        }
    }
}
