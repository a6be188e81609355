//! Single keys are moved by pinning them. Whoever brings them back leaves the pins as they were before.

use layout::{Scope, ShardKey};
use router::{Edit, Map};
use serde::{Deserialize, Serialize};

use crate::plan::{End, Moved, Plan};

/// Keys of a move that were pinned before its cutover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pins(#[serde(with = "router::map::scope_json")] Scope);

impl Default for Pins {
    fn default() -> Pins {
        Pins(Scope::Keys(Vec::new()))
    }
}

impl Pins {
    pub(crate) fn among(plan: &Plan, map: &Map) -> Pins {
        let (Scope::Keys(keys), Ok(collection)) = (plan.scope(), map.collection(plan.collection))
        else {
            return Pins::default();
        };
        let pinned = keys
            .iter()
            .filter(|key| collection.pinned.contains_key(*key));
        Pins(Scope::Keys(pinned.cloned().collect()))
    }

    /// The edits that give the keys back to the source and thaw them. A key that was not pinned and that the cut gives to
    /// the source is unpinned: otherwise it would stay behind when its slot is moved later.
    pub(crate) fn giving_back(&self, plan: &Plan, map: &Map) -> Vec<Edit> {
        let (
            Moved::Keys {
                scope: scope @ Scope::Keys(keys),
                source,
                ..
            },
            Ok(collection),
        ) = (&plan.moved, map.collection(plan.collection))
        else {
            return plan.giving_to(End::Source).into();
        };
        let goes_by_the_cut = |key: &ShardKey| {
            let is_pinned_now = collection.pinned.contains_key(key);
            let belongs_there = collection.cut.shard_of(key) == source;
            is_pinned_now && belongs_there && !self.0.contains(key)
        };
        let edit = |key: &ShardKey| match goes_by_the_cut(key) {
            true => Edit::Unpin { key: key.clone() },
            false => Edit::Pin {
                key: key.clone(),
                shard: source.clone(),
            },
        };
        let thaw = Edit::Thaw {
            scope: scope.clone(),
        };
        keys.iter().map(edit).chain([thaw]).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use layout::{Collection, Field};
    use router::{CollectionMap, Cut, ShardName};

    use super::*;

    #[test]
    fn what_was_not_pinned_before_is_not_pinned_afterwards() {
        let shard = |name| ShardName::new(name).unwrap();
        let key = ShardKey::of_text;
        let carts = CollectionMap::cut_by(
            "memory",
            vec![Field::CartId],
            Cut::even_slots(&[shard("source")]),
        );
        let first = Map::first(BTreeMap::from([(Collection::Carts, carts)]));
        let first = first.pin(Collection::Carts, key("pinned"), &shard("source"));
        let first = first.unwrap();
        let plan = Plan {
            collection: Collection::Carts,
            moved: Moved::Keys {
                scope: Scope::Keys(vec![key("pinned"), key("free")]),
                source: shard("source"),
                target: shard("target"),
            },
            freeze_ms_max: 100,
        };
        let before = Pins::among(&plan, &first);
        let of_carts = |edits: Vec<Edit>| -> Vec<_> {
            let edits = edits.into_iter();
            edits.map(|edit| (Collection::Carts, edit)).collect()
        };
        let scope = || plan.scope().clone();
        let edits = vec![
            Edit::Move {
                scope: scope(),
                to: shard("target"),
            },
            Edit::Freeze { scope: scope() },
        ];
        let moved = first.edited(&of_carts(edits)).unwrap();
        let back = of_carts(before.giving_back(&plan, &moved));
        let returned = moved.edited(&back).unwrap();
        assert_eq!(
            returned.collections[&Collection::Carts].pinned,
            first.collections[&Collection::Carts].pinned
        );
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<Pins>(&text).unwrap(), before);
    }
}
