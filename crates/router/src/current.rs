//! The map in force, and a bell for those who wait for the next one.
//!
//! Not `tokio::sync::watch`: it wakes its receivers in an order drawn at random,
//! and a simulated seed has to replay exactly. These wake in the order they came.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::map::Map;

#[derive(Debug)]
pub(crate) struct CurrentMap {
    held: RwLock<Held>,
    bell: Notify,
}

/// A map, and since when this process has it, by its own clock.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) map: Arc<Map>,
    pub(crate) since: Duration,
}

impl CurrentMap {
    pub(crate) fn new(map: Arc<Map>, since: Duration) -> CurrentMap {
        CurrentMap {
            held: RwLock::new(Held { map, since }),
            bell: Notify::new(),
        }
    }

    pub(crate) fn get(&self) -> Arc<Map> {
        let held = self.held.read();
        held.expect("no code panics while it holds the lock")
            .map
            .clone()
    }

    pub(crate) fn held(&self) -> Held {
        let held = self.held.read();
        held.expect("no code panics while it holds the lock")
            .clone()
    }

    /// Takes the map over if it is newer, and wakes who waits.
    pub(crate) fn install(&self, map: Arc<Map>, since: Duration) {
        let mut current = self
            .held
            .write()
            .expect("no code panics while it holds the lock");
        if map.generation > current.map.generation {
            *current = Held { map, since };
            drop(current);
            self.bell.notify_waiters();
        }
    }

    /// Ends at the first change after this call: ask for it before looking at the map.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.bell.notified()
    }
}
