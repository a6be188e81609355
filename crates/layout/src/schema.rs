//! What an operator sets up before a layout is used: statements for the servers,
//! settings of their nodes, and the repair of their tables.
//!
//! Statements are made by the engines, which know how a record becomes rows, and
//! are passed in; the rest follows from the layout alone.

mod repair;

mod settings;

mod table_options;

use std::collections::BTreeMap;

use crate::engine::{EngineDeclaration, EngineKind, KEYSPACE};
use crate::file::Layout;
use crate::table::{Repair, Table};

pub use repair::{REPAIR_HOUR, crontab, repair_arguments, systemd};
pub use settings::cassandra_yaml;
pub use table_options::cql_options;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// CQL, or MongoDB's commands.
    Statements,
    /// `cassandra.yaml`, per cluster.
    Settings,
    Cron,
    Systemd,
}

impl Part {
    pub const ALL: [Part; 4] = [Part::Statements, Part::Settings, Part::Cron, Part::Systemd];
}

/// The given parts for every cluster of the layout, each under a heading that is a
/// comment in its own language. `statements` are the engines', by the layout's names.
pub fn schema(
    layout: &Layout,
    statements: &BTreeMap<String, Vec<String>>,
    parts: &[Part],
) -> String {
    let mut sections = Vec::new();
    for (name, engine) in &layout.engines {
        let made = statements.get(name).map(Vec::as_slice).unwrap_or_default();
        let cluster = Cluster::new(layout, name, engine, made);
        for part in parts {
            let section = match (part, engine.kind) {
                (Part::Statements, _) => script(&cluster, made),
                (Part::Settings, EngineKind::Cassandra) => Some(cassandra_yaml(&cluster)),
                (Part::Cron, EngineKind::Cassandra) => crontab(&cluster),
                (Part::Systemd, EngineKind::Cassandra) => systemd(&cluster),
                (Part::Settings | Part::Cron | Part::Systemd, _) => None,
            };
            sections.extend(section);
        }
    }
    if sections.is_empty() {
        return "# nothing to set up: this layout has no servers for it\n".to_owned();
    }
    sections.join("\n")
}

/// One engine of a layout, with the tables that stand on it.
#[derive(Clone, Debug)]
pub struct Cluster<'l> {
    pub name: &'l str,
    pub engine: &'l EngineDeclaration,
    /// Names of tables that the scheduled repair includes.
    pub repaired: Vec<&'l str>,
}

impl<'l> Cluster<'l> {
    /// Tables of the engine's own, such as its journal, are known by the statements
    /// that make them, and repaired with the rest.
    pub fn new(
        layout: &'l Layout,
        name: &'l str,
        engine: &'l EngineDeclaration,
        statements: &'l [String],
    ) -> Cluster<'l> {
        let stores = layout.stores().filter(|(_, store)| store.engine == name);
        let tables: Vec<&Table> = stores.flat_map(|(_, store)| &store.tables).collect();
        let scheduled = |table: &&&Table| table.options.repair == Repair::Scheduled;
        let repaired = tables.iter().filter(scheduled);
        let mut cluster = Cluster {
            name,
            engine,
            repaired: repaired.map(|table| table.name.as_str()).collect(),
        };
        let keyspace = cluster.keyspace();
        let made = statements
            .iter()
            .filter_map(|statement| made_table(statement, keyspace));
        let own = made.filter(|made| tables.iter().all(|table| table.name != *made));
        cluster.repaired.extend(own);
        cluster
    }

    /// What names the layout's tables on the servers.
    pub fn keyspace(&self) -> &'l str {
        self.engine.keyspace.as_deref().unwrap_or(KEYSPACE)
    }
}

/// The table that a statement makes in the keyspace, if it makes one.
fn made_table<'s>(statement: &'s str, keyspace: &str) -> Option<&'s str> {
    let rest = statement.strip_prefix("CREATE TABLE ")?;
    let rest = rest.strip_prefix("IF NOT EXISTS ").unwrap_or(rest);
    let name = rest.strip_prefix(keyspace)?.strip_prefix('.')?;
    name.split([' ', '(']).next()
}

fn script(cluster: &Cluster<'_>, statements: &[String]) -> Option<String> {
    if statements.is_empty() {
        return None;
    }
    let Cluster { name, engine, .. } = cluster;
    let mut text = match engine.kind {
        EngineKind::Cassandra => format!("-- cluster {name}: with cqlsh, once\n"),
        _ => format!("// cluster {name}: with mongosh, once\n"),
    };
    for statement in statements {
        text += statement.trim_end().trim_end_matches(';');
        text += ";\n";
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: &str = include_str!("../../../layouts/cassandra-orders.toml");

    #[test]
    fn statements_come_from_the_engines_and_end_once() {
        let layout = Layout::parse(LAYOUT, "layout.toml").unwrap();
        let made = ["CREATE KEYSPACE a", "CREATE TABLE a.b (c int);"].map(str::to_owned);
        let engines = BTreeMap::from([("orders".to_owned(), made.to_vec())]);
        assert_eq!(
            schema(&layout, &engines, &[Part::Statements]),
            "-- cluster orders: with cqlsh, once\nCREATE KEYSPACE a;\nCREATE TABLE a.b (c int);\n"
        );
    }

    #[test]
    fn a_layout_without_servers_has_nothing_to_set_up() {
        let text = schema(&crate::embedded(), &BTreeMap::new(), &Part::ALL);
        assert!(text.starts_with("# nothing to set up"), "{text}");
    }

    #[test]
    fn each_cluster_has_settings_of_its_own() {
        let layout = Layout::parse(LAYOUT, "layout.toml").unwrap();
        let text = schema(&layout, &BTreeMap::new(), &[Part::Settings]);
        assert!(
            text.contains("cluster carts") && text.contains("max_hint_window: 3600s"),
            "{text}"
        );
        assert!(
            text.contains("cluster orders") && text.contains("max_hint_window: 10800s"),
            "{text}"
        );
        assert!(!text.contains("cluster mongo"), "{text}");
    }
}
