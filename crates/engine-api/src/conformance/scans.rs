//! Reading whole collections: E17.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use layout::{Collection, Scope, ShardKey, Slot, SlotRange};

use crate::conformance::CARTS;
use crate::conformance::scenery::{remove, remove_line, set_line};
use crate::conformance::stage::{Checked, Failure, Stage};
use crate::query::{Scan, ScanPosition};
use crate::record::{Content, Record, RecordKey};

cases! {
    "E17" ["W35"] a_scan_reaches_every_image_once_marks_included [];
    "E17" [] a_scan_reaches_the_keys_of_its_scope_and_no_others [CARTS];
    "E17" [] scans_of_two_halves_make_the_whole [CARTS];
    "E17" [] what_a_scan_shows_is_what_it_hands_over [CARTS];
    "E17" [] records_changed_during_a_scan_hide_no_others [CARTS];
}

/// More pages than any scan here has, also in a namespace that others have filled.
const PAGES_MAX: usize = 10_000;

struct Range {
    after: Option<ScanPosition>,
    until: Option<ScanPosition>,
}

const WHOLE: Range = Range {
    after: None,
    until: None,
};

/// The case's own images of a scan, with how often each came; and where pages ended.
async fn scanned(
    stage: &Stage<'_>,
    collection: Collection,
    scope: Scope,
    range: Range,
    limit: usize,
) -> Checked<(BTreeMap<RecordKey, Vec<Record>>, Vec<ScanPosition>)> {
    let own = stage.name("");
    let mut images: BTreeMap<RecordKey, Vec<Record>> = BTreeMap::new();
    let mut ends = Vec::new();
    let mut scan = Scan {
        collection,
        scope,
        after: range.after,
        until: range.until,
        limit,
    };
    for _ in 0..PAGES_MAX {
        let page = stage.engine.scan(&scan).await?;
        ensure!(
            page.images.len() <= limit,
            "a page of {limit} has {} images",
            page.images.len()
        );
        for image in page.images {
            ensure!(
                image.key.collection == collection,
                "a scan of {collection} found {}",
                image.key
            );
            if image.key.id.as_str().starts_with(&own) {
                images.entry(image.key.clone()).or_default().push(image);
            }
        }
        match page.next {
            Some(next) => {
                ends.push(next.clone());
                scan.after = Some(next);
            }
            None => return Ok((images, ends)),
        }
    }
    Err(Failure(format!(
        "the scan had no end after {PAGES_MAX} pages"
    )))
}

async fn a_scan_reaches_every_image_once_marks_included(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let mut stored = BTreeMap::new();
        for number in 0..7 {
            let key = stage.key(collection, &format!("r{number}"));
            let created = stage.create_usual(&key).await?;
            if number == 2 {
                stage.done(remove(&key, created)).await?;
            }
            if number == 3 && collection == Collection::Carts {
                stage.done(remove_line(&key, "lamp")).await?;
            }
            stored.insert(key.clone(), vec![stage.record(&key).await?]);
        }
        for limit in [1, 3, 500] {
            let (found, _) = scanned(&stage, collection, Scope::All, WHOLE, limit).await?;
            ensure!(
                found == stored,
                "in pages of {limit} the scan found\n{found:?}, stored are\n{stored:?}"
            );
        }
        let mark = &stored[&stage.key(collection, "r2")][0];
        ensure!(
            mark.header.content == Content::Removed,
            "the mark is {mark:?}"
        );
    }
    Ok(())
}

async fn a_scan_reaches_the_keys_of_its_scope_and_no_others(stage: Stage<'_>) -> Checked {
    let mut keys = Vec::new();
    for number in 0..12 {
        let key = stage.cart(&format!("r{number:02}"));
        stage.create(&key, vec![]).await?;
        keys.push(key);
    }
    let middle = Slot::try_from(2048).map_err(|error| Failure(error.to_string()))?;
    let last = Slot::all()
        .last()
        .ok_or_else(|| Failure("there are no slots".to_owned()))?;
    let exact = keys[5].shard_key.slot();
    let scopes = [
        Scope::Slots(vec![SlotRange {
            first: middle,
            last,
        }]),
        Scope::Slots(vec![SlotRange {
            first: exact,
            last: exact,
        }]),
        Scope::Range {
            from: Some(keys[3].shard_key.clone()),
            to: Some(keys[8].shard_key.clone()),
        },
        Scope::Range {
            from: None,
            to: Some(ShardKey::of_text(&stage.name("r02"))),
        },
        Scope::Range {
            from: Some(keys[10].shard_key.clone()),
            to: None,
        },
        Scope::Keys(vec![keys[1].shard_key.clone(), keys[9].shard_key.clone()]),
        Scope::Keys(vec![]),
    ];
    for scope in scopes {
        let mut expected: Vec<_> = keys
            .iter()
            .filter(|key| scope.contains(&key.shard_key))
            .cloned()
            .collect();
        expected.sort();
        for limit in [2, 500] {
            let (found, _) =
                scanned(&stage, Collection::Carts, scope.clone(), WHOLE, limit).await?;
            let once = found.values().all(|images| images.len() == 1);
            let found: Vec<_> = found.into_keys().collect();
            ensure!(
                once && found == expected,
                "{scope:?} found {found:?}, not {expected:?}"
            );
        }
    }
    Ok(())
}

async fn scans_of_two_halves_make_the_whole(stage: Stage<'_>) -> Checked {
    for number in 0..8 {
        stage
            .create(&stage.cart(&format!("r{number}")), vec![])
            .await?;
    }
    let (whole, ends) = scanned(&stage, Collection::Carts, Scope::All, WHOLE, 3).await?;
    ensure!(
        whole.len() == 8,
        "the scan found {} of 8 records",
        whole.len()
    );
    for end in ends {
        let first = Range {
            after: None,
            until: Some(end.clone()),
        };
        let second = Range {
            after: Some(end),
            until: None,
        };
        let (mut found, _) = scanned(&stage, Collection::Carts, Scope::All, first, 3).await?;
        let (rest, _) = scanned(&stage, Collection::Carts, Scope::All, second, 3).await?;
        for (key, images) in rest {
            found.entry(key).or_default().extend(images);
        }
        ensure!(
            found == whole,
            "two halves found {found:?}, the whole is {whole:?}"
        );
    }
    Ok(())
}

async fn what_a_scan_shows_is_what_it_hands_over(stage: Stage<'_>) -> Checked {
    let mut keys = Vec::new();
    for number in 0..7 {
        let key = stage.cart(&format!("r{number}"));
        let created = stage.create_usual(&key).await?;
        if number == 2 {
            stage.done(remove(&key, created)).await?;
        }
        keys.push(key.shard_key);
    }
    let mut scan = Scan {
        collection: Collection::Carts,
        scope: Scope::Keys(keys),
        after: None,
        until: None,
        limit: 3,
    };
    let mut handed_over = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = stage.engine.scan(&scan).await?;
        handed_over.extend(page.images);
        scan.after = page.next;
        if scan.after.is_none() {
            break;
        }
    }
    let shown = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..PAGES_MAX {
        let shown = shown.clone();
        let look = move |image: &Record| lock(&shown).push(image.clone());
        scan.after = stage.engine.scan_each(&scan, Arc::new(look)).await?;
        if scan.after.is_none() {
            break;
        }
    }
    let shown = std::mem::take(&mut *lock(&shown));
    ensure!(
        shown.len() == 7 && shown == handed_over,
        "shown were {shown:?}, handed over {handed_over:?}"
    );
    Ok(())
}

fn lock<T>(shown: &Mutex<T>) -> MutexGuard<'_, T> {
    shown.lock().expect("nobody panics while it is written to")
}

async fn records_changed_during_a_scan_hide_no_others(stage: Stage<'_>) -> Checked {
    for number in 0..10 {
        stage
            .create(&stage.cart(&format!("r{number}")), vec![])
            .await?;
    }
    let mut scan = Scan {
        collection: Collection::Carts,
        scope: Scope::All,
        after: None,
        until: None,
        limit: 2,
    };
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..PAGES_MAX {
        let page = stage.engine.scan(&scan).await?;
        for image in page.images {
            *seen.entry(image.key.id.to_string()).or_default() += 1;
        }
        let Some(next) = page.next else { break };
        scan.after = Some(next);
        if round < 5 {
            stage
                .done(set_line(&stage.cart("r0"), "lamp", round as i64 + 1))
                .await?;
            stage
                .create(&stage.cart(&format!("n{round}")), vec![])
                .await?;
        }
    }
    for number in 1..10 {
        let times = seen
            .get(stage.cart(&format!("r{number}")).id.as_str())
            .copied()
            .unwrap_or(0);
        ensure!(
            times == 1,
            "the scan met r{number}, which nobody changed, {times} times"
        );
    }
    Ok(())
}
