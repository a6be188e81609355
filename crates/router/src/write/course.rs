//! One write on its way: what it asks, what it has met so far, and whether it may go again.

use engine_api::{Change, Generation, RecordKey, Revision};

use super::Written;
use crate::error::RouterError;
use crate::hold::HoldBudget;
use crate::map::{Map, MapError, ShardName};
use crate::router::Router;

/// One write on its way, over all its attempts.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) changes: Vec<Change>,
    /// Above this everything proposed must lie (W5).
    pub(super) floor: Revision,
    /// The only number it may be written under; otherwise the clock proposes.
    pub(super) number: Option<Revision>,
    /// The only map it may be written under.
    under: Option<Generation>,
    pub(super) doubt: Option<Doubt>,
    pub(super) hold: HoldBudget,
    fenced: u32,
    stale: u32,
    unavailable: u32,
    resends: u32,
}

/// An attempt whose answer was lost: its revision is kept from then on.
#[derive(Clone, Debug)]
pub(super) struct Doubt {
    pub(super) revision: Revision,
    pub(super) reason: String,
}

/// What an attempt leads to.
pub(super) enum Step {
    Finished(Written),
    Again,
}

impl Course {
    pub(super) fn new(changes: Vec<Change>, floor: Revision) -> Course {
        Course {
            changes,
            floor,
            number: None,
            under: None,
            doubt: None,
            hold: HoldBudget::default(),
            fenced: 0,
            stale: 0,
            unavailable: 0,
            resends: 0,
        }
    }

    pub(super) fn numbered(changes: Vec<Change>, number: Revision) -> Course {
        Course {
            number: Some(number),
            ..Course::new(changes, number)
        }
    }

    pub(super) fn under(changes: Vec<Change>, floor: Revision, generation: Generation) -> Course {
        Course {
            under: Some(generation),
            ..Course::new(changes, floor)
        }
    }

    /// Asked before every attempt: what was held or fenced meets another map.
    pub(super) fn check_map(&self, standing: Generation) -> Result<(), RouterError> {
        match self.under {
            Some(under) if under != standing => Err(RouterError::OtherMap { under, standing }),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &RecordKey> {
        self.changes.iter().map(Change::key)
    }

    pub(super) fn again_above(
        &mut self,
        router: &Router,
        stored: Revision,
    ) -> Result<Step, RouterError> {
        if self.stale >= router.limits.stale_retries_max {
            let key = self.changes[0].key().to_string();
            return Err(RouterError::Contended {
                key,
                times: self.stale,
            });
        }
        self.stale += 1;
        router.counts.stale_retries.add_one();
        self.floor = self.floor.max(stored);
        Ok(Step::Again)
    }

    pub(super) fn again_after_fence(&mut self, router: &Router) -> Result<Step, RouterError> {
        if self.fenced >= router.limits.fenced_retries_max {
            return Err(RouterError::MapUnsteady { times: self.fenced });
        }
        self.fenced += 1;
        router.counts.fenced_retries.add_one();
        Ok(Step::Again)
    }

    pub(super) async fn again_in_doubt(
        &mut self,
        router: &Router,
        shard: &ShardName,
        revision: Revision,
        reason: String,
    ) -> Result<Step, RouterError> {
        self.doubt = Some(Doubt {
            revision,
            reason: reason.clone(),
        });
        // Out of resends, of time or of budget: it stays unknown.
        if self.resends >= router.limits.unknown_resends_max || !router.may_go_again(Some(shard)) {
            return Err(RouterError::OutcomeUnknown { revision, reason });
        }
        self.resends += 1;
        router.counts.unknown_resends.add_one();
        router.pause().await;
        Ok(Step::Again)
    }

    pub(super) async fn again_when_available(
        &mut self,
        router: &Router,
        error: RouterError,
    ) -> Result<Step, RouterError> {
        if self.unavailable >= router.limits.unavailable_retries_max
            || !router.may_go_again(error.shard())
        {
            return Err(error);
        }
        self.unavailable += 1;
        router.counts.unavailable_retries.add_one();
        router.pause().await;
        Ok(Step::Again)
    }
}

/// The record's own revision, where the change names it (W5).
pub(super) fn expected_revision(change: &Change) -> Option<Revision> {
    match change {
        Change::ChangeIf { expected, .. } | Change::Remove { expected, .. } => Some(*expected),
        Change::CreateIfAbsent { .. }
        | Change::Patch { .. }
        | Change::Stock { .. }
        | Change::PutImage { .. } => None,
    }
}

/// Refuses a header whose shard-key fields are not those the key was made of (W8).
pub(super) fn check_shard_keys(map: &Map, changes: &[Change]) -> Result<(), MapError> {
    for change in changes {
        let (Change::CreateIfAbsent { key, header, .. } | Change::ChangeIf { key, header, .. }) =
            change
        else {
            continue;
        };
        let found = map
            .key_for(key.collection, key.id.clone(), header)?
            .shard_key;
        if found != key.shard_key {
            return Err(MapError::ShardKeyDiffers {
                key: key.to_string(),
                routed_by: key.shard_key.to_string(),
                header_says: found.to_string(),
            });
        }
    }
    Ok(())
}

pub(super) fn is_frozen(map: &Map, changes: &[Change]) -> Result<bool, MapError> {
    for change in changes {
        if map.is_frozen(change.key())? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn one_owner<'a>(
    map: &'a Map,
    changes: &[Change],
) -> Result<&'a ShardName, RouterError> {
    let first = changes[0].key();
    let first_shard = map.owner(first)?;
    for change in &changes[1..] {
        let other_shard = map.owner(change.key())?;
        if other_shard != first_shard {
            return Err(RouterError::NotTogether {
                first: first.to_string(),
                first_shard: first_shard.clone(),
                other: change.key().to_string(),
                other_shard: other_shard.clone(),
            });
        }
    }
    Ok(first_shard)
}
