//! What others see of a holder whose pass takes long: a slow engine is no reason to take its move over.

use std::future::pending;
use std::time::Duration;

use feed::tenure::{Found, Tenure, TenureError};

use super::MoverConfig;
use crate::error::MoveError;
use crate::record::MoveState;

/// The record is set again as it stands while a pass goes on beside it, for at most `Limits::pass_ms_max`: a
/// pass that hangs for ever is to be taken over.
pub(super) struct Living<'a> {
    config: &'a MoverConfig,
    tenure: &'a Tenure<MoveState>,
    /// When the record was last set, by `World::elapsed`.
    renewed: Duration,
}

impl<'a> Living<'a> {
    pub fn since(
        renewed: Duration,
        config: &'a MoverConfig,
        tenure: &'a Tenure<MoveState>,
    ) -> Living<'a> {
        Living {
            config,
            tenure,
            renewed,
        }
    }

    /// Answers when the move is another's: then the pass ends where it is (W21).
    pub async fn until_lost(&self) -> MoveError {
        let (world, limits) = (&self.config.world, &self.config.limits);
        let renew = Duration::from_millis(limits.renew_ms);
        let until = world.elapsed() + Duration::from_millis(limits.pass_ms_max);
        let mut due = self.renewed + renew;
        loop {
            world.sleep(due.saturating_sub(world.elapsed())).await;
            due = world.elapsed() + renew;
            if world.elapsed() >= until {
                tracing::warn!(
                    name = self.tenure.name(),
                    pass_ms_max = limits.pass_ms_max,
                    "a pass of a move does not end: others may take it over"
                );
                return pending().await;
            }
            match self.beat().await {
                Ok(()) => {}
                Err(TenureError::Lost { name }) => return MoveError::TermLost { name },
                // The pass meets it as well, and says so.
                Err(error) => tracing::debug!(%error, "a move cannot be renewed now"),
            }
        }
    }

    /// Rests on what it has just read: what the pass or an operator saved meanwhile makes it fail, and
    /// shows as well that somebody is alive.
    async fn beat(&self) -> Result<(), TenureError> {
        match self.tenure.look().await? {
            Found::Own(mut held) => {
                let state = held.state.clone();
                self.tenure.save(&mut held, state).await?;
                Ok(())
            }
            Found::Nobody | Found::Other(_) => Err(TenureError::Lost {
                name: self.tenure.name().to_owned(),
            }),
        }
    }
}
