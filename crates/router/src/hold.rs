//! Holding: a request for frozen keys waits for the map that lets it go on.
//!
//! Bounded in number and time. A held request wakes when this router's map
//! changes; one of all the held ones looks into the control store each
//! `hold_poll_ms`, because the map may be published by another process.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use engine_api::Generation;

use crate::error::RouterError;
use crate::map::Map;
use crate::router::{Core, Router};

/// How long one request may still be held, over all its holds.
#[derive(Debug, Default)]
pub(crate) struct HoldBudget {
    deadline: Option<Duration>,
}

impl Router {
    /// Returns when the current map satisfies `goes_on`.
    pub(crate) async fn hold(
        &self,
        budget: &mut HoldBudget,
        goes_on: impl Fn(&Map) -> bool,
    ) -> Result<(), RouterError> {
        let mut changed = self.current.changed();
        if goes_on(&self.map()) {
            return Ok(());
        }
        let _place = self.take_place(self.map().generation)?;
        let deadline = *budget
            .deadline
            .get_or_insert_with(|| self.world.elapsed() + self.limits.hold());
        loop {
            self.in_time()?;
            let left = deadline.saturating_sub(self.world.elapsed());
            if left.is_zero() {
                self.counts.holds_refused.add_one();
                return Err(RouterError::HoldExpired {
                    hold_ms_max: self.limits.hold_ms_max,
                });
            }
            let left = self.time_left().map_or(left, |time| left.min(time));
            tokio::select! {
                biased;
                () = changed => {}
                () = self.poll_after(self.limits.hold_poll()) => {}
                () = self.world.sleep(left) => {}
            }
            changed = self.current.changed();
            if goes_on(&self.map()) {
                return Ok(());
            }
        }
    }

    /// Looks for a newer map now, unless another request is looking already. A
    /// control store that does not answer is asked again at the next poll.
    pub(crate) async fn look_for_map(&self) {
        self.look_if_older_than(Duration::ZERO).await;
    }

    async fn poll_after(&self, pause: Duration) {
        self.world.sleep(pause).await;
        self.look_if_older_than(pause).await;
    }

    async fn look_if_older_than(&self, age: Duration) {
        let Some(_turn) = self.lookout.turn(self.world.elapsed(), age) else {
            return;
        };
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "the map could not be refreshed");
        }
    }

    fn take_place(&self, under: Generation) -> Result<Place<'_>, RouterError> {
        let held_requests_max = self.limits.held_requests_max;
        if self.held.fetch_add(1, Ordering::AcqRel) >= held_requests_max {
            self.held.fetch_sub(1, Ordering::AcqRel);
            self.counts.holds_refused.add_one();
            return Err(RouterError::HoldFull { held_requests_max });
        }
        self.counts.held.add_one();
        Ok(Place {
            core: &self.core,
            under,
            since: self.world.elapsed(),
        })
    }
}

/// Given back, and counted, also when the held request is dropped.
struct Place<'a> {
    core: &'a Core,
    under: Generation,
    since: Duration,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let wait = self.core.world.elapsed().saturating_sub(self.since);
        self.core.stalls.add(self.under, wait);
        self.core.held.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Sees to it that a thousand held requests ask the control store like one.
#[derive(Debug, Default)]
pub(crate) struct Lookout(Mutex<Looks>);

#[derive(Debug, Default)]
struct Looks {
    under_way: bool,
    last: Option<Duration>,
}

impl Lookout {
    /// `None` when someone is looking, or has begun to less than `age` ago.
    fn turn(&self, now: Duration, age: Duration) -> Option<Turn<'_>> {
        let mut looks = self.lock();
        if looks.under_way
            || looks
                .last
                .is_some_and(|last| now.saturating_sub(last) < age)
        {
            return None;
        }
        *looks = Looks {
            under_way: true,
            last: Some(now),
        };
        Some(Turn(self))
    }

    fn lock(&self) -> MutexGuard<'_, Looks> {
        self.0
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

struct Turn<'a>(&'a Lookout);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way = false;
    }
}
