//! The roster: shards that came after the layout file was written, the layout and its engine that each is of, and where
//! it is. One control value, changed by compare-and-set, and read by every process. It holds no passwords.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use engine_api::{ControlStore, SetOutcome};
use router::ShardName;
use serde::{Deserialize, Serialize};

/// The name of the roster in the control store.
const ROSTER_NAME: &str = "shards";

/// Shards that can be added to one layout: every process has all of them open.
const LISTED_MAX: usize = 64;

const CHANGE_ATTEMPTS_MAX: u32 = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roster {
    shards: BTreeMap<ShardName, Listed>,
    /// A process that had one of these open still has it, so that no name may ever mean another place.
    #[serde(default)]
    removed: BTreeSet<ShardName>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// By its name: a layout that was moved away from leaves its shards listed.
    pub layout: String,
    /// Of the layout.
    pub engine: String,
    /// Without a password: each process has the one of its own settings.
    pub address: String,
}

impl Roster {
    pub async fn load(control: &dyn ControlStore) -> Result<Roster> {
        Ok(load(control).await?.0)
    }

    /// Changes it, on top of whatever others changed meanwhile.
    pub async fn change(
        control: &dyn ControlStore,
        change: impl Fn(&Roster) -> Result<Roster>,
    ) -> Result<()> {
        for _ in 0..CHANGE_ATTEMPTS_MAX {
            let (roster, number) = load(control).await?;
            let next = change(&roster)?;
            if next == roster {
                return Ok(());
            }
            let bytes = serde_json::to_vec(&next).expect("names and addresses become JSON");
            let set = control.compare_and_set(ROSTER_NAME, number, bytes).await?;
            if let SetOutcome::Set { .. } = set {
                return Ok(());
            }
        }
        bail!("others changed the list of shards {CHANGE_ATTEMPTS_MAX} times in between: try again")
    }

    pub fn shards(&self) -> &BTreeMap<ShardName, Listed> {
        &self.shards
    }

    pub fn removed(&self) -> &BTreeSet<ShardName> {
        &self.removed
    }

    /// Refuses a name that had another meaning.
    pub fn with(&self, name: &ShardName, listed: &Listed) -> Result<Roster> {
        if self.shards.get(name) == Some(listed) {
            return Ok(self.clone());
        }
        ensure!(
            !self.shards.contains_key(name),
            "there is a shard {name} already: choose another name"
        );
        ensure!(
            !self.removed.contains(name),
            "there was a shard {name}, and processes may still have it open: choose another name"
        );
        ensure!(
            self.shards.len() < LISTED_MAX,
            "{LISTED_MAX} shards were added, and no more can be: remove one, or name them in the layout file"
        );
        let mut next = self.clone();
        next.shards.insert(name.clone(), listed.clone());
        Ok(next)
    }

    pub fn without(&self, name: &ShardName) -> Result<Roster> {
        let mut next = self.clone();
        next.shards.remove(name).with_context(|| {
            format!("no shard {name} was added: caravan shard list shows which were")
        })?;
        next.removed.insert(name.clone());
        Ok(next)
    }

    /// After a removal that came too late.
    pub fn back(&self, name: &ShardName, listed: &Listed) -> Roster {
        let mut next = self.clone();
        next.removed.remove(name);
        next.shards.insert(name.clone(), listed.clone());
        next
    }
}

async fn load(control: &dyn ControlStore) -> Result<(Roster, Option<u64>)> {
    let Some(value) = control.control_get(ROSTER_NAME).await? else {
        return Ok((Roster::default(), None));
    };
    let roster = serde_json::from_slice(&value.bytes).map_err(|error| {
        anyhow::anyhow!("the list of shards cannot be read ({error}): restore it from a copy")
    })?;
    Ok((roster, Some(value.number)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine_api::memory::MemoryEngine;

    use super::*;

    fn shard(name: &str) -> ShardName {
        ShardName::new(name).unwrap()
    }

    fn at(address: &str) -> Listed {
        Listed {
            layout: "mongo-sharded".to_owned(),
            engine: "mongo".to_owned(),
            address: address.to_owned(),
        }
    }

    #[tokio::test]
    async fn a_name_means_one_place_for_ever() {
        let control: Arc<MemoryEngine> = Arc::default();
        let control = control.as_ref();
        let add = |name: &'static str, address: &'static str| async move {
            Roster::change(control, |roster| roster.with(&shard(name), &at(address))).await
        };
        add("shard-3", "mongodb://db3").await.unwrap();
        add("shard-3", "mongodb://db3").await.unwrap();
        let other = add("shard-3", "mongodb://db4").await.unwrap_err();
        assert!(other.to_string().contains("there is a shard shard-3"));
        let remove = |roster: &Roster| roster.without(&shard("shard-3"));
        Roster::change(control, remove).await.unwrap();
        assert!(Roster::load(control).await.unwrap().shards().is_empty());
        let again = add("shard-3", "mongodb://db4").await.unwrap_err();
        assert!(again.to_string().contains("there was a shard shard-3"));
        let gone = Roster::change(control, remove).await.unwrap_err();
        assert!(gone.to_string().contains("no shard shard-3 was added"));
        let back = |roster: &Roster| Ok(roster.back(&shard("shard-3"), &at("mongodb://db3")));
        Roster::change(control, back).await.unwrap();
        let roster = Roster::load(control).await.unwrap();
        assert_eq!(roster.shards()[&shard("shard-3")], at("mongodb://db3"));
    }
}
