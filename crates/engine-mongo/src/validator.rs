//! Fences and terms as the validator of a collection, and scopes as filters. Pure.
//!
//! A validator sees the whole document that a write leaves behind. Routers sign
//! theirs with a generation, movers with their move and term, and each kind is
//! judged by its own clauses: fences let movers pass (they copy behind them),
//! terms do not touch routers.

use engine_api::layout::{Collection, Scope, SlotRange};
use engine_api::{EngineError, Fence, Generation, MoverTerm, RecordKey};
use mongodb::bson::{Bson, Document, doc};

use crate::document::{Unreadable, hex, inner, list, long, number, shard_key, text};

/// How many fences and terms a database holds together. Each is a clause that
/// the server evaluates with every write.
pub(crate) const RULES_MAX: usize = 512;

/// Everything that the validators of a database enforce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    pub fences: Vec<Fence>,
    pub terms: Vec<MoverTerm>,
}

/// Whether a change of the rules changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edited {
    Changed,
    Unchanged,
}

impl Rules {
    pub fn hold_term(&self, term: &MoverTerm) -> Result<(), EngineError> {
        match self
            .terms
            .iter()
            .find(|standing| standing.move_name == term.move_name)
        {
            Some(standing) if standing.term > term.term => Err(EngineError::TermLost {
                lost: term.clone(),
                current: standing.term,
            }),
            _ => Ok(()),
        }
    }

    pub fn claim(&mut self, term: &MoverTerm) -> Result<Edited, EngineError> {
        self.hold_term(term)?;
        if self.terms.contains(term) {
            return Ok(Edited::Unchanged);
        }
        self.terms
            .retain(|standing| standing.move_name != term.move_name);
        self.terms.push(term.clone());
        self.within_bounds()
    }

    pub fn raise(&mut self, fence: &Fence) -> Result<Edited, EngineError> {
        if self.fences.iter().any(|standing| standing.covers(fence)) {
            return Ok(Edited::Unchanged);
        }
        self.fences.retain(|standing| !fence.covers(standing));
        self.fences.push(fence.clone());
        self.within_bounds()
    }

    /// The highest fence that stops a router's write.
    pub fn stopping(&self, key: &RecordKey, used: Generation) -> Option<Generation> {
        self.fences
            .iter()
            .filter(|fence| fence.stops(key, used))
            .map(|fence| fence.generation)
            .max()
    }

    pub fn validator(&self, collection: Collection) -> Result<Document, EngineError> {
        let signed = doc! { "$or": [{ "generation": { "$type": "long" } }, { "term": { "$type": "long" } }] };
        let mut clauses = vec![signed];
        for fence in self
            .fences
            .iter()
            .filter(|fence| fence.collection == collection)
        {
            let mut ways = vec![
                doc! { "term": { "$exists": true } },
                doc! { "generation": { "$gte": number("a generation", fence.generation.0)? } },
            ];
            if let Some(inside) = scope_filter(&fence.scope) {
                ways.push(doc! { "$nor": [inside] });
            }
            clauses.push(doc! { "$or": ways });
        }
        for term in &self.terms {
            clauses.push(doc! { "$or": [
                { "move": { "$ne": &term.move_name } },
                { "term": { "$gte": number("a term", term.term)? } },
            ] });
        }
        Ok(doc! { "$and": clauses })
    }

    fn within_bounds(&self) -> Result<Edited, EngineError> {
        if self.fences.len() + self.terms.len() > RULES_MAX {
            let what = format!("hold more than {RULES_MAX} fences and terms in one database");
            return Err(EngineError::Unsupported { what });
        }
        Ok(Edited::Changed)
    }
}

/// The documents of a scope; `None` when that is all of them.
pub(crate) fn scope_filter(scope: &Scope) -> Option<Document> {
    let slots = |range: &SlotRange| {
        doc! { "slot": {
            "$gte": i32::from(range.first.number()), "$lte": i32::from(range.last.number()),
        } }
    };
    match scope {
        Scope::All => None,
        Scope::Slots(ranges) if ranges.is_empty() => Some(doc! { "slot": { "$in": [] } }),
        Scope::Slots(ranges) => Some(doc! { "$or": ranges.iter().map(slots).collect::<Vec<_>>() }),
        Scope::Range {
            from: None,
            to: None,
        } => None,
        Scope::Range { from, to } => {
            let mut bounds = Document::new();
            if let Some(from) = from {
                bounds.insert("$gte", hex(from));
            }
            if let Some(to) = to {
                bounds.insert("$lt", hex(to));
            }
            Some(doc! { "shard_key": bounds })
        }
        Scope::Keys(keys) => {
            Some(doc! { "shard_key": { "$in": keys.iter().map(hex).collect::<Vec<_>>() } })
        }
    }
}

pub(crate) fn fence_to_bson(fence: &Fence) -> Result<Document, EngineError> {
    let scope = match &fence.scope {
        Scope::All => doc! { "all": true },
        Scope::Slots(ranges) => {
            let pair = |range: &SlotRange| {
                doc! { "first": i64::from(range.first.number()), "last": i64::from(range.last.number()) }
            };
            doc! { "slots": ranges.iter().map(pair).collect::<Vec<_>>() }
        }
        Scope::Range { from, to } => {
            doc! { "range": true, "from": from.as_ref().map(hex), "to": to.as_ref().map(hex) }
        }
        Scope::Keys(keys) => doc! { "keys": keys.iter().map(hex).collect::<Vec<_>>() },
    };
    Ok(doc! {
        "collection": fence.collection.name(),
        "generation": number("a generation", fence.generation.0)?,
        "scope": scope,
    })
}

pub(crate) fn fence_from_bson(document: &Document) -> Result<Fence, Unreadable> {
    let name = text(document, "collection")?;
    let collection = Collection::named(name)
        .ok_or_else(|| Unreadable::new("collection", &Bson::String(name.into())))?;
    Ok(Fence {
        collection,
        scope: scope_from_bson(inner(document, "scope")?)?,
        generation: Generation(unsigned(document, "generation")?),
    })
}

pub(crate) fn unsigned(document: &Document, name: &str) -> Result<u64, Unreadable> {
    let number = long(document, name)?;
    u64::try_from(number).map_err(|_| Unreadable::new(name, &Bson::Int64(number)))
}

fn scope_from_bson(scope: &Document) -> Result<Scope, Unreadable> {
    if scope.contains_key("all") {
        Ok(Scope::All)
    } else if scope.contains_key("slots") {
        list(scope, "slots")?
            .iter()
            .map(slots_from_bson)
            .collect::<Result<_, _>>()
            .map(Scope::Slots)
    } else if scope.contains_key("range") {
        let bound = |name| scope.get_str(name).ok().map(shard_key).transpose();
        Ok(Scope::Range {
            from: bound("from")?,
            to: bound("to")?,
        })
    } else {
        let key = |bson: &Bson| match bson {
            Bson::String(hex) => shard_key(hex),
            other => Err(Unreadable::new("a key of a scope", other)),
        };
        list(scope, "keys")?
            .iter()
            .map(key)
            .collect::<Result<_, _>>()
            .map(Scope::Keys)
    }
}

fn slots_from_bson(bson: &Bson) -> Result<SlotRange, Unreadable> {
    let unreadable = || Unreadable::new("slots of a scope", bson);
    let range = bson.as_document().ok_or_else(unreadable)?;
    let slot = |name| {
        u16::try_from(long(range, name)?)
            .ok()
            .and_then(|number| number.try_into().ok())
            .ok_or_else(unreadable)
    };
    Ok(SlotRange {
        first: slot("first")?,
        last: slot("last")?,
    })
}

#[cfg(test)]
mod tests {
    use engine_api::layout::{ShardKey, Slot};

    use super::*;

    fn fence(scope: Scope, generation: u64) -> Fence {
        Fence {
            collection: Collection::Carts,
            scope,
            generation: Generation(generation),
        }
    }

    #[test]
    fn every_scope_comes_back_as_it_was() {
        let slot = |number: u16| Slot::try_from(number).unwrap();
        let key = ShardKey::of_text;
        for scope in [
            Scope::All,
            Scope::Slots(vec![SlotRange {
                first: slot(0),
                last: slot(4095),
            }]),
            Scope::Slots(vec![]),
            Scope::Range {
                from: Some(key("a")),
                to: None,
            },
            Scope::Range {
                from: None,
                to: None,
            },
            Scope::Keys(vec![key("a"), key("b")]),
            Scope::Keys(vec![]),
        ] {
            let fence = fence(scope, 9);
            assert_eq!(fence_from_bson(&fence_to_bson(&fence).unwrap()), Ok(fence));
        }
    }

    #[test]
    fn rules_only_rise() {
        let mut rules = Rules::default();
        let term = |term| MoverTerm {
            move_name: "split".to_owned(),
            term,
        };
        assert_eq!(rules.claim(&term(2)), Ok(Edited::Changed));
        assert_eq!(rules.claim(&term(2)), Ok(Edited::Unchanged));
        assert_eq!(
            rules.claim(&term(1)),
            Err(EngineError::TermLost {
                lost: term(1),
                current: 2
            })
        );
        assert_eq!(rules.raise(&fence(Scope::All, 5)), Ok(Edited::Changed));
        assert_eq!(
            rules.raise(&fence(Scope::Keys(vec![]), 5)),
            Ok(Edited::Unchanged)
        );
        assert_eq!(rules.raise(&fence(Scope::All, 6)), Ok(Edited::Changed));
        assert_eq!(rules.fences.len(), 1);
    }

    #[test]
    fn a_database_holds_only_so_many_rules() {
        let mut rules = Rules::default();
        let raise = |rules: &mut Rules, number: usize| {
            rules.raise(&fence(
                Scope::Keys(vec![ShardKey::of_text(&number.to_string())]),
                1,
            ))
        };
        assert!((0..RULES_MAX).all(|number| raise(&mut rules, number).is_ok()));
        assert!(matches!(
            raise(&mut rules, RULES_MAX),
            Err(EngineError::Unsupported { .. })
        ));
    }
}
