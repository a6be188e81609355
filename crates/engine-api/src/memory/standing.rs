//! A copy that stands still, for whoever may be shown something older: what a
//! secondary is to a server, without one.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::{MemoryEngine, State};
use crate::context::{Aged, Because, Freshness, ReadContext, Served};
use crate::revision::Revision;

#[derive(Debug)]
pub(super) struct Standing {
    state: State,
    /// The newest change that it shows.
    newest: Revision,
    age: Duration,
}

impl MemoryEngine {
    /// From now on readers who may lag are shown what is there now, as being this old.
    pub fn stand_still(&self, age: Duration) {
        let records = self.lock().records.clone();
        let newest = records.values().map(|record| record.newest_revision());
        let standing = Standing {
            newest: newest.max().unwrap_or_default(),
            state: State {
                records,
                ..State::default()
            },
            age,
        };
        *self.standing() = Some(Arc::new(standing));
    }

    /// Everybody is shown the same again.
    pub fn catch_up(&self) {
        *self.standing() = None;
    }

    pub(super) fn aged<T>(&self, context: ReadContext, read: impl Fn(&State) -> T) -> Aged<T> {
        let standing = self.standing().clone();
        let because = match (standing, context.freshness) {
            (None, _) | (_, Freshness::Latest | Freshness::OfEveryCopy) => Because::Asked,
            (Some(copy), Freshness::MayLag { seconds, seen }) => {
                if seen > copy.newest {
                    Because::Token
                } else if copy.age > Duration::from_secs(u64::from(seconds)) {
                    Because::Behind
                } else {
                    let age_max = Some(copy.age);
                    return Aged {
                        answer: read(&copy.state),
                        served: Served::Lagging { age_max },
                    };
                }
            }
        };
        Aged::latest(read(&self.lock()), because)
    }

    fn standing(&self) -> MutexGuard<'_, Option<Arc<Standing>>> {
        self.standing
            .lock()
            .expect("no code panics while it holds the lock")
    }
}
