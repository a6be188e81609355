//! Shards that come while the process serves.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use engine_api::Engine;
use router::ShardName;

use super::as_engines;
use crate::metered::Metered;

/// The shards that this process has open. Whoever looks after them looks here each time.
#[derive(Clone, Debug)]
pub struct OpenShards(Arc<RwLock<BTreeMap<ShardName, Arc<Metered>>>>);

impl OpenShards {
    pub fn new(engines: BTreeMap<ShardName, Arc<Metered>>) -> OpenShards {
        OpenShards(Arc::new(RwLock::new(engines)))
    }

    /// As they are now.
    pub fn all(&self) -> BTreeMap<ShardName, Arc<Metered>> {
        let engines = self.0.read();
        engines
            .expect("no code panics while it holds the lock")
            .clone()
    }

    pub fn engines(&self) -> BTreeMap<ShardName, Arc<dyn Engine>> {
        as_engines(&self.all())
    }

    pub fn add(&self, name: ShardName, engine: Arc<Metered>) {
        let engines = self.0.write();
        engines
            .expect("no code panics while it holds the lock")
            .insert(name, engine);
    }
}
