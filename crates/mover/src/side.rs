//! One end of a move of a whole collection, as one engine.
//!
//! ```text
//!   feed, verifier ── a record by its common name ──▶ Side ── its own key ──▶ shard-1 | shard-2 | …
//!                  ◀── images, entries, one position of all journals ──┘
//! ```
//!
//! Feed, verifier and cutover know two engines with the same records. Here the two have another number of shards, and
//! perhaps another shard key. So a side speaks of a record by a name that both sides can make (see [`Common`]), and
//! writes it under the key that its own placement gives it.
//!
//! A removal has no header to make a key from. Where the common name does not say which key the record had here, it is
//! looked for by its id, and its mark is put where it stands. Where nothing stands no mark is put: a mark under a key
//! that is not the record's would refuse the record for ever. What a mark guards against there is an image that comes
//! later, and there is none: a feed carries what it read before it reads on, and a displaced feed is refused by its
//! term. A side whose stores know no terms must therefore be able to make every key (`preflight`). Towards such a side
//! a mark is shown as nothing at all, so that nobody misses it there.
//!
//! A side that keeps finished records apart has its live shards and a history behind them, see [`history`].

mod engine;
mod history;
mod places;

use std::sync::Arc;

use engine_api::{
    Capabilities, Durability, Engine, EngineError, ExpiryKind, FenceKind, GuardKind, JournalKind,
    ReadContext, Record, RecordId, RecordKey, Stock, Terms, Together,
};
use futures::future::join_all;
use layout::{Collection, Field, ShardKey, Value};
use router::{CollectionMap, ShardName};

use crate::error::Unfit;
use crate::preflight::{Shards, engine_of};

#[derive(Debug)]
pub(crate) struct Side {
    collection: Collection,
    placement: CollectionMap,
    common: Common,
    /// In the order of their names: positions are taken apart by it.
    shards: Vec<Shard>,
    /// What the live shards have nothing of is what stands here.
    history: Option<Shard>,
    capabilities: Capabilities,
    hides_marks: bool,
}

/// What a side is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// What it has goes to the other side: marks that have no place there are not shown.
    Left,
    /// It gets what the other side has.
    Entered,
}

#[derive(Clone, Debug)]
struct Shard {
    name: ShardName,
    engine: Arc<dyn Engine>,
}

/// How both sides call a record: by its id, and by what both shard keys have of it. Shard-key fields never change
/// (W8), so that each side can make the name of whatever it holds, marks included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    /// The id first.
    fields: Vec<Field>,
}

impl Common {
    pub fn of(collection: Collection, sides: [&CollectionMap; 2]) -> Common {
        let id = collection.id_field();
        let [one, other] = sides.map(|side| &side.shard_key);
        let shared = one.iter().filter(|field| other.contains(field));
        let shared = shared.copied().filter(|field| *field != id);
        Common {
            fields: [id].into_iter().chain(shared).collect(),
        }
    }

    /// Whether a side with this placement can make its own keys from common names.
    pub fn makes_keys_of(&self, placement: &CollectionMap) -> bool {
        let made = |field: &Field| self.fields.contains(field);
        placement.shard_key.iter().all(made)
    }

    /// The common name of a record that a side holds under `key`.
    fn name_of(&self, placement: &CollectionMap, key: &RecordKey) -> Option<RecordKey> {
        if let [_] = self.fields[..] {
            return Some(RecordKey::by_id(key.collection, key.id.clone()));
        }
        let values = key.shard_key.values();
        if values.len() != placement.shard_key.len() {
            return None;
        }
        self.key_from(&self.fields, key, (&placement.shard_key, &values))
    }

    /// The key that a side has the record of this name under, if the name says it.
    fn key_in(&self, placement: &CollectionMap, name: &RecordKey) -> Option<RecordKey> {
        let values = name.shard_key.values();
        if values.len() != self.fields.len() {
            return None;
        }
        self.key_from(&placement.shard_key, name, (&self.fields, &values))
    }

    fn key_from(
        &self,
        fields: &[Field],
        key: &RecordKey,
        (known, values): (&[Field], &[Value]),
    ) -> Option<RecordKey> {
        let value = |field: &Field| {
            if *field == key.collection.id_field() {
                return Some(Value::text(key.id.as_str()));
            }
            let place = known.iter().position(|known| known == field)?;
            values.get(place).cloned()
        };
        let values: Vec<Value> = fields.iter().map(value).collect::<Option<_>>()?;
        Some(RecordKey {
            collection: key.collection,
            id: key.id.clone(),
            shard_key: ShardKey::of(&values).ok()?,
        })
    }
}

impl Side {
    /// The side with this placement, opposite another one.
    pub fn open(
        collection: Collection,
        placement: &CollectionMap,
        other: &CollectionMap,
        role: Role,
        shards: &Shards,
    ) -> Result<Side, Unfit> {
        let common = Common::of(collection, [placement, other]);
        let shard = |name: &ShardName| -> Result<Shard, Unfit> {
            Ok(Shard {
                name: name.clone(),
                engine: engine_of(shards, name)?.clone(),
            })
        };
        let shards = placement.shards().into_iter().map(shard);
        let shards: Vec<Shard> = shards.collect::<Result<_, _>>()?;
        Ok(Side {
            collection,
            placement: placement.clone(),
            capabilities: weakest(collection, &shards),
            hides_marks: role == Role::Left && !common.makes_keys_of(other),
            common,
            shards,
            history: None,
        })
    }

    /// The same side with finished records on a shard of their own.
    pub fn with_history(self, name: &ShardName, shards: &Shards) -> Result<Side, Unfit> {
        let history = Shard {
            name: name.clone(),
            engine: engine_of(shards, name)?.clone(),
        };
        Ok(Side {
            history: Some(history),
            ..self
        })
    }

    /// Everything that is scanned: the live shards, then the history.
    fn place(&self, place: usize) -> Option<&Shard> {
        let history = self.history.iter();
        self.shards.iter().chain(history).nth(place)
    }

    fn places(&self) -> usize {
        self.shards.len() + usize::from(self.history.is_some())
    }

    fn owner(&self, key: &ShardKey) -> &Shard {
        let name = self.placement.owner(key);
        let of_name = |shard: &&Shard| shard.name == *name;
        let found = self.shards.iter().find(of_name);
        found.expect("the shards of a side are those of its placement")
    }

    /// Copies that earlier moves left on a shard are not this side's. The history is one for all its shards.
    fn is_own(&self, shard: &Shard, image: &Record) -> bool {
        let of_history = |history: &Shard| history.name == shard.name;
        self.history.as_ref().is_some_and(of_history)
            || *self.placement.owner(&image.key.shard_key) == shard.name
    }

    /// What the live shards have, under this side's own key.
    async fn stored(
        &self,
        name: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        match self.common.key_in(&self.placement, name) {
            Some(key) => {
                let shard = self.owner(&key.shard_key);
                let image = shard.engine.get(&key, context).await;
                let image = image.map_err(|error| of(shard, error))?;
                Ok(image.filter(|image| self.is_own(shard, image)))
            }
            None => self.sought(name, context).await,
        }
    }

    /// Asks every shard for the id. What stands on two of them is the newer one, a mark
    /// that a record left before it was made anew under another key; two that live are
    /// nothing that could be copied.
    async fn sought(
        &self,
        name: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        let asked = self.shards.iter().map(|shard| async move {
            let image = shard.engine.get(name, context).await;
            let image = image.map_err(|error| of(shard, error))?;
            Ok(image.filter(|image| self.is_own(shard, image)))
        });
        let mut found: Option<Record> = None;
        for image in join_all(asked).await {
            let Some(image) = image? else { continue };
            let lives = |image: &Record| image.live_at(context.now).is_some();
            found = Some(match found {
                Some(other) if lives(&other) && lives(&image) => {
                    return Err(EngineError::Invalid {
                        reason: format!("two shards of one side have {name}: remove one of them"),
                    });
                }
                Some(other) if other.newest_revision() > image.newest_revision() => other,
                _ => image,
            });
        }
        Ok(found)
    }

    fn named(&self, image: Record) -> Record {
        let key = self.name_of(&image.key);
        Record { key, ..image }
    }

    /// Of a key that is no key of this placement only the id is common.
    fn name_of(&self, key: &RecordKey) -> RecordKey {
        let name = self.common.name_of(&self.placement, key);
        name.unwrap_or_else(|| by_id(self.collection, &key.id))
    }
}

fn by_id(collection: Collection, id: &RecordId) -> RecordKey {
    RecordKey::by_id(collection, id.clone())
}

/// An engine's error does not say whose it is.
fn of(shard: &Shard, error: EngineError) -> EngineError {
    let named = |reason: String| format!("shard {}: {reason}", shard.name);
    match error {
        EngineError::OutcomeUnknown { reason } => EngineError::OutcomeUnknown {
            reason: named(reason),
        },
        EngineError::Unavailable { reason } => EngineError::Unavailable {
            reason: named(reason),
        },
        EngineError::StorageFull { reason } => EngineError::StorageFull {
            reason: named(reason),
        },
        EngineError::Damaged { reason } => EngineError::Damaged {
            reason: named(reason),
        },
        EngineError::Invalid { reason } => EngineError::Invalid {
            reason: named(reason),
        },
        EngineError::Unsupported { what } => EngineError::Unsupported { what: named(what) },
        error @ (EngineError::Fenced { .. }
        | EngineError::TermLost { .. }
        | EngineError::PositionLost
        | EngineError::NoTable { .. }) => error,
    }
}

/// What all shards of a side can do. Fences and terms stand where a shard has them: the
/// others are passed over, as they are where a side is one shard.
fn weakest(collection: Collection, shards: &[Shard]) -> Capabilities {
    let all = |holds: &dyn Fn(&Capabilities) -> bool| {
        shards
            .iter()
            .all(|shard| holds(shard.engine.capabilities()))
    };
    let by_lease = all(&|it| it.fence == FenceKind::ByLease);
    let has_no_terms = all(&|it| it.terms == Terms::Unsupported);
    let has_journals = all(&|it| it.journal != JournalKind::Unsupported);
    let durability = if all(&|it| it.durability == Durability::Majority) {
        Durability::Majority
    } else if all(&|it| it.durability != Durability::Process) {
        Durability::Disk
    } else {
        Durability::Process
    };
    Capabilities {
        engine: "side",
        collections: match all(&|it| it.collections.contains(&collection)) {
            true => vec![collection],
            false => Vec::new(),
        },
        together: Together::Unsupported,
        guard: GuardKind::AfterWrite,
        fence: match by_lease {
            true => FenceKind::ByLease,
            false => FenceKind::InStore,
        },
        journal: match has_journals {
            true => JournalKind::Lanes,
            false => JournalKind::Unsupported,
        },
        stock: match all(&|it| it.stock == Stock::Conditional) {
            true => Stock::Conditional,
            false => Stock::Unsupported,
        },
        terms: match has_no_terms {
            true => Terms::Unsupported,
            false => Terms::InStore,
        },
        expiry: match all(&|it| it.expiry == ExpiryKind::Maintained) {
            true => ExpiryKind::Maintained,
            false => ExpiryKind::ByServer,
        },
        durability,
    }
}
