//! Headers are decided once: one change per expected revision, one creation
//! per life of a record.

use std::collections::BTreeMap;

use engine_api::{Change, RecordKey, Revision};
use layout::Collection;

use crate::recording::History;

pub fn check(history: &History) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut from: BTreeMap<(&RecordKey, Revision), u32> = BTreeMap::new();
    let mut made: BTreeMap<(&RecordKey, Revision), u32> = BTreeMap::new();
    let mut lives: BTreeMap<&RecordKey, (u32, u32)> = BTreeMap::new();
    for (operation, changes) in history.writes() {
        for change in changes {
            let key = change.key();
            let creates = matches!(change, Change::CreateIfAbsent { .. });
            let removes = matches!(change, Change::Remove { .. });
            if removes && (operation.done().is_some() || operation.is_open()) {
                lives.entry(key).or_default().1 += 1;
            }
            let Some(revision) = operation.done() else {
                continue;
            };
            if creates {
                lives.entry(key).or_default().0 += 1;
            }
            if let Change::ChangeIf { expected, .. } | Change::Remove { expected, .. } = change {
                *from.entry((key, *expected)).or_default() += 1;
            }
            if change.is_conditional() && changes.len() == 1 {
                *made.entry((key, revision)).or_default() += 1;
            }
        }
    }
    for ((key, expected), times) in from {
        if times > 1 {
            breaches.push(format!("{key} was changed {times} times from {expected}"));
        }
    }
    for ((key, revision), times) in made {
        if times > 1 {
            breaches.push(format!(
                "{times} changes of {key} were told that they are {revision}"
            ));
        }
    }
    for (key, (created, removed)) in lives {
        // A session may have expired in between.
        if created > 1 + removed && key.collection != Collection::Sessions {
            breaches.push(format!(
                "{key} was created {created} times and removed {removed} times"
            ));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::story::{Story, revision};
    use crate::scenery::{Marks, cart, cart_header, change_if, create, remove};

    #[test]
    fn two_changes_from_one_revision_are_found() {
        let (key, marks) = (cart("ada"), Marks::default());
        let header = || cart_header("ada", "ordered", &marks);
        let mut story = Story::begin();
        story.writes(create(&key, header(), vec![]), 2);
        story.writes(change_if(&key, revision(2), header()), 4);
        assert!(check(&story.history).is_empty());
        story.writes(remove(&key, revision(2)), 6);
        assert_eq!(check(&story.history).len(), 1);
    }

    #[test]
    fn two_creations_without_a_removal_are_found() {
        let (key, marks) = (cart("ada"), Marks::default());
        let header = || cart_header("ada", "active", &marks);
        let mut story = Story::begin();
        story.writes(create(&key, header(), vec![]), 2);
        story.writes(remove(&key, revision(2)), 4);
        story.writes(create(&key, header(), vec![]), 6);
        assert!(check(&story.history).is_empty());
        story.writes(create(&key, header(), vec![]), 8);
        assert_eq!(check(&story.history).len(), 1);
    }

    #[test]
    fn one_revision_for_two_changes_is_found() {
        let (key, marks) = (cart("ada"), Marks::default());
        let header = || cart_header("ada", "active", &marks);
        let mut story = Story::begin();
        story.writes(create(&key, header(), vec![]), 2);
        story.writes(change_if(&key, revision(1), header()), 2);
        assert_eq!(check(&story.history).len(), 1);
    }
}
