//! What can be compared of an engine, a collection or a table: names and values.

use crate::column::key_text;
use crate::engine::EngineDeclaration;
use crate::file::{CollectionLayout, Cut, Layout, Store};
use crate::table::{Body, Parts, Repair, Role, Table};

#[derive(Clone, Debug, Default)]
pub(super) struct Facts(Vec<(String, String)>);

impl Facts {
    fn add(&mut self, name: impl Into<String>, value: impl ToString) {
        self.0.push((name.into(), value.to_string()));
    }

    fn add_some(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    fn add_if(&mut self, given: bool, name: &str, value: &str) {
        self.add_some(name, given.then_some(value));
    }

    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The names of both, in their order, each once.
    pub fn names<'f>(&'f self, other: &'f Facts) -> Vec<&'f str> {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.0.iter().chain(&other.0) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    pub fn text(&self) -> String {
        let facts: Vec<String> = self
            .0
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        facts.join(", ")
    }
}

pub(super) fn engine_facts(engine: &EngineDeclaration) -> Facts {
    let mut facts = Facts::default();
    facts.add("kind", engine.kind);
    facts.add_some("version", engine.server_version);
    facts.add_some("keyspace", engine.keyspace.as_ref());
    let settings = &engine.settings;
    if engine.kind == crate::EngineKind::Cassandra {
        for (datacentre, copies) in &engine.replication {
            facts.add(format!("copies in {datacentre}"), copies);
        }
    }
    facts.add_some("local_datacentre", engine.local_datacentre.as_ref());
    facts.add_some("hint_window_seconds", settings.hint_window_seconds);
    facts.add_some(
        "commitlog_sync",
        settings
            .commitlog_sync
            .map(|sync| format!("{sync:?}").to_lowercase()),
    );
    facts.add_some("commitlog_window_ms", settings.commitlog_window_ms);
    facts.add_some("repair_interval_seconds", settings.repair_interval_seconds);
    facts.add_some("sampled_repair_percent", settings.sampled_repair_percent);
    for (name, value) in &settings.server_settings {
        facts.add(name, value);
    }
    let shards: Vec<&str> = engine.shards.keys().map(String::as_str).collect();
    facts.add_if(!shards.is_empty(), "shards", &shards.join(", "));
    facts
}

pub(super) fn collection_facts(layout: &Layout, collection: &CollectionLayout) -> Facts {
    let mut facts = Facts::default();
    let kind = layout.engine(&collection.live).kind;
    facts.add("engine", format!("{} ({kind})", collection.live.engine));
    let fields: Vec<&str> = collection
        .shard_key
        .iter()
        .map(|field| field.name())
        .collect();
    facts.add("shard key", fields.join(", "));
    facts.add("cut", cut_text(&collection.cut));
    for (field, encoding) in collection.encodings.iter() {
        facts.add(format!("encoding of {field}"), encoding);
    }
    let lifetime = collection
        .lifetime
        .map(|lifetime| format!("{} s", lifetime.seconds()));
    facts.add_some("lifetime", lifetime);
    let history = collection.history.as_ref();
    let history = history.map(|history| {
        format!(
            "on {} for {}",
            history.store.engine,
            history.statuses.join(", ")
        )
    });
    facts.add_some("history", history);
    facts
}

pub(super) fn table_facts(store: &Store, table: &Table) -> Facts {
    let (mut facts, options) = (Facts::default(), &table.options);
    facts.add("key", key_text(table));
    facts.add_if(table.role == Role::Authority, "role", "authority");
    facts.add_if(options.body == Body::Pointer, "body", "pointer");
    facts.add_if(options.parts == Parts::Rows, "parts", "rows");
    let buckets = store.initial_buckets.of(&table.name);
    facts.add_some("buckets", (buckets > 1).then_some(buckets));
    facts.add_some("compaction", options.compaction.as_ref());
    facts.add_some("read_repair", options.read_repair.as_ref());
    facts.add_if(options.repair == Repair::None, "repair", "none");
    facts.add_some("gc_grace_seconds", options.gc_grace_seconds);
    facts.add_some("ttl_seconds", options.ttl_seconds);
    for (name, value) in options
        .compaction_options
        .iter()
        .chain(&options.server_options)
    {
        facts.add(name, value);
    }
    facts
}

fn cut_text(cut: &Cut) -> String {
    match cut {
        Cut::Slots { initial_shards } => format!("slots over {}", initial_shards.join(", ")),
        Cut::Ranges { ranges, .. } => {
            let ranges: Vec<String> = ranges
                .iter()
                .map(|range| {
                    let from = range
                        .from
                        .as_ref()
                        .map_or(String::new(), |from| format!("from {from} "));
                    let zone = range
                        .zone
                        .as_ref()
                        .map_or(String::new(), |zone| format!(" in zone {zone}"));
                    format!("{from}on {}{zone}", range.shard)
                })
                .collect();
            format!("ranges {}", ranges.join(", "))
        }
    }
}
