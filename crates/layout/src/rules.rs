//! The checker's rules, one small function each: a layout in, findings out.
//!
//! A new rule is a function in the file of its subject and a line in [`RULES`],
//! with the reason that every finding of it gives.

mod answers;
mod buckets;
mod consistency;
mod engines;
mod keys;
mod lifetimes;
mod mistakes;
#[cfg(test)]
mod proof;
mod repair;
mod spread;
mod staleness;
mod versions;

use crate::file::{CollectionLayout, Layout, Store};
use crate::findings::Finding;
use crate::table::Table;

#[cfg(test)]
use proof::{check_rule, found};

/// A check with a name that stays, and the reason behind it.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub name: &'static str,
    /// Why what it finds is wrong.
    pub reason: &'static str,
    pub(crate) check: fn(&Layout) -> Vec<Finding>,
}

const fn rule(
    name: &'static str,
    check: fn(&Layout) -> Vec<Finding>,
    reason: &'static str,
) -> Rule {
    Rule {
        name,
        reason,
        check,
    }
}

/// In the order in which they run; those about keys first, because others
/// follow from them.
pub const RULES: &[Rule] = &[
    rule(
        "every-operation-answered",
        answers::every_operation,
        "an operation without a table would scan every record, or fail when a shopper asks",
    ),
    rule(
        "one-authority",
        answers::one_authority,
        "what decides on a record needs one place that decides; the other tables follow it",
    ),
    rule(
        "table-names",
        answers::table_names,
        "tables of one engine share its namespace, and a name must be legal on every engine it may move to",
    ),
    rule(
        "known-fields",
        keys::known_fields,
        "a key is made of header fields of its own collection, of kinds that have an order",
    ),
    rule(
        "unique-rows",
        keys::unique_rows,
        "two records with the same key overwrite each other: two orders of one millisecond become one",
    ),
    rule(
        "nullable-shard-key",
        keys::nullable_shard_key,
        "records without the value all hash alike: every guest lands on one shard",
    ),
    rule(
        "missing-key-values",
        keys::missing_key_values,
        "a record without the value has no row, and in an authority that means no record",
    ),
    rule(
        "lasting-keys",
        keys::lasting_keys,
        "a key column cannot be updated: the row would be deleted and written anew, and in an authority there is a gap between",
    ),
    rule(
        "row-per-change",
        keys::row_per_change,
        "a time that every change sets makes a new row of every change, and leaves the old ones behind",
    ),
    rule(
        "computed-ids",
        keys::computed_ids,
        "order and cart ids are computed from what they stand for, so that racing requests meet; they are neither UUIDs nor ObjectIds",
    ),
    rule(
        "ordered-ranges",
        spread::ordered_ranges,
        "every key belongs to exactly one range",
    ),
    rule(
        "declared-zones",
        spread::declared_zones,
        "a zone under two names is two zones: ranges tied to the one never reach the shards of the other",
    ),
    rule(
        "zone-by-shard-key",
        mistakes::zone_by_shard_key,
        "a range, and so a zone, is a piece of the shard key and begins with its first field",
    ),
    rule(
        "declared-shards",
        spread::declared_shards,
        "a shard without an address cannot be asked",
    ),
    rule(
        "shared-partitions",
        spread::shared_partitions,
        "a partition named by the calendar alone takes every write of the shop, on the same few nodes",
    ),
    rule(
        "growing-partitions",
        spread::growing_partitions,
        "a partition without bound grows past the limit of 100 MB: a wholesale buyer's orders never end",
    ),
    rule(
        "bucket-counts",
        buckets::bucket_counts,
        "buckets divide a partition only if there is more than one, and only where the key has them",
    ),
    rule(
        "partition-size",
        buckets::partition_size,
        "partitions over 100 MB slow their nodes down in every compaction, repair and read",
    ),
    rule(
        "stored-columns",
        buckets::stored_columns,
        "a MongoDB index is made of stored fields; months, days and buckets are computed",
    ),
    rule(
        "adaptive-buckets",
        mistakes::adaptive_buckets,
        "under a literal count partitions grow with traffic; a count in the map adapts while readers and writers go on",
    ),
    rule(
        "stock-needs-conditions",
        engines::stock_needs_conditions,
        "stock is taken under a condition, at a high rate, on one record; on Cassandra each costs a round of paxos",
    ),
    rule(
        "durable-orders",
        engines::durable_orders,
        "an engine in memory forgets everything with its process",
    ),
    rule(
        "suited-settings",
        engines::suited_settings,
        "a setting that its engine does not know promises what nobody keeps",
    ),
    rule(
        "server-version",
        versions::server_version,
        "Caravan relies on what older servers do not have: paxos v2 on Cassandra, events of collMod in change streams on MongoDB",
    ),
    rule(
        "options-of-the-version",
        versions::options_of_the_version,
        "a server refuses an option it does not have, or worse, ignores it",
    ),
    rule(
        "commit-before-answer",
        engines::commit_before_answer,
        "a periodic commit log, which is Cassandra's default, answers before the write is on disk: a killed node loses acknowledged writes",
    ),
    rule(
        "three-copies",
        engines::three_copies,
        "with fewer than three copies the loss of one node stops every quorum, or loses the data",
    ),
    rule(
        "repair-before-grace",
        repair::repair_before_grace,
        "a copy that has not heard of a removal by the end of the grace brings the removed row back",
    ),
    rule(
        "hint-window-per-node",
        mistakes::hint_window_per_node,
        "Cassandra has one hint window a node (max_hint_window), none a table",
    ),
    rule(
        "no-materialized-views",
        mistakes::no_materialized_views,
        "materialized views are experimental and off by default: they drift from their base without notice",
    ),
    rule(
        "appended-lists",
        mistakes::appended_lists,
        "a retried append doubles the item: list appends are not idempotent",
    ),
    rule(
        "window-compaction",
        lifetimes::window_compaction,
        "a time window is dropped whole: only if all its rows expire, and no later change scatters a record over several windows",
    ),
    rule(
        "ttl-collects-garbage",
        lifetimes::ttl_collects_garbage,
        "expires_at decides what has expired; a TTL only collects it, and must not end what still lives",
    ),
    rule(
        "cart-within-session",
        lifetimes::cart_within_session,
        "nobody can open a guest cart whose session is gone",
    ),
    rule(
        "levels-of-the-engine",
        consistency::levels_of_the_engine,
        "an engine knows its own levels only",
    ),
    rule(
        "operations-of-the-collection",
        consistency::operations_of_the_collection,
        "a policy on a collection that its operation never asks has no effect",
    ),
    rule(
        "copies-meet",
        consistency::copies_meet,
        "copies written + copies read must be more than there are, otherwise a read may miss the last acknowledged write",
    ),
    rule(
        "read-repair-values",
        repair::read_repair_values,
        "since Cassandra 4.0 read repair is BLOCKING or NONE; a chance no longer exists",
    ),
    rule(
        "read-repair-at-one",
        repair::read_repair_at_one,
        "a read of one copy has nothing to compare its answer with",
    ),
    rule(
        "keepable-staleness",
        staleness::keepable_staleness,
        "an engine that cannot say how old a copy is cannot bound it",
    ),
    rule(
        "staleness-floor",
        mistakes::staleness_floor,
        "maxStalenessSeconds has a floor of 90 s, and estimates",
    ),
    rule(
        "decisions-never-lag",
        staleness::decisions_never_lag,
        "what is paid, sold, priced or put into a cart is decided on the newest state",
    ),
];

/// Every table; a finding's place is counted from the table's own.
fn each_table(
    layout: &Layout,
    check: impl Fn(&CollectionLayout, &Store, &Table) -> Option<Finding>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (collection, store) in layout.stores() {
        for table in &store.tables {
            let place = collection.place(store).then("tables").then(&table.name);
            findings.extend(check(collection, store, table).map(|found| found.under(&place)));
        }
    }
    findings
}
