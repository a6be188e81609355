//! What one engine of a layout keeps, in one keyspace: the input of the
//! generated schema and of the engine alike.

use layout::consistency::Replication;
use layout::{
    Collection, CollectionLayout, EngineKind, EngineSettings, IdEncoding, KeyColumn, Layout, Role,
    Store, Table,
};

use crate::config::OpenError;

/// The keyspace of an engine whose layout does not name one.
const NAME_DEFAULT: &str = "shop";

/// Names end up in folder names of the servers, which limits them.
const NAME_CHARACTERS_MAX: usize = 48;

/// Stock needs conditional changes at a rate that Cassandra does not reach, so
/// products live elsewhere.
const COLLECTIONS: [Collection; 3] = [Collection::Carts, Collection::Orders, Collection::Sessions];

#[derive(Clone, Debug)]
pub struct Keyspace {
    pub name: String,
    /// Copies per datacentre.
    pub replication: Replication,
    /// What the layout says the servers are set to.
    pub settings: EngineSettings,
    /// One a collection.
    pub stores: Vec<KeptStore>,
}

/// A collection's tables on this engine: its live records, or its history.
#[derive(Clone, Debug)]
pub struct KeptStore {
    pub layout: CollectionLayout,
    pub store: Store,
}

impl Keyspace {
    /// Everything that `layout` puts on the engine it calls `engine`.
    pub fn of(layout: &Layout, engine: &str) -> Result<Keyspace, OpenError> {
        let declared = layout
            .engines
            .get(engine)
            .filter(|declared| declared.kind == EngineKind::Cassandra)
            .ok_or_else(|| OpenError::NoSuchEngine {
                layout: layout.name.clone(),
                engine: engine.to_owned(),
            })?;
        let kept = |(layout, store): (&CollectionLayout, &Store)| KeptStore {
            layout: layout.clone(),
            store: store.clone(),
        };
        let keyspace = Keyspace {
            name: declared
                .keyspace
                .clone()
                .unwrap_or_else(|| NAME_DEFAULT.to_owned()),
            replication: declared.replication.clone(),
            settings: declared.settings.clone(),
            stores: layout
                .stores()
                .filter(|(_, store)| store.engine == engine)
                .map(kept)
                .collect(),
        };
        keyspace.validate()?;
        Ok(keyspace)
    }

    pub fn keeps(&self, collection: Collection) -> bool {
        self.stores
            .iter()
            .any(|kept| kept.collection() == collection)
    }

    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.stores.iter().flat_map(|kept| &kept.store.tables)
    }

    /// Copies in the datacentre that has the fewest.
    pub(crate) fn copies_min(&self) -> u32 {
        self.replication.values().copied().min().unwrap_or(0)
    }

    pub(crate) fn validate(&self) -> Result<(), OpenError> {
        if !is_name(&self.name) {
            return Err(OpenError::Name {
                name: self.name.clone(),
            });
        }
        let is_datacentre = |name: &String| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        if self.copies_min() == 0 || !self.replication.keys().all(is_datacentre) {
            return Err(OpenError::Replication {
                keyspace: self.name.clone(),
            });
        }
        for kept in &self.stores {
            kept.validate()?;
            let collection = kept.collection();
            let count = self
                .stores
                .iter()
                .filter(|other| other.collection() == collection)
                .count();
            if count > 1 {
                return Err(OpenError::Stores { collection });
            }
        }
        Ok(())
    }
}

impl KeptStore {
    pub fn collection(&self) -> Collection {
        self.layout.collection
    }

    fn validate(&self) -> Result<(), OpenError> {
        let collection = self.collection();
        if !COLLECTIONS.contains(&collection) {
            return Err(OpenError::Collection { collection });
        }
        if let Some((field, encoding)) = self
            .layout
            .encodings
            .iter()
            .find(|(_, encoding)| *encoding != IdEncoding::Text)
        {
            return Err(OpenError::Encoding { field, encoding });
        }
        let authorities: Vec<&Table> = self
            .store
            .tables
            .iter()
            .filter(|table| table.role == Role::Authority)
            .collect();
        let [authority] = authorities[..] else {
            return Err(OpenError::Authorities {
                collection,
                count: authorities.len(),
            });
        };
        if !is_keyed_by_id(authority) {
            return Err(OpenError::AuthorityKey {
                table: authority.name.clone(),
            });
        }
        self.store.tables.iter().try_for_each(check_table)
    }
}

/// A record is found by its id, so nothing else may stand in the authority's key.
fn is_keyed_by_id(table: &Table) -> bool {
    let id = table.collection.id_field();
    let clustering = || table.clustering.iter().map(|(column, _)| column);
    let from_id = |column: &KeyColumn| match column {
        KeyColumn::Field(field) | KeyColumn::Bucket(field) => *field == id,
        KeyColumn::Month(_) | KeyColumn::Day(_) => false,
    };
    let mut columns = table.partition.iter().chain(clustering());
    columns.clone().all(from_id) && columns.any(|column| *column == KeyColumn::Field(id))
}

/// Names and options go into statements as they are, so nothing else may pass.
fn check_table(table: &Table) -> Result<(), OpenError> {
    if !is_name(&table.name) {
        return Err(OpenError::Name {
            name: table.name.clone(),
        });
    }
    let refused = |reason: &str| {
        Err(OpenError::Table {
            table: table.name.clone(),
            reason: reason.to_owned(),
        })
    };
    let options = &table.options;
    if !matches!(
        options.read_repair.as_deref(),
        None | Some("BLOCKING" | "NONE")
    ) {
        return refused("read_repair is BLOCKING or NONE");
    }
    let is_class = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric());
    if !options.compaction.as_ref().is_none_or(is_class) {
        return refused("compaction is the name of a strategy, such as UnifiedCompactionStrategy");
    }
    let is_calendar =
        |column: &&KeyColumn| matches!(column, KeyColumn::Month(_) | KeyColumn::Day(_));
    if table.partition.iter().filter(is_calendar).count() > 1 {
        return refused("a partition is divided by month or by day, not by both");
    }
    if table.partition.is_empty() {
        return refused("every writer of the shop would share its only partition: divide it");
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    (1..=NAME_CHARACTERS_MAX).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_pass() {
        assert!(is_name("shop_1"));
        for name in ["", "1shop", "Shop", "a;drop", &"a".repeat(49)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
