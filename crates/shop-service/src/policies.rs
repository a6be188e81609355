//! What the layouts allow those who only look: how old an answer may be, by operation.

use std::collections::BTreeMap;

use engine_api::{Freshness, Revision};
use layout::{Collection, Consistency, Layout, Operation, Policy};
use router::Map;

/// The policies of the layouts that a map may name. What is not here is read as it
/// is now.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// By layout and collection; those that allow no lag at all are left out.
    lagging: BTreeMap<String, BTreeMap<Collection, Consistency>>,
}

/// What one read may be shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed<'a> {
    pub(crate) freshness: Freshness,
    /// `None`: the latest only.
    pub(crate) policy: Option<&'a Policy>,
}

impl Policies {
    /// Of layouts that were checked: what their engines cannot keep was refused there.
    pub fn of<'a>(layouts: impl IntoIterator<Item = &'a Layout>) -> Policies {
        let mut lagging = BTreeMap::new();
        for layout in layouts {
            let collections: BTreeMap<Collection, Consistency> = layout
                .collections
                .iter()
                .map(|(collection, declared)| (*collection, declared.live.consistency.clone()))
                .filter(|(_, consistency)| may_lag(consistency))
                .collect();
            if !collections.is_empty() {
                lagging.insert(layout.name.clone(), collections);
            }
        }
        Policies { lagging }
    }

    /// Whether everything is read as it is now, without looking further.
    pub(crate) fn is_empty(&self) -> bool {
        self.lagging.is_empty()
    }

    /// By the layout that the map names for the operation's collection.
    pub(crate) fn allowed(&self, map: &Map, operation: Operation, seen: Revision) -> Allowed<'_> {
        let layout = map.collections.get(&operation.home());
        let policy = layout
            .and_then(|collection| self.lagging.get(&collection.layout))
            .and_then(|collections| collections.get(&operation.home()))
            .map(|consistency| consistency.policy(operation));
        let freshness = policy.map_or(Freshness::Latest, |policy| Freshness::allowed(policy, seen));
        Allowed {
            freshness,
            policy: policy.filter(|_| freshness != Freshness::Latest),
        }
    }
}

fn may_lag(consistency: &Consistency) -> bool {
    consistency
        .policies()
        .any(|(_, policy)| Freshness::allowed(policy, Revision::ZERO) != Freshness::Latest)
}

#[cfg(test)]
mod tests {
    use layout::Field;
    use router::{CollectionMap, ShardName};

    use super::*;

    fn allowed(layout: &str, operation: Operation) -> Freshness {
        let text = std::fs::read_to_string(format!(
            "{}/../../layouts/{layout}.toml",
            env!("CARGO_MANIFEST_DIR")
        ));
        let file = Layout::parse(&text.unwrap(), layout).unwrap();
        let policies = Policies::of([&file]);
        let shard = ShardName::new("one").unwrap();
        let map = CollectionMap::on_one_shard(layout, vec![Field::UserId], shard);
        let map = Map::first(Collection::ALL.map(|it| (it, map.clone())).into());
        policies.allowed(&map, operation, Revision::ZERO).freshness
    }

    /// R3, as the layouts that ship have it.
    #[test]
    fn every_layout_lags_where_it_says_so_and_nowhere_else() {
        use Operation::{C2, O2, O3, O4, O5, P1, P2, P4, P6, S2};
        let check = |layout, operation, seconds: u32| {
            let expected = match seconds {
                0 => Freshness::Latest,
                seconds => Freshness::MayLag {
                    seconds,
                    seen: Revision::ZERO,
                },
            };
            assert_eq!(
                allowed(layout, operation),
                expected,
                "{layout} {operation:?}"
            );
        };
        for layout in ["mongo-sharded", "hybrid"] {
            check(layout, O2, 10);
            check(layout, O3, 5);
            check(layout, P1, 5);
            check(layout, P2, 5);
            for decides in [O4, O5, P4, P6, C2] {
                check(layout, decides, 0);
            }
        }
        check("mongo-sharded", S2, 0);
        for layout in ["hybrid", "cassandra-orders"] {
            check(layout, S2, Freshness::UNBOUNDED);
        }
        check("cassandra-orders", C2, Freshness::UNBOUNDED);
        for orders in [O2, O3, O5] {
            check("cassandra-orders", orders, 0);
            check("adr-010-1", orders, 0);
        }
        for operation in Operation::ALL {
            check("embedded", operation, 0);
        }
    }
}
