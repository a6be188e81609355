//! How an access path is read from a derived table.

use layout::{
    AccessPath, Direction, Field, FieldKind, KeyColumn, Operation, Plan, Sort, Walk, plan_operation,
};
use scylla::statement::prepared::PreparedStatement;

use super::DerivedTable;
use crate::column::{key_columns, key_name};
use crate::config::OpenError;
use crate::connection::Connection;
use crate::keyspace::KeptStore;

/// How one access path is read from one table.
#[derive(Debug)]
pub(crate) struct PathRead {
    pub path: AccessPath,
    /// The table's place among the derived ones.
    pub table: usize,
    pub(super) statement: PreparedStatement,
    /// Clustering columns that the path gives.
    pub(super) prefix: Vec<Field>,
}

impl PathRead {
    /// How the path is read, or `None` when no derived table answers it.
    pub async fn prepare(
        connection: &Connection,
        keyspace: &str,
        kept: &KeptStore,
        derived: &[DerivedTable],
        path: AccessPath,
    ) -> Result<Option<PathRead>, OpenError> {
        let Some(plan) = plan(kept, path) else {
            return Ok(None);
        };
        let Some(table) = derived
            .iter()
            .position(|table| table.table.name == plan.table)
        else {
            return Ok(None);
        };
        let of = &derived[table].table;
        let shape = path.shape();
        let given = |field: &Field| {
            shape.equals.contains(field) || shape.only.is_some_and(|(only, _)| only == *field)
        };
        let prefix: Vec<Field> = of
            .clustering
            .iter()
            .map_while(|(column, _)| match column {
                KeyColumn::Field(field) if given(field) => Some(*field),
                _ => None,
            })
            .collect();
        if let Some((field, _)) = shape.sort
            && !matches!(field.kind(), FieldKind::Timestamp | FieldKind::Int)
        {
            return Err(OpenError::Table {
                table: of.name.clone(),
                reason: format!("an order by {field} is not kept here"),
            });
        }
        let statement = select(keyspace, of, &prefix, &plan);
        Ok(Some(PathRead {
            path,
            table,
            statement: connection.prepare_repeatable(&statement).await?,
            prefix,
        }))
    }
}

fn plan(kept: &KeptStore, path: AccessPath) -> Option<Plan> {
    let uses = |operation: &Operation| operation.paths().contains(&path);
    let operation = Operation::ALL.into_iter().find(uses)?;
    let buckets = &kept.store.initial_buckets;
    plan_operation(&kept.layout, &kept.store, operation, path, buckets).ok()
}

fn select(keyspace: &str, table: &layout::Table, prefix: &[Field], plan: &Plan) -> String {
    let key = key_columns(table);
    let names: Vec<String> = key.iter().map(|(column, _)| key_name(column)).collect();
    let mut wanted: Vec<String> = table
        .partition
        .iter()
        .map(key_name)
        .chain(prefix.iter().map(|field| field.name().to_owned()))
        .map(|name| format!("{name} = ?"))
        .collect();
    if let Some((field, _)) = plan.path.shape().sort {
        wanted.push(format!("{field} >= ? AND {field} <= ?"));
    }
    let backward = matches!(
        plan.sort,
        Sort::Native(Walk::Backward) | Sort::Chained(Walk::Backward) | Sort::Merged(Walk::Backward)
    );
    let order = match backward {
        false => String::new(),
        true => {
            let reversed = |(column, direction): &(KeyColumn, Direction)| {
                let direction = match direction {
                    Direction::Ascending => "DESC",
                    Direction::Descending => "ASC",
                };
                format!("{} {direction}", key_name(column))
            };
            let clustering = key[table.partition.len()..].iter().map(reversed);
            format!(" ORDER BY {}", clustering.collect::<Vec<_>>().join(", "))
        }
    };
    format!(
        "SELECT {}, writetime(revision) FROM {keyspace}.{} WHERE {}{order}",
        names.join(", "),
        table.name,
        wanted.join(" AND ")
    )
}
