//! A layout in words: for each operation the table that answers it, its key, the
//! fan-out, what is promised, and how large its partitions get.

use std::fmt::Write as _;

use crate::checker::check;
use crate::collection::Collection;
use crate::column::key_text;
use crate::consistency::{Policy, ReadLevel};
use crate::engine::EngineKind;
use crate::estimate::{Load, PARTITION_BYTES_MAX, PartitionSize, bytes_text};
use crate::file::{CollectionLayout, Layout, Store};
use crate::findings::Finding;
use crate::path::{AccessPath, Operation};
use crate::planner::{Plan, ShardFanOut, Unanswerable, plan, plan_operation};
use crate::report::verdict;
use crate::table::Body;

/// The whole explanation, then what the checker says.
pub fn explain(layout: &Layout, load: &Load) -> String {
    let mut text = format!(
        "layout {} (from {})\n{}\n\n{}\n",
        layout.name,
        layout.source,
        layout.description.trim(),
        load_text(load)
    );
    for collection in layout.collections.values() {
        text += &heading(layout, collection);
        for answer in answers(layout, collection) {
            text += &answer.text(layout, collection, load);
        }
    }
    text += &findings_text(&check(layout));
    text
}

/// Findings on two lines each; [`crate::report`] shows them with their lines.
pub fn findings_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let Finding {
            severity,
            rule,
            message,
            fix,
            ..
        } = finding;
        let _ = writeln!(text, "{severity}[{rule}] {message}\n    {fix}");
    }
    text + &verdict(findings) + "\n"
}

/// Operations that one table answers in the same way, under the same promise.
struct Answer<'l> {
    path: AccessPath,
    store: &'l Store,
    policy: &'l Policy,
    plan: Result<Plan, Unanswerable>,
    operations: Vec<Operation>,
}

fn answers<'l>(layout: &'l Layout, collection: &'l CollectionLayout) -> Vec<Answer<'l>> {
    let mut answers: Vec<Answer<'l>> = Vec::new();
    for (path, operation) in questions(collection.collection) {
        for store in collection.stores() {
            let is_history = !std::ptr::eq(store, &collection.live);
            // An order with steps still to be done does not go to the history.
            if is_history && path == AccessPath::OrdersOpen {
                continue;
            }
            let buckets = &store.initial_buckets;
            let plan = plan_operation(collection, store, operation, path, buckets);
            let policy = store.consistency.policy(operation);
            let same = answers.iter_mut().find(|answer| {
                answer.path == path
                    && std::ptr::eq(answer.store, store)
                    && answer.plan == plan
                    && promise(layout, answer.store, answer.policy)
                        == promise(layout, store, policy)
            });
            match same {
                Some(answer) => answer.operations.push(operation),
                None => answers.push(Answer {
                    path,
                    store,
                    policy,
                    plan,
                    operations: vec![operation],
                }),
            }
        }
    }
    answers
}

fn questions(collection: Collection) -> impl Iterator<Item = (AccessPath, Operation)> {
    AccessPath::of(collection).flat_map(|path| {
        let asks = move |operation: &Operation| operation.paths().contains(&path);
        Operation::ALL
            .into_iter()
            .filter(asks)
            .map(move |operation| (path, operation))
    })
}

impl Answer<'_> {
    fn text(&self, layout: &Layout, collection: &CollectionLayout, load: &Load) -> String {
        let mut text = String::new();
        for operation in &self.operations {
            let _ = writeln!(text, "  {operation:?} {}", operation.title());
        }
        for (name, value) in self.lines(layout, collection, load) {
            let _ = writeln!(text, "      {name:<12} {value}");
        }
        text + "\n"
    }

    fn lines(
        &self,
        layout: &Layout,
        collection: &CollectionLayout,
        load: &Load,
    ) -> Vec<(&'static str, String)> {
        let asked = ("asks for", self.path.to_string());
        let found = match &self.plan {
            Ok(plan) => collection.table(&plan.table).map(|table| (plan, table)),
            Err(missing) => return vec![asked, ("table", format!("none: {}", missing.advice))],
        };
        let Some((plan, table)) = found else {
            return vec![asked];
        };
        let size = PartitionSize::of(collection, self.store, table, load);
        vec![
            asked,
            ("table", format!("{}.{}", self.store.engine, plan.table)),
            ("key", key_text(table)),
            ("fan-out", fan_out(plan)),
            ("consistency", promise(layout, self.store, self.policy)),
            ("partition", size_text(layout.engine(self.store).kind, size)),
        ]
    }
}

fn fan_out(plan: &Plan) -> String {
    let mut text = format!("{}, {}", plan.fan_out, plan.shards);
    if plan.path.shape().sort.is_some() {
        let _ = write!(text, ", order {}", plan.sort);
    }
    if plan.body == Body::Pointer {
        text += ", then each record by its id";
    }
    text
}

/// What a reader is promised, in the words of its engine.
pub(crate) fn promise(layout: &Layout, store: &Store, policy: &Policy) -> String {
    let engine = layout.engine(store);
    let mut text = match engine.kind {
        EngineKind::Embedded | EngineKind::Memory => return "the newest: one copy".to_owned(),
        EngineKind::Mongo | EngineKind::Cassandra => {
            format!("read {}, write {}", policy.read, policy.write)
        }
    };
    text += &match (policy.read, policy.may_lag_seconds) {
        (ReadLevel::Secondary, lag) => {
            format!("; at most {lag} s old, by a sampled cluster time, or else from the primary")
        }
        _ if policy.overlaps(&engine.replication) => {
            "; sees the last acknowledged write".to_owned()
        }
        _ => "; may miss the last acknowledged write".to_owned(),
    };
    if !policy.unless_status.is_empty() {
        let _ = write!(
            text,
            "; read again from the primary if {}",
            policy.unless_status.join(", ")
        );
    }
    text
}

fn size_text(kind: EngineKind, size: PartitionSize) -> String {
    let over = kind == EngineKind::Cassandra && size.is_over_limit();
    let limit = bytes_text(PARTITION_BYTES_MAX);
    let warning = if over {
        format!(": OVER the limit of {limit}")
    } else {
        String::new()
    };
    format!("{size}{warning}")
}

/// A collection's own lines, with what "every shard" comes to and why.
fn heading(layout: &Layout, collection: &CollectionLayout) -> String {
    let key: Vec<&str> = collection
        .shard_key
        .iter()
        .map(|field| field.name())
        .collect();
    let shards = match collection.cut.shards().len() {
        1 => "one shard at the start".to_owned(),
        several => format!("{several} shards at the start"),
    };
    let mut text = format!(
        "{} on {} ({}): shard key {}, {shards}\n",
        collection.collection,
        collection.live.engine,
        layout.engine(&collection.live).kind,
        key.join(", ")
    );
    let scattered: Vec<&str> = AccessPath::of(collection.collection)
        .filter_map(|path| plan(collection, path, &collection.live.initial_buckets).ok())
        .filter(|plan| plan.shards == ShardFanOut::All)
        .map(|plan| plan.path.name())
        .collect();
    if !scattered.is_empty() {
        let _ = writeln!(
            text,
            "  the shard key is not given by: {}",
            scattered.join(", ")
        );
    }
    if let Some(history) = &collection.history {
        let statuses = history.statuses.join(", ");
        let _ = writeln!(
            text,
            "  {statuses}: in the history on {}",
            history.store.engine
        );
    }
    if collection.collection == Collection::Products {
        let title = Operation::P3.title();
        let _ = writeln!(
            text,
            "  P3 {title}: the shop's own index, fed from the journal"
        );
    }
    text + "\n"
}

fn load_text(load: &Load) -> String {
    format!(
        "estimates for {} orders and {} sessions a day, {} users, {} products in {} categories,\n\
         orders kept {} days, the largest user {} times the mean, the busiest day {} times the mean\n",
        load.orders_per_day,
        load.sessions_per_day,
        load.users,
        load.products,
        load.categories,
        load.keep_days,
        load.skew,
        load.peak
    )
}
