//! What no engine could keep, refused before anything is asked of a store.

use std::collections::BTreeSet;

use layout::{Collection, Field, Fields, PartKind};

use crate::change::{Change, PartsChange};
use crate::context::{Authority, WriteContext};
use crate::error::EngineError;
use crate::record::{PartKey, RECORD_PARTS_MAX, RecordKey};
use crate::stock;

/// Refuses a change that no engine could keep, before anything is asked of a store.
pub fn validate(change: &Change, context: &WriteContext) -> Result<(), EngineError> {
    let key = change.key();
    match change {
        Change::CreateIfAbsent { header, parts, .. } => {
            validate_header(key, header)?;
            validate_parts(key.collection, parts.iter().map(|(part, _)| part))
        }
        Change::ChangeIf { header, parts, .. } => {
            validate_header(key, header)?;
            match parts {
                PartsChange::Keep => Ok(()),
                PartsChange::Replace(parts) | PartsChange::Put(parts) => {
                    validate_parts(key.collection, parts.iter().map(|(part, _)| part))
                }
            }
        }
        Change::Patch { parts, .. } => {
            if parts.is_empty() {
                return Err(invalid("a patch names at least one part".to_owned()));
            }
            validate_parts(key.collection, parts.iter().map(|(part, _)| part))
        }
        Change::Stock { part, .. } if part.kind() != PartKind::Stock => {
            Err(invalid(format!("{part} is not a stock part")))
        }
        Change::Stock { part, .. } => validate_parts(key.collection, [part].into_iter()),
        Change::Remove { .. } => Ok(()),
        Change::PutImage { image } => {
            if matches!(context.authority, Authority::Router { .. }) {
                return Err(invalid("only a mover may put images".to_owned()));
            }
            validate_parts(key.collection, image.parts.keys())
        }
    }
}

/// Refuses what may not go alone: a sale without a memory of its own.
pub fn validate_alone(change: &Change) -> Result<(), EngineError> {
    if stock::needs_company(change) {
        return Err(invalid(
            "a sale without a reservation needs a conditional change beside it: apply them together"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Refuses a group whose sales nobody guards, or that names a key twice.
pub fn validate_together(changes: &[Change]) -> Result<(), EngineError> {
    if changes.iter().any(stock::needs_company) && !changes.iter().any(Change::is_conditional) {
        return Err(invalid(
            "sales need a conditional change beside them".to_owned(),
        ));
    }
    for (index, change) in changes.iter().enumerate() {
        let same_place = |other: &Change| match (change, other) {
            (
                Change::Stock {
                    key: a, part: x, ..
                },
                Change::Stock {
                    key: b, part: y, ..
                },
            ) => a == b && x == y,
            _ => change.key() == other.key(),
        };
        if changes[..index].iter().any(same_place) {
            return Err(invalid(format!(
                "{} is changed twice in one commit",
                change.key()
            )));
        }
    }
    Ok(())
}

fn validate_header(key: &RecordKey, header: &Fields) -> Result<(), EngineError> {
    let collection = key.collection;
    if header.text(collection.id_field()) != Some(key.id.as_str()) {
        return Err(invalid(format!(
            "the header's {} is not {}",
            collection.id_field(),
            key.id
        )));
    }
    let known = collection.header_fields();
    if let Some((field, _)) = header.iter().find(|(field, _)| !known.contains(field)) {
        return Err(invalid(format!(
            "{field} is not a header field of {collection}"
        )));
    }
    let optional = collection.optional_fields();
    let missing = |field: &&Field| !optional.contains(field) && header.get(**field).is_none();
    match known.iter().find(missing) {
        Some(field) => Err(invalid(format!("the header of {key} lacks {field}"))),
        None => Ok(()),
    }
}

fn validate_parts<'a>(
    collection: Collection,
    parts: impl Iterator<Item = &'a PartKey>,
) -> Result<(), EngineError> {
    let known = collection.part_kinds();
    let mut seen = BTreeSet::new();
    for part in parts {
        if !seen.insert(part) {
            return Err(invalid(format!("{part} is named twice in one change")));
        }
        if !known.contains(&part.kind()) {
            return Err(invalid(format!(
                "{collection} have no {} parts",
                part.kind().name()
            )));
        }
    }
    if seen.len() > RECORD_PARTS_MAX {
        return Err(invalid(format!(
            "a record has at most {RECORD_PARTS_MAX} parts"
        )));
    }
    Ok(())
}

pub(crate) fn invalid(reason: String) -> EngineError {
    EngineError::Invalid { reason }
}
