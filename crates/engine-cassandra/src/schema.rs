//! Statements that make the keyspace and its tables, from the layout's tables.

use layout::{Collection, Direction, Field, KeyColumn, Role, Table};

use crate::cell::column_type;
use crate::config::{CassandraConfig, OpenError};

/// Stock needs conditional changes at a rate this engine does not reach, and
/// orders stand beside it: these are what it keeps.
pub(crate) const COLLECTIONS: [Collection; 2] = [Collection::Carts, Collection::Sessions];

/// The tables of one collection.
#[derive(Clone, Debug)]
pub(crate) struct CollectionTables {
    pub collection: Collection,
    pub authority: Table,
    pub derived: Vec<Table>,
}

/// Sorts the layout's tables by collection and refuses what this engine cannot keep.
pub(crate) fn by_collection(tables: &[Table]) -> Result<Vec<CollectionTables>, OpenError> {
    if let Some(table) = tables
        .iter()
        .find(|table| !COLLECTIONS.contains(&table.collection))
    {
        return Err(OpenError::Collection {
            collection: table.collection,
        });
    }
    let of = |collection: Collection| {
        tables
            .iter()
            .filter(move |table| table.collection == collection)
    };
    let mut sorted = Vec::new();
    for collection in COLLECTIONS
        .into_iter()
        .filter(|collection| of(*collection).next().is_some())
    {
        let authorities: Vec<_> = of(collection)
            .filter(|table| table.role == Role::Authority)
            .collect();
        let [authority] = authorities[..] else {
            return Err(OpenError::Authorities {
                collection,
                count: authorities.len(),
            });
        };
        if authority.partition != [KeyColumn::Field(collection.id_field())]
            || !authority.clustering.is_empty()
        {
            return Err(OpenError::AuthorityKey {
                table: authority.name.clone(),
            });
        }
        let derived = of(collection)
            .filter(|table| table.role == Role::Derived)
            .cloned()
            .collect();
        sorted.push(CollectionTables {
            collection,
            authority: authority.clone(),
            derived,
        });
    }
    Ok(sorted)
}

pub(crate) fn statements(config: &CassandraConfig, tables: &[CollectionTables]) -> Vec<String> {
    let keyspace = &config.keyspace;
    let mut statements = vec![
        format!(
            "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
             {{'class': 'NetworkTopologyStrategy', 'replication_factor': {}}}",
            config.replication_factor
        ),
        // The newest number of a lane wins by being its own timestamp.
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.journal_lanes (anchor text, lane text, \
             segment bigint, trimmed bigint, PRIMARY KEY ((anchor), lane))"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.journal (lane text, segment bigint, number bigint, \
             state text, collection text, id text, shard_key blob, kind text, revision bigint, \
             written_at bigint, PRIMARY KEY ((lane, segment), number))"
        ),
    ];
    for tables in tables {
        statements.push(authority_statement(keyspace, tables));
        statements.extend(
            tables
                .derived
                .iter()
                .map(|table| derived_statement(keyspace, table)),
        );
    }
    statements
}

/// The name of a key column in a derived table.
pub(crate) fn column_name(column: &KeyColumn) -> String {
    match column {
        KeyColumn::Field(field) => field.name().to_owned(),
        KeyColumn::Month(field) => format!("{field}_month"),
        KeyColumn::Day(field) => format!("{field}_day"),
        KeyColumn::Bucket(field) => format!("{field}_bucket"),
    }
}

fn key_type(column: &KeyColumn) -> &'static str {
    match column {
        KeyColumn::Field(field) => column_type(field.kind()),
        KeyColumn::Month(_) | KeyColumn::Day(_) => "text",
        KeyColumn::Bucket(_) => "bigint",
    }
}

fn authority_statement(keyspace: &str, tables: &CollectionTables) -> String {
    let header = |field: &Field| format!("{field} {} static", column_type(field.kind()));
    let header: Vec<String> = tables
        .collection
        .header_fields()
        .iter()
        .map(header)
        .collect();
    format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.{} (id text, origin tinyint, kind text, name text, \
         subname text, turn bigint static, shard_key blob static, revision bigint static, \
         cleared bigint static, live boolean static, {}, part_revision bigint, part_live boolean, \
         content text, PRIMARY KEY ((id), origin, kind, name, subname)){}",
        tables.authority.name,
        header.join(", "),
        options(&tables.authority, None)
    )
}

fn derived_statement(keyspace: &str, table: &Table) -> String {
    let clustering = table.clustering.iter().map(|(column, _)| column);
    let columns: Vec<String> = table
        .partition
        .iter()
        .chain(clustering.clone())
        .map(|column| format!("{} {}", column_name(column), key_type(column)))
        .collect();
    let partition: Vec<String> = table.partition.iter().map(column_name).collect();
    let rest: String = clustering
        .map(|column| format!("{}, ", column_name(column)))
        .collect();
    let order: String = table
        .clustering
        .iter()
        .map(|(column, direction)| {
            let direction = if *direction == Direction::Ascending {
                "ASC"
            } else {
                "DESC"
            };
            format!("{} {direction}, ", column_name(column))
        })
        .collect();
    format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.{} ({}, id text, revision bigint, \
         PRIMARY KEY (({}), {rest}id)){}",
        table.name,
        columns.join(", "),
        partition.join(", "),
        options(table, Some(format!("CLUSTERING ORDER BY ({order}id ASC)")))
    )
}

fn options(table: &Table, order: Option<String>) -> String {
    let grace = table
        .options
        .gc_grace_seconds
        .map(|seconds| format!("gc_grace_seconds = {seconds}"));
    let all: Vec<String> = order.into_iter().chain(grace).collect();
    if all.is_empty() {
        String::new()
    } else {
        format!(" WITH {}", all.join(" AND "))
    }
}

#[cfg(test)]
mod tests {
    use layout::TableOptions;

    use super::*;

    fn table(name: &str, role: Role, partition: Field) -> Table {
        Table {
            name: name.to_owned(),
            collection: Collection::Sessions,
            role,
            partition: vec![KeyColumn::Field(partition)],
            clustering: Vec::new(),
            only: None,
            options: TableOptions::default(),
        }
    }

    #[test]
    fn a_derived_table_ends_its_key_with_the_id() {
        let mut by_user = table("sessions_by_user", Role::Derived, Field::UserId);
        by_user.clustering = vec![(KeyColumn::Field(Field::CreatedAt), Direction::Descending)];
        by_user.options.gc_grace_seconds = Some(60);
        assert_eq!(
            derived_statement("shop", &by_user),
            "CREATE TABLE IF NOT EXISTS shop.sessions_by_user (user_id text, created_at bigint, id text, \
             revision bigint, PRIMARY KEY ((user_id), created_at, id)) WITH CLUSTERING ORDER BY \
             (created_at DESC, id ASC) AND gc_grace_seconds = 60"
        );
    }

    #[test]
    fn a_collection_needs_one_authority_keyed_by_its_id() {
        let authority = table("sessions", Role::Authority, Field::SessionId);
        assert!(by_collection(std::slice::from_ref(&authority)).is_ok());
        let by_user = table("sessions", Role::Authority, Field::UserId);
        assert!(matches!(
            by_collection(&[by_user]),
            Err(OpenError::AuthorityKey { .. })
        ));
        let twice = [authority.clone(), authority.clone()];
        assert!(matches!(
            by_collection(&twice),
            Err(OpenError::Authorities { count: 2, .. })
        ));
        let orders = Table {
            collection: Collection::Orders,
            ..authority
        };
        assert!(matches!(
            by_collection(&[orders]),
            Err(OpenError::Collection { .. })
        ));
    }
}
