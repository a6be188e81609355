//! Listings: each record once, none missing that stood there all the time,
//! none older than what was acknowledged before.

use std::collections::BTreeSet;

use engine_api::{Change, Query, Record, RecordKey, answers};

use crate::recording::{End, History, Intent, Operation};

pub fn check(history: &History) -> Vec<String> {
    let mut breaches = Vec::new();
    for listing in &history.operations {
        let (Intent::List(query), End::Pages(pages)) = (&listing.intent, &listing.end) else {
            continue;
        };
        let told = |what: String| format!("{} at {}: {what}", query.path, listing.invoked.0);
        breaches.extend(twice(pages).map(told));
        let shown: BTreeSet<&RecordKey> =
            pages.iter().flatten().map(|record| &record.key).collect();
        for (key, header) in standing(history, listing) {
            if key.collection == query.path.shape().collection
                && answers(query, header)
                && !shown.contains(key)
            {
                breaches.push(told(format!("{key} stood there and is missing")));
            }
        }
        let old = pages
            .iter()
            .flatten()
            .filter_map(|record| older(history, listing, record));
        breaches.extend(old.map(told));
        let foreign = pages
            .iter()
            .flatten()
            .filter(|record| !belongs(query, record));
        breaches
            .extend(foreign.map(|record| told(format!("{} does not belong there", record.key))));
    }
    breaches
}

fn belongs(query: &Query, record: &Record) -> bool {
    record
        .header
        .content
        .live()
        .is_some_and(|header| answers(query, header))
}

/// A record twice in a page; or in two pages, at the same place of the order.
fn twice(pages: &[Vec<Record>]) -> Option<String> {
    let mut seen: Vec<&Record> = Vec::new();
    for page in pages {
        let mut keys = BTreeSet::new();
        for record in page {
            let again = seen.iter().any(|other| {
                other.key == record.key && other.header.content == record.header.content
            });
            if !keys.insert(&record.key) || again {
                return Some(format!("{} is shown twice", record.key));
            }
        }
        seen.extend(page);
    }
    None
}

/// The records whose header was set before the listing began and that nobody
/// tried to change until it ended, with that header.
fn standing<'a>(
    history: &'a History,
    listing: &Operation,
) -> Vec<(&'a RecordKey, &'a layout::Fields)> {
    let headers = |key: &RecordKey| -> Vec<(&'a Operation, &'a Change)> {
        let all = history
            .writes()
            .flat_map(|(operation, changes)| changes.iter().map(move |change| (operation, change)));
        all.filter(|(operation, change)| {
            change.is_conditional()
                && change.key() == key
                && !matches!(operation.end, End::Refused { .. })
                && listing.ended.is_none_or(|ended| operation.invoked < ended)
        })
        .collect()
    };
    let keys: BTreeSet<&RecordKey> = history
        .writes()
        .flat_map(|(_, changes)| changes)
        .map(Change::key)
        .collect();
    let mut standing = Vec::new();
    for key in keys {
        let headers = headers(key);
        let settled = headers
            .iter()
            .all(|(operation, _)| operation.done().is_some() && operation.is_before(listing));
        let last = headers.iter().max_by_key(|(operation, _)| operation.done());
        if let (true, Some((_, change))) = (settled, last)
            && let Change::CreateIfAbsent { header, .. } | Change::ChangeIf { header, .. } = change
            && !key.collection.expires()
        {
            standing.push((key, header));
        }
    }
    standing
}

fn older(history: &History, listing: &Operation, record: &Record) -> Option<String> {
    let newer = history.writes().find(|(operation, changes)| {
        operation.is_before(listing)
            && changes.len() == 1
            && changes[0].is_conditional()
            && changes[0].key() == &record.key
            && operation
                .done()
                .is_some_and(|revision| revision > record.header.revision)
    });
    newer.map(|_| format!("{} is older than what was acknowledged before", record.key))
}

#[cfg(test)]
mod tests {
    use engine_api::{Content, Header, Timestamp};
    use layout::{AccessPath, Value};

    use super::*;
    use crate::checks::story::{Story, revision};
    use crate::scenery::{Marks, Sale, change_if, create, order, order_header, with_status};

    struct Placed {
        story: Story,
        marks: Marks,
        record: Record,
    }

    fn one_order() -> Placed {
        let (key, marks) = (order("order-1", "ada"), Marks::default());
        let at = Timestamp::from_unix_micros(0);
        let header = order_header(&key, "ada", Sale::AtOnce, ("lamp", 1), at, &marks);
        let mut story = Story::begin();
        story.writes(create(&key, header.clone(), vec![]), 2);
        let content = Content::Live(header);
        let header = Header {
            revision: revision(2),
            cleared: revision(1),
            content,
        };
        Placed {
            story,
            marks,
            record: Record {
                key,
                header,
                parts: Default::default(),
            },
        }
    }

    fn listing(user: &str) -> Intent {
        Intent::List(Query::first(
            AccessPath::OrdersByUser,
            vec![Value::text(user)],
            3,
        ))
    }

    fn found(mut story: Story, user: &str, pages: Vec<Vec<Record>>) -> usize {
        let number = story.asks(listing(user));
        story.is_told(number, End::Pages(pages));
        check(&story.history).len()
    }

    #[test]
    fn a_missing_a_doubled_and_a_foreign_record_are_found() {
        let record = one_order().record;
        let page = |times: usize| vec![vec![record.clone(); times]];
        assert_eq!(found(one_order().story, "ada", page(1)), 0);
        assert_eq!(found(one_order().story, "ada", page(0)), 1);
        assert_eq!(found(one_order().story, "ada", page(2)), 1);
        assert_eq!(
            found(
                one_order().story,
                "ada",
                vec![vec![record.clone()], vec![record.clone()]]
            ),
            1
        );
        assert_eq!(found(one_order().story, "bob", page(1)), 1);
    }

    #[test]
    fn an_older_record_is_found_and_one_that_changes_meanwhile_may_be_missing() {
        let Placed {
            mut story,
            marks,
            record,
        } = one_order();
        let header = record.header.content.live().unwrap();
        let change = change_if(
            &record.key,
            revision(2),
            with_status(header, "shipped", &marks),
        );
        let number = story.asks(listing("ada"));
        story.writes(change, 4);
        story.is_told(number, End::Pages(vec![]));
        assert!(check(&story.history).is_empty());
        assert_eq!(found(story, "ada", vec![vec![record]]), 1);
    }
}
