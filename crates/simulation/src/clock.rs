//! The world as one process perceives it: its own clock, wrong in its own way.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine_api::{Timestamp, World};
use tokio::time::Instant;

use crate::chance::Chance;

/// Where virtual time begins: 2026-01-01, microseconds since the epoch.
pub const EPOCH_US: i64 = 1_767_225_600_000_000;

/// How far a clock may be off at the start.
const SKEW_MS_MAX: u64 = 80;
/// How fast a clock may run away: microseconds a second.
const DRIFT_PPM_MAX: u64 = 20_000;
/// How much faster or slower a process counts time than another: ten times what
/// a machine would be thrown away for, so that a margin is worth its name.
const RATE_PERCENT_MAX: u64 = 10;
/// How far a clock may jump, once.
const JUMP_MS_MAX: u64 = 120;
/// Jumps happen within this time.
const JUMP_AT_MS_MAX: u64 = 2_000;

#[derive(Debug)]
pub struct SimulatedWorld {
    started: Instant,
    skew_us: i64,
    drift_ppm: i64,
    jump_at: Duration,
    jump_us: i64,
    /// How fast time since the start is counted.
    rate_percent: u32,
    chance: Mutex<Chance>,
}

impl SimulatedWorld {
    /// A clock off by up to the maximum; some drift, some jump.
    pub fn skewed(started: Instant, mut chance: Chance) -> SimulatedWorld {
        let signed = |chance: &mut Chance, most: u64| {
            let size = i64::try_from(chance.below(most + 1)).unwrap_or(0);
            if chance.percent(50) { size } else { -size }
        };
        let skew_us = signed(&mut chance, SKEW_MS_MAX * 1000);
        let drift_ppm = if chance.percent(30) {
            signed(&mut chance, DRIFT_PPM_MAX)
        } else {
            0
        };
        let jump_us = if chance.percent(30) {
            signed(&mut chance, JUMP_MS_MAX * 1000)
        } else {
            0
        };
        let jump_at = Duration::from_millis(chance.below(JUMP_AT_MS_MAX));
        let rate_percent = rate_percent(&mut chance);
        SimulatedWorld {
            started,
            skew_us,
            drift_ppm,
            jump_at,
            jump_us,
            rate_percent,
            chance: Mutex::new(chance),
        }
    }

    /// A wall clock that is right, and a rate of its own.
    pub fn exact(started: Instant, mut chance: Chance) -> SimulatedWorld {
        SimulatedWorld {
            started,
            skew_us: 0,
            drift_ppm: 0,
            jump_at: Duration::ZERO,
            jump_us: 0,
            rate_percent: rate_percent(&mut chance),
            chance: Mutex::new(chance),
        }
    }
}

fn rate_percent(chance: &mut Chance) -> u32 {
    let percent = chance.between(100 - RATE_PERCENT_MAX, 100 + RATE_PERCENT_MAX);
    u32::try_from(percent).expect("it is near a hundred")
}

/// Another world whose clock runs ahead by so much.
#[derive(Debug)]
pub struct AheadWorld {
    pub world: Arc<dyn World>,
    pub by: Duration,
}

impl World for AheadWorld {
    fn now(&self) -> Timestamp {
        let by_us = i64::try_from(self.by.as_micros()).unwrap_or(0);
        Timestamp::from_unix_micros(self.world.now().unix_micros() + by_us)
    }

    fn elapsed(&self) -> Duration {
        self.world.elapsed()
    }

    fn random(&self) -> u64 {
        self.world.random()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.world.sleep(duration)
    }
}

impl World for SimulatedWorld {
    fn now(&self) -> Timestamp {
        let elapsed = self.started.elapsed();
        let elapsed_us = i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX / 2);
        let jump_us = if elapsed >= self.jump_at {
            self.jump_us
        } else {
            0
        };
        let drift_us = elapsed_us / 1000 * self.drift_ppm / 1000;
        Timestamp::from_unix_micros(EPOCH_US + elapsed_us + self.skew_us + drift_us + jump_us)
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed() * self.rate_percent / 100
    }

    fn random(&self) -> u64 {
        self.chance
            .lock()
            .expect("no code panics while it holds the lock")
            .number()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(duration))
    }
}
