//! What a record says after what it said before.

use mover::{End, Phase, WriteOwner};

use super::Standing;
use crate::recording::{History, Recorded};
use crate::scenery::routing_texts;

pub fn check(history: &History) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut standing = Standing::new();
    for recorded in &history.records {
        let before = standing.get(recorded.name.as_str()).copied();
        let found = match before {
            Some(before) => followed(before, recorded),
            None => standing
                .values()
                .find_map(|other| overlaps(other, recorded)),
        };
        let is_news = before.is_none_or(|before| phase(before) != phase(recorded));
        let found = found.or_else(|| match is_news {
            true => disagrees(history, recorded),
            false => None,
        });
        breaches.extend(found.map(|found| format!("{}: {found}", recorded.name)));
        standing.insert(&recorded.name, recorded);
    }
    breaches
}

fn phase(recorded: &Recorded) -> &Phase {
    &recorded.record.state.phase
}

fn followed(before: &Recorded, after: &Recorded) -> Option<String> {
    let (from, to) = (&before.record, &after.record);
    if to.term < from.term {
        return Some(format!("term {} came after term {}", to.term, from.term));
    }
    let changes_hands = to.holder.is_some() && to.holder != from.holder;
    if changes_hands && to.term == from.term {
        return Some(format!("two had term {}", to.term));
    }
    if from.state.plan != to.state.plan {
        return Some("its plan was changed".to_owned());
    }
    let (from, to) = (phase(before), phase(after));
    (from != to && !leads_to(from, to)).then(|| format!("{} came after {}", to.name(), from.name()))
}

/// The drawing in `mover::phase`, once more.
fn leads_to(from: &Phase, to: &Phase) -> bool {
    let ways: &[&str] = match from {
        Phase::Planned { .. } => &["planned", "backfilling", "aborted"],
        Phase::Backfilling { .. } => &["catching up", "aborted"],
        Phase::CatchingUp { .. } => &["verifying", "aborted"],
        Phase::Verifying { .. } => &["ready", "aborted"],
        Phase::Ready { .. } => &["verifying", "noticed", "aborted"],
        // A notice that waited too long is told again.
        Phase::Noticed { .. } => &["noticed", "verifying", "settling", "frozen", "aborted"],
        Phase::Frozen { .. } => &["frozen", "verifying", "settling", "rolled back"],
        Phase::Settling { .. } => &["noticed", "completed"],
        Phase::Resting { .. } => &["completed", "cleaning up"],
        Phase::Cleaning { .. } => &["cleaned up", "completed"],
        Phase::Cleaned { .. }
        | Phase::Completed { .. }
        | Phase::Aborted { .. }
        | Phase::RolledBack { .. } => &[],
    };
    ways.contains(&to.name())
}

fn overlaps(other: &Recorded, new: &Recorded) -> Option<String> {
    let (plan, standing) = (&new.record.state.plan, &other.record.state.plan);
    // All that a completed one still has is what it left at its source.
    let sources = standing.shards(End::Source);
    let touches_it = plan
        .all_shards()
        .iter()
        .any(|shard| sources.contains(shard));
    let goes_on = match phase(other) {
        Phase::Resting { .. } | Phase::Cleaning { .. } => touches_it,
        phase => !phase.is_over(),
    };
    (goes_on && standing.overlaps(plan)).then(|| {
        format!(
            "has keys of {}, which is {}",
            other.name,
            phase(other).name()
        )
    })
}

/// Who serves by the record, against who does by the map.
fn disagrees(history: &History, recorded: &Recorded) -> Option<String> {
    let plan = &recorded.record.state.plan;
    let owners = match phase(recorded).write_owner() {
        WriteOwner::Source => plan.shards(End::Source),
        WriteOwner::Target => plan.shards(End::Target),
        WriteOwner::Nobody => return None,
    };
    let mut maps = history.maps.iter().rev();
    let map = maps.find(|published| published.moment < recorded.moment)?;
    let collection = map.map.collection(plan.collection).ok()?;
    let keys = routing_texts(plan.collection);
    let keys = keys.iter().map(|text| layout::ShardKey::of_text(text));
    let mut moved = keys.filter(|key| plan.scope().contains(key));
    let elsewhere = moved.find(|key| !owners.contains(collection.owner(key)))?;
    Some(format!(
        "it is {}, and map {} gives {elsewhere} to {}",
        phase(recorded).name(),
        map.map.generation,
        collection.owner(&elsewhere)
    ))
}
