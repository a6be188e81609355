//! What it takes to get from one layout to the other while the shop is open.

use super::facts::{collection_facts, table_facts};
use crate::collection::Collection;
use crate::engine::EngineKind;
use crate::file::{CollectionLayout, Layout, Store};
use crate::path::Operation;
use crate::table::{Role, Table};

/// Sentences, collection by collection, then what holds for orders and stock together.
pub(super) fn sentences(from: &Layout, to: &Layout) -> Vec<String> {
    let mut lines = Vec::new();
    for collection in Collection::ALL {
        let (before, after) = (from.collection(collection), to.collection(collection));
        let mut sentences = copying((from, before), (to, after));
        sentences.extend(weaker((from, before), (to, after)));
        sentences.extend(expiry(before, after));
        lines.extend(
            sentences
                .into_iter()
                .map(|sentence| format!("{collection}: {sentence}")),
        );
    }
    lines.extend(one_commit(from, to));
    if lines.is_empty() {
        lines.push("no record moves: only settings of the servers change".to_owned());
    }
    lines
}

type Side<'l> = (&'l Layout, &'l CollectionLayout);

fn copying((from, before): Side<'_>, (to, after): Side<'_>) -> Vec<String> {
    let place = |layout: &Layout, store: &Store| {
        format!("{} ({})", store.engine, layout.engine(store).kind)
    };
    let (source, target) = (place(from, &before.live), place(to, &after.live));
    let facts = (collection_facts(from, before), collection_facts(to, after));
    let same = |name: &str| facts.0.value(name) == facts.1.value(name);
    let mut sentences = Vec::new();
    if source != target {
        sentences.push(format!(
            "every record is copied from {source} to {target}, followed by its journal until the cutover"
        ));
    } else if before.shard_key != after.shard_key {
        sentences.push(
            "every record is routed anew, by another shard key: all of them may change their shard"
                .to_owned(),
        );
    } else if !same("cut") {
        sentences.push("records whose slot or range changes its shard are copied there".to_owned());
    }
    if before.encodings != after.encodings {
        sentences.push("ids are stored in another form: those that do not fit are found before the move begins".to_owned());
    }
    sentences.extend(history(before, after));
    if source == target {
        sentences.extend(tables(before, after));
    }
    sentences
}

fn history(before: &CollectionLayout, after: &CollectionLayout) -> Option<String> {
    match (&before.history, &after.history) {
        (None, Some(history)) => Some(format!(
            "{} ones go on to the history on {}",
            history.statuses.join(", "),
            history.store.engine
        )),
        (Some(history), None) => Some(format!(
            "those in the history on {} come back to the live ones",
            history.store.engine
        )),
        _ => None,
    }
}

/// Within one engine, tables are made beside the old ones.
fn tables(before: &CollectionLayout, after: &CollectionLayout) -> Vec<String> {
    let mut sentences = Vec::new();
    for table in &after.live.tables {
        let old = before.live.tables.iter().find(|old| old.name == table.name);
        let key = |store: &Store, table: &Table| {
            table_facts(store, table).value("key").map(str::to_owned)
        };
        let (name, authority) = (&table.name, table.role == Role::Authority);
        match old {
            None if authority => sentences.push(format!(
                "{name} becomes the authority: every record is copied into it"
            )),
            None => sentences.push(format!(
                "{name} is filled from the authority before it answers"
            )),
            Some(old) if key(&before.live, old) != key(&after.live, table) => {
                sentences.push(format!("{name} is written anew from the authority, under another name until the cutover"));
            }
            Some(_) => {}
        }
    }
    sentences
}

/// Operations that lose a promise.
fn weaker((from, before): Side<'_>, (to, after): Side<'_>) -> Option<String> {
    let newest = |layout: &Layout, collection: &CollectionLayout, operation: Operation| {
        let policy = collection.live.consistency.policy(operation);
        let replication = &layout.engine(&collection.live).replication;
        policy.may_lag_seconds == 0 && policy.overlaps(replication)
    };
    let lost: Vec<String> = Operation::ALL
        .into_iter()
        .filter(|operation| operation.home() == before.collection)
        .filter(|operation| newest(from, before, *operation) && !newest(to, after, *operation))
        .map(|operation| format!("{operation:?}"))
        .collect();
    (!lost.is_empty()).then(|| {
        format!(
            "{} no longer always see the last acknowledged write",
            lost.join(", ")
        )
    })
}

fn expiry(before: &CollectionLayout, after: &CollectionLayout) -> Option<String> {
    let (before, after) = (before.lifetime?, after.lifetime?);
    (after < before).then(|| {
        format!(
            "the shorter lifetime of {} s holds from the next touch of each",
            after.seconds()
        )
    })
}

/// Where one shard of the embedded engine holds both, an order and its stock are
/// one commit.
fn one_commit(from: &Layout, to: &Layout) -> Option<String> {
    let together = |layout: &Layout| {
        let orders = layout.collection(Collection::Orders);
        let products = layout.collection(Collection::Products);
        let shards = orders.cut.shards();
        layout.engine(&orders.live).kind == EngineKind::Embedded
            && orders.live.engine == products.live.engine
            && shards.len() == 1
            && shards == products.cut.shards()
    };
    match (together(from), together(to)) {
        (true, false) => Some("an order and its stock are no longer one commit: stock is reserved, the order created, then the stock claimed".to_owned()),
        (false, true) => Some("an order and its stock become one commit".to_owned()),
        (true, true) | (false, false) => None,
    }
}
