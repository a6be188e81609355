//! Does each collection live where its data can live, on clusters set for it?

use crate::collection::Collection;
use crate::engine::{CommitlogSync, EngineKind, GC_GRACE_SECONDS};
use crate::file::Layout;
use crate::findings::{Finding, Severity};
use crate::table::{Body, Parts, Role};

/// What Cassandra uses when a layout does not say: three hours.
const HINT_WINDOW_SECONDS: u64 = 10_800;

/// L4: stock is taken under a condition, thousands of times a second on one record.
pub(super) fn stock_needs_conditions(layout: &Layout) -> Vec<Finding> {
    let products = layout.collection(Collection::Products);
    let on_cassandra = products
        .stores()
        .any(|store| layout.engine(store).kind == EngineKind::Cassandra);
    if !on_cassandra {
        return Vec::new();
    }
    vec![Finding::refused(
        "products cannot live on cassandra: stock needs atomic conditional changes at a high rate, and there each costs a round of paxos",
        "put products on an engine of kind embedded or mongo",
    )]
}

/// A setting that its engine does not know would promise what nobody keeps.
pub(super) fn suited_settings(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, engine) in &layout.engines {
        let settings = &engine.settings;
        let for_cassandra = [
            (
                "hint_window_seconds",
                settings.hint_window_seconds.is_some(),
            ),
            ("commitlog_sync", settings.commitlog_sync.is_some()),
            (
                "repair_interval_seconds",
                settings.repair_interval_seconds.is_some(),
            ),
            (
                "sampled_repair_percent",
                settings.sampled_repair_percent.is_some(),
            ),
        ];
        if engine.kind != EngineKind::Cassandra {
            findings.extend(unsuited(
                &format!("engine {name}"),
                engine.kind,
                &for_cassandra,
            ));
        }
        if settings
            .sampled_repair_percent
            .is_some_and(|percent| percent > 100)
        {
            findings.push(Finding::refused(
                format!("engine {name} samples more than 100 percent"),
                "write 0 to 100",
            ));
        }
    }
    for (_, store) in layout.stores() {
        let kind = layout.engine(store).kind;
        for table in &store.tables {
            let options = &table.options;
            let place = format!("table {}", table.name);
            if kind != EngineKind::Cassandra {
                let for_cassandra = [
                    ("compaction", options.compaction.is_some()),
                    ("read_repair", options.read_repair.is_some()),
                    ("gc_grace_seconds", options.gc_grace_seconds.is_some()),
                ];
                findings.extend(unsuited(&place, kind, &for_cassandra));
            }
            let collects_itself = matches!(kind, EngineKind::Embedded | EngineKind::Memory);
            let index = kind == EngineKind::Mongo && table.role == Role::Derived;
            findings.extend(unsuited(
                &place,
                kind,
                &[
                    (
                        "ttl_seconds",
                        collects_itself && options.ttl_seconds.is_some(),
                    ),
                    (
                        "parts = \"rows\" of an index",
                        index && options.parts == Parts::Rows,
                    ),
                ],
            ));
            if table.role == Role::Authority && options.body == Body::Pointer {
                findings.push(Finding::refused(
                    format!("authority {} points to itself", table.name),
                    "write body = \"whole\", or leave it out",
                ));
            }
        }
    }
    findings
}

fn unsuited(place: &str, kind: EngineKind, settings: &[(&str, bool)]) -> Vec<Finding> {
    let given = settings.iter().filter(|(_, given)| *given);
    given
        .map(|(setting, _)| {
            Finding::refused(
                format!("{place} is on {kind}, which has no {setting}"),
                "remove it",
            )
        })
        .collect()
}

/// A periodic commit log answers before the write is on disk.
pub(super) fn commit_before_answer(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (collection, store) in layout.stores() {
        let engine = layout.engine(store);
        if engine.kind != EngineKind::Cassandra
            || engine.settings.commitlog_sync != Some(CommitlogSync::Periodic)
        {
            continue;
        }
        let severity = match collection.collection {
            Collection::Orders | Collection::Products => Severity::Refused,
            Collection::Carts | Collection::Sessions => Severity::Warning,
        };
        findings.push(Finding::new(
            severity,
            format!("engine {} loses acknowledged {} when its nodes are killed: its commit log is periodic", store.engine, collection.collection),
            "write commitlog_sync = \"group\"",
        ));
    }
    findings
}

/// A deletion that a copy has not heard of by the end of the grace comes back.
pub(super) fn repair_before_grace(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, store) in layout.stores() {
        let engine = layout.engine(store);
        if engine.kind != EngineKind::Cassandra {
            continue;
        }
        let hints = engine
            .settings
            .hint_window_seconds
            .unwrap_or(HINT_WINDOW_SECONDS);
        let repair = engine.settings.repair_interval_seconds;
        for table in &store.tables {
            let grace = table.options.gc_grace_seconds.unwrap_or(GC_GRACE_SECONDS);
            if hints >= grace {
                findings.push(Finding::refused(
                    format!(
                        "{}: hints live {hints} s, longer than the grace of {grace} s",
                        table.name
                    ),
                    "raise gc_grace_seconds above hint_window_seconds",
                ));
            }
            match repair {
                Some(interval) if interval >= grace => findings.push(Finding::refused(
                    format!("{}: removed rows come back, because repair runs every {interval} s and the grace is {grace} s", table.name),
                    "raise gc_grace_seconds above repair_interval_seconds",
                )),
                None if table.options.ttl_seconds.is_none() => findings.push(Finding::warning(
                    format!("{}: nobody repairs engine {}, so removed rows may come back after {grace} s", table.name, store.engine),
                    "set repair_interval_seconds below gc_grace_seconds",
                )),
                Some(_) | None => {}
            }
        }
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
    }

    #[test]
    fn a_periodic_commit_log_is_refused_for_orders() {
        check_rule(
            "commit-before-answer",
            &[(KIND, &cassandra("commitlog_sync = \"periodic\""))],
            &[
                "warning: engine local loses acknowledged carts",
                "refused: engine local loses acknowledged orders",
                "refused",
                "warning",
            ],
        );
    }

    #[test]
    fn repair_runs_before_the_grace_ends() {
        let tables = super::super::found(
            "repair-before-grace",
            &[(KIND, &cassandra("repair_interval_seconds = 2592000"))],
        );
        assert_eq!(tables.len(), 11, "{tables:#?}");
        assert!(
            tables[0].contains("refused: carts_by_id: removed rows come back"),
            "{tables:#?}"
        );
        let weekly = super::super::found(
            "repair-before-grace",
            &[(KIND, &cassandra("repair_interval_seconds = 604800"))],
        );
        assert!(weekly.is_empty(), "{weekly:#?}");
    }
}
