//! Repair by chance: a share of the reads is repeated at ALL in the background,
//! which makes the servers compare their copies and mend the old ones.
//!
//! It stands for `read_repair_chance`, which Cassandra had until 4.0. Tables
//! with `read_repair = 'NONE'` compare nothing and are left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine_api::World;
use tokio::sync::Semaphore;

/// Repeated reads under way at once; beyond it a sample is left out.
const AT_ONCE_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Sampling {
    percent: u8,
    world: Arc<dyn World>,
    at_once: Arc<Semaphore>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    repeated: AtomicU64,
    failed: AtomicU64,
    left_out: AtomicU64,
}

/// How many reads were repeated at ALL since the engine was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampledReads {
    pub repeated: u64,
    /// Not all servers answered.
    pub failed: u64,
    /// Too many were under way.
    pub left_out: u64,
}

impl Sampling {
    pub fn new(percent: u8, world: Arc<dyn World>) -> Sampling {
        Sampling {
            percent,
            world,
            at_once: Arc::new(Semaphore::new(AT_ONCE_MAX)),
            counts: Arc::default(),
        }
    }

    /// Carries `again` out in the background for as many calls as the share says.
    pub fn sample<F, E>(&self, again: impl FnOnce() -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display + Send,
    {
        if self.world.random() % 100 >= u64::from(self.percent) {
            return;
        }
        let Ok(permit) = Arc::clone(&self.at_once).try_acquire_owned() else {
            self.counts.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (again, counts) = (again(), Arc::clone(&self.counts));
        tokio::spawn(async move {
            let _permit = permit;
            match again.await {
                Ok(()) => counts.repeated.fetch_add(1, Ordering::Relaxed),
                Err(error) => {
                    tracing::debug!(%error, "a sampled read at ALL was not answered by all");
                    counts.failed.fetch_add(1, Ordering::Relaxed)
                }
            };
        });
    }

    pub fn counts(&self) -> SampledReads {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        SampledReads {
            repeated: of(&self.counts.repeated),
            failed: of(&self.counts.failed),
            left_out: of(&self.counts.left_out),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::time::Duration;

    use engine_api::Timestamp;

    use super::*;

    /// Chance that counts: 0, 1, 2, …
    #[derive(Debug, Default)]
    struct Counting(AtomicU64);

    impl World for Counting {
        fn now(&self) -> Timestamp {
            Timestamp::from_unix_micros(0)
        }
        fn elapsed(&self) -> Duration {
            Duration::ZERO
        }
        fn random(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed)
        }
        fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(std::future::ready(()))
        }
    }

    #[tokio::test]
    async fn the_share_is_repeated_and_the_rest_is_not() {
        let sampling = Sampling::new(10, Arc::new(Counting::default()));
        for number in 0..200 {
            sampling.sample(|| async move {
                if number == 0 {
                    Err("one was away")
                } else {
                    Ok(())
                }
            });
            tokio::task::yield_now().await;
        }
        while sampling.at_once.available_permits() < AT_ONCE_MAX {
            tokio::task::yield_now().await;
        }
        let expected = SampledReads {
            repeated: 19,
            failed: 1,
            left_out: 0,
        };
        assert_eq!(sampling.counts(), expected);
    }

    #[tokio::test]
    async fn samples_never_pile_up() {
        let sampling = Sampling::new(100, Arc::new(Counting::default()));
        for _ in 0..20 {
            sampling.sample(std::future::pending::<Result<(), String>>);
        }
        assert_eq!(sampling.counts().left_out, 12);
    }
}
