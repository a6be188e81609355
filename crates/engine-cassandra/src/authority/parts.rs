//! Statements for the rows of parts.

use layout::KeyColumn;
use scylla::statement::prepared::PreparedStatement;

use super::partition::{ORIGIN_DECIDED, ORIGIN_PATCHED};
use crate::column::key_name;
use crate::config::OpenError;
use crate::connection::Connection;

#[derive(Debug)]
pub(super) struct PartStatements {
    pub put: PreparedStatement,
    pub drop: PreparedStatement,
    pub drop_all: PreparedStatement,
    pub patch: PreparedStatement,
    pub clear_patched: PreparedStatement,
    pub drop_patched: PreparedStatement,
}

impl PartStatements {
    pub async fn prepare(
        connection: &Connection,
        table: &str,
        key: &[KeyColumn],
    ) -> Result<PartStatements, OpenError> {
        let names: Vec<String> = key.iter().map(key_name).collect();
        let marks: String = names.iter().map(|_| "?, ").collect();
        let equal: String = names
            .iter()
            .map(|name| format!("{name} = ? AND "))
            .collect();
        let columns = format!(
            "{}, origin, kind, name, subname, part_revision, part_live, content",
            names.join(", ")
        );
        let insert = |origin| {
            format!("INSERT INTO {table} ({columns}) VALUES ({marks}{origin}, ?, ?, ?, ?, ?, ?)")
        };
        let row_of =
            |origin| format!("{equal}origin = {origin} AND kind = ? AND name = ? AND subname = ?");
        let prepare = async |statement: String| connection.prepare(&statement).await;
        Ok(PartStatements {
            put: prepare(insert(ORIGIN_DECIDED)).await?,
            drop: prepare(format!(
                "DELETE FROM {table} WHERE {}",
                row_of(ORIGIN_DECIDED)
            ))
            .await?,
            drop_all: prepare(format!(
                "DELETE FROM {table} WHERE {equal}origin = {ORIGIN_DECIDED}"
            ))
            .await?,
            patch: prepare(format!("{} USING TIMESTAMP ?", insert(ORIGIN_PATCHED))).await?,
            clear_patched: prepare(format!(
                "DELETE FROM {table} USING TIMESTAMP ? WHERE {equal}origin = {ORIGIN_PATCHED}"
            ))
            .await?,
            drop_patched: prepare(format!(
                "DELETE FROM {table} USING TIMESTAMP ? WHERE {}",
                row_of(ORIGIN_PATCHED)
            ))
            .await?,
        })
    }
}
