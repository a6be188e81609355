//! Do copies become equal again before a difference does harm?

use super::each_table;
use crate::consistency::ReadLevel;
use crate::engine::{EngineKind, GC_GRACE_SECONDS, HINT_WINDOW_SECONDS};
use crate::file::Layout;
use crate::findings::Finding;
use crate::repair_schedule::RepairSchedule;
use crate::table::Repair;

/// Reckons with the longest pause that the generated schedule makes, not with
/// the interval asked for: a month may have 31 days.
pub(super) fn repair_before_grace(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |_, store, table| {
        let engine = layout.engine(store);
        if engine.kind != EngineKind::Cassandra {
            return None;
        }
        let settings = &engine.settings;
        let hints = settings.hint_window_seconds.unwrap_or(HINT_WINDOW_SECONDS);
        let grace = table.options.gc_grace_seconds.unwrap_or(GC_GRACE_SECONDS);
        if hints >= grace {
            let finding = Finding::refused(
                format!(
                    "{}: hints live {hints} s, longer than the grace of {grace} s",
                    table.name
                ),
                "raise gc_grace_seconds above hint_window_seconds",
            );
            return Some(finding.at("gc_grace_seconds"));
        }
        let scheduled = table.options.repair == Repair::Scheduled;
        let Some(interval) = settings.repair_interval_seconds.filter(|_| scheduled) else {
            // Rows with a TTL go away by themselves, removed or not.
            let finding = Finding::warning(
                format!(
                    "{}: nobody repairs it, so removed rows may come back after {} days",
                    table.name,
                    grace / 86_400
                ),
                "set repair_interval_seconds of its engine, below gc_grace_seconds",
            );
            return table.options.ttl_seconds.is_none().then_some(finding);
        };
        let schedule = RepairSchedule::within(interval);
        let pause = schedule.longest_pause_seconds();
        (pause >= grace).then(|| {
            let finding = Finding::refused(
                format!("{}: removed rows come back, because repair runs {schedule} and the grace is {} days", table.name, grace / 86_400),
                format!("write gc_grace_seconds = {}, or repair more often", pause + 8 * 86_400),
            );
            finding.at("gc_grace_seconds")
        })
    })
}

pub(super) fn read_repair_values(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |_, _, table| {
        let written = table.options.read_repair.as_deref()?;
        if matches!(written, "BLOCKING" | "NONE") {
            return None;
        }
        let finding = Finding::refused(
            format!(
                "{} has read_repair {written:?}, which Cassandra does not know",
                table.name
            ),
            "write \"BLOCKING\" or \"NONE\"; a share of reads is sampled_repair_percent of the engine",
        );
        Some(finding.at("read_repair"))
    })
}

pub(super) fn read_repair_at_one(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |_, store, table| {
        let blocking = table.options.read_repair.as_deref() == Some("BLOCKING");
        if !blocking || store.consistency.default.read != ReadLevel::One {
            return None;
        }
        let finding = Finding::warning(
            format!(
                "{} is read with one, so read repair compares nothing",
                table.name
            ),
            "write read_repair = \"NONE\": hints alone mend it",
        );
        Some(finding.at("read_repair"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{check_rule, found};

    const KIND: &str = "kind = \"embedded\"";
    const ORDERS: &str = "[collections.orders.tables.orders_by_id]";

    fn cassandra(settings: &str) -> String {
        format!("kind = \"cassandra\"\n{settings}")
    }

    #[test]
    fn repair_runs_before_the_grace_ends() {
        let repaired = |seconds: u64, grace: &str| {
            let engine = cassandra(&format!("repair_interval_seconds = {seconds}"));
            let table = format!("{ORDERS}\n{grace}");
            found("repair-before-grace", &[(KIND, &engine), (ORDERS, &table)])
        };
        let monthly = repaired(2_592_000, "");
        assert_eq!(monthly.len(), 11, "{monthly:#?}");
        assert!(
            monthly[0].contains("error: carts_by_id: removed rows come back"),
            "{monthly:#?}"
        );
        // A month may have 31 days.
        let scarce = repaired(2_592_000, "gc_grace_seconds = 2600000");
        assert_eq!(scarce.len(), 11, "{scarce:#?}");
        assert_eq!(repaired(2_592_000, "gc_grace_seconds = 3456000").len(), 10);
        check_rule(
            "repair-before-grace",
            &[(KIND, &cassandra("repair_interval_seconds = 604800"))],
            &[],
        );
    }

    #[test]
    fn rows_that_nobody_repairs_expire_by_themselves() {
        let engine = cassandra("repair_interval_seconds = 604800");
        let sessions = "[collections.sessions.tables.sessions_by_id]";
        let table = |ttl: &str| format!("{sessions}\nrepair = \"none\"\n{ttl}");
        let check = |ttl: &str, expected: &[&str]| {
            let changes = [(KIND, engine.as_str()), (sessions, &table(ttl))];
            check_rule("repair-before-grace", &changes, expected);
        };
        check("", &["warning: sessions_by_id: nobody repairs it"]);
        check("ttl_seconds = 604800", &[]);
    }

    #[test]
    fn hints_end_before_the_grace() {
        let table = format!("{ORDERS}\ngc_grace_seconds = 3600");
        let engine = cassandra("repair_interval_seconds = 604800");
        check_rule(
            "repair-before-grace",
            &[(KIND, &engine), (ORDERS, &table)],
            &["orders_by_id: hints live 10800 s, longer than the grace of 3600 s"],
        );
    }

    #[test]
    fn read_repair_is_blocking_or_none_and_useless_at_one() {
        let engine = cassandra("");
        let table = |repair: &str| {
            format!(
                "[collections.orders.consistency]\nread = \"one\"\n{ORDERS}\nread_repair = \"{repair}\""
            )
        };
        check_rule(
            "read-repair-at-one",
            &[(KIND, &engine), (ORDERS, &table("BLOCKING"))],
            &["compares nothing"],
        );
        check_rule(
            "read-repair-at-one",
            &[(KIND, &engine), (ORDERS, &table("NONE"))],
            &[],
        );
        check_rule(
            "read-repair-values",
            &[(KIND, &engine), (ORDERS, &table("0.1"))],
            &["error: orders_by_id has read_repair \"0.1\""],
        );
    }
}
