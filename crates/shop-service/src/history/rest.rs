//! When finished orders may leave the live ones (W46).
//!
//! While orders are on their way to another layout nothing is archived: a removal that came after the cutover would
//! take the order from where it is served now, and no history would be asked for it there. So whoever archives looks
//! whether a move has begun, and holds a permit for the generation that it saw *before* it looked. A move stands in
//! the list before it publishes its barrier: whoever looks under the barrier, or later, finds it; whoever looked
//! before may write under the older map alone, and that ends with the barrier.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use engine_api::Generation;
use router::Router;

use super::OrderHistory;

/// Knows whether orders stay where the map has them.
#[async_trait]
pub trait Rest: Send + Sync + fmt::Debug {
    /// Whether no move to another layout that has begun has not ended.
    async fn are_orders_at_rest(&self) -> Result<bool, RestError>;
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody knows whether orders are being moved: {reason}")]
pub struct RestError {
    pub reason: String,
}

/// Permits of one process to archive.
#[derive(Debug)]
pub(super) struct Permits {
    history: OrderHistory,
    router: Arc<Router>,
    granted: Mutex<Option<Generation>>,
}

impl Permits {
    pub(super) fn new(history: OrderHistory, router: Arc<Router>) -> Permits {
        Permits {
            history,
            router,
            granted: Mutex::default(),
        }
    }

    /// The map under which orders may be removed, and no other.
    pub(super) async fn permit(&self) -> Result<Option<Generation>, RestError> {
        let map = self.router.map();
        if !self.history.is_of(&map) {
            return Ok(None);
        }
        let generation = map.generation;
        let Some(rest) = &self.history.rest else {
            return Ok(Some(generation));
        };
        // As long as no other map is published, no move has begun.
        if *self.granted() == Some(generation) {
            return Ok(Some(generation));
        }
        if !rest.are_orders_at_rest().await? {
            return Ok(None);
        }
        *self.granted() = Some(generation);
        Ok(Some(generation))
    }

    fn granted(&self) -> MutexGuard<'_, Option<Generation>> {
        self.granted
            .lock()
            .expect("no code panics while it holds the lock")
    }
}
