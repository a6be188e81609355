//! From a file's text to a store: its tables and the policies of its operations.

use std::collections::BTreeMap;

use toml::Spanned;

use super::Store;
use super::convert::{Engines, Problem, at, problem};
use super::text::{BodyText, PartsText, PolicyText, RoleText, TableText};
use crate::collection::Collection;
use crate::column::{parse_clustering, parse_field};
use crate::consistency::{Consistency, Policy, ReadLevel, WriteLevel};
use crate::engine::EngineKind;
use crate::path::Operation;
use crate::table::{BUCKETS_MAX, Body, BucketCounts, KeyColumn, Parts, Role, Table, TableOptions};

type TableTexts = BTreeMap<String, Spanned<TableText>>;
type OperationTexts = BTreeMap<Spanned<String>, PolicyText>;

pub(super) fn store(
    collection: Collection,
    engine: Spanned<String>,
    texts: TableTexts,
    consistency: Option<PolicyText>,
    operations: OperationTexts,
    engines: &Engines,
) -> Result<Store, Problem> {
    let Some(declaration) = engines.get(engine.get_ref()) else {
        let name = engine.get_ref();
        let declared: Vec<&str> = engines.keys().map(String::as_str).collect();
        let reason = format!(
            "there is no engine {name:?}: declare [engines.{name}] or use one of {}",
            declared.join(", ")
        );
        return Err(problem(&engine, reason));
    };
    let consistency = policies(declaration.kind, consistency, operations)?;
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by_key(|(_, text)| text.span().start);
    let (mut tables, mut buckets) = (Vec::new(), BTreeMap::new());
    for (name, text) in texts {
        if let Some(count) = &text.get_ref().initial_buckets {
            if !(1..=BUCKETS_MAX).contains(count.get_ref()) {
                return Err(problem(
                    count,
                    format!("initial_buckets is 1 to {BUCKETS_MAX}"),
                ));
            }
            buckets.insert(name.clone(), *count.get_ref());
        }
        tables.push(table(name, collection, text.into_inner())?);
    }
    let initial_buckets = BucketCounts::new(buckets);
    Ok(Store {
        engine: engine.into_inner(),
        tables,
        initial_buckets,
        consistency,
    })
}

fn policies(
    kind: EngineKind,
    default: Option<PolicyText>,
    operations: OperationTexts,
) -> Result<Consistency, Problem> {
    // An engine with one copy is its own primary and its own majority.
    let of_kind = match kind {
        EngineKind::Cassandra => Policy::new(ReadLevel::Quorum, WriteLevel::Quorum),
        EngineKind::Mongo | EngineKind::Embedded | EngineKind::Memory => {
            Policy::new(ReadLevel::Primary, WriteLevel::Majority)
        }
    };
    let default = inherited(default.unwrap_or_default(), &of_kind);
    let mut own = BTreeMap::new();
    for (name, text) in operations {
        let operation = Operation::named(name.get_ref()).ok_or_else(|| {
            problem(
                &name,
                format!(
                    "there is no operation {:?}: they are C1 to C9, O1 to O7, P1 to P6, S1 to S5",
                    name.get_ref()
                ),
            )
        })?;
        own.insert(operation, inherited(text, &default));
    }
    Ok(Consistency {
        default,
        operations: own,
    })
}

fn inherited(text: PolicyText, from: &Policy) -> Policy {
    Policy {
        read: text.read.unwrap_or(from.read),
        write: text.write.unwrap_or(from.write),
        may_lag_seconds: text.may_lag_seconds.unwrap_or(from.may_lag_seconds),
        unless_status: text
            .unless_status
            .unwrap_or_else(|| from.unless_status.clone()),
        label: text.label.or_else(|| from.label.clone()),
    }
}

fn table(name: String, collection: Collection, text: TableText) -> Result<Table, Problem> {
    let mut partition = Vec::new();
    for column in &text.partition {
        partition.push(KeyColumn::parse(column.get_ref()).map_err(|error| at(column, error))?);
    }
    let mut clustering = Vec::new();
    for column in &text.clustering {
        clustering.push(parse_clustering(column.get_ref()).map_err(|error| at(column, error))?);
    }
    let only = match text.only {
        None => None,
        Some(only) => match only.get_ref().iter().next() {
            Some((field, value)) if only.get_ref().len() == 1 => Some((
                parse_field(field).map_err(|error| at(&only, error))?,
                value.clone(),
            )),
            _ => {
                return Err(problem(
                    &only,
                    "only names one field: write { status = \"active\" }",
                ));
            }
        },
    };
    let role = match text.role {
        RoleText::Authority => Role::Authority,
        RoleText::Derived => Role::Derived,
    };
    let options = TableOptions {
        body: match text.body {
            BodyText::Whole => Body::Whole,
            BodyText::Pointer => Body::Pointer,
        },
        parts: match text.parts {
            PartsText::Inside => Parts::Inside,
            PartsText::Rows => Parts::Rows,
        },
        compaction: text.compaction,
        read_repair: text.read_repair,
        gc_grace_seconds: text.gc_grace_seconds,
        ttl_seconds: text.ttl_seconds,
    };
    Ok(Table {
        name,
        collection,
        role,
        partition,
        clustering,
        only,
        options,
    })
}
