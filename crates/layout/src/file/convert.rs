//! From a file's text to a layout: names become fields, engines and operations,
//! and what was left out gets its default.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use model::Lifetime;
use rust_decimal::Decimal;
use toml::Spanned;

use super::text::{
    BodyText, CollectionText, CutText, EngineText, LayoutText, PartsText, PolicyText, RangeText,
    RoleText, TableText,
};
use super::{CollectionLayout, Cut, History, IdEncodings, Layout, RangeCut, Store};
use crate::collection::Collection;
use crate::column::{ColumnError, parse_clustering, parse_field};
use crate::consistency::{Consistency, Policy, ReadLevel, WriteLevel};
use crate::engine::{DATACENTRE, EngineDeclaration, EngineKind, EngineSettings, REPLICATION_FACTOR};
use crate::field::{Field, FieldKind};
use crate::path::Operation;
use crate::shard_key::ShardKey;
use crate::table::{BUCKETS_MAX, Body, BucketCounts, KeyColumn, Parts, Role, Table, TableOptions};
use crate::value::Value;

/// Seven days: guest carts and sessions, when a layout does not say.
const LIFETIME_SECONDS: u32 = 7 * 86_400;

pub(super) struct Problem {
    pub span: Range<usize>,
    pub reason: String,
}

type Engines = BTreeMap<String, EngineDeclaration>;
type TableTexts = BTreeMap<String, Spanned<TableText>>;
type OperationTexts = BTreeMap<Spanned<String>, PolicyText>;

pub(super) fn layout(file: LayoutText) -> Result<Layout, Problem> {
    let mut engines = Engines::new();
    for (name, text) in file.engines {
        engines.insert(name, engine(text.into_inner())?);
    }
    let texts = file.collections;
    let mut collections = BTreeMap::new();
    for (collection, text) in [
        (Collection::Carts, texts.carts),
        (Collection::Orders, texts.orders),
        (Collection::Products, texts.products),
        (Collection::Sessions, texts.sessions),
    ] {
        collections.insert(collection, collection_layout(collection, text.into_inner(), &engines)?);
    }
    if file.name.get_ref().is_empty() {
        return Err(problem(&file.name, "a layout needs a name: write one, such as \"embedded\""));
    }
    Ok(Layout {
        name: file.name.into_inner(),
        source: file.source,
        description: file.description,
        engines,
        collections,
    })
}

fn engine(text: EngineText) -> Result<EngineDeclaration, Problem> {
    let replication = match text.replication {
        Some(replication) => {
            let copies = replication.get_ref();
            if copies.is_empty() || copies.values().any(|copies| !(1..=100).contains(copies)) {
                return Err(problem(
                    &replication,
                    "replication needs 1 to 100 copies in each datacentre: write { datacenter1 = 3 }",
                ));
            }
            replication.into_inner()
        }
        None => BTreeMap::from([(DATACENTRE.to_owned(), REPLICATION_FACTOR)]),
    };
    Ok(EngineDeclaration {
        kind: text.kind,
        addresses: text.addresses,
        keyspace: text.keyspace,
        replication,
        settings: EngineSettings {
            hint_window_seconds: text.hint_window_seconds,
            commitlog_sync: text.commitlog_sync,
            repair_interval_seconds: text.repair_interval_seconds,
            sampled_repair_percent: text.sampled_repair_percent,
        },
    })
}

fn collection_layout(
    collection: Collection,
    text: CollectionText,
    engines: &Engines,
) -> Result<CollectionLayout, Problem> {
    let mut encodings = BTreeMap::new();
    for (name, encoding) in text.ids {
        let field = field_at(&name)?;
        if field.kind() != FieldKind::Id {
            return Err(problem(&name, format!("{field} is not an id: only ids have an encoding")));
        }
        encodings.insert(field, encoding);
    }
    let mut shard_key = Vec::new();
    for name in text.shard_key.get_ref() {
        shard_key.push(field_at(name)?);
    }
    if shard_key.is_empty() {
        let id = collection.id_field();
        return Err(problem(&text.shard_key, format!("a shard key needs a field: write [\"{id}\"]")));
    }
    let lifetime = lifetime(collection, text.lifetime_seconds)?;
    let cut = match text.cut {
        CutText::Slots => slots(text.initial_shards, text.ranges, text.zones, text.engine.get_ref())?,
        CutText::Ranges => {
            ranges(&shard_key, text.initial_shards, text.ranges, text.zones, &text.engine, &text.shard_key)?
        }
    };
    let live =
        store(collection, text.engine, text.tables, text.consistency, text.operations, engines)?;
    let history = match text.history {
        None => None,
        Some(history) => {
            if history.status.get_ref().is_empty() {
                return Err(problem(
                    &history.status,
                    "a history needs the statuses that send a record there: write [\"delivered\"]",
                ));
            }
            let statuses = history.status.into_inner();
            let (consistency, operations) = (history.consistency, history.operations);
            let store =
                store(collection, history.engine, history.tables, consistency, operations, engines)?;
            Some(History { statuses, store })
        }
    };
    let encodings = IdEncodings::new(encodings);
    Ok(CollectionLayout { collection, encodings, shard_key, cut, lifetime, live, history })
}

fn lifetime(
    collection: Collection,
    given: Option<Spanned<Lifetime>>,
) -> Result<Option<Lifetime>, Problem> {
    match given {
        Some(lifetime) if !collection.expires() => {
            Err(problem(&lifetime, format!("{collection} never expire: remove lifetime_seconds")))
        }
        Some(lifetime) => Ok(Some(lifetime.into_inner())),
        None if collection.expires() => {
            Ok(Some(Lifetime::from_seconds(LIFETIME_SECONDS).expect("seven days is a lifetime")))
        }
        None => Ok(None),
    }
}

fn slots(
    initial_shards: Option<Spanned<Vec<String>>>,
    ranges: Option<Spanned<Vec<Spanned<RangeText>>>>,
    zones: Option<Spanned<BTreeMap<String, Vec<String>>>>,
    engine: &str,
) -> Result<Cut, Problem> {
    if let Some(ranges) = ranges {
        return Err(problem(&ranges, "ranges need cut = \"ranges\": change the cut or remove them"));
    }
    if let Some(zones) = zones {
        return Err(problem(&zones, "zones need cut = \"ranges\": change the cut or remove them"));
    }
    let Some(shards) = initial_shards else {
        return Ok(Cut::Slots { initial_shards: vec![engine.to_owned()] });
    };
    let distinct: BTreeSet<&String> = shards.get_ref().iter().collect();
    if distinct.is_empty() || distinct.len() != shards.get_ref().len() {
        return Err(problem(&shards, "initial_shards needs one name or more, each once"));
    }
    Ok(Cut::Slots { initial_shards: shards.into_inner() })
}

fn ranges(
    shard_key: &[Field],
    initial_shards: Option<Spanned<Vec<String>>>,
    texts: Option<Spanned<Vec<Spanned<RangeText>>>>,
    zones: Option<Spanned<BTreeMap<String, Vec<String>>>>,
    engine: &Spanned<String>,
    place: &Spanned<Vec<Spanned<String>>>,
) -> Result<Cut, Problem> {
    if let Some(shards) = initial_shards {
        return Err(problem(&shards, "with cut = \"ranges\" each range names its shard: remove initial_shards"));
    }
    let Some(texts) = texts else {
        return Err(problem(place, "cut = \"ranges\" needs ranges: write ranges = [{}] to begin with one"));
    };
    if texts.get_ref().is_empty() {
        return Err(problem(&texts, "ranges is empty: write [{}] to begin with one range for all keys"));
    }
    let mut ranges = Vec::new();
    for text in texts.into_inner() {
        let from = match &text.get_ref().from {
            None => None,
            Some(values) => Some(split_point(shard_key, values, text.span())?),
        };
        let text = text.into_inner();
        let shard = text.shard.unwrap_or_else(|| engine.get_ref().clone());
        ranges.push(RangeCut { from, shard, zone: text.zone });
    }
    Ok(Cut::Ranges { ranges, zones: zones.map(Spanned::into_inner).unwrap_or_default() })
}

/// The first values of a shard key; the rest may be left out.
fn split_point(
    shard_key: &[Field],
    values: &[Spanned<toml::Value>],
    span: Range<usize>,
) -> Result<ShardKey, Problem> {
    if values.is_empty() || values.len() > shard_key.len() {
        let names: Vec<&str> = shard_key.iter().map(|field| field.name()).collect();
        let reason = format!("a split point gives values for {}, or for the first of them", names.join(", "));
        return Err(Problem { span, reason });
    }
    let mut point = Vec::new();
    for (field, value) in shard_key.iter().zip(values) {
        let typed = match (field.kind(), value.get_ref()) {
            (FieldKind::Id | FieldKind::Text, toml::Value::String(text)) => Some(Value::text(text)),
            (FieldKind::Int, toml::Value::Integer(int)) => Some(Value::Int(*int)),
            (FieldKind::Decimal, toml::Value::String(text)) => {
                text.parse::<Decimal>().ok().map(Value::Decimal)
            }
            _ => None,
        };
        point.push(typed.ok_or_else(|| {
            problem(value, format!("this is no split point of {field}: write a text for ids, texts and decimals, a whole number for counts"))
        })?);
    }
    ShardKey::of(&point).map_err(|error| Problem { span, reason: error.to_string() })
}

fn store(
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
                return Err(problem(count, format!("initial_buckets is 1 to {BUCKETS_MAX}")));
            }
            buckets.insert(name.clone(), *count.get_ref());
        }
        tables.push(table(name, collection, text.into_inner())?);
    }
    let initial_buckets = BucketCounts::new(buckets);
    Ok(Store { engine: engine.into_inner(), tables, initial_buckets, consistency })
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
            problem(&name, format!("there is no operation {:?}: they are C1 to C9, O1 to O7, P1 to P6, S1 to S5", name.get_ref()))
        })?;
        own.insert(operation, inherited(text, &default));
    }
    Ok(Consistency { default, operations: own })
}

fn inherited(text: PolicyText, from: &Policy) -> Policy {
    Policy {
        read: text.read.unwrap_or(from.read),
        write: text.write.unwrap_or(from.write),
        may_lag_seconds: text.may_lag_seconds.unwrap_or(from.may_lag_seconds),
        unless_status: text.unless_status.unwrap_or_else(|| from.unless_status.clone()),
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
            Some((field, value)) if only.get_ref().len() == 1 => {
                Some((parse_field(field).map_err(|error| at(&only, error))?, value.clone()))
            }
            _ => {
                return Err(problem(&only, "only names one field: write { status = \"active\" }"));
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
    Ok(Table { name, collection, role, partition, clustering, only, options })
}

fn field_at(name: &Spanned<String>) -> Result<Field, Problem> {
    parse_field(name.get_ref()).map_err(|error| at(name, error))
}

fn at<T>(place: &Spanned<T>, error: ColumnError) -> Problem {
    problem(place, error.to_string())
}

fn problem<T>(place: &Spanned<T>, reason: impl Into<String>) -> Problem {
    Problem { span: place.span(), reason: reason.into() }
}
