//! Moves that were started together, under names that begin alike.

use anyhow::{Context, Result, ensure};
use engine_api::ControlStore;
use feed::tenure::Tenured;
use mover::{MoveName, MoveState, Phase, Wish};

use crate::arguments::Which;

/// The one move, or those of the group that were begun, oldest first.
pub async fn named(
    control: &dyn ControlStore,
    which: &Which,
) -> Result<Vec<(MoveName, Tenured<MoveState>)>> {
    if let Some(name) = &which.name {
        let name = MoveName::new(name)?;
        let record = mover::status(control, &name).await?;
        return Ok(vec![(name, record)]);
    }
    let group = which
        .group
        .as_deref()
        .context("--name or --group is given")?;
    let group = MoveName::new(group)?;
    let prefix = format!("{group}-");
    let all = mover::list(control).await?.into_iter();
    let begun = all.filter_map(|(name, record)| Some((name, record?)));
    let moves: Vec<_> = begun
        .filter(|(name, _)| name.as_str().starts_with(&prefix))
        .collect();
    ensure!(
        !moves.is_empty(),
        "no move was started under the name {group}: caravan move list shows which were"
    );
    Ok(moves)
}

/// Whether the move is where the wish leads, so that the group can be asked again for those that are not.
pub fn is_done(phase: &Phase, wish: Wish) -> bool {
    match (wish, phase) {
        (Wish::Cutover, Phase::Settling { .. } | Phase::Completed { .. })
        | (Wish::Rollback, Phase::RolledBack { .. })
        | (Wish::Complete, Phase::Completed { .. })
        | (Wish::Abort, Phase::Aborted { .. }) => true,
        (Wish::Cutover | Wish::Rollback | Wish::Complete | Wish::Abort, _) => false,
    }
}
