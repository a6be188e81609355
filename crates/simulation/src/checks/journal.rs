//! The journal of every shard is the list of what was applied there, in order.

use engine_api::{Change, RecordKey, Revision};
use router::ShardName;

use crate::recording::{Applied, History};

pub fn check(history: &History) -> Vec<String> {
    let shards = history.journals.iter();
    shards
        .filter_map(|(shard, journal)| differs(history, shard, journal))
        .collect()
}

fn differs(
    history: &History,
    shard: &ShardName,
    journal: &[(RecordKey, Revision)],
) -> Option<String> {
    let applied: Vec<(RecordKey, Revision)> = history
        .applied
        .iter()
        .filter(|applied| applied.shard == *shard)
        .flat_map(entries)
        .collect();
    let place = (0..applied.len().max(journal.len()))
        .find(|place| applied.get(*place) != journal.get(*place))?;
    let show = |entry: Option<&(RecordKey, Revision)>| match entry {
        Some((key, revision)) => format!("{key} {revision}"),
        None => "nothing".to_owned(),
    };
    Some(format!(
        "entry {place} of {shard} is {}, applied was {}",
        show(journal.get(place)),
        show(applied.get(place))
    ))
}

fn entries(applied: &Applied) -> Vec<(RecordKey, Revision)> {
    let changed = applied.changes.iter().zip(&applied.images);
    changed
        .filter(|(_, (before, after))| before != after)
        .filter_map(|(change, (_, after))| {
            let revision = match change {
                Change::PutImage { image } => image.newest_revision(),
                Change::Stock { part, .. } => after.as_ref()?.parts.get(part)?.revision,
                Change::CreateIfAbsent { .. }
                | Change::ChangeIf { .. }
                | Change::Patch { .. }
                | Change::Remove { .. } => applied.context.revision,
            };
            Some((change.key().clone(), revision))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use engine_api::{Content, Header, Record};

    use super::*;
    use crate::checks::story::{Story, revision, router_context, shard};
    use crate::scenery::{Marks, cart, cart_header, create};

    #[test]
    fn a_missing_a_foreign_and_a_wrong_entry_are_found() {
        let header = cart_header("ada", "active", &Marks::default());
        let change = create(&cart("ada"), header.clone(), vec![]);
        let record = Record {
            key: cart("ada"),
            header: Header {
                revision: revision(2),
                cleared: revision(1),
                content: Content::Live(header),
            },
            parts: Default::default(),
        };
        let mut story = Story::begin();
        story.applies(change, router_context(revision(2), 1), None, Some(record));
        let mut found = |journal: Vec<(RecordKey, Revision)>| {
            story.history.journals.insert(shard("a"), journal);
            check(&story.history).len()
        };
        let (right, other) = ((cart("ada"), revision(2)), (cart("bob"), revision(2)));
        assert_eq!(found(vec![right.clone()]), 0);
        assert_eq!(found(vec![]), 1);
        assert_eq!(found(vec![(cart("ada"), revision(4))]), 1);
        assert_eq!(found(vec![right, other]), 1);
    }
}
