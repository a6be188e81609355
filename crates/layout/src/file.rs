//! A layout and its file: which engine keeps each collection, in which tables,
//! under which keys and promises.
//!
//! [`Layout::parse`] refuses what cannot be understood, with line and column;
//! whether what was understood also makes sense is [`crate::checker`]'s affair.

mod text;

mod convert;

mod cut;

mod store;

use std::collections::BTreeMap;

use model::Lifetime;

use crate::collection::Collection;
use crate::consistency::Consistency;
use crate::engine::EngineDeclaration;
use crate::field::Field;
use crate::id_encoding::IdEncoding;
use crate::mistake::Mistake;
use crate::place::{Place, position};
use crate::shard_key::ShardKey;
use crate::table::{BucketCounts, Role, Table};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub name: String,
    /// Where the model comes from.
    pub source: String,
    pub description: String,
    pub engines: BTreeMap<String, EngineDeclaration>,
    /// Every collection is here: a file that lacks one is refused.
    pub collections: BTreeMap<Collection, CollectionLayout>,
    /// What the file spells out that is never built; the checker refuses each.
    pub mistakes: Vec<Mistake>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionLayout {
    pub collection: Collection,
    pub encodings: IdEncodings,
    pub shard_key: Vec<Field>,
    pub cut: Cut,
    /// How long a session or a guest cart lives untouched. A user's cart never expires.
    pub lifetime: Option<Lifetime>,
    pub live: Store,
    pub history: Option<History>,
}

/// The tables of a collection on one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    pub engine: String,
    /// In the order of the file.
    pub tables: Vec<Table>,
    /// The bucket counts that a first map starts with; later ones stand in the map.
    pub initial_buckets: BucketCounts,
    pub consistency: Consistency,
}

/// Where records go that have reached one of these statuses (W33).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    pub statuses: Vec<String>,
    pub store: Store,
}

/// How the shard keys of a collection are cut into pieces. A cluster that
/// divides its records itself is one shard of the map; its cut is then what is
/// generated for the cluster's own sharding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// 4096 hash slots, dealt evenly to these shards at the start.
    Slots { initial_shards: Vec<String> },
    /// Ordered ranges; each reaches up to where the next begins.
    Ranges {
        ranges: Vec<RangeCut>,
        zones: BTreeMap<String, Vec<String>>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeCut {
    /// The split point where the range begins; `None` is the beginning of all keys.
    pub from: Option<ShardKey>,
    pub shard: String,
    pub zone: Option<String>,
}

/// Encodings of id fields; a field that is not mentioned is text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdEncodings(BTreeMap<Field, IdEncoding>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}:{line}:{column}: {reason}")]
pub struct ParseError {
    /// The file's name, as the caller gave it.
    pub origin: String,
    pub line: usize,
    pub column: usize,
    pub reason: String,
}

impl Layout {
    pub fn parse(text: &str, origin: &str) -> Result<Layout, ParseError> {
        let located = |span: Option<std::ops::Range<usize>>, reason: String| {
            let at = position(text, span.map_or(0, |span| span.start));
            ParseError {
                origin: origin.to_owned(),
                line: at.line,
                column: at.column,
                reason,
            }
        };
        let file: text::LayoutText = toml::from_str(text)
            .map_err(|error| located(error.span(), advised(error.message())))?;
        convert::layout(file).map_err(|problem| located(Some(problem.span), problem.reason))
    }

    pub fn collection(&self, collection: Collection) -> &CollectionLayout {
        self.collections
            .get(&collection)
            .expect("a parsed layout has every collection")
    }

    pub fn engine(&self, store: &Store) -> &EngineDeclaration {
        self.engines
            .get(&store.engine)
            .expect("a parsed store names a declared engine")
    }

    /// Every store with its collection: the live one, then the history.
    pub fn stores(&self) -> impl Iterator<Item = (&CollectionLayout, &Store)> {
        self.collections
            .values()
            .flat_map(|layout| layout.stores().map(move |store| (layout, store)))
    }
}

impl CollectionLayout {
    pub fn stores(&self) -> impl Iterator<Item = &Store> {
        std::iter::once(&self.live).chain(self.history.as_ref().map(|history| &history.store))
    }

    /// Where the keys of one of the collection's stores stand in its file.
    pub fn place(&self, store: &Store) -> Place {
        let place = Place::new(["collections", self.collection.name()]);
        if std::ptr::eq(store, &self.live) {
            place
        } else {
            place.then("history")
        }
    }

    pub fn tables(&self) -> &[Table] {
        &self.live.tables
    }

    pub fn table(&self, name: &str) -> Option<&Table> {
        self.stores()
            .flat_map(|store| &store.tables)
            .find(|table| table.name == name)
    }
}

impl Store {
    /// `None` only in a layout that the checker refuses.
    pub fn authority(&self) -> Option<&Table> {
        self.tables
            .iter()
            .find(|table| table.role == Role::Authority)
    }

    pub fn derived(&self) -> impl Iterator<Item = &Table> {
        self.tables
            .iter()
            .filter(|table| table.role == Role::Derived)
    }
}

impl Cut {
    /// The shards of a first map, each once, in the order of the file.
    pub fn shards(&self) -> Vec<&str> {
        let mut shards: Vec<&str> = Vec::new();
        let named: Vec<&str> = match self {
            Cut::Slots { initial_shards } => initial_shards.iter().map(String::as_str).collect(),
            Cut::Ranges { ranges, .. } => ranges.iter().map(|range| range.shard.as_str()).collect(),
        };
        for shard in named {
            if !shards.contains(&shard) {
                shards.push(shard);
            }
        }
        shards
    }
}

impl IdEncodings {
    pub fn new(encodings: BTreeMap<Field, IdEncoding>) -> IdEncodings {
        IdEncodings(encodings)
    }

    pub fn of(&self, field: Field) -> IdEncoding {
        self.0.get(&field).copied().unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Field, IdEncoding)> {
        self.0.iter().map(|(field, encoding)| (*field, *encoding))
    }
}

/// The TOML reader's message on one line, in the words of a layout file.
fn advised(message: &str) -> String {
    let line = message
        .lines()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(", ");
    match line.strip_prefix("missing field ") {
        Some(key) => format!("key {key} is missing here: add it"),
        None => line.replacen("unknown field ", "unknown key ", 1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EMBEDDED: &str = include_str!("../../../layouts/embedded.toml");

    #[test]
    fn an_error_names_the_place() {
        let text = EMBEDDED.replace("[\"user_id\"]", "[\"usr_id\"]");
        let error = Layout::parse(&text, "shop.toml").unwrap_err();
        let line = text
            .lines()
            .position(|line| line.contains("usr_id"))
            .unwrap()
            + 1;
        assert!(
            error.to_string().starts_with(&format!("shop.toml:{line}:")),
            "{error}"
        );
        assert!(
            error.reason.contains("there is no field \"usr_id\""),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn a_damaged_file_is_refused_or_read_but_never_a_panic(
            at in any::<prop::sample::Index>(), removed in 0usize..40, inserted in "[\\PC\n]{0,12}",
        ) {
            let mut characters: Vec<char> = EMBEDDED.chars().collect();
            let start = at.index(characters.len());
            let end = (start + removed).min(characters.len());
            characters.splice(start..end, inserted.chars());
            let text: String = characters.into_iter().collect();
            if let Ok(layout) = Layout::parse(&text, "damaged.toml") {
                let _ = crate::checker::check(&layout);
                let _ = crate::explain::explain(&layout, &crate::Load::default());
            }
        }

        #[test]
        fn any_text_is_refused_or_read(text in "\\PC{0,200}") {
            let _ = Layout::parse(&text, "any.toml");
        }
    }
}
