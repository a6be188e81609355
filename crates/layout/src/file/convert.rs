//! From a file's text to a layout: names become fields, engines and operations,
//! and what was left out gets its default.

use std::collections::BTreeMap;
use std::ops::Range;

use model::Lifetime;
use toml::Spanned;

use super::cut::{RangesText, ranges, slots};
use super::store::{StoreText, store};
use super::text::{CollectionText, CutText, EngineText, LayoutText};
use super::{CollectionLayout, History, IdEncodings, Layout};
use crate::collection::Collection;
use crate::column::{ColumnError, parse_field};
use crate::engine::{DATACENTRE, EngineDeclaration, EngineSettings, REPLICATION_FACTOR};
use crate::field::{Field, FieldKind};
use crate::mistake::{Mistake, MistakeKind};
use crate::place::Place;
use crate::server_version::ServerVersion;

/// Seven days: guest carts and sessions, when a layout does not say.
const LIFETIME_SECONDS: u32 = 7 * 86_400;

pub(super) struct Problem {
    pub span: Range<usize>,
    pub reason: String,
}

/// What the collections of a file are read with, and what is noted on the way.
pub(super) struct Reading {
    pub engines: BTreeMap<String, EngineDeclaration>,
    pub mistakes: Vec<Mistake>,
}

impl Reading {
    pub fn note(&mut self, place: Place, kind: MistakeKind) {
        self.mistakes.push(Mistake { place, kind });
    }
}

pub(super) fn layout(file: LayoutText) -> Result<Layout, Problem> {
    let mut reading = Reading {
        engines: BTreeMap::new(),
        mistakes: Vec::new(),
    };
    for (name, text) in file.engines {
        reading.engines.insert(name, engine(text.into_inner())?);
    }
    let texts = file.collections;
    let mut collections = BTreeMap::new();
    for (collection, text) in [
        (Collection::Carts, texts.carts),
        (Collection::Orders, texts.orders),
        (Collection::Products, texts.products),
        (Collection::Sessions, texts.sessions),
    ] {
        collections.insert(
            collection,
            collection_layout(collection, text.into_inner(), &mut reading)?,
        );
    }
    if file.name.get_ref().is_empty() {
        return Err(problem(
            &file.name,
            "a layout needs a name: write one, such as \"embedded\"",
        ));
    }
    Ok(Layout {
        name: file.name.into_inner(),
        source: file.source,
        description: file.description,
        engines: reading.engines,
        collections,
        mistakes: reading.mistakes,
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
    let server_version = match text.server_version {
        None => ServerVersion::default_of(text.kind),
        Some(version) => {
            let parsed = version.get_ref().parse::<ServerVersion>();
            Some(parsed.map_err(|error| problem(&version, error.to_string()))?)
        }
    };
    if let Some(local) = &text.local_datacentre
        && !replication.contains_key(local.get_ref())
    {
        let known: Vec<&str> = replication.keys().map(String::as_str).collect();
        return Err(problem(
            local,
            format!(
                "replication has no such datacentre: use one of {}",
                known.join(", ")
            ),
        ));
    }
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
            commitlog_window_ms: text.commitlog_window_ms,
            server_settings: scalars(text.server_settings)?,
        },
        shards: text.shards,
        local_datacentre: text.local_datacentre.map(Spanned::into_inner),
        server_version,
    })
}

fn collection_layout(
    collection: Collection,
    text: CollectionText,
    reading: &mut Reading,
) -> Result<CollectionLayout, Problem> {
    let mut encodings = BTreeMap::new();
    for (name, encoding) in text.ids {
        let field = field_at(&name)?;
        if field.kind() != FieldKind::Id {
            return Err(problem(
                &name,
                format!("{field} is not an id: only ids have an encoding"),
            ));
        }
        encodings.insert(field, encoding);
    }
    let mut shard_key = Vec::new();
    for name in text.shard_key.get_ref() {
        shard_key.push(field_at(name)?);
    }
    if shard_key.is_empty() {
        let id = collection.id_field();
        return Err(problem(
            &text.shard_key,
            format!("a shard key needs a field: write [\"{id}\"]"),
        ));
    }
    let lifetime = lifetime(collection, text.lifetime_seconds)?;
    let place = Place::new(["collections", collection.name()]);
    let cut = match text.cut {
        CutText::Slots => slots(
            text.initial_shards,
            text.ranges,
            text.zones,
            text.engine.get_ref(),
        )?,
        CutText::Ranges => {
            let texts = RangesText {
                initial_shards: text.initial_shards,
                ranges: text.ranges,
                zones: text.zones,
                engine: text.engine.get_ref(),
                shard_key: &text.shard_key,
            };
            ranges(&shard_key, texts, &place, reading)?
        }
    };
    let live = StoreText {
        engine: text.engine,
        tables: text.tables,
        consistency: text.consistency,
        operations: text.operations,
    };
    let live = store(collection, live, &place, reading)?;
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
            let text = StoreText {
                engine: history.engine,
                tables: history.tables,
                consistency: history.consistency,
                operations: history.operations,
            };
            let store = store(collection, text, &place.then("history"), reading)?;
            Some(History { statuses, store })
        }
    };
    let encodings = IdEncodings::new(encodings);
    Ok(CollectionLayout {
        collection,
        encodings,
        shard_key,
        cut,
        lifetime,
        live,
        history,
    })
}

fn lifetime(
    collection: Collection,
    given: Option<Spanned<Lifetime>>,
) -> Result<Option<Lifetime>, Problem> {
    match given {
        Some(lifetime) if !collection.expires() => Err(problem(
            &lifetime,
            format!("{collection} never expire: remove lifetime_seconds"),
        )),
        Some(lifetime) => Ok(Some(lifetime.into_inner())),
        None if collection.expires() => Ok(Some(
            Lifetime::from_seconds(LIFETIME_SECONDS).expect("seven days is a lifetime"),
        )),
        None => Ok(None),
    }
}

/// Options that a server knows by its own names, as text.
pub(super) fn scalars(
    options: BTreeMap<String, Spanned<toml::Value>>,
) -> Result<BTreeMap<String, String>, Problem> {
    let mut texts = BTreeMap::new();
    for (name, value) in options {
        // Names go into statements and settings as they are.
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(problem(
                &value,
                format!("{name:?} is not the name of an option"),
            ));
        }
        let text = match value.get_ref() {
            toml::Value::String(text) if !text.contains('\n') => text.clone(),
            toml::Value::String(_) | toml::Value::Array(_) | toml::Value::Table(_) => {
                return Err(problem(
                    &value,
                    format!(
                        "{name} is one value: write a text of one line, a number, true or false"
                    ),
                ));
            }
            scalar => scalar.to_string(),
        };
        texts.insert(name, text);
    }
    Ok(texts)
}

pub(super) fn field_at(name: &Spanned<String>) -> Result<Field, Problem> {
    parse_field(name.get_ref()).map_err(|error| at(name, error))
}

pub(super) fn at<T>(place: &Spanned<T>, error: ColumnError) -> Problem {
    problem(place, error.to_string())
}

pub(super) fn problem<T>(place: &Spanned<T>, reason: impl Into<String>) -> Problem {
    Problem {
        span: place.span(),
        reason: reason.into(),
    }
}
