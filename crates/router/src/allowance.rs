//! What one request may still take: its time, and its part of a shard's places.
//!
//! A caller that has to answer by some moment asks through [`Router::within`]. That is
//! the same router, seen with an allowance, so that the many operations above it need
//! no parameter for something that none of them decides on, and nothing is hidden in
//! the task that happens to run them: decision 14.

use std::sync::Arc;
use std::time::Duration;

use crate::error::RouterError;
use crate::router::Router;

/// Without one: as long as the limits let it, and up to the last place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// By the router's own `World::elapsed`.
    deadline: Option<Duration>,
    pub(crate) precedence: Precedence,
}

/// Who is refused first when a shard is nearly full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precedence {
    Low,
    Middle,
    #[default]
    High,
}

impl Router {
    /// The same router for one request, which has `left` to be answered in.
    #[must_use]
    pub fn within(&self, left: Duration, precedence: Precedence) -> Router {
        let deadline = Some(self.world.elapsed() + left);
        Router {
            core: Arc::clone(&self.core),
            allowance: Allowance {
                deadline,
                precedence,
            },
        }
    }

    /// `None`: there is no deadline.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let deadline = self.allowance.deadline?;
        Some(deadline.saturating_sub(self.world.elapsed()))
    }

    /// Asked before every attempt: who waits for the answer is gone by now.
    pub fn in_time(&self) -> Result<(), RouterError> {
        match self.time_left() {
            Some(Duration::ZERO) => {
                self.counts.out_of_time.add_one();
                Err(RouterError::OutOfTime)
            }
            _ => Ok(()),
        }
    }
}
