//! The keyspace, its types and its tables, as statements: pure, so that an
//! operator can read them before a server does.

use layout::{Body, Collection, Direction, Field, KeyColumn, PartKind, Parts, Role, Table};

use crate::cell::column_type;
use crate::column::{
    CART_ITEM, CART_ITEM_FIELDS, Faith, HeaderColumn, ORDER_LINE, ORDER_LINE_FIELDS, key_columns,
    key_name, key_type,
};
use crate::keyspace::Keyspace;

/// Columns that name a part's row in an authority, after the record's own key.
pub(crate) const PART_KEY: [(&str, &str); 4] = [
    ("origin", "tinyint"),
    ("kind", "text"),
    ("name", "text"),
    ("subname", "text"),
];

/// Columns that name an item's row in a copy, after the record's own key. The
/// row of the header has empty ones.
pub(crate) const ITEM_KEY: [(&str, &str); 3] = [
    ("kind", "text"),
    ("product_id", "text"),
    ("merged_from", "text"),
];

/// How a derived table holds the parts of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyForm {
    /// A row only points to the authority.
    Pointer,
    /// Header fields, and items in maps by product.
    Inside,
    /// Header fields in one row, each item in a row of its own.
    Rows,
}

/// Everything that the engine needs, in an order in which it can be made.
/// Nothing that stands there already is changed.
pub fn statements(keyspace: &Keyspace) -> Vec<String> {
    let name = &keyspace.name;
    let copies: String = keyspace
        .replication
        .iter()
        .map(|(datacentre, copies)| format!(", '{datacentre}': {copies}"))
        .collect();
    let mut statements = vec![format!(
        "CREATE KEYSPACE IF NOT EXISTS {name} WITH replication = \
         {{'class': 'NetworkTopologyStrategy'{copies}}}"
    )];
    let types = [
        (Collection::Orders, ORDER_LINE, ORDER_LINE_FIELDS),
        (Collection::Carts, CART_ITEM, CART_ITEM_FIELDS),
    ];
    for (_, kind, fields) in types
        .into_iter()
        .filter(|(collection, ..)| keyspace.keeps(*collection))
    {
        let fields = typed(fields.iter().copied());
        statements.push(format!(
            "CREATE TYPE IF NOT EXISTS {name}.{kind} ({fields})"
        ));
    }
    // As long as the tables whose changes they tell of, which the layout's checker
    // holds above the pause between repairs: what was trimmed must not come back.
    let grace = keyspace
        .tables()
        .filter_map(|table| table.options.gc_grace_seconds)
        .max();
    statements.extend(bookkeeping(name, grace));
    if keyspace.tables().any(is_divided_by_calendar) {
        statements.push(calendar(name, grace));
    }
    for table in keyspace.tables() {
        statements.push(match table.role {
            Role::Authority => authority(name, table),
            Role::Derived => derived(name, table),
        });
    }
    statements
}

/// Arguments of `nodetool` that repair the keyspace, its journal included. With
/// `-pr` every server repairs the ranges it is the first to hold: run it on each.
pub fn repair_arguments(keyspace: &Keyspace) -> Vec<String> {
    ["repair", "-full", "-pr", &keyspace.name]
        .map(str::to_owned)
        .into()
}

pub(crate) fn copy_of(table: &Table) -> CopyForm {
    match (table.options.body, table.options.parts) {
        (Body::Pointer, _) => CopyForm::Pointer,
        (Body::Whole, Parts::Inside) => CopyForm::Inside,
        (Body::Whole, Parts::Rows) if has_items(table.collection) => CopyForm::Rows,
        (Body::Whole, Parts::Rows) => CopyForm::Inside,
    }
}

pub(crate) fn has_items(collection: Collection) -> bool {
    collection.part_kinds().contains(&PartKind::Line)
}

/// Parts that a record has at most one of, as the columns of its row in a copy.
pub(crate) fn single_parts(collection: Collection) -> impl Iterator<Item = (PartKind, Field)> {
    let column = |kind: &PartKind| match kind {
        PartKind::Expiry => Some((*kind, Field::ExpiresAt)),
        PartKind::Activity => Some((*kind, Field::LastActive)),
        PartKind::Line | PartKind::Contribution | PartKind::Stock => None,
    };
    collection.part_kinds().iter().filter_map(column)
}

pub(crate) fn is_divided_by_calendar(table: &Table) -> bool {
    let is_calendar =
        |column: &KeyColumn| matches!(column, KeyColumn::Month(_) | KeyColumn::Day(_));
    table.role == Role::Derived && table.partition.iter().any(is_calendar)
}

fn bookkeeping(keyspace: &str, grace: Option<u64>) -> [String; 2] {
    let grace = grace.map_or_else(String::new, |seconds| {
        format!(" WITH gc_grace_seconds = {seconds}")
    });
    [
        // The newest number of a lane wins by being its own timestamp.
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.journal_lanes (anchor text, lane text, \
             segment bigint, trimmed bigint, PRIMARY KEY ((anchor), lane)){grace}"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.journal (lane text, segment bigint, number bigint, \
             state text, collection text, id text, shard_key blob, kind text, revision bigint, \
             written_at bigint, PRIMARY KEY ((lane, segment), number)){grace}"
        ),
    ]
}

/// Which months or days a table has rows in, so that a listing visits no others.
fn calendar(keyspace: &str, grace: Option<u64>) -> String {
    let grace = grace.map_or_else(String::new, |seconds| {
        format!(" AND gc_grace_seconds = {seconds}")
    });
    format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.calendar (table_name text, owner blob, period text, \
         PRIMARY KEY ((table_name, owner), period)) WITH CLUSTERING ORDER BY (period DESC){grace}"
    )
}

fn authority(keyspace: &str, table: &Table) -> String {
    let header = HeaderColumn::of(table, Faith::Lossless);
    let mut columns = vec![key_definitions(table)];
    let mut extra: &[(&str, &str)] = &[];
    if !table.collection.part_kinds().is_empty() {
        extra = &PART_KEY;
        columns.push(definitions(extra));
    }
    columns.push(
        "turn bigint, shard_key blob, revision bigint, cleared bigint, live boolean".to_owned(),
    );
    columns.push(header_definitions(&header));
    if !extra.is_empty() {
        columns.push("part_revision bigint, part_live boolean, content text".to_owned());
    }
    create(keyspace, table, columns, extra)
}

fn derived(keyspace: &str, table: &Table) -> String {
    let copy = copy_of(table);
    let mut columns = vec![key_definitions(table)];
    let mut extra: &[(&str, &str)] = &[];
    if copy == CopyForm::Rows {
        extra = &ITEM_KEY;
        columns.push(definitions(extra));
    }
    columns.push("revision bigint".to_owned());
    if copy != CopyForm::Pointer {
        columns.push(header_definitions(&HeaderColumn::of(
            table,
            Faith::Readable,
        )));
        let singles = single_parts(table.collection).map(|(_, field)| field);
        columns.push(typed(singles));
    }
    match copy {
        CopyForm::Inside if has_items(table.collection) => columns.push(format!(
            "items map<text, frozen<{CART_ITEM}>>, \
             merged_items map<frozen<tuple<text, text>>, frozen<{CART_ITEM}>>"
        )),
        CopyForm::Rows => {
            let header = table.collection.header_fields();
            let own = CART_ITEM_FIELDS
                .iter()
                .filter(|field| !header.contains(field));
            columns.push(typed(own.copied()));
        }
        CopyForm::Inside | CopyForm::Pointer => {}
    }
    create(keyspace, table, columns, extra)
}

fn create(keyspace: &str, table: &Table, columns: Vec<String>, extra: &[(&str, &str)]) -> String {
    let key = key_columns(table);
    let (partition, clustering) = key.split_at(table.partition.len());
    let names = |columns: &[(KeyColumn, Direction)]| -> Vec<String> {
        columns.iter().map(|(column, _)| key_name(column)).collect()
    };
    let extra_names = || extra.iter().map(|(name, _)| (*name).to_owned());
    let mut primary = vec![format!("({})", names(partition).join(", "))];
    primary.extend(names(clustering));
    primary.extend(extra_names());
    let order = |(column, direction): &(KeyColumn, Direction)| {
        let direction = match direction {
            Direction::Ascending => "ASC",
            Direction::Descending => "DESC",
        };
        format!("{} {direction}", key_name(column))
    };
    let order: Vec<String> = clustering
        .iter()
        .map(order)
        .chain(extra_names().map(|name| format!("{name} ASC")))
        .collect();
    let columns: Vec<String> = columns
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect();
    format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.{} ({}, PRIMARY KEY ({})){}",
        table.name,
        columns.join(", "),
        primary.join(", "),
        options(table, &order)
    )
}

/// No `default_time_to_live`: expiry is a field, and every write says its own TTL (W7).
fn options(table: &Table, order: &[String]) -> String {
    let options = &table.options;
    let all: Vec<String> = [
        (!order.is_empty()).then(|| format!("CLUSTERING ORDER BY ({})", order.join(", "))),
        options
            .compaction
            .as_ref()
            .map(|class| format!("compaction = {{'class': '{class}'}}")),
        options
            .read_repair
            .as_ref()
            .map(|kind| format!("read_repair = '{kind}'")),
        options
            .gc_grace_seconds
            .map(|seconds| format!("gc_grace_seconds = {seconds}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if all.is_empty() {
        String::new()
    } else {
        format!(" WITH {}", all.join(" AND "))
    }
}

fn key_definitions(table: &Table) -> String {
    let definition =
        |(column, _): &(KeyColumn, Direction)| format!("{} {}", key_name(column), key_type(column));
    let all: Vec<String> = key_columns(table).iter().map(definition).collect();
    all.join(", ")
}

fn header_definitions(columns: &[HeaderColumn]) -> String {
    let definition = |column: &HeaderColumn| format!("{} {}", column.name(), column.cql_type());
    let all: Vec<String> = columns.iter().map(definition).collect();
    all.join(", ")
}

fn definitions(columns: &[(&str, &str)]) -> String {
    let definition = |(name, kind): &(&str, &str)| format!("{name} {kind}");
    let all: Vec<String> = columns.iter().map(definition).collect();
    all.join(", ")
}

fn typed(fields: impl Iterator<Item = Field>) -> String {
    let all: Vec<String> = fields
        .map(|field| format!("{field} {}", column_type(field.kind())))
        .collect();
    all.join(", ")
}
