//! Writers of one record take turns within a process, because a
//! compare-and-swap lets only one of them win at a time. Those of other processes
//! are met in the swap itself.

use std::hash::{BuildHasher, RandomState};

use engine_api::RecordKey;
use tokio::sync::{Mutex, MutexGuard};

/// Records share a turn when their hashes do. More of them than writers are
/// usually under way.
const TURNS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Turns {
    hasher: RandomState,
    turns: Vec<Mutex<()>>,
}

impl Turns {
    pub fn new() -> Turns {
        Turns {
            hasher: RandomState::new(),
            turns: (0..TURNS).map(|_| Mutex::new(())).collect(),
        }
    }

    /// Waits in the order of asking.
    pub async fn take(&self, key: &RecordKey) -> MutexGuard<'_, ()> {
        let hash = self.hasher.hash_one((key.collection, key.id.as_str()));
        self.turns[(hash % TURNS as u64) as usize].lock().await
    }
}
