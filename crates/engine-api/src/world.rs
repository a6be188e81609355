//! Time and chance, injected, so that a simulation can hold both in its hand.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// What a process perceives of the world around it.
pub trait World: Send + Sync + std::fmt::Debug {
    /// The wall clock. May be wrong, may jump.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment of this process. Never jumps, goes on while the
    /// machine sleeps, never compared between processes (W17).
    fn elapsed(&self) -> Duration;

    fn random(&self) -> u64;

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The world as it is.
#[derive(Debug)]
pub struct RealWorld {
    /// Since the machine was started.
    began: Duration,
}

impl RealWorld {
    pub fn new() -> RealWorld {
        RealWorld {
            began: since_boot(),
        }
    }
}

impl Default for RealWorld {
    fn default() -> RealWorld {
        RealWorld::new()
    }
}

impl World for RealWorld {
    fn now(&self) -> Timestamp {
        let micros = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| {
                i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
            });
        Timestamp::from_unix_micros(micros)
    }

    fn elapsed(&self) -> Duration {
        since_boot().saturating_sub(self.began)
    }

    fn random(&self) -> u64 {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(self.began)
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A lease must run out for a machine that was suspended with requests under way, as it
/// does for everyone else. Linux has a clock for that; elsewhere the monotonic one will do.
fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}
