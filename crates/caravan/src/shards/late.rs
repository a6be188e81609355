//! Shards of a layout on servers that were added after this process began: looked for every second, opened, and given
//! to the router, which says in its lease that it has them (W44). Keys come later, by moves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Result;
use engine_api::{ControlStore, Engine};
use router::{Router, ShardName};

use super::{OpenShards, Plan, Roster};
use crate::faults;
use crate::metered::Metered;

/// How soon a shard that was added is opened.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct LateShards {
    plan: Arc<Plan>,
    control: Arc<dyn ControlStore>,
    router: Arc<Router>,
    open: OpenShards,
    failed: Arc<Mutex<BTreeMap<ShardName, String>>>,
}

impl LateShards {
    pub fn new(
        plan: Arc<Plan>,
        control: Arc<dyn ControlStore>,
        router: Arc<Router>,
        open: OpenShards,
        failed: BTreeMap<ShardName, String>,
    ) -> LateShards {
        LateShards {
            plan,
            control,
            router,
            open,
            failed: Arc::new(Mutex::new(failed)),
        }
    }

    /// Opens what is new, and says what came. What cannot be opened is tried again at the next look.
    pub async fn look(&self) -> Result<BTreeMap<ShardName, Arc<Metered>>> {
        let roster = Roster::load(self.control.as_ref()).await?;
        self.failed()
            .retain(|name, _| roster.shards().contains_key(name));
        let known = self.open.all();
        let mut came = BTreeMap::new();
        for (name, listed) in roster.shards() {
            if known.contains_key(name) {
                continue;
            }
            let opened = match self.plan.open_listed(name, listed).await {
                Ok(opened) => opened.engine,
                Err(error) => {
                    self.tell(name, error.to_string());
                    continue;
                }
            };
            let routed: Arc<dyn Engine> = opened.clone();
            for (name, engine) in faults::of_writes(BTreeMap::from([(name.clone(), routed)]))? {
                self.router.add_shard(name, engine)?;
            }
            self.open.add(name.clone(), opened.clone());
            self.failed().remove(name);
            tracing::info!(shard = name.as_str(), "a shard that was added is open");
            came.insert(name.clone(), opened);
        }
        Ok(came)
    }

    /// What this process cannot open, with the reasons.
    pub fn troubles(&self) -> Vec<String> {
        self.failed().values().cloned().collect()
    }

    /// The same failure again and again is told once.
    fn tell(&self, name: &ShardName, error: String) {
        let before = self.failed().insert(name.clone(), error.clone());
        if before.as_ref() != Some(&error) {
            tracing::warn!(
                shard = name.as_str(),
                error,
                "a shard that was added cannot be opened"
            );
        }
    }

    fn failed(&self) -> MutexGuard<'_, BTreeMap<ShardName, String>> {
        self.failed
            .lock()
            .expect("no code panics while it holds the lock")
    }
}
