//! A layout, the one that its collections are moved to, and the map over both.

mod archiving;
mod naming;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use engine_api::{Engine, RealWorld, Scan, World};
use layout::Scope;
use mover::Moved;
use router::{KeeperError, Map, MapKeeper, ShardName};

use super::deployed::{Control, Plan, Reach, Spot, placements, prefixed};
use super::mark::Mark;
use super::{Layouts, Listed, Roster};
use crate::config::Config;
use crate::metered::Metered;

pub(super) use archiving::Archiving;
pub use naming::Named;
use naming::name_shards;

#[derive(Debug)]
pub struct Deployment {
    config: Config,
    /// The layout that is served, then the one that is moved to.
    pub plans: Vec<Plan>,
    pub control: Control,
    /// As it was when the control shard was opened.
    roster: Roster,
}

/// The layout that is served, then the one that is moved to, with what the map calls their shards. Opens nothing.
pub fn plans(config: &Config, file: &Path, named: &Named, roster: &Roster) -> Result<Vec<Plan>> {
    let mut plans = vec![Plan::of(config, file)?];
    if let Some(toward) = &config.toward {
        plans.push(Plan::of(config, toward)?);
    }
    if let [here, toward] = &plans[..] {
        ensure!(
            here.layout.name != toward.layout.name,
            "{} and {} are both called {}: give one of them another name",
            here.file.display(),
            toward.file.display(),
            here.layout.name
        );
    }
    let kept = config.control.as_deref().unwrap_or(file);
    let mark = match Plan::of(config, kept)?.keeps_map_in_folder()? {
        true => None,
        false => Mark::read(&config.data)?,
    };
    name_shards(&mut plans, named, roster, mark.as_ref())?;
    Ok(plans)
}

impl Deployment {
    /// Reads the files and opens the control shard; nothing else.
    pub async fn open(config: &Config, file: &Path) -> Result<Deployment> {
        // What is wrong with files and settings is told before anybody is asked.
        let unnamed = plans(config, file, &Named::default(), &Roster::default())?;
        check_told(config, &unnamed)?;
        let control = Control::open(config, file).await?;
        let roster = Roster::load(control.store.as_ref()).await?;
        let named = Named::load(control.store.as_ref(), control.map.as_deref()).await?;
        let deployment = Deployment {
            config: config.clone(),
            plans: plans(config, file, &named, &roster)?,
            control,
            roster,
        };
        deployment.check_places()?;
        Ok(deployment)
    }

    /// The layout that is served.
    pub fn here(&self) -> &Plan {
        &self.plans[0]
    }

    /// Of the layout files, as the map calls them.
    pub fn names(&self) -> BTreeSet<ShardName> {
        let of_plan = |plan: &Plan| -> Vec<ShardName> {
            plan.shards.keys().map(|name| plan.called(name)).collect()
        };
        self.plans.iter().flat_map(of_plan).collect()
    }

    /// These, and those that were added.
    pub fn all_names(&self) -> BTreeSet<ShardName> {
        let mut names = self.names();
        let listed = self.roster.shards().iter();
        let ours = listed.filter(|(_, listed)| self.plan_of(listed).is_some());
        names.extend(ours.map(|(name, _)| name.clone()));
        names
    }

    /// The layout that a shard was added to; `None` if it was left.
    pub fn plan_of(&self, listed: &Listed) -> Option<&Plan> {
        let mut plans = self.plans.iter();
        plans.find(|plan| plan.layout.name == listed.layout)
    }

    /// Whether two shards on the same servers would have the same tables. Of a layout that was left nothing is known.
    pub fn share_tables(&self, one: &Listed, other: &Listed) -> bool {
        if one.layout == other.layout {
            return one.engine == other.engine;
        }
        let space = |listed: &Listed| self.plan_of(listed)?.space(&listed.engine);
        match (space(one), space(other)) {
            (Some(one), Some(other)) => one == other,
            (None, _) | (_, None) => true,
        }
    }

    pub(super) fn reach(&self) -> Reach {
        match self.control.is_folder {
            true => Reach::ThisProcess,
            false => Reach::AnyProcess,
        }
    }

    /// Whether this process has the data directory, or part of it.
    pub(super) fn uses_directory(&self) -> bool {
        self.control.is_folder || self.plans.iter().any(Plan::has_folders)
    }

    /// Two processes may have marked one directory at the same moment; the one that has its lock looks again.
    pub(super) fn check_mark(&self) -> Result<()> {
        for plan in self.plans.iter().filter(|plan| plan.has_folders()) {
            ensure!(
                plan.mark.is_none() || plan.mark == Mark::read(&self.config.data)?,
                "{} was marked by another process at this moment: start again",
                self.config.data.display()
            );
        }
        Ok(())
    }

    /// Both layouts, and where the second has each collection; `None` if nothing is to be moved.
    pub(super) fn layouts(&self) -> Result<Option<Layouts>> {
        let [here, toward] = &self.plans[..] else {
            return Ok(None);
        };
        let folders = here.folders().into_iter().chain(toward.folders());
        let mut histories = BTreeMap::new();
        for plan in &self.plans {
            if let Some(shard) = plan.history_shard()? {
                histories.insert(plan.layout.name.clone(), shard);
            }
        }
        Ok(Some(Layouts {
            placements: placements(toward)?,
            here: here.layout.clone(),
            toward: toward.layout.clone(),
            folders: folders.collect(),
            histories,
        }))
    }

    /// A shard of a layout's file.
    pub(super) async fn open_one(&self, plan: &Plan, name: &ShardName) -> Result<Arc<Metered>> {
        match self.control.opened_of(plan, name) {
            Some(opened) => Ok(opened),
            None => Ok(plan.open(name, &plan.shards[name]).await?.engine),
        }
    }

    /// By what the map calls them, of the files and of the roster.
    pub(super) async fn open_some(
        &self,
        asked: impl Fn(&ShardName) -> bool,
    ) -> Result<BTreeMap<ShardName, Arc<dyn Engine>>> {
        let mut engines: BTreeMap<ShardName, Arc<dyn Engine>> = BTreeMap::new();
        for plan in &self.plans {
            for name in plan.shards.keys() {
                let called = plan.called(name);
                if asked(&called) {
                    engines.insert(called, self.open_one(plan, name).await?);
                }
            }
        }
        for (name, listed) in self.roster.shards() {
            if !asked(name) || engines.contains_key(name) {
                continue;
            }
            if let Some(plan) = self.plan_of(listed) {
                engines.insert(name.clone(), plan.open_listed(name, listed).await?.engine);
            }
        }
        Ok(engines)
    }

    /// Adds those of the roster. What cannot be opened and has no keys is told and left for later.
    pub(super) async fn open_added(
        &self,
        engines: &mut BTreeMap<ShardName, Arc<Metered>>,
    ) -> Result<BTreeMap<ShardName, String>> {
        let mut failed = BTreeMap::new();
        let map = MapKeeper::new(self.control.store.clone()).load().await?;
        for (name, listed) in self.roster.shards() {
            let Some(plan) = self.plan_of(listed) else {
                continue;
            };
            if engines.contains_key(name) {
                continue;
            }
            let has_keys = map.as_ref().is_some_and(|map| map.shards().contains(name));
            match plan.open_listed(name, listed).await {
                Ok(opened) => {
                    engines.insert(name.clone(), opened.engine);
                }
                Err(error) if has_keys => return Err(error),
                Err(error) => {
                    let error = error.to_string();
                    tracing::warn!(
                        shard = name.as_str(),
                        error,
                        "a shard that was added cannot be opened"
                    );
                    failed.insert(name.clone(), error);
                }
            }
        }
        Ok(failed)
    }

    /// No two shards are in one place: the tables of two layouts would be one.
    fn check_places(&self) -> Result<()> {
        let [here, toward] = &self.plans[..] else {
            return Ok(());
        };
        for (name, engine) in &toward.shards {
            let place = toward.place(name, engine);
            let is_there = |(other, engine): &(&ShardName, &String)| {
                place.is_some() && here.place(other, engine) == place
            };
            if let Some((other, _)) = here.shards.iter().find(is_there) {
                bail!(
                    "{} of {} and {name} of {} are in one place, and their tables would be the same: give engine {engine} another keyspace there",
                    other,
                    here.file.display(),
                    toward.file.display(),
                );
            }
            let Some((kind, (address, _))) = toward.space(engine).map(|it| it.0).zip(place) else {
                continue;
            };
            let listed = Listed {
                layout: toward.layout.name.clone(),
                engine: engine.clone(),
                address,
            };
            let spot = Spot::of(kind, &listed.address);
            let is_there = |(_, added): &(&ShardName, &Listed)| {
                added.layout == here.layout.name
                    && self.share_tables(added, &listed)
                    && Spot::of(kind, &added.address).meets(&spot)
            };
            if let Some((added, _)) = self.roster.shards().iter().find(is_there) {
                bail!(
                    "{added}, which was added to {}, and {name} of {} are in one place, and their tables would be the same: give engine {engine} another keyspace there",
                    here.file.display(),
                    toward.file.display(),
                );
            }
        }
        Ok(())
    }

    /// The map that stands must be of these layouts: another one is a move, not a start.
    pub(super) async fn settle_map(&self) -> Result<()> {
        let Some(map) = &self.control.map else {
            return self.make_map().await;
        };
        let layouts: Vec<&str> = self
            .plans
            .iter()
            .map(|it| it.layout.name.as_str())
            .collect();
        let known = self.all_names();
        for (collection, standing) in &map.collections {
            ensure!(
                layouts.contains(&standing.layout.as_str()),
                "{collection} are kept by layout {}, and {} is {}: start with the former, and move them",
                standing.layout,
                self.here().file.display(),
                layouts[0]
            );
            let missing = |shard: &&&ShardName| !known.contains(**shard);
            if let Some(shard) = standing.shards().iter().find(missing) {
                let of_layout = |plan: &&Plan| plan.layout.name == standing.layout;
                let plan = self.plans.iter().find(of_layout);
                let file = &plan.unwrap_or(self.here()).file;
                bail!(
                    "{collection} are on shard {shard}, which {} does not have: serve with the file or the data directory that has it, or restore it from a copy",
                    file.display()
                );
            }
        }
        Ok(())
    }

    async fn make_map(&self) -> Result<()> {
        let here = self.here();
        let file = here.file.display();
        ensure!(
            self.config.control.is_none(),
            "there is no map where --control says: name the layout that {file} was moved from"
        );
        // A map of its own over records that another map gives away would be a second shop.
        for name in here.shards.keys() {
            let opened = self.open_one(here, name).await?;
            refuse_second_shop(&here.called(name), opened.as_ref(), &here.file).await?;
        }
        let reason = format!("the first map, of layout {}", here.layout.name);
        let first = Map::first(placements(here)?).noted(RealWorld::new().now(), &reason);
        let keeper = MapKeeper::new(self.control.store.clone());
        match keeper.publish(&first).await {
            // The answer was lost, or someone was first: the standing map decides.
            Ok(()) | Err(KeeperError::Lost { .. } | KeeperError::OutcomeUnknown { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves of whole collections that have not ended need all their shards here.
    pub(super) async fn check_moves(
        &self,
        engines: &BTreeMap<ShardName, Arc<Metered>>,
    ) -> Result<()> {
        for (name, record) in mover::list(self.control.store.as_ref()).await? {
            let Some(state) = record.map(|record| record.state) else {
                continue;
            };
            let Moved::Whole { source, target, .. } = &state.plan.moved else {
                continue;
            };
            if state.phase.is_over() {
                continue;
            }
            let mut shards = state.plan.all_shards().into_iter();
            let missing = shards.find(|it| !engines.contains_key(*it));
            if let Some(shard) = missing {
                bail!(
                    "move {name} ({}) needs shard {shard}: serve layout {} toward {} until it is completed or rolled back",
                    state.phase.name(),
                    source.layout,
                    target.layout
                );
            }
        }
        Ok(())
    }
}

/// Every address belongs to a shard; where another layout keeps the map, some may be of that one.
pub(super) fn check_told(config: &Config, plans: &[Plan]) -> Result<()> {
    let addresses = config.addresses.by_shard()?;
    let mut known = BTreeSet::new();
    let mut names = Vec::new();
    for plan in plans {
        for name in plan.shards.keys() {
            known.extend([name.to_string(), prefixed(&plan.layout, name)]);
            names.push(plan.called(name).to_string());
        }
    }
    let unknown = addresses.keys().find(|told| !known.contains(**told));
    match unknown {
        Some(unknown) if config.control.is_none() => bail!(
            "--address {unknown}: {} has no such shard, it has {}",
            plans[0].file.display(),
            names.join(", ")
        ),
        _ => Ok(()),
    }
}

/// A map of its own over records that another map gives away.
pub(super) async fn refuse_second_shop(
    name: &ShardName,
    engine: &dyn Engine,
    file: &Path,
) -> Result<()> {
    for collection in engine.capabilities().collections.clone() {
        let scan = Scan {
            collection,
            scope: Scope::All,
            after: None,
            until: None,
            limit: 1,
        };
        // Marks count as well.
        ensure!(
            engine.scan(&scan).await?.images.is_empty(),
            "{name} has {collection} and the control shard of {} has no map: if they were moved here, name the layout whose control shard keeps the map with --control FILE; otherwise empty it",
            file.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
