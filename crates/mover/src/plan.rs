//! What is to be moved, and where. Pure.

use std::collections::BTreeSet;
use std::fmt;

use layout::{Collection, Scope, ShardKey, SlotRange};
use router::{CollectionMap, Edit, ShardName};
use serde::{Deserialize, Serialize};

use crate::error::{MoveError, Unfit};

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

/// What goes from where to where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Plan {
    pub collection: Collection,
    pub moved: Moved,
    /// The budget of the freeze; past it the cutover is given up.
    pub freeze_ms_max: u64,
}

/// What of the collection is moved, and between what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Some keys go from one shard to another; layout and shard key stay.
    Keys {
        scope: Scope,
        source: ShardName,
        target: ShardName,
    },
    /// All of it, from one placement (layout, shard key, cut) to another one on other shards. Both are named: the way
    /// back leads to the first, and the map must still be as the plan says when the keys are frozen.
    Whole {
        source: Box<CollectionMap>,
        target: Box<CollectionMap>,
        histories: Histories,
    },
}

/// The shards that keep finished records apart from the live ones, if an end has such a one: what it has of the
/// collection is both together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Histories {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<ShardName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<ShardName>,
}

/// One of the two ends of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Source,
    Target,
}

/// A plan as it is written: of keys as it always was, of a whole collection with placements for the shards.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    collection: Collection,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<ScopeForm>,
    source: EndForm,
    target: EndForm,
    #[serde(default, skip_serializing_if = "Histories::are_none")]
    histories: Histories,
    freeze_ms_max: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct ScopeForm(#[serde(with = "router::map::scope_json")] Scope);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum EndForm {
    Shard(ShardName),
    Placement(Box<CollectionMap>),
}

impl From<Plan> for Form {
    fn from(plan: Plan) -> Form {
        let (scope, source, target, histories) = match plan.moved {
            Moved::Keys {
                scope,
                source,
                target,
            } => (
                Some(ScopeForm(scope)),
                EndForm::Shard(source),
                EndForm::Shard(target),
                Histories::default(),
            ),
            Moved::Whole {
                source,
                target,
                histories,
            } => (
                None,
                EndForm::Placement(source),
                EndForm::Placement(target),
                histories,
            ),
        };
        Form {
            collection: plan.collection,
            scope,
            source,
            target,
            histories,
            freeze_ms_max: plan.freeze_ms_max,
        }
    }
}

impl TryFrom<Form> for Plan {
    type Error = &'static str;

    fn try_from(form: Form) -> Result<Plan, &'static str> {
        let moved = match (form.scope, form.source, form.target) {
            (Some(ScopeForm(scope)), EndForm::Shard(source), EndForm::Shard(target))
                if form.histories.are_none() =>
            {
                Moved::Keys {
                    scope,
                    source,
                    target,
                }
            }
            (None, EndForm::Placement(source), EndForm::Placement(target)) => Moved::Whole {
                source,
                target,
                histories: form.histories,
            },
            _ => return Err("a plan names a scope and two shards, or two placements"),
        };
        Ok(Plan {
            collection: form.collection,
            moved,
            freeze_ms_max: form.freeze_ms_max,
        })
    }
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
    pub(crate) fn check_budget(&self) -> Result<(), Unfit> {
        let freeze_ms_max = self.freeze_ms_max;
        match (1..=FREEZE_MS_MAX).contains(&freeze_ms_max) {
            true => Ok(()),
            false => Err(Unfit::Budget { freeze_ms_max }),
        }
    }

    /// The keys of it, as both ends name them: what is frozen and fenced.
    pub fn scope(&self) -> &Scope {
        match &self.moved {
            Moved::Keys { scope, .. } => scope,
            Moved::Whole { .. } => &Scope::All,
        }
    }

    /// The shards of one end that have keys of the map.
    pub fn shards(&self, end: End) -> BTreeSet<&ShardName> {
        match (&self.moved, end) {
            (Moved::Keys { source, .. }, End::Source) => BTreeSet::from([source]),
            (Moved::Keys { target, .. }, End::Target) => BTreeSet::from([target]),
            (Moved::Whole { source, .. }, End::Source) => source.shards(),
            (Moved::Whole { target, .. }, End::Target) => target.shards(),
        }
    }

    /// Where one end keeps finished records, if apart from the live ones.
    pub fn history(&self, end: End) -> Option<&ShardName> {
        match (&self.moved, end) {
            (Moved::Keys { .. }, _) => None,
            (Moved::Whole { histories, .. }, End::Source) => histories.source.as_ref(),
            (Moved::Whole { histories, .. }, End::Target) => histories.target.as_ref(),
        }
    }

    /// Every shard that has records of one end, its history included.
    pub fn stores(&self, end: End) -> BTreeSet<&ShardName> {
        let mut shards = self.shards(end);
        shards.extend(self.history(end));
        shards
    }

    /// The stores of both ends: whoever works for the move, or serves while it runs, needs them all.
    pub fn all_shards(&self) -> BTreeSet<&ShardName> {
        let (source, target) = (self.stores(End::Source), self.stores(End::Target));
        source.into_iter().chain(target).collect()
    }

    /// How people call one end: its shard, or its layout with its shards.
    pub fn called(&self, end: End) -> String {
        let history = match self.history(end) {
            Some(shard) => format!(", finished ones on {shard}"),
            None => String::new(),
        };
        let placed = |placement: &CollectionMap| {
            let shards: Vec<&str> = placement
                .shards()
                .into_iter()
                .map(ShardName::as_str)
                .collect();
            let fields: Vec<&str> = placement.shard_key.iter().map(|it| it.name()).collect();
            let (layout, fields) = (&placement.layout, fields.join(" + "));
            format!("{layout} ({} by {fields}{history})", shards.join(", "))
        };
        match (&self.moved, end) {
            (Moved::Keys { source, .. }, End::Source) => source.to_string(),
            (Moved::Keys { target, .. }, End::Target) => target.to_string(),
            (Moved::Whole { source, .. }, End::Source) => placed(source),
            (Moved::Whole { target, .. }, End::Target) => placed(target),
        }
    }

    /// What gives the keys to one end and thaws them, in one map.
    pub(crate) fn giving_to(&self, end: End) -> [Edit; 2] {
        let scope = self.scope().clone();
        let given = match (&self.moved, end) {
            (Moved::Keys { scope, source, .. }, End::Source) => Edit::Move {
                scope: scope.clone(),
                to: source.clone(),
            },
            (Moved::Keys { scope, target, .. }, End::Target) => Edit::Move {
                scope: scope.clone(),
                to: target.clone(),
            },
            (Moved::Whole { source, .. }, End::Source) => Edit::Place {
                placement: CollectionMap::clone(source),
            },
            (Moved::Whole { target, .. }, End::Target) => Edit::Place {
                placement: CollectionMap::clone(target),
            },
        };
        [given, Edit::Thaw { scope }]
    }

    /// Whether some key may be in both. Slots and ranges cannot be told apart without
    /// looking at every key, so they count as overlapping.
    pub fn overlaps(&self, other: &Plan) -> bool {
        self.collection == other.collection && overlap(self.scope(), other.scope())
    }
}

impl Histories {
    fn are_none(&self) -> bool {
        self.source.is_none() && self.target.is_none()
    }

    /// As the way back has them.
    #[must_use]
    pub fn reversed(self) -> Histories {
        Histories {
            source: self.target,
            target: self.source,
        }
    }
}

impl End {
    pub fn other(self) -> End {
        match self {
            End::Source => End::Target,
            End::Target => End::Source,
        }
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

/// A shard that one plan leaves and the other one works with, if they may have keys in common.
pub(crate) fn overlap_at<'a>(left: &'a Plan, other: &Plan) -> Option<&'a ShardName> {
    let touched = [End::Source, End::Target].map(|end| other.shards(end));
    let mut sources = left.shards(End::Source).into_iter();
    let met = sources.find(|shard| touched.iter().any(|shards| shards.contains(*shard)));
    met.filter(|_| left.overlaps(other))
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
            moved: Moved::Keys {
                scope: slots(0, 2047),
                source: ShardName::new("a").unwrap(),
                target: ShardName::new("b").unwrap(),
            },
            freeze_ms_max: 100,
        };
        let text = serde_json::to_string(&plan).unwrap();
        // As records of earlier releases have it.
        let written = r#"{"collection":"carts","scope":{"slots":["0-2047"]},"source":"a","target":"b","freeze_ms_max":100}"#;
        assert_eq!(text, written);
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        let placed = |layout: &str, shard: &str| {
            let shard = ShardName::new(shard).unwrap();
            let fields = vec![layout::Field::CartId];
            Box::new(CollectionMap::on_one_shard(layout, fields, shard))
        };
        let whole = Plan {
            moved: Moved::Whole {
                source: placed("one", "a"),
                target: placed("two", "b"),
                histories: Histories::default(),
            },
            ..plan
        };
        let mut apart = whole.clone();
        let Moved::Whole { histories, .. } = &mut apart.moved else {
            unreachable!("it was made so");
        };
        histories.source = Some(ShardName::new("h").unwrap());
        let text = serde_json::to_string(&whole).unwrap();
        assert!(!text.contains("histories"), "{text}");
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), whole);
        assert_eq!(whole.called(End::Target), "two (b by cart_id)");
        let text = serde_json::to_string(&apart).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), apart);
        let called = "one (a by cart_id, finished ones on h)";
        assert_eq!(apart.called(End::Source), called);
        assert_eq!(apart.called(End::Target), "two (b by cart_id)");
        let mixed = written.replace(r#""scope":{"slots":["0-2047"]},"#, "");
        let refused = serde_json::from_str::<Plan>(&mixed).unwrap_err();
        assert!(refused.to_string().contains("two placements"), "{refused}");
        for name in ["", "Carts", "a b", &"a".repeat(81)] {
            assert!(MoveName::new(name).is_err(), "{name}");
        }
    }
}
