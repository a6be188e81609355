//! Does each collection live where its data can live, on clusters set for it?

use crate::collection::Collection;
use crate::engine::{CommitlogSync, EngineDeclaration, EngineKind, REPLICATION_FACTOR};
use crate::file::{Layout, Store};
use crate::findings::Finding;
use crate::place::Place;
use crate::table::{Body, Parts, Repair, Role};

/// L4.
pub(super) fn stock_needs_conditions(layout: &Layout) -> Vec<Finding> {
    let products = layout.collection(Collection::Products);
    let on_cassandra = |store: &&Store| layout.engine(store).kind == EngineKind::Cassandra;
    let refused = |store: &Store| {
        let finding = Finding::refused(
            "products cannot live on cassandra",
            "put products on an engine of kind embedded or mongo",
        );
        finding.at("engine").under(&products.place(store))
    };
    products
        .stores()
        .filter(on_cassandra)
        .map(refused)
        .collect()
}

pub(super) fn suited_settings(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, engine) in &layout.engines {
        findings.extend(settings_of_engine(name, engine));
    }
    findings.extend(options_of_tables(layout));
    for (collection, store) in layout.stores() {
        for table in &store.tables {
            if table.role == Role::Authority && table.options.body == Body::Pointer {
                let place = collection.place(store).then("tables").then(&table.name);
                let finding = Finding::refused(
                    format!("authority {} points to itself", table.name),
                    "write body = \"whole\", or leave it out",
                );
                findings.push(finding.at("body").under(&place));
            }
        }
    }
    findings
}

fn settings_of_engine(name: &str, engine: &EngineDeclaration) -> Vec<Finding> {
    let settings = &engine.settings;
    let place = Place::new(["engines", name]);
    let mut findings = Vec::new();
    if engine.kind != EngineKind::Cassandra {
        let for_cassandra = [
            (
                "hint_window_seconds",
                settings.hint_window_seconds.is_some(),
            ),
            ("commitlog_sync", settings.commitlog_sync.is_some()),
            (
                "commitlog_window_ms",
                settings.commitlog_window_ms.is_some(),
            ),
            (
                "repair_interval_seconds",
                settings.repair_interval_seconds.is_some(),
            ),
            (
                "sampled_repair_percent",
                settings.sampled_repair_percent.is_some(),
            ),
            ("local_datacentre", engine.local_datacentre.is_some()),
        ];
        findings.extend(unsuited(
            &format!("engine {name}"),
            engine.kind,
            &place,
            &for_cassandra,
        ));
    }
    if matches!(engine.kind, EngineKind::Embedded | EngineKind::Memory) {
        let for_servers = [
            ("server_settings", !settings.server_settings.is_empty()),
            ("server_version", engine.server_version.is_some()),
            ("shards", !engine.shards.is_empty()),
        ];
        findings.extend(unsuited(
            &format!("engine {name}"),
            engine.kind,
            &place,
            &for_servers,
        ));
    }
    if settings
        .sampled_repair_percent
        .is_some_and(|percent| percent > 100)
    {
        let message = format!("engine {name} samples more than 100 percent");
        let finding = Finding::refused(message, "write 0 to 100");
        findings.push(finding.at("sampled_repair_percent").under(&place));
    }
    if settings.commitlog_window_ms.is_some()
        && settings.commitlog_sync != Some(CommitlogSync::Group)
    {
        let finding = Finding::refused(
            format!("engine {name} has commitlog_window_ms, and its commit log is not group"),
            "write commitlog_sync = \"group\", or remove commitlog_window_ms",
        );
        findings.push(finding.at("commitlog_window_ms").under(&place));
    }
    findings
}

fn options_of_tables(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (collection, store) in layout.stores() {
        let kind = layout.engine(store).kind;
        let collects_itself = matches!(kind, EngineKind::Embedded | EngineKind::Memory);
        for table in &store.tables {
            let options = &table.options;
            let of_cassandra = |given| kind != EngineKind::Cassandra && given;
            let index = kind == EngineKind::Mongo && table.role == Role::Derived;
            let given = [
                ("compaction", of_cassandra(options.compaction.is_some())),
                (
                    "compaction_options",
                    of_cassandra(!options.compaction_options.is_empty()),
                ),
                ("read_repair", of_cassandra(options.read_repair.is_some())),
                ("repair", of_cassandra(options.repair == Repair::None)),
                (
                    "gc_grace_seconds",
                    of_cassandra(options.gc_grace_seconds.is_some()),
                ),
                ("options", of_cassandra(!options.server_options.is_empty())),
                (
                    "ttl_seconds",
                    collects_itself && options.ttl_seconds.is_some(),
                ),
                ("parts", index && options.parts == Parts::Rows),
            ];
            let place = collection.place(store).then("tables").then(&table.name);
            let name = format!("table {}", table.name);
            findings.extend(unsuited(&name, kind, &place, &given));
        }
    }
    findings
}

fn unsuited(
    name: &str,
    kind: EngineKind,
    place: &Place,
    settings: &[(&'static str, bool)],
) -> Vec<Finding> {
    let given = settings.iter().filter(|(_, given)| *given);
    let refused = |(setting, _): &(&str, bool)| {
        let message = format!("{name} is on {kind}, which has no {setting}");
        Finding::refused(message, "remove it")
            .at(setting)
            .under(place)
    };
    given.map(refused).collect()
}

/// Left out is periodic too. Once for each collection, because some may lose more.
pub(super) fn commit_before_answer(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (collection, store) in layout.stores() {
        let engine = layout.engine(store);
        let written = match engine.settings.commitlog_sync {
            Some(CommitlogSync::Batch | CommitlogSync::Group) => continue,
            Some(CommitlogSync::Periodic) => "is periodic",
            None => "is left at periodic",
        };
        if engine.kind != EngineKind::Cassandra {
            continue;
        }
        let message = format!(
            "engine {} loses acknowledged {} when its nodes are killed: its commitlog_sync {written}",
            store.engine, collection.collection
        );
        let fix = "write commitlog_sync = \"group\"";
        let finding = match collection.collection {
            Collection::Orders | Collection::Products => Finding::refused(message, fix),
            Collection::Carts | Collection::Sessions => Finding::warning(message, fix),
        };
        let place = Place::new(["engines", &store.engine, "commitlog_sync"]);
        findings.push(finding.under(&place));
    }
    findings
}

pub(super) fn three_copies(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, engine) in &layout.engines {
        if engine.kind != EngineKind::Cassandra {
            continue;
        }
        for (datacentre, copies) in &engine.replication {
            if *copies < REPLICATION_FACTOR {
                let finding = Finding::warning(
                    format!("engine {name} keeps {copies} copies in {datacentre}"),
                    format!("write {datacentre} = {REPLICATION_FACTOR}"),
                );
                let place = Place::new(["engines", name, "replication", datacentre]);
                findings.push(finding.under(&place));
            }
        }
    }
    findings
}

/// Orders and stock are never kept where a restart forgets them (W36).
pub(super) fn durable_orders(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (collection, store) in layout.stores() {
        if layout.engine(store).kind != EngineKind::Memory {
            continue;
        }
        let message = format!("{} live in memory only", collection.collection);
        let fix = "put them on an engine of kind embedded, cassandra or mongo";
        let finding = match collection.collection {
            Collection::Orders | Collection::Products => Finding::refused(message, fix),
            Collection::Carts | Collection::Sessions => Finding::warning(message, fix),
        };
        findings.push(finding.at("engine").under(&collection.place(store)));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::check_rule;

    const KIND: &str = "kind = \"embedded\"";

    fn cassandra(settings: &str) -> String {
        format!("kind = \"cassandra\"\n{settings}")
    }

    #[test]
    fn products_are_refused_on_cassandra() {
        check_rule(
            "stock-needs-conditions",
            &[(KIND, &cassandra(""))],
            &["products cannot live on cassandra"],
        );
    }

    #[test]
    fn settings_that_the_engine_does_not_know_are_refused() {
        check_rule(
            "suited-settings",
            &[(KIND, "kind = \"embedded\"\nhint_window_seconds = 1")],
            &["engine local is on embedded, which has no hint_window_seconds"],
        );
        check_rule(
            "suited-settings",
            &[(
                "initial_buckets = 8",
                "initial_buckets = 8\nttl_seconds = 5\ncompaction = \"x\"",
            )],
            &["no compaction", "no ttl_seconds"],
        );
        check_rule(
            "suited-settings",
            &[(
                KIND,
                &cassandra("commitlog_window_ms = 5\nsampled_repair_percent = 101"),
            )],
            &[
                "samples more than 100 percent",
                "its commit log is not group",
            ],
        );
    }

    #[test]
    fn a_periodic_commit_log_is_refused_for_orders() {
        for settings in ["commitlog_sync = \"periodic\"", ""] {
            check_rule(
                "commit-before-answer",
                &[(KIND, &cassandra(settings))],
                &[
                    "warning: engine local loses acknowledged carts",
                    "error: engine local loses acknowledged orders",
                    "error",
                    "warning",
                ],
            );
        }
        let group = cassandra("commitlog_sync = \"group\"");
        check_rule("commit-before-answer", &[(KIND, &group)], &[]);
    }

    #[test]
    fn fewer_than_three_copies_are_pointed_out() {
        check_rule(
            "three-copies",
            &[(KIND, &cassandra("replication = { west = 3, east = 2 }"))],
            &["engine local keeps 2 copies in east"],
        );
    }

    #[test]
    fn orders_and_stock_outlive_the_process() {
        check_rule(
            "durable-orders",
            &[(KIND, "kind = \"memory\"")],
            &[
                "warning: carts live in memory only",
                "error: orders live in memory only",
                "error: products",
                "warning: sessions",
            ],
        );
    }
}
