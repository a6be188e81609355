//! After the cutover: the source is kept up to date until the move is completed or rolled back.

use feed::FeedError;

use super::comparing::{Compared, Rest};
use super::{Pass, Runner, stepped};
use crate::error::MoveError;
use crate::phase::{Event, Way};
use crate::record::{GivenUp, shortened};
use crate::wish::{Grace, Wish};

impl Runner<'_> {
    pub(super) async fn settle(&mut self, way: &Way) -> Result<Pass, MoveError> {
        let wished = self.work.held.state.wish == Some(Wish::Rollback);
        let fed = match self.pass_back().await {
            Ok(fed) => fed,
            Err(error @ MoveError::Feed(FeedError::PositionLost { .. })) => {
                // W28: what the target has taken since is not at the source.
                if wished {
                    self.refuse_rollback(&error.to_string()).await?;
                }
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        let compared = self.compare(way.direction()).await?;
        match compared {
            Compared::Differs { count } if wished => {
                self.refuse_rollback(&format!("{count} records or rows differ"))
                    .await?;
                Ok(self.waiting())
            }
            Compared::Same if wished && self.is_near(fed) && self.may_announce() => {
                self.announce("a rollback is near").await
            }
            Compared::Open { rest: Rest::Scans } => Ok(Pass::Behind),
            Compared::Open { .. } | Compared::Same | Compared::Differs { .. } => {
                Ok(self.after(fed))
            }
        }
    }

    /// The way back ends. What the source still holds is garbage from here on: nobody reads it, because the map gives the
    /// keys to the target, and after its grace it goes.
    pub(super) async fn complete(&mut self) -> Result<Pass, MoveError> {
        self.work.back = None;
        self.work.comparing = None;
        self.work.tidying.rested = None;
        let by_default = Grace::Ms(self.config.limits.clean_grace_ms);
        self.update(|state| {
            let grace_ms = match state.grace.unwrap_or(by_default) {
                Grace::Ms(ms) => Some(ms),
                Grace::Keep => None,
            };
            stepped(state, Event::Completed { grace_ms })?;
            state.wish = None;
            Ok(())
        })
        .await?;
        Ok(Pass::Behind)
    }

    async fn refuse_rollback(&mut self, why: &str) -> Result<(), MoveError> {
        let given_up = GivenUp {
            why: shortened(why),
            generation: None,
            freeze_ms: None,
            at_unix_us: self.config.world.now().unix_micros(),
        };
        self.update(|state| {
            state.wish = None;
            state.given_up = Some(given_up.clone());
            Ok(())
        })
        .await
    }
}
