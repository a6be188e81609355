//! Key columns as a layout file writes them: `user_id`, `month(created_at)`,
//! `day(created_at)`, `bucket(session_id)`; in a clustering also `created_at desc`.

use std::fmt;

use crate::field::Field;
use crate::key::Direction;
use crate::table::{KeyColumn, Table};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    #[error(
        "{text:?} is not a key column: write a field, month(field), day(field) or bucket(field)"
    )]
    NotAColumn { text: String },
    #[error("there is no field {name:?}: the fields are {known}", known = known_fields())]
    UnknownField { name: String },
    #[error("{text:?} has no direction {direction:?}: write asc or desc after the column")]
    UnknownDirection { text: String, direction: String },
}

impl KeyColumn {
    pub fn parse(text: &str) -> Result<KeyColumn, ColumnError> {
        let Some((function, rest)) = text.split_once('(') else {
            return Ok(KeyColumn::Field(parse_field(text)?));
        };
        let not_a_column = || ColumnError::NotAColumn {
            text: text.to_owned(),
        };
        let field = parse_field(rest.strip_suffix(')').ok_or_else(not_a_column)?)?;
        match function {
            "month" => Ok(KeyColumn::Month(field)),
            "day" => Ok(KeyColumn::Day(field)),
            "bucket" => Ok(KeyColumn::Bucket(field)),
            _ => Err(not_a_column()),
        }
    }
}

impl fmt::Display for KeyColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyColumn::Field(field) => write!(f, "{field}"),
            KeyColumn::Month(field) => write!(f, "month({field})"),
            KeyColumn::Day(field) => write!(f, "day({field})"),
            KeyColumn::Bucket(field) => write!(f, "bucket({field})"),
        }
    }
}

/// A clustering column; ascending when it does not say.
pub fn parse_clustering(text: &str) -> Result<(KeyColumn, Direction), ColumnError> {
    let Some((column, direction)) = text.split_once(' ') else {
        return Ok((KeyColumn::parse(text)?, Direction::Ascending));
    };
    let direction = match direction {
        "asc" => Direction::Ascending,
        "desc" => Direction::Descending,
        other => {
            return Err(ColumnError::UnknownDirection {
                text: text.to_owned(),
                direction: other.to_owned(),
            });
        }
    };
    Ok((KeyColumn::parse(column)?, direction))
}

pub fn parse_field(name: &str) -> Result<Field, ColumnError> {
    Field::named(name).ok_or_else(|| ColumnError::UnknownField {
        name: name.to_owned(),
    })
}

/// `["user_id", "month(created_at)"]`, as it would stand in a layout file.
pub fn partition_text(columns: &[KeyColumn]) -> String {
    let quoted: Vec<String> = columns
        .iter()
        .map(|column| format!("\"{column}\""))
        .collect();
    format!("[{}]", quoted.join(", "))
}

/// `["created_at desc", "order_id"]`, as it would stand in a layout file.
pub fn clustering_text(columns: &[(KeyColumn, Direction)]) -> String {
    let quoted: Vec<String> = columns
        .iter()
        .map(|(column, direction)| match direction {
            Direction::Ascending => format!("\"{column}\""),
            Direction::Descending => format!("\"{column} desc\""),
        })
        .collect();
    format!("[{}]", quoted.join(", "))
}

/// `((user_id, month(created_at)), created_at desc, order_id)`: partition, then
/// clustering, and what narrows the rows.
pub fn key_text(table: &Table) -> String {
    let partition: Vec<String> = table.partition.iter().map(ToString::to_string).collect();
    let clustering = table
        .clustering
        .iter()
        .map(|(column, direction)| match direction {
            Direction::Ascending => format!(", {column}"),
            Direction::Descending => format!(", {column} desc"),
        });
    let clustering: String = clustering.collect();
    let only = table.only.as_ref();
    let only = only.map_or(String::new(), |(field, value)| {
        format!(" where {field} is {value}")
    });
    format!("(({}){clustering}){only}", partition.join(", "))
}

fn known_fields() -> String {
    let names: Vec<&str> = Field::ALL.iter().map(|field| field.name()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_back_as_they_were_written() {
        for text in [
            "user_id",
            "month(created_at)",
            "day(created_at)",
            "bucket(session_id)",
        ] {
            assert_eq!(KeyColumn::parse(text).unwrap().to_string(), text);
        }
        let clustering =
            ["created_at desc", "order_id asc"].map(|text| parse_clustering(text).unwrap());
        assert_eq!(
            clustering_text(&clustering),
            r#"["created_at desc", "order_id"]"#
        );
    }

    #[test]
    fn what_is_not_a_column_is_refused_with_advice() {
        fn check(text: &str, expected: &str) {
            let message = parse_clustering(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
        check("year(created_at)", "write a field, month(field)");
        check("day(created_at", "write a field, month(field)");
        check("usr_id", "there is no field \"usr_id\"");
        check("created_at down", "write asc or desc");
        check("", "there is no field");
    }
}
