//! The anti-entropy repair of a cluster, for cron and for systemd.
//!
//! `-pr` repairs the ranges a node is first for, so that a cluster is repaired
//! when it has run on every node. The keyspace comes first, then its tables.

use std::fmt::Write as _;

use super::Cluster;
use crate::repair_schedule::RepairSchedule;

/// When the first node begins: the night is quiet.
pub const REPAIR_HOUR: u32 = 2;

/// What `nodetool` is called with. Full, because incremental repair, the default,
/// leaves alone what it once took for repaired, and is not meant for `-pr`.
pub fn repair_arguments(keyspace: &str, tables: &[&str]) -> Vec<String> {
    let fixed = ["repair", "--full", "-pr", keyspace];
    fixed
        .iter()
        .chain(tables)
        .map(ToString::to_string)
        .collect()
}

/// A line for each node: one after the other, because a repair loads every copy.
pub fn crontab(cluster: &Cluster<'_>) -> Option<String> {
    let (schedule, command) = plan(cluster)?;
    let name = cluster.name;
    let mut text = format!("# cluster {name}: repair, {schedule}, on every node\n");
    let nodes = &cluster.engine.addresses;
    if nodes.is_empty() {
        let _ = writeln!(text, "# on each further node an hour later");
        let _ = writeln!(text, "{} {command}", schedule.cron(REPAIR_HOUR));
    }
    for (node, hour) in nodes
        .iter()
        .zip((REPAIR_HOUR..24).chain(0..REPAIR_HOUR).cycle())
    {
        let _ = writeln!(text, "# node {node}\n{} {command}", schedule.cron(hour));
    }
    Some(text)
}

/// The same files on every node: the delay differs by machine and stays.
pub fn systemd(cluster: &Cluster<'_>) -> Option<String> {
    let (schedule, command) = plan(cluster)?;
    let name = cluster.name;
    let unit = format!("caravan-repair-{name}");
    let calendar = schedule.on_calendar(REPAIR_HOUR);
    Some(format!(
        "\
# cluster {name}: /etc/systemd/system/{unit}.service, on every node
[Unit]
Description=Repair of the Cassandra cluster {name}

[Service]
Type=oneshot
User=cassandra
ExecStart=/usr/bin/env {command}

# cluster {name}: /etc/systemd/system/{unit}.timer, on every node; then systemctl enable --now {unit}.timer
[Unit]
Description=Repair of the Cassandra cluster {name}, {schedule}

[Timer]
OnCalendar={calendar}
RandomizedDelaySec=4h
FixedRandomDelay=true
Persistent=true

[Install]
WantedBy=timers.target
"
    ))
}

/// `None` where nothing is repaired.
fn plan(cluster: &Cluster<'_>) -> Option<(RepairSchedule, String)> {
    let interval = cluster.engine.settings.repair_interval_seconds?;
    if cluster.repaired.is_empty() {
        return None;
    }
    let arguments = repair_arguments(cluster.keyspace(), &cluster.repaired);
    Some((
        RepairSchedule::within(interval),
        format!("nodetool {}", arguments.join(" ")),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Layout;

    fn layout(change: (&str, &str)) -> Layout {
        let text =
            include_str!("../../../../layouts/cassandra-orders.toml").replace(change.0, change.1);
        Layout::parse(&text, "layout.toml").unwrap()
    }

    fn of<T>(layout: &Layout, engine: &str, make: impl Fn(&Cluster<'_>) -> T) -> T {
        let journal = format!("CREATE TABLE IF NOT EXISTS {engine}.journal (lane text)");
        make(&Cluster::new(
            layout,
            engine,
            &layout.engines[engine],
            std::slice::from_ref(&journal),
        ))
    }

    #[test]
    fn the_keyspace_comes_first_and_tables_that_expire_are_left_out() {
        let layout = layout(("", ""));
        let weekly = of(&layout, "orders", crontab).unwrap();
        assert!(
            weekly.contains("0 2 * * 0 nodetool repair --full -pr orders orders_by_id orders_by_user orders_by_period orders_open journal\n"),
            "{weekly}"
        );
        let monthly = of(&layout, "carts", crontab).unwrap();
        assert!(
            monthly.contains("0 2 1 * * nodetool repair --full -pr carts carts_by_id carts_by_user carts_by_session journal\n"),
            "{monthly}"
        );
    }

    #[test]
    fn nodes_that_are_known_follow_each_other() {
        let keyspace = "keyspace = \"orders\"";
        let nodes = format!("{keyspace}\naddresses = [\"10.0.0.1\", \"10.0.0.2\"]");
        let text = of(&layout((keyspace, &nodes)), "orders", crontab).unwrap();
        assert!(
            text.contains("# node 10.0.0.1\n0 2 * * 0 nodetool"),
            "{text}"
        );
        assert!(
            text.contains("# node 10.0.0.2\n0 3 * * 0 nodetool"),
            "{text}"
        );
    }

    #[test]
    fn a_timer_runs_what_cron_would() {
        let text = of(&layout(("", "")), "carts", systemd).unwrap();
        assert!(text.contains("OnCalendar=*-*-01 02:00:00\n"), "{text}");
        assert!(
            text.contains("ExecStart=/usr/bin/env nodetool repair --full -pr carts carts_by_id"),
            "{text}"
        );
    }

    #[test]
    fn what_is_never_repaired_has_no_schedule() {
        let layout = layout(("repair_interval_seconds = 604800\n", ""));
        assert_eq!(of(&layout, "orders", crontab), None);
        assert_eq!(of(&layout, "orders", systemd), None);
    }
}
