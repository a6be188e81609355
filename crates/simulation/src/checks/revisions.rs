//! Revisions follow real time: nobody sees an older one after a newer one, and
//! a shopper's own changes of a record rise.

use std::collections::BTreeSet;

use engine_api::{Change, PartKey, Record, RecordKey, Revision};

use crate::recording::{History, Operation};

pub fn check(history: &History) -> Vec<String> {
    let mut breaches = Vec::new();
    let reads: Vec<_> = history.reads().collect();
    let writes: Vec<_> = history.writes().collect();
    for (index, (later, key, image)) in reads.iter().enumerate() {
        for (earlier, of, before) in &reads[..index] {
            if of == key && earlier.is_before(later) {
                breaches.extend(before.and_then(|before| fell(before, *image)));
            }
        }
        for (write, changes) in &writes {
            let Some(revision) = write.done().filter(|_| write.is_before(later)) else {
                continue;
            };
            let company = if changes.len() == 1 {
                Company::Alone
            } else {
                Company::Together
            };
            for change in changes.iter().filter(|change| change.key() == *key) {
                breaches.extend(misses(change, company, revision, *image));
            }
        }
    }
    breaches.extend(own_changes_that_do_not_rise(&writes));
    breaches
}

/// What of the earlier image is gone or older in the later one.
pub fn fell(before: &Record, after: Option<&Record>) -> Option<String> {
    let key = &before.key;
    let Some(after) = after else {
        return Some(format!("{key} was there and is not any more"));
    };
    if after.header.revision < before.header.revision {
        let (from, to) = (before.header.revision, after.header.revision);
        return Some(format!("the header of {key} fell from {from} to {to}"));
    }
    before.parts.iter().find_map(|(name, part)| {
        let shows = shown(after, name);
        (shows < part.revision)
            .then(|| format!("{name} of {key} fell from {} to {shows}", part.revision))
    })
}

/// The revision up to which the image speaks about a part.
fn shown(image: &Record, part: &PartKey) -> Revision {
    let own = image
        .parts
        .get(part)
        .map_or(Revision::ZERO, |part| part.revision);
    own.max(image.header.cleared)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Company {
    Alone,
    Together,
}

fn misses(
    change: &Change,
    company: Company,
    revision: Revision,
    image: Option<&Record>,
) -> Option<String> {
    let key: &RecordKey = change.key();
    let Some(image) = image else {
        return Some(format!("{key} lacks {revision}"));
    };
    let misses = match change {
        // Together with stock the answer may bear the stock's own number.
        Change::CreateIfAbsent { .. } | Change::ChangeIf { .. } | Change::Remove { .. } => {
            company == Company::Alone && image.header.revision < revision
        }
        Change::Patch { parts, .. } => parts.iter().any(|(part, _)| shown(image, part) < revision),
        Change::Stock { .. } | Change::PutImage { .. } => false,
    };
    misses.then(|| {
        format!("{key} does not show the change {revision}, which was acknowledged before")
    })
}

fn own_changes_that_do_not_rise(writes: &[(&Operation, &[Change])]) -> Vec<String> {
    let keys = |changes: &[Change]| -> BTreeSet<RecordKey> {
        changes.iter().map(|change| change.key().clone()).collect()
    };
    // Stock is numbered by the engine, and a repeat is told the stored number.
    let numbered_by_router = |changes: &[Change]| {
        !changes
            .iter()
            .any(|change| matches!(change, Change::Stock { .. }))
    };
    let mut breaches = Vec::new();
    for (index, (later, changes)) in writes.iter().enumerate() {
        let Some(to) = later.done().filter(|_| numbered_by_router(changes)) else {
            continue;
        };
        for (earlier, earlier_changes) in &writes[..index] {
            let Some(from) = earlier
                .done()
                .filter(|_| numbered_by_router(earlier_changes))
            else {
                continue;
            };
            let same = earlier.shopper == later.shopper && earlier.is_before(later);
            if same && from >= to && !keys(changes).is_disjoint(&keys(earlier_changes)) {
                breaches.push(format!(
                    "shopper {} wrote {} as {from} and then as {to}",
                    later.shopper,
                    changes[0].key()
                ));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use engine_api::{Content, Header, Part, PartChange};

    use super::*;
    use crate::checks::story::{Story, revision};
    use crate::scenery::{Marks, cart, cart_header, line, patch_while_active};

    fn image(header: i64, cleared: i64, lamp: Option<i64>) -> Option<Record> {
        let marks = Marks::default();
        let content = Content::Live(cart_header("ada", "active", &marks));
        let header = Header {
            revision: revision(header),
            cleared: revision(cleared),
            content,
        };
        let lamp = lamp.map(|lamp| (PartKey::line("lamp"), Part::mark(revision(lamp))));
        Some(Record {
            key: cart("ada"),
            header,
            parts: BTreeMap::from_iter(lamp),
        })
    }

    #[test]
    fn an_older_image_after_a_newer_one_is_found() {
        let check = |first: Option<Record>, second: Option<Record>| {
            let mut story = Story::begin();
            story.reads(&cart("ada"), first);
            story.reads(&cart("ada"), second);
            check(&story.history).len()
        };
        assert_eq!(check(image(2, 1, Some(4)), image(2, 1, Some(6))), 0);
        assert_eq!(check(image(2, 1, Some(4)), image(6, 5, None)), 0);
        assert_eq!(check(image(2, 1, Some(4)), image(2, 1, None)), 1);
        assert_eq!(check(image(2, 1, Some(6)), image(2, 1, Some(4))), 1);
        assert_eq!(check(image(4, 1, None), image(2, 1, None)), 1);
        assert_eq!(check(image(4, 1, None), None), 1);
    }

    #[test]
    fn an_acknowledged_patch_that_a_read_does_not_show_is_found() {
        let marks = Marks::default();
        let set = PartChange::Set(line(&marks));
        let change = patch_while_active(&cart("ada"), vec![(PartKey::line("lamp"), set)]);
        let mut story = Story::begin();
        story.writes(change, 6);
        story.reads(&cart("ada"), image(2, 1, Some(6)));
        assert!(check(&story.history).is_empty());
        story.reads(&cart("ada"), image(2, 1, Some(4)));
        assert_eq!(
            check(&story.history).len(),
            2,
            "older than the write, and than the read"
        );
    }

    #[test]
    fn own_changes_must_rise() {
        let marks = Marks::default();
        let change = |name: &str| {
            let set = PartChange::Set(line(&marks));
            patch_while_active(&cart("ada"), vec![(PartKey::line(name), set)])
        };
        let mut story = Story::begin();
        story.writes(change("lamp"), 6);
        story.writes(change("rug"), 4);
        assert_eq!(check(&story.history).len(), 1);
    }
}
