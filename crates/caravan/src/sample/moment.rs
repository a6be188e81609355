//! A world whose clock stands still and whose chance follows from a number.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine_api::{RealWorld, Timestamp, World};
use model::ShopperSessionId;

use super::catalogue::scattered;

#[derive(Debug)]
pub struct Moment {
    at: Timestamp,
    seed: u64,
    draws: AtomicU64,
    real: RealWorld,
}

impl Moment {
    pub fn at(at: Timestamp, seed: u64) -> Moment {
        Moment {
            at,
            seed,
            draws: AtomicU64::new(0),
            real: RealWorld::new(),
        }
    }
}

/// The session that the shop opens first in a world with this seed. Its id says
/// whether an interrupted filling has opened it already.
pub fn session_id(seed: u64) -> ShopperSessionId {
    let [high, low] = [0, 1].map(|draw| drawn(seed, draw));
    ShopperSessionId::parse(&format!("s-{high:016x}{low:016x}"))
        .expect("34 letters and digits are an id")
}

fn drawn(seed: u64, draw: u64) -> u64 {
    scattered(scattered(seed) ^ draw)
}

impl World for Moment {
    fn now(&self) -> Timestamp {
        self.at
    }

    fn elapsed(&self) -> Duration {
        self.real.elapsed()
    }

    fn random(&self) -> u64 {
        drawn(self.seed, self.draws.fetch_add(1, Ordering::Relaxed))
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.real.sleep(duration)
    }
}
