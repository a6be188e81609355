//! Reading by access path: E16.

use layout::{AccessPath, Direction, Field, Fields, Value};
use model::Timestamp;
use rust_decimal::Decimal;

use crate::conformance::scenery::{create, remove, seconds_after, usual_parts};
use crate::conformance::stage::{Checked, Failure, Stage};
use crate::query::{Query, SortRange};
use crate::record::{Record, RecordKey};

cases! {
    "E16" [] a_record_is_found_by_the_path_of_its_id [];
    "E16" [] answers_come_in_the_order_of_the_path_and_ties_by_id [];
    "E16" [] pages_follow_one_another_without_gap_or_repeat [];
    "E16" [] a_range_of_the_sort_field_includes_both_ends [];
    "E16" ["W31"] unchanged_records_are_neither_skipped_nor_repeated_while_others_are_written [];
    "E16" [] records_of_other_owners_are_not_answered [];
}

/// More pages than any listing here has.
const PAGES_MAX: usize = 100;

/// Places in the order of a path, with ties, not in that order.
const RANKS: [i64; 9] = [4, 1, 7, 1, 3, 4, 0, 8, 1];

const DAY_S: i64 = 86_400;

/// Listings of one case: a path, an owner, and a time that no other case uses.
pub(super) struct Listing<'a> {
    stage: &'a Stage<'a>,
    pub path: AccessPath,
    owner: String,
    from: Timestamp,
}

/// A period answers whoever's orders: no other case has any in this one. It is
/// longer than a month, so that a table cut by months is asked for two.
fn own_period(case_number: usize) -> Timestamp {
    seconds_after(
        Timestamp::from_unix_micros(0),
        (10_000 + 45 * case_number as i64) * DAY_S,
    )
}

impl<'a> Listing<'a> {
    /// One for each path that answers with several records.
    pub fn all(stage: &'a Stage<'a>) -> Vec<Listing<'a>> {
        let collections = stage.collections();
        let lists = |path: &AccessPath| {
            let collection = path.shape().collection;
            collections.contains(&collection) && AccessPath::by_id(collection) != *path
        };
        let listing = |path| Listing {
            stage,
            path,
            owner: stage.name(&format!("{path:?}")),
            from: match path {
                AccessPath::OrdersByPeriod | AccessPath::OrdersOpen => {
                    own_period(stage.case_number)
                }
                _ => seconds_after(Timestamp::from_unix_micros(0), 1_000 * DAY_S),
            },
        };
        AccessPath::ALL
            .into_iter()
            .filter(lists)
            .map(listing)
            .collect()
    }

    pub fn key(&self, name: &str) -> RecordKey {
        // One id may stand on several paths: the path's own name keeps the cases apart.
        let letter = char::from(b'a' + self.path as u8);
        self.stage
            .key(self.path.shape().collection, &format!("{letter}{name}"))
    }

    fn sort_value(&self, rank: i64) -> Option<Value> {
        match self.path.shape().sort? {
            (Field::Price, _) => Some(Value::Decimal(Decimal::new(rank * 50, 2))),
            _ => Some(Value::Timestamp(seconds_after(self.from, rank * 4 * DAY_S))),
        }
    }

    pub fn header(&self, key: &RecordKey, rank: i64) -> Fields {
        let shape = self.path.shape();
        let mut header = self.stage.header(key);
        for field in shape.equals {
            header = header.with(*field, Value::text(self.owner.as_str()));
        }
        if let Some((field, text)) = shape.only {
            header = header.with(field, Value::text(text));
        }
        match (shape.sort, self.sort_value(rank)) {
            (Some((field, _)), Some(value)) => header.with(field, value),
            _ => header,
        }
    }

    pub async fn add(&self, name: &str, rank: i64) -> Checked<RecordKey> {
        let key = self.key(name);
        let parts = usual_parts(key.collection, self.stage.now());
        self.stage
            .done(create(&key, self.header(&key, rank), parts))
            .await?;
        Ok(key)
    }

    /// Nine records with their ranks.
    async fn fill(&self) -> Checked<Vec<(i64, RecordKey)>> {
        let mut added = Vec::new();
        for (number, rank) in RANKS.into_iter().enumerate() {
            added.push((rank, self.add(&format!("r{number}"), rank).await?));
        }
        Ok(added)
    }

    /// The ids in the order in which the path must answer.
    pub fn ordered(&self, records: &[(i64, RecordKey)]) -> Vec<String> {
        let mut order: Vec<(i64, String)> = records
            .iter()
            .map(|(rank, key)| match self.path.shape().sort {
                Some((_, Direction::Ascending)) => (*rank, key.id.to_string()),
                Some((_, Direction::Descending)) => (-rank, key.id.to_string()),
                None => (0, key.id.to_string()),
            })
            .collect();
        order.sort();
        order.into_iter().map(|(_, id)| id).collect()
    }

    pub fn query(&self, limit: usize) -> Query {
        let equals = self
            .path
            .shape()
            .equals
            .iter()
            .map(|_| Value::text(self.owner.as_str()))
            .collect();
        let mut query = Query::first(self.path, equals, limit);
        if self.path.shape().equals.is_empty() {
            query.range = SortRange {
                least: self.sort_value(0),
                most: self.sort_value(10),
            };
        }
        query
    }

    pub async fn ids(&self, query: Query) -> Checked<Vec<String>> {
        let records = read_pages(self.stage, query, self.stage.now()).await?;
        Ok(records
            .into_iter()
            .map(|record| record.key.id.to_string())
            .collect())
    }

    pub fn failed(&self, what: &str, found: &[String], expected: &[String]) -> Failure {
        Failure(format!(
            "{}: {what}\nfound    {found:?}\nexpected {expected:?}",
            self.path
        ))
    }
}

async fn read_pages(stage: &Stage<'_>, query: Query, now: Timestamp) -> Checked<Vec<Record>> {
    let mut records = Vec::new();
    let mut query = query;
    for _ in 0..PAGES_MAX {
        let page = stage.engine.query(&query, stage.reading_at(now)).await?;
        ensure!(
            page.records.len() <= query.limit,
            "a page of {} has {}",
            query.limit,
            page.records.len()
        );
        records.extend(page.records);
        match page.next {
            Some(cursor) => query.after = Some(cursor),
            None => return Ok(records),
        }
    }
    Err(Failure(format!(
        "{} had no end after {PAGES_MAX} pages",
        query.path
    )))
}

pub(super) async fn found_by(
    stage: &Stage<'_>,
    path: AccessPath,
    value: &str,
) -> Checked<Vec<Record>> {
    found_at(stage, path, value, stage.now()).await
}

pub(super) async fn found_at(
    stage: &Stage<'_>,
    path: AccessPath,
    value: &str,
    now: Timestamp,
) -> Checked<Vec<Record>> {
    read_pages(stage, Query::first(path, vec![Value::text(value)], 10), now).await
}

async fn a_record_is_found_by_the_path_of_its_id(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let (key, other) = (stage.key(collection, "one"), stage.key(collection, "other"));
        stage.create_usual(&key).await?;
        stage.create_usual(&other).await?;
        let path = AccessPath::by_id(collection);
        let found = found_by(&stage, path, key.id.as_str()).await?;
        ensure!(
            found.len() == 1 && found[0].key == key,
            "{path} {key} found {found:?}"
        );
        let stored = stage.record(&key).await?;
        ensure!(
            found[0].header == stored.header,
            "{path} shows {found:?}, stored is {stored:?}"
        );
        let found = found_by(&stage, path, &stage.name("nobody")).await?;
        ensure!(
            found.is_empty(),
            "{path} of an id that nobody has found {found:?}"
        );
    }
    Ok(())
}

async fn answers_come_in_the_order_of_the_path_and_ties_by_id(stage: Stage<'_>) -> Checked {
    for listing in Listing::all(&stage) {
        let expected = listing.ordered(&listing.fill().await?);
        let found = listing.ids(listing.query(50)).await?;
        if found != expected {
            return Err(listing.failed("the order is wrong", &found, &expected));
        }
    }
    Ok(())
}

async fn pages_follow_one_another_without_gap_or_repeat(stage: Stage<'_>) -> Checked {
    for listing in Listing::all(&stage) {
        let expected = listing.ordered(&listing.fill().await?);
        for limit in [1, 2, 9] {
            let found = listing.ids(listing.query(limit)).await?;
            if found != expected {
                return Err(listing.failed(&format!("in pages of {limit}"), &found, &expected));
            }
        }
    }
    Ok(())
}

async fn a_range_of_the_sort_field_includes_both_ends(stage: Stage<'_>) -> Checked {
    for listing in Listing::all(&stage) {
        if listing.path.shape().sort.is_none() {
            continue;
        }
        let records = listing.fill().await?;
        for (least, most) in [(1, 4), (4, 4), (2, 2), (0, 8)] {
            let within: Vec<_> = records
                .iter()
                .filter(|(rank, _)| (least..=most).contains(rank))
                .cloned()
                .collect();
            let expected = listing.ordered(&within);
            let range = SortRange {
                least: listing.sort_value(least),
                most: listing.sort_value(most),
            };
            for limit in [2, 50] {
                let found = listing
                    .ids(Query {
                        range: range.clone(),
                        ..listing.query(limit)
                    })
                    .await?;
                if found != expected {
                    return Err(listing.failed(
                        &format!("from {least} to {most}"),
                        &found,
                        &expected,
                    ));
                }
            }
        }
    }
    Ok(())
}

async fn unchanged_records_are_neither_skipped_nor_repeated_while_others_are_written(
    stage: Stage<'_>,
) -> Checked {
    for listing in Listing::all(&stage) {
        let records = listing.fill().await?;
        let (leaving, staying) = records.split_at(3);
        let expected = listing.ordered(staying);
        let mut query = listing.query(2);
        let mut found = Vec::new();
        let mut arrivals = leaving.iter().enumerate();
        for _ in 0..PAGES_MAX {
            let page = stage.engine.query(&query, stage.reading()).await?;
            found.extend(
                page.records
                    .into_iter()
                    .map(|record| record.key.id.to_string()),
            );
            let Some(next) = page.next else { break };
            query.after = Some(next);
            if let Some((number, (rank, key))) = arrivals.next() {
                let stored = stage.record(key).await?;
                stage.done(remove(key, stored.header.revision)).await?;
                listing.add(&format!("n{number}"), *rank).await?;
            }
        }
        found.retain(|id| expected.contains(id));
        if found != expected {
            return Err(listing.failed(
                "unchanged records, while others are written",
                &found,
                &expected,
            ));
        }
    }
    Ok(())
}

async fn records_of_other_owners_are_not_answered(stage: Stage<'_>) -> Checked {
    for listing in Listing::all(&stage) {
        if listing.path.shape().equals.is_empty() {
            continue;
        }
        let own = listing.add("own", 1).await?;
        // An owner whose name only begins like the other's.
        let longer = Listing {
            owner: format!("{}x", listing.owner),
            ..listing
        };
        longer.add("longer", 1).await?;
        let shorter = Listing {
            owner: longer.owner[..longer.owner.len() - 1].to_owned(),
            ..longer
        };
        let found = shorter.ids(shorter.query(10)).await?;
        let expected = vec![own.id.to_string()];
        if found != expected {
            return Err(shorter.failed("with an owner of a similar name", &found, &expected));
        }
    }
    Ok(())
}
