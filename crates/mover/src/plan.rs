//! What is to be moved, and where. Pure.

use std::fmt;

use layout::{Collection, Scope, ShardKey, SlotRange};
use router::ShardName;
use serde::{Deserialize, Serialize};

use crate::error::MoveError;

/// The longest name of a move: its feeds are named after it.
pub const MOVE_NAME_BYTES_MAX: usize = 80;

/// What the freeze of a cutover may take, if nobody says otherwise.
pub const FREEZE_MS_DEFAULT: u64 = 100;
/// Held requests wait no longer than this anywhere.
pub const FREEZE_MS_MAX: u64 = 60_000;

/// What operators call a move. Never used twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MoveName(String);

/// Some keys of one collection go from one shard to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub collection: Collection,
    #[serde(with = "router::map::scope_json")]
    pub scope: Scope,
    pub source: ShardName,
    pub target: ShardName,
    /// The budget of the freeze; past it the cutover is given up.
    pub freeze_ms_max: u64,
}

impl MoveName {
    pub fn new(name: impl Into<String>) -> Result<MoveName, MoveError> {
        let name = name.into();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        if name.is_empty() || name.len() > MOVE_NAME_BYTES_MAX || !name.chars().all(plain) {
            return Err(MoveError::Name { name });
        }
        Ok(MoveName(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The feed that brings the target up to date.
    pub fn forward_feed(&self) -> String {
        format!("{}-forward", self.0)
    }

    /// The feed that keeps the source up to date after the cutover.
    pub fn back_feed(&self) -> String {
        format!("{}-back", self.0)
    }
}

impl TryFrom<String> for MoveName {
    type Error = MoveError;

    fn try_from(name: String) -> Result<MoveName, MoveError> {
        MoveName::new(name)
    }
}

impl From<MoveName> for String {
    fn from(name: MoveName) -> String {
        name.0
    }
}

impl fmt::Display for MoveName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Plan {
    /// Whether some key may be in both. Slots and ranges cannot be told apart without
    /// looking at every key, so they count as overlapping.
    pub fn overlaps(&self, other: &Plan) -> bool {
        self.collection == other.collection && overlap(&self.scope, &other.scope)
    }
}

pub(crate) fn overlap(one: &Scope, other: &Scope) -> bool {
    match (one, other) {
        (Scope::All, _) | (_, Scope::All) => true,
        (Scope::Keys(keys), scope) | (scope, Scope::Keys(keys)) => {
            keys.iter().any(|key| scope.contains(key))
        }
        (Scope::Slots(some), Scope::Slots(others)) => {
            let meet = |a: &SlotRange, b: &SlotRange| a.first <= b.last && b.first <= a.last;
            some.iter().any(|a| others.iter().any(|b| meet(a, b)))
        }
        (
            Scope::Range { from, to },
            Scope::Range {
                from: low,
                to: high,
            },
        ) => {
            begins_before(from.as_ref(), high.as_ref()) && begins_before(low.as_ref(), to.as_ref())
        }
        (Scope::Slots(_), Scope::Range { .. }) | (Scope::Range { .. }, Scope::Slots(_)) => true,
    }
}

fn begins_before(from: Option<&ShardKey>, end: Option<&ShardKey>) -> bool {
    match (from, end) {
        (Some(from), Some(end)) => from < end,
        (None, _) | (_, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use layout::Slot;

    use super::*;

    fn slots(first: u16, last: u16) -> Scope {
        let slot = |number| Slot::try_from(number).unwrap();
        Scope::Slots(vec![SlotRange {
            first: slot(first),
            last: slot(last),
        }])
    }

    fn range(from: Option<&str>, to: Option<&str>) -> Scope {
        Scope::Range {
            from: from.map(ShardKey::of_text),
            to: to.map(ShardKey::of_text),
        }
    }

    #[test]
    fn two_scopes_overlap_when_a_key_may_be_in_both() {
        fn check(one: &Scope, other: &Scope, expected: bool) {
            assert_eq!(overlap(one, other), expected, "{one:?} and {other:?}");
            assert_eq!(overlap(other, one), expected, "{other:?} and {one:?}");
        }
        let key = ShardKey::of_text("m");
        let slot = key.slot().number();
        let keys = Scope::Keys(vec![key]);
        check(&Scope::All, &slots(0, 0), true);
        check(&slots(0, 9), &slots(9, 12), true);
        check(&slots(0, 9), &slots(10, 12), false);
        check(&keys, &slots(slot, slot), true);
        check(&keys, &slots(0, slot - 1), false);
        check(&keys, &range(Some("a"), Some("m")), false);
        check(&keys, &range(Some("m"), None), true);
        check(&range(None, Some("c")), &range(Some("c"), None), false);
        check(&range(None, Some("d")), &range(Some("c"), Some("e")), true);
        check(&range(None, None), &range(Some("c"), Some("e")), true);
        check(&slots(0, 0), &range(Some("c"), Some("e")), true);
    }

    #[test]
    fn a_plan_comes_back_from_its_text_as_it_was() {
        let plan = Plan {
            collection: Collection::Carts,
            scope: slots(0, 2047),
            source: ShardName::new("a").unwrap(),
            target: ShardName::new("b").unwrap(),
            freeze_ms_max: 100,
        };
        let text = serde_json::to_string(&plan).unwrap();
        assert!(text.contains(r#""scope":{"slots":["0-2047"]}"#), "{text}");
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        for name in ["", "Carts", "a b", &"a".repeat(81)] {
            assert!(MoveName::new(name).is_err(), "{name}");
        }
    }
}
