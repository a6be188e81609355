//! From a file's text to a store: its tables and the policies of its operations.

use std::collections::BTreeMap;

use toml::Spanned;

use super::Store;
use super::convert::{Problem, Reading, at, problem, scalars};
use super::text::{BodyText, PartsText, PolicyText, RepairText, RoleText, TableText};
use crate::collection::Collection;
use crate::column::{parse_clustering, parse_field};
use crate::consistency::{Consistency, Policy, ReadLevel, WriteLevel};
use crate::engine::EngineKind;
use crate::estimate;
use crate::mistake::MistakeKind;
use crate::path::Operation;
use crate::place::Place;
use crate::table::{
    BUCKETS_MAX, Body, BucketCounts, KeyColumn, Parts, Repair, Role, Table, TableOptions,
};

type OperationTexts = BTreeMap<Spanned<String>, PolicyText>;

/// What a file says about one store of a collection.
pub(super) struct StoreText {
    pub engine: Spanned<String>,
    pub tables: BTreeMap<String, Spanned<TableText>>,
    pub consistency: Option<PolicyText>,
    pub operations: OperationTexts,
}

pub(super) fn store(
    collection: Collection,
    text: StoreText,
    place: &Place,
    reading: &mut Reading,
) -> Result<Store, Problem> {
    let name = text.engine.get_ref();
    let Some(declaration) = reading.engines.get(name) else {
        let declared: Vec<&str> = reading.engines.keys().map(String::as_str).collect();
        let reason = format!(
            "there is no engine {name:?}: declare [engines.{name}] or use one of {}",
            declared.join(", ")
        );
        return Err(problem(&text.engine, reason));
    };
    let kind = declaration.kind;
    note_policies(&text, place, reading);
    let consistency = policies(kind, text.consistency, text.operations)?;
    let mut texts: Vec<_> = text.tables.into_iter().collect();
    texts.sort_by_key(|(_, text)| text.span().start);
    let (mut tables, mut buckets) = (Vec::new(), BTreeMap::new());
    for (name, text) in texts {
        let place = place.clone().then("tables").then(&name);
        note_table(&name, text.get_ref(), &place, reading);
        let initial = initial_buckets(text.get_ref())?;
        let table = table(name, collection, text.into_inner())?;
        let count = initial.or_else(|| estimate::buckets_for(&table));
        buckets.extend(count.map(|count| (table.name.clone(), count)));
        tables.push(table);
    }
    Ok(Store {
        engine: text.engine.into_inner(),
        tables,
        initial_buckets: BucketCounts::new(buckets),
        consistency,
    })
}

fn initial_buckets(text: &TableText) -> Result<Option<u32>, Problem> {
    let Some(count) = &text.initial_buckets else {
        return Ok(text.fixed_buckets);
    };
    if (1..=BUCKETS_MAX).contains(count.get_ref()) {
        return Ok(Some(*count.get_ref()));
    }
    Err(problem(
        count,
        format!("initial_buckets is 1 to {BUCKETS_MAX}"),
    ))
}

fn note_policies(text: &StoreText, place: &Place, reading: &mut Reading) {
    let default = text
        .consistency
        .iter()
        .map(|policy| (place.clone().then("consistency"), policy));
    let own = text.operations.iter().map(|(operation, policy)| {
        let place = place.clone().then("operations");
        (place.then(operation.get_ref()), policy)
    });
    for (place, policy) in default.chain(own) {
        if let Some(seconds) = policy.max_staleness_seconds {
            let place = place.then("max_staleness_seconds");
            reading.note(place, MistakeKind::MaxStaleness { seconds });
        }
    }
}

fn note_table(name: &str, text: &TableText, place: &Place, reading: &mut Reading) {
    let mut note = |key: &str, kind| reading.note(place.clone().then(key), kind);
    let table = || name.to_owned();
    if matches!(text.parts, PartsText::List) {
        note("parts", MistakeKind::AppendedList { table: table() });
    }
    if let Some(seconds) = text.hint_window_seconds {
        let table = table();
        note(
            "hint_window_seconds",
            MistakeKind::HintWindowOfTable { table, seconds },
        );
    }
    if let Some(of) = text.materialized_view_of.clone() {
        let table = table();
        note(
            "materialized_view_of",
            MistakeKind::MaterializedView { table, of },
        );
    }
    if let Some(count) = text.fixed_buckets {
        let table = table();
        note("fixed_buckets", MistakeKind::FixedBuckets { table, count });
    }
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
        may_lag_seconds: text
            .may_lag_seconds
            .or(text.max_staleness_seconds)
            .unwrap_or(from.may_lag_seconds),
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
            PartsText::Inside | PartsText::List => Parts::Inside,
            PartsText::Rows => Parts::Rows,
        },
        compaction: text.compaction,
        read_repair: text.read_repair,
        gc_grace_seconds: text.gc_grace_seconds,
        ttl_seconds: text.ttl_seconds,
        compaction_options: scalars(text.compaction_options)?,
        repair: match text.repair {
            RepairText::Scheduled => Repair::Scheduled,
            RepairText::None => Repair::None,
        },
        expected_rows: text.expected_rows,
        server_options: scalars(text.options)?,
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
