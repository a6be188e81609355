//! The layout's tables as this engine keeps them: bodies, parts apart, pointers.

use engine_api::layout::key::encode_value;
use engine_api::layout::{
    AccessPath, Collection, Direction, Field, Fields, KeyColumn, PartKind, Parts, Role, Table,
};
use engine_api::{
    Change, Content, EngineError, Part, PartKey, Record, RecordId, RecordKey, Timestamp,
};

use crate::codec::put_part_key;

/// A derived table: rows that point to bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PointerTable {
    /// Its number in row keys, fixed when the directory was made.
    pub number: u8,
    pub name: String,
    pub collection: Collection,
    only: Option<(Field, String)>,
    /// Key columns without the id, which always comes last.
    columns: Vec<(Field, Direction)>,
}

/// Where an access path is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathPlan {
    /// The body itself, by id.
    Body,
    Pointers(PointerTable),
}

/// All tables of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tables {
    collections: Vec<(Collection, Parts)>,
    pointers: Vec<PointerTable>,
}

impl Tables {
    pub(crate) fn new(tables: &[Table]) -> Result<Tables, EngineError> {
        let mut collections = Vec::new();
        let mut pointers = Vec::new();
        for table in tables {
            match table.role {
                Role::Authority => {
                    check_authority(table)?;
                    collections.push((table.collection, table.options.parts));
                }
                Role::Derived => {
                    let number = u8::try_from(pointers.len()).map_err(|_| {
                        refuse(
                            table,
                            "is one too many: at most 256 derived tables".to_owned(),
                        )
                    })?;
                    pointers.push(PointerTable::new(number, table)?);
                }
            }
        }
        Ok(Tables {
            collections,
            pointers,
        })
    }

    pub(crate) fn collections(&self) -> Vec<Collection> {
        self.collections
            .iter()
            .map(|(collection, _)| *collection)
            .collect()
    }

    pub(crate) fn check(&self, collection: Collection) -> Result<(), EngineError> {
        match self.collections.iter().any(|(kept, _)| *kept == collection) {
            true => Ok(()),
            false => Err(EngineError::NoTable { collection }),
        }
    }

    /// Stock changes with every order; apart from the body, an order rewrites
    /// a few bytes and not the whole product.
    pub(crate) fn stands_apart(&self, collection: Collection, kind: PartKind) -> bool {
        kind == PartKind::Stock && self.has_parts_apart(collection)
    }

    /// The parts that stand in the record's body.
    pub(crate) fn parts_inside<'a>(
        &self,
        record: &'a Record,
    ) -> impl Iterator<Item = (&'a PartKey, &'a Part)> + use<'a> {
        let apart = self.has_parts_apart(record.key.collection);
        let parts = record.parts.iter();
        parts.filter(move |(key, _)| !(apart && key.kind() == PartKind::Stock))
    }

    pub(crate) fn has_parts_apart(&self, collection: Collection) -> bool {
        self.collections
            .iter()
            .any(|(kept, parts)| *kept == collection && *parts == Parts::Rows)
    }

    pub(crate) fn pointers(&self, collection: Collection) -> impl Iterator<Item = &PointerTable> {
        self.pointers
            .iter()
            .filter(move |table| table.collection == collection)
    }

    /// The header fields that its pointers are made of.
    pub(crate) fn row_fields(&self, collection: Collection) -> Vec<Field> {
        let mut fields: Vec<Field> = Vec::new();
        for table in self.pointers(collection) {
            fields.extend(table.columns.iter().map(|(field, _)| *field));
            fields.extend(table.only.iter().map(|(field, _)| *field));
        }
        fields
    }

    /// Refuses a header whose values cannot stand in a key, before anything of
    /// it is written.
    pub(crate) fn check_rows(&self, change: &Change) -> Result<(), EngineError> {
        let header = match change {
            Change::CreateIfAbsent { header, .. } | Change::ChangeIf { header, .. } => Some(header),
            Change::PutImage { image } => image.header.content.live(),
            Change::Patch { .. } | Change::Remove { .. } | Change::Stock { .. } => None,
        };
        let Some(header) = header else { return Ok(()) };
        let key = change.key();
        self.pointers(key.collection)
            .try_for_each(|table| table.row(header, &key.id).map(drop))
    }

    pub(crate) fn plan(&self, path: AccessPath) -> Option<PathPlan> {
        let collection = path.shape().collection;
        self.check(collection).ok()?;
        if path == AccessPath::by_id(collection) {
            return Some(PathPlan::Body);
        }
        self.pointers(collection)
            .find(|table| table.answers(path))
            .cloned()
            .map(PathPlan::Pointers)
    }

    /// What the directory remembers: a layout with other tables cannot open it.
    pub(crate) fn describe(&self) -> String {
        let mut lines: Vec<String> = self
            .collections
            .iter()
            .map(|(collection, parts)| format!("{collection}: bodies by id, stock parts {parts:?}"))
            .collect();
        lines.extend(self.pointers.iter().map(|table| {
            let columns: Vec<String> = table
                .columns
                .iter()
                .map(|(field, way)| format!("{field} {way:?}"))
                .collect();
            let only = table
                .only
                .as_ref()
                .map(|(field, text)| format!(" only {field}={text}"));
            let (name, columns) = (&table.name, columns.join(", "));
            format!(
                "{}: {name} ({columns}, id){}",
                table.number,
                only.unwrap_or_default()
            )
        }));
        lines.join("\n")
    }
}

impl PointerTable {
    fn new(number: u8, table: &Table) -> Result<PointerTable, EngineError> {
        let id_field = table.collection.id_field();
        let partition = table
            .partition
            .iter()
            .map(|column| (column, Direction::Ascending));
        let clustering = table.clustering.iter().map(|(column, way)| (column, *way));
        let mut columns = Vec::new();
        for (column, way) in partition.chain(clustering) {
            match column {
                KeyColumn::Field(field) => columns.push((*field, way)),
                KeyColumn::Month(_) | KeyColumn::Day(_) | KeyColumn::Bucket(_) => {
                    return Err(refuse(
                        table,
                        format!(
                            "divides its key by {column:?}, which one ordered file does not need: use the field itself"
                        ),
                    ));
                }
            }
        }
        if columns.last() != Some(&(id_field, Direction::Ascending)) {
            return Err(refuse(table, format!("must end its key with {id_field}")));
        }
        columns.pop();
        let only = table.only.clone();
        Ok(PointerTable {
            number,
            name: table.name.clone(),
            collection: table.collection,
            only,
            columns,
        })
    }

    fn answers(&self, path: AccessPath) -> bool {
        let shape = path.shape();
        let (equals, rest) = self
            .columns
            .split_at(shape.equals.len().min(self.columns.len()));
        equals.len() == shape.equals.len()
            && shape
                .equals
                .iter()
                .all(|field| equals.iter().any(|(column, _)| column == field))
            && rest == shape.sort.as_slice()
            && self
                .only
                .as_ref()
                .is_none_or(|(field, text)| shape.only == Some((*field, text.as_str())))
            && (self.only.is_some() || shape.only.is_none())
    }

    /// The row of a live header, or none.
    pub(crate) fn row(
        &self,
        header: &Fields,
        id: &RecordId,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        if let Some((field, text)) = &self.only
            && header.text(*field) != Some(text)
        {
            return Ok(None);
        }
        let mut row = vec![self.number];
        for (field, way) in &self.columns {
            let Some(value) = header.get(*field) else {
                return Ok(None);
            };
            encode_value(&mut row, value, *way).map_err(|error| EngineError::Invalid {
                reason: error.to_string(),
            })?;
        }
        row.extend_from_slice(id.as_str().as_bytes());
        Ok(Some(row))
    }

    /// The columns in the order of the rows.
    pub(crate) fn columns(&self) -> &[(Field, Direction)] {
        &self.columns
    }
}

fn check_authority(table: &Table) -> Result<(), EngineError> {
    let id = KeyColumn::Field(table.collection.id_field());
    if table.partition != [id] || !table.clustering.is_empty() {
        return Err(refuse(
            table,
            format!(
                "holds bodies and is found by {} alone: make that its partition key",
                table.collection.id_field()
            ),
        ));
    }
    Ok(())
}

fn refuse(table: &Table, why: String) -> EngineError {
    EngineError::Unsupported {
        what: format!("keep the table {}: it {why}", table.name),
    }
}

pub(crate) fn record_key(collection: Collection, id: &RecordId) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + id.as_str().len());
    key.push(collection.number());
    key.extend_from_slice(id.as_str().as_bytes());
    key
}

/// Parts apart of one record share this prefix; the id's length keeps one id
/// from being a prefix of another.
pub(crate) fn parts_prefix(collection: Collection, id: &RecordId) -> Vec<u8> {
    let mut key = vec![collection.number(), id.as_str().len() as u8];
    key.extend_from_slice(id.as_str().as_bytes());
    key
}

/// The record's own key, from the row of a part apart.
pub(crate) fn record_of_part(row: &[u8]) -> Vec<u8> {
    let (collection, rest) = row.split_at(row.len().min(1));
    let (length, rest) = rest.split_at(rest.len().min(1));
    let length = length.first().map_or(0, |length| usize::from(*length));
    [collection, &rest[..rest.len().min(length)]].concat()
}

pub(crate) fn part_row_key(key: &RecordKey, part: &PartKey) -> Vec<u8> {
    let mut row = parts_prefix(key.collection, &key.id);
    put_part_key(&mut row, part);
    row
}

/// Why a record is looked at again at a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Due {
    Expiry = 1,
    /// The record itself is a mark.
    Mark = 2,
    /// The oldest mark among the parts of a living record.
    PartMark = 3,
}

/// When the record falls due, and for what.
pub(crate) fn dues_of(record: &Record) -> Vec<(Due, Timestamp)> {
    if record.header.content == Content::Removed {
        return vec![(Due::Mark, record.header.revision.time())];
    }
    let expiry = record.expires_at().map(|at| (Due::Expiry, at));
    let marks = record
        .parts
        .values()
        .filter(|part| part.content == Content::Removed);
    let oldest = marks.map(|part| part.revision).min();
    let part_mark = oldest.map(|revision| (Due::PartMark, revision.time()));
    expiry.into_iter().chain(part_mark).collect()
}

pub(crate) fn due_key(due: Due, at: Timestamp, record: &RecordKey) -> Vec<u8> {
    let mut key = due_bound(due, at);
    key.push(record.collection.number());
    key.extend_from_slice(record.id.as_str().as_bytes());
    key
}

/// Sorts before everything due at `at` or later.
pub(crate) fn due_bound(due: Due, at: Timestamp) -> Vec<u8> {
    let mut key = vec![due as u8];
    key.extend_from_slice(&((at.unix_micros() as u64) ^ (1 << 63)).to_be_bytes());
    key
}

/// The record a due row speaks of.
pub(crate) fn due_record(row: &[u8]) -> Option<(Collection, RecordId)> {
    let (collection, id) = row.get(9..)?.split_first()?;
    let id = RecordId::new(std::str::from_utf8(id).ok()?).ok()?;
    Some((Collection::from_number(*collection)?, id))
}
