//! The map in force, and a bell for those who wait for the next one.
//!
//! Not `tokio::sync::watch`: it wakes its receivers in an order drawn at random,
//! and a simulated seed has to replay exactly. These wake in the order they came.

use std::sync::{Arc, RwLock};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::map::Map;

#[derive(Debug)]
pub(crate) struct CurrentMap {
    map: RwLock<Arc<Map>>,
    bell: Notify,
}

impl CurrentMap {
    pub(crate) fn new(map: Arc<Map>) -> CurrentMap {
        CurrentMap {
            map: RwLock::new(map),
            bell: Notify::new(),
        }
    }

    pub(crate) fn get(&self) -> Arc<Map> {
        let map = self.map.read();
        map.expect("no code panics while it holds the lock").clone()
    }

    /// Takes the map over if it is newer, and wakes who waits.
    pub(crate) fn install(&self, map: Arc<Map>) {
        let mut current = self
            .map
            .write()
            .expect("no code panics while it holds the lock");
        if map.generation > current.generation {
            *current = map;
            drop(current);
            self.bell.notify_waiters();
        }
    }

    /// Ends at the first change after this call: ask for it before looking at the map.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.bell.notified()
    }
}
