//! How far a feed is, as others see and change it.

use engine_api::{ControlStore, Position};

use crate::error::FeedError;
use crate::phase::{Event, Phase};
use crate::tenure::WorkName;

/// What stands in the control store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Rises with every process that takes the feed over.
    pub term: u64,
    /// Who works for it; `None`: nobody any more, the next may begin at once.
    pub holder: Option<String>,
    pub phase: Phase,
}

/// How far the feed of this name is; `None`: it has never run.
pub async fn progress(
    control: &dyn ControlStore,
    feed: &str,
) -> Result<Option<Progress>, FeedError> {
    let found = work_name(feed)?.load::<Phase>(control).await?;
    Ok(found.map(|(_, value)| Progress {
        term: value.term,
        holder: value.holder,
        phase: value.state,
    }))
}

/// Makes a feed that copies nothing but what changes after `at` (W30). Changes
/// nothing if there is one of this name: its position was taken before.
pub async fn begin_following(
    control: &dyn ControlStore,
    feed: &str,
    at: Position,
) -> Result<(), FeedError> {
    let name = work_name(feed)?;
    Ok(name.begin(control, Phase::Following { at }).await?)
}

/// Asks whoever holds the feed to copy everything anew. The only way out of a lost
/// position; a feed whose target must forget what the source has removed needs an
/// empty target, or a comparison of both sides, besides (W28).
pub async fn ask_rebuild(control: &dyn ControlStore, feed: &str) -> Result<(), FeedError> {
    let name = work_name(feed)?;
    let amended = name.amend(control, |phase: &Phase| {
        Ok::<_, FeedError>(match *phase == Phase::first() {
            true => None,
            false => phase.step(Event::RebuildAsked),
        })
    });
    match amended.await? {
        Some(_) => Ok(()),
        None => Err(FeedError::NoFeed {
            feed: feed.to_owned(),
        }),
    }
}

pub(crate) fn work_name(feed: &str) -> Result<WorkName, FeedError> {
    Ok(WorkName::new("feed", feed)?)
}
