//! Shards of a layout on servers that were added after this process began: looked for every second, opened, and given
//! to the router, which says in its lease that it has them (W44). Keys come later, by moves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Result;
use engine_api::Engine;
use router::{Router, ShardName};
use shop_service::OrderHistory;

use super::{Deployment, Listed, OpenShards, Roster, keeps_orders};
use crate::faults;
use crate::metered::Metered;

/// How soon a shard that was added is opened.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct LateShards {
    deployment: Arc<Deployment>,
    router: Arc<Router>,
    open: OpenShards,
    failed: Arc<Mutex<BTreeMap<ShardName, String>>>,
    /// Of layouts whose finished orders go to one.
    histories: Vec<OrderHistory>,
}

/// A shard that was just opened.
pub struct Came {
    pub name: ShardName,
    pub engine: Arc<Metered>,
    /// Where finished orders go from it, if anywhere.
    pub history: Option<OrderHistory>,
}

impl LateShards {
    pub fn new(
        deployment: Arc<Deployment>,
        router: Arc<Router>,
        open: OpenShards,
        failed: BTreeMap<ShardName, String>,
        histories: Vec<OrderHistory>,
    ) -> LateShards {
        LateShards {
            deployment,
            router,
            open,
            failed: Arc::new(Mutex::new(failed)),
            histories,
        }
    }

    /// Opens what is new, and says what came. What cannot be opened is tried again at the next look.
    pub async fn look(&self) -> Result<Vec<Came>> {
        let roster = Roster::load(self.deployment.control.store.as_ref()).await?;
        self.failed()
            .retain(|name, _| roster.shards().contains_key(name));
        let known = self.open.all();
        let mut came = Vec::new();
        for (name, listed) in roster.shards() {
            let Some(plan) = self.deployment.plan_of(listed) else {
                continue;
            };
            if known.contains_key(name) {
                continue;
            }
            let opened = match plan.open_listed(name, listed).await {
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
            came.push(Came {
                name: name.clone(),
                history: self.history_of(listed).filter(|_| keeps_orders(&opened)),
                engine: opened,
            });
        }
        Ok(came)
    }

    fn history_of(&self, listed: &Listed) -> Option<OrderHistory> {
        let of_layout = |history: &&OrderHistory| history.layout() == Some(&listed.layout);
        self.histories.iter().find(of_layout).cloned()
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
