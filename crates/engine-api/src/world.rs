//! Time and chance, injected, so that a simulation can hold both in its hand.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::Timestamp;

/// What a process perceives of the world around it.
pub trait World: Send + Sync + std::fmt::Debug {
    /// The wall clock. May be wrong, may jump.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment of this process. Never jumps, never compared
    /// between processes (W17).
    fn elapsed(&self) -> Duration;

    fn random(&self) -> u64;

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The world as it is.
#[derive(Debug)]
pub struct RealWorld {
    started: Instant,
}

impl RealWorld {
    pub fn new() -> RealWorld {
        RealWorld {
            started: Instant::now(),
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
        self.started.elapsed()
    }

    fn random(&self) -> u64 {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(self.started)
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(duration))
    }
}
