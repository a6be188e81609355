//! A layout file as TOML sees it: every key it may have, nothing more. Names
//! that mean something elsewhere keep their place, so that whoever refuses
//! them can point at it.

use std::collections::BTreeMap;

use model::Lifetime;
use serde::Deserialize;
use toml::Spanned;

use crate::consistency::{ReadLevel, WriteLevel};
use crate::engine::{CommitlogSync, EngineKind};
use crate::id_encoding::IdEncoding;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LayoutText {
    pub name: Spanned<String>,
    pub source: String,
    pub description: String,
    pub engines: BTreeMap<String, Spanned<EngineText>>,
    pub collections: CollectionsText,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EngineText {
    pub kind: EngineKind,
    #[serde(default)]
    pub addresses: Vec<String>,
    pub keyspace: Option<String>,
    pub replication: Option<Spanned<BTreeMap<String, u32>>>,
    pub hint_window_seconds: Option<u64>,
    pub commitlog_sync: Option<CommitlogSync>,
    pub repair_interval_seconds: Option<u64>,
    pub sampled_repair_percent: Option<u8>,
    pub commitlog_window_ms: Option<u64>,
    #[serde(default)]
    pub server_settings: BTreeMap<String, Spanned<toml::Value>>,
    #[serde(default)]
    pub shards: BTreeMap<String, Vec<String>>,
    pub local_datacentre: Option<Spanned<String>>,
    pub server_version: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CollectionsText {
    pub carts: Spanned<CollectionText>,
    pub orders: Spanned<CollectionText>,
    pub products: Spanned<CollectionText>,
    pub sessions: Spanned<CollectionText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CollectionText {
    pub engine: Spanned<String>,
    #[serde(default)]
    pub ids: BTreeMap<Spanned<String>, IdEncoding>,
    pub shard_key: Spanned<Vec<Spanned<String>>>,
    pub cut: CutText,
    pub initial_shards: Option<Spanned<Vec<String>>>,
    pub ranges: Option<Spanned<Vec<Spanned<RangeText>>>>,
    pub zones: Option<Spanned<BTreeMap<String, Vec<String>>>>,
    pub lifetime_seconds: Option<Spanned<Lifetime>>,
    pub consistency: Option<PolicyText>,
    #[serde(default)]
    pub operations: BTreeMap<Spanned<String>, PolicyText>,
    pub tables: BTreeMap<String, Spanned<TableText>>,
    pub history: Option<HistoryText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryText {
    pub engine: Spanned<String>,
    pub status: Spanned<Vec<String>>,
    pub consistency: Option<PolicyText>,
    #[serde(default)]
    pub operations: BTreeMap<Spanned<String>, PolicyText>,
    pub tables: BTreeMap<String, Spanned<TableText>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CutText {
    Slots,
    Ranges,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RangeText {
    /// Values of the shard key in its order, or values by field.
    pub from: Option<toml::Value>,
    pub shard: Option<String>,
    pub zone: Option<String>,
}

/// What is left out is inherited: from the collection, then from the engine's kind.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyText {
    pub read: Option<ReadLevel>,
    pub write: Option<WriteLevel>,
    pub may_lag_seconds: Option<u64>,
    pub unless_status: Option<Vec<String>>,
    pub label: Option<String>,
    /// A mistake, see [`crate::mistake`].
    pub max_staleness_seconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableText {
    #[serde(default)]
    pub role: RoleText,
    pub partition: Vec<Spanned<String>>,
    #[serde(default)]
    pub clustering: Vec<Spanned<String>>,
    pub only: Option<Spanned<BTreeMap<String, String>>>,
    #[serde(default)]
    pub body: BodyText,
    #[serde(default)]
    pub parts: PartsText,
    pub initial_buckets: Option<Spanned<u32>>,
    pub compaction: Option<String>,
    pub read_repair: Option<String>,
    pub gc_grace_seconds: Option<u64>,
    pub ttl_seconds: Option<u64>,
    #[serde(default)]
    pub compaction_options: BTreeMap<String, Spanned<toml::Value>>,
    #[serde(default)]
    pub repair: RepairText,
    pub expected_rows: Option<u64>,
    #[serde(default)]
    pub options: BTreeMap<String, Spanned<toml::Value>>,
    // Mistakes, see `crate::mistake`.
    pub hint_window_seconds: Option<u64>,
    pub materialized_view_of: Option<String>,
    pub fixed_buckets: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RoleText {
    Authority,
    #[default]
    Derived,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RepairText {
    #[default]
    Scheduled,
    None,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BodyText {
    #[default]
    Whole,
    Pointer,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PartsText {
    #[default]
    Inside,
    Rows,
    /// A mistake, see [`crate::mistake`].
    List,
}
