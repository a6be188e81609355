//! What the map calls the shards of layouts.
//!
//! A shard is called in the map as in its layout. Where both layouts have the same name for two shards, the one that is
//! moved to is called LAYOUT-SHARD. It keeps that name as long as the map has it, or a move that has not ended: also when
//! its layout is served alone later, and when collections go back from it.
//! A folder has the mark of its directory in its name, where the map is not in that directory (`mark.rs`).
//! One that was added later is called in the map as in the roster, which says what layout it is of.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use engine_api::ControlStore;
use mover::{End, Moved};
use router::{CollectionMap, Map, ShardName};

use super::super::deployed::{Plan, prefixed};
use super::super::mark::Mark;
use super::super::roster::Roster;

/// The names that shards have already, by their layouts.
#[derive(Debug, Default)]
pub struct Named(BTreeMap<String, BTreeSet<ShardName>>);

impl Named {
    /// By the map, and by moves that have not ended: where all is moved away from a layout the map names none of its
    /// shards any more, and the way back leads there.
    pub async fn load(control: &dyn ControlStore, map: Option<&Map>) -> Result<Named> {
        let mut named = Named::default();
        for standing in map.iter().flat_map(|map| map.collections.values()) {
            named.add(standing, standing.shards());
        }
        for (_, record) in mover::list(control).await? {
            let Some(state) = record.map(|record| record.state) else {
                continue;
            };
            if state.phase.is_over() {
                continue;
            }
            if let Moved::Whole { source, target, .. } = &state.plan.moved {
                named.add(source, state.plan.stores(End::Source));
                named.add(target, state.plan.stores(End::Target));
            }
        }
        Ok(named)
    }

    pub(super) fn add(&mut self, placement: &CollectionMap, shards: BTreeSet<&ShardName>) {
        let of_layout = self.0.entry(placement.layout.clone()).or_default();
        of_layout.extend(shards.into_iter().cloned());
    }

    fn is_named(&self, layout: &str, name: &ShardName) -> bool {
        self.0.get(layout).is_some_and(|named| named.contains(name))
    }

    fn is_of_another(&self, layout: &str, name: &ShardName) -> bool {
        let mut others = self.0.iter().filter(|(other, _)| *other != layout);
        others.any(|(_, named)| named.contains(name))
    }
}

/// Says what the map calls each shard.
pub(super) fn name_shards(
    plans: &mut [Plan],
    named: &Named,
    roster: &Roster,
    mark: Option<&Mark>,
) -> Result<()> {
    let mut taken: BTreeSet<ShardName> = BTreeSet::new();
    for plan in plans {
        let layout = plan.layout.name.as_str();
        let listed = roster.shards().iter();
        let of_others = listed.filter(|(_, listed)| listed.layout != layout);
        taken.extend(of_others.map(|(name, _)| name.clone()));
        let mut called = BTreeMap::new();
        for name in plan.shards.keys() {
            let marked = |text: String| match mark {
                Some(mark) if plan.is_folder(name) => ShardName::new(format!("{text}-{mark}")),
                _ => ShardName::new(text),
            };
            let plain = marked(name.to_string())?;
            let other = marked(prefixed(&plan.layout, name))?;
            let is_free = !taken.contains(&plain) && !named.is_of_another(layout, &plain);
            let is_plain = named.is_named(layout, &plain) || is_free;
            let chosen = match named.is_named(layout, &other) || !is_plain {
                true => other,
                false => plain,
            };
            if chosen != *name {
                called.insert(name.clone(), chosen);
            }
        }
        plan.called = called;
        plan.mark = mark.cloned();
        taken.extend(plan.shards.keys().map(|name| plan.called(name)));
        // A process that had one of these open may still have it, under that name.
        taken.extend(roster.removed().iter().cloned());
    }
    Ok(())
}
