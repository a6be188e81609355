//! Moves that were started together, under names that begin alike.

use anyhow::{Context, Result, ensure};
use mover::{MoveName, Phase};
use ops_api::{Asked, Request};
use serde_json::Value;

use super::counter::Counter;
use super::seen;
use crate::arguments::Which;
use crate::ops::Seen;

/// The one move, or those of the group that were begun, oldest first.
pub async fn named(counter: &Counter, which: &Which) -> Result<Vec<Seen>> {
    if let Some(name) = &which.name {
        return Ok(vec![seen(counter, name).await?]);
    }
    let group = which
        .group
        .as_deref()
        .context("--name or --group is given")?;
    let group = MoveName::new(group)?;
    let prefix = format!("{group}-");
    let mut moves = all(counter).await?;
    moves.retain(|it| it.record.is_some() && it.name.as_str().starts_with(&prefix));
    ensure!(
        !moves.is_empty(),
        "no move was started under the name {group}: caravan move list shows which were"
    );
    Ok(moves)
}

pub async fn all(counter: &Counter) -> Result<Vec<Seen>> {
    let moves: Vec<Value> = serde_json::from_value(counter.ask(Request::List).await?)?;
    moves.into_iter().map(Seen::of_json).collect()
}

/// Whether the move is where the wish leads, so that the group can be asked again for those that are not.
pub fn is_done(phase: &Phase, asked: &Asked) -> bool {
    match (asked, phase) {
        (
            Asked::Cutover { when: None, .. },
            Phase::Settling { .. }
            | Phase::Resting { .. }
            | Phase::Cleaning { .. }
            | Phase::Cleaned { .. }
            | Phase::Completed { .. },
        )
        | (Asked::Rollback { .. }, Phase::RolledBack { .. })
        | (
            Asked::Complete { .. },
            Phase::Cleaning { .. } | Phase::Cleaned { .. } | Phase::Completed { .. },
        )
        | (Asked::Complete { grace: None }, Phase::Resting { .. })
        | (Asked::Abort {}, Phase::Aborted { .. }) => true,
        (
            Asked::Cutover { .. }
            | Asked::Rollback { .. }
            | Asked::Complete { .. }
            | Asked::Abort {}
            | Asked::Pause {}
            | Asked::Resume {}
            | Asked::Throttle { .. },
            _,
        ) => false,
    }
}
