//! Does the server have what the layout asks of it?

use super::each_table;
use crate::engine::{EngineDeclaration, EngineKind};
use crate::file::Layout;
use crate::findings::Finding;
use crate::place::Place;
use crate::server_version::ServerVersion;

/// The oldest servers that Caravan runs on.
const CASSANDRA_MIN: ServerVersion = ServerVersion::new(4, 1);
const MONGO_MIN: ServerVersion = ServerVersion::new(6, 0);

/// When an option is there, and what to write when it is not.
enum Known {
    Always,
    Since(ServerVersion),
    /// Gone from this version on.
    Until(ServerVersion, &'static str),
    /// The layout has a key of its own for it.
    Own(&'static str),
}

use Known::{Always, Own, Since, Until};

const V4_0: ServerVersion = ServerVersion::new(4, 0);
const V4_1: ServerVersion = ServerVersion::new(4, 1);
const V5_0: ServerVersion = ServerVersion::new(5, 0);
const V6_0: ServerVersion = ServerVersion::new(6, 0);

const SAMPLED: &str = "write read_repair = \"BLOCKING\" or \"NONE\", and sampled_repair_percent at the engine for a share of the reads";

const TABLE_OPTIONS: [(&str, Known); 18] = [
    ("additional_write_policy", Always),
    ("bloom_filter_fp_chance", Always),
    ("cdc", Always),
    ("comment", Always),
    ("crc_check_chance", Always),
    ("max_index_interval", Always),
    ("memtable_flush_period_in_ms", Always),
    ("min_index_interval", Always),
    ("speculative_retry", Always),
    ("memtable", Since(V4_1)),
    ("allow_auto_snapshot", Since(V5_0)),
    ("incremental_backups", Since(V5_0)),
    ("read_repair_chance", Until(V4_0, SAMPLED)),
    ("dclocal_read_repair_chance", Until(V4_0, SAMPLED)),
    ("compaction", Own("compaction")),
    ("default_time_to_live", Own("ttl_seconds")),
    ("gc_grace_seconds", Own("gc_grace_seconds")),
    ("read_repair", Own("read_repair")),
];

const COMPACTIONS: [(&str, Known); 5] = [
    ("SizeTieredCompactionStrategy", Always),
    ("LeveledCompactionStrategy", Always),
    ("TimeWindowCompactionStrategy", Always),
    ("UnifiedCompactionStrategy", Since(V5_0)),
    (
        "DateTieredCompactionStrategy",
        Until(V5_0, "write TimeWindowCompactionStrategy"),
    ),
];

/// Not all that a server has, only what is special: the rest goes into the
/// generated settings as it is.
const CASSANDRA_SETTINGS: [(&str, Known); 7] = [
    ("commitlog_sync", Own("commitlog_sync")),
    ("commitlog_sync_group_window", Own("commitlog_window_ms")),
    ("max_hint_window", Own("hint_window_seconds")),
    ("max_hint_window_in_ms", Own("hint_window_seconds")),
    ("paxos_variant", Since(V4_1)),
    ("storage_compatibility_mode", Since(V5_0)),
    ("memtable", Since(V4_1)),
];

const MONGO_SETTINGS: [(&str, Known); 1] = [(
    "enableAutoSplit",
    Until(
        V6_0,
        "remove it: chunks are split when they are moved, and Caravan's own ranges by its map",
    ),
)];

pub(super) fn server_version(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, engine) in &layout.engines {
        let least = match engine.kind {
            EngineKind::Cassandra => CASSANDRA_MIN,
            EngineKind::Mongo => MONGO_MIN,
            EngineKind::Embedded | EngineKind::Memory => continue,
        };
        if let Some(version) = engine.server_version.filter(|version| *version < least) {
            let finding = Finding::refused(
                format!(
                    "engine {name} is {} {version}, which is too old",
                    engine.kind
                ),
                format!("use {least} or newer"),
            );
            let place = Place::new(["engines", name, "server_version"]);
            findings.push(finding.under(&place));
        }
    }
    findings
}

pub(super) fn options_of_the_version(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, engine) in &layout.engines {
        let known: &[_] = match engine.kind {
            EngineKind::Cassandra => &CASSANDRA_SETTINGS,
            EngineKind::Mongo => &MONGO_SETTINGS,
            EngineKind::Embedded | EngineKind::Memory => continue,
        };
        for setting in engine.settings.server_settings.keys() {
            let listed = known.iter().find(|(known, _)| known == setting);
            let unknown_is_fine = engine.kind == EngineKind::Cassandra;
            let found = match listed {
                None if unknown_is_fine => None,
                listed => judged(engine, "setting", setting, listed),
            };
            let place = Place::new(["engines", name, "server_settings", setting]);
            findings.extend(found.map(|finding| finding.under(&place)));
        }
    }
    findings.extend(each_table(layout, |_, store, table| {
        let engine = layout.engine(store);
        let class = table.options.compaction.as_deref();
        let listed = COMPACTIONS.iter().find(|(known, _)| Some(*known) == class);
        (engine.kind == EngineKind::Cassandra)
            .then(|| judged(engine, "compaction", class?, listed))
            .flatten()
            .map(|finding| finding.at("compaction"))
    }));
    findings.extend(table_options(layout));
    findings
}

fn table_options(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (collection, store) in layout.stores() {
        let engine = layout.engine(store);
        if engine.kind != EngineKind::Cassandra {
            continue;
        }
        for table in &store.tables {
            let place = collection.place(store).then("tables").then(&table.name);
            for option in table.options.server_options.keys() {
                let listed = TABLE_OPTIONS.iter().find(|(known, _)| known == option);
                let found = judged(engine, "table option", option, listed);
                findings
                    .extend(found.map(|finding| finding.at("options").at(option).under(&place)));
            }
        }
    }
    findings
}

fn judged(
    engine: &EngineDeclaration,
    what: &str,
    name: &str,
    listed: Option<&(&str, Known)>,
) -> Option<Finding> {
    let (kind, version) = (engine.kind, engine.server_version?);
    let message = format!("{kind} {version} has no {what} {name}");
    match listed.map(|(_, known)| known) {
        Some(Always) => None,
        Some(Since(first)) => (version < *first)
            .then(|| Finding::refused(message, format!("use {kind} {first}, or remove it"))),
        Some(Until(first_without, instead)) => (version >= *first_without).then(|| {
            Finding::refused(
                format!("{message}: it is gone since {first_without}"),
                *instead,
            )
        }),
        Some(Own(key)) => Some(Finding::refused(
            format!("{what} {name} stands beside the layout's own {key}"),
            format!("write {key}"),
        )),
        None => Some(Finding::refused(message, "check the name, or remove it")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_rule;

    const KIND: &str = "kind = \"embedded\"";
    const PERIOD: &str = "initial_buckets = 8";

    fn check(engine: &str, table: &str, expected: &[&str]) {
        let table = format!("{PERIOD}\n{table}");
        check_rule(
            "options-of-the-version",
            &[(KIND, engine), (PERIOD, &table)],
            expected,
        );
    }

    #[test]
    fn servers_that_are_too_old_are_refused() {
        let versions = |kind: &str, version: &str| {
            format!("kind = \"{kind}\"\nserver_version = \"{version}\"")
        };
        let check = |kind, version, expected: &[&str]| {
            check_rule(
                "server-version",
                &[(KIND, &versions(kind, version))],
                expected,
            );
        };
        check(
            "cassandra",
            "4.0",
            &["engine local is cassandra 4.0, which is too old: use 4.1"],
        );
        check("cassandra", "4.1.5", &[]);
        check("mongo", "5.0", &["use 6.0 or newer"]);
        check("mongo", "7.0", &[]);
    }

    #[test]
    fn table_options_are_those_of_the_version() {
        let five = "kind = \"cassandra\"";
        let older = "kind = \"cassandra\"\nserver_version = \"4.1\"";
        check(
            five,
            "options = { read_repair_chance = 0.1 }",
            &["cassandra 5.0 has no table option read_repair_chance: it is gone since 4.0"],
        );
        check(five, "options = { speculative_retry = \"99p\" }", &[]);
        check(
            five,
            "options = { fast = true }",
            &["has no table option fast"],
        );
        check(
            five,
            "options = { gc_grace_seconds = 5 }",
            &["write gc_grace_seconds"],
        );
        let unified = "compaction = \"UnifiedCompactionStrategy\"";
        check(five, unified, &[]);
        check(
            older,
            unified,
            &["cassandra 4.1 has no compaction UnifiedCompactionStrategy: use cassandra 5.0"],
        );
        check(five, "compaction = \"TWCS\"", &["has no compaction TWCS"]);
    }

    #[test]
    fn settings_are_those_of_the_version() {
        check(
            "kind = \"mongo\"\nserver_settings = { enableAutoSplit = true }",
            "",
            &["mongo 6.0 has no setting enableAutoSplit: it is gone since 6.0"],
        );
        check(
            "kind = \"cassandra\"\nserver_settings = { max_hint_window_in_ms = 1 }",
            "",
            &["write hint_window_seconds"],
        );
        check(
            "kind = \"cassandra\"\nserver_settings = { concurrent_writes = 64 }",
            "",
            &[],
        );
    }
}
