//! Many writers, one log: the threads between a request and its answer.
//!
//! ```text
//! writers ──▶ queue ──▶ judge ──▶ jobs ──▶ logger ──▶ groups ──▶ applier ──▶ answers
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::{self, JoinHandle};

use engine_api::{
    Change, EngineError, Fence, Maintained, Maintenance, MoverTerm, Outcome, Seal, SetOutcome,
    Timestamp, WriteContext,
};
use tokio::sync::{mpsc, oneshot};

use crate::checkpoint::Checkpointer;
use crate::directory::Directory;
use crate::judge::Judge;
use crate::log::{Checkpointed, Log};
use crate::pipeline::{Applier, GROUPS_MAX, Logger};
use crate::segment::Sequence;
use crate::state::{JobNumber, State};
use crate::store::{Store, StoreError};

/// Requests that wait; more are held back at the sender.
const QUEUE_REQUESTS_MAX: usize = 8192;

/// Jobs that wait for the logger; the judge waits when there are more.
const JOBS_MAX: usize = 32;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

pub(crate) enum Request {
    Apply {
        changes: Vec<Change>,
        context: WriteContext,
        reply: Reply<Outcome>,
    },
    RaiseFence {
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
        reply: Reply<Seal>,
    },
    ClaimTerm {
        term: MoverTerm,
        reply: Reply<()>,
    },
    CompareAndSet {
        name: String,
        expected: Option<u64>,
        bytes: Vec<u8>,
        reply: Reply<SetOutcome>,
    },
    Maintain {
        work: Maintenance,
        reply: Reply<Maintained>,
    },
    /// Everything into tables on disk.
    Rest {
        reply: Reply<()>,
    },
}

/// Commits and requests since the start, for metrics.
#[derive(Debug, Default)]
pub struct CommitCounts {
    pub commits: AtomicU64,
    pub requests: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Committer {
    queue: Option<mpsc::Sender<Request>>,
    threads: Vec<JoinHandle<()>>,
    progress: Arc<Progress>,
}

/// What the threads and the engine tell one another.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// On disk and readable.
    applied: Mutex<JobNumber>,
    moved_on: Condvar,
    journal_last: AtomicU64,
    pub counts: CommitCounts,
    /// Why nothing is written any more.
    failure: OnceLock<EngineError>,
}

/// What the threads work on.
pub(crate) struct Parts {
    pub state: State,
    pub store: Store,
    pub log: Box<dyn Log>,
    /// The last group that is applied.
    pub last: Sequence,
    pub checkpointed: Checkpointed,
    pub memory_bytes: u64,
    pub directory: Option<Arc<Directory>>,
}

impl Committer {
    pub(crate) fn start(parts: Parts) -> std::io::Result<Committer> {
        let (queue, requests) = mpsc::channel(QUEUE_REQUESTS_MAX);
        let (jobs, waiting_jobs) = sync_channel(JOBS_MAX);
        let (groups, waiting_groups) = sync_channel(GROUPS_MAX);
        let progress = Arc::new(Progress {
            journal_last: AtomicU64::new(parts.state.journal_last()),
            ..Progress::default()
        });
        let (store, checkpointed) = (parts.store.clone(), parts.checkpointed);
        let failed = {
            let progress = progress.clone();
            move |error: &StoreError| {
                progress.fail(&format!("a checkpoint failed: {error}"), error.is_full());
            }
        };
        let applier = Applier {
            checkpointer: Checkpointer::start(store, parts.memory_bytes, checkpointed, failed)?,
            store: parts.store,
            progress: progress.clone(),
            last: parts.last,
        };
        let logger = Logger {
            log: parts.log,
            progress: progress.clone(),
            groups,
        };
        let judge = Judge {
            state: parts.state,
            jobs,
            progress: progress.clone(),
            directory: parts.directory,
        };
        let spawn = |name: &str| thread::Builder::new().name(name.to_owned());
        // Each ends when the one before it has: in this order they are joined.
        let threads = vec![
            spawn("judge").spawn(move || judge.run(requests))?,
            spawn("logger").spawn(move || logger.run(&waiting_jobs))?,
            spawn("applier").spawn(move || applier.run(&waiting_groups))?,
        ];
        Ok(Committer {
            queue: Some(queue),
            threads,
            progress,
        })
    }

    pub(crate) fn counts(&self) -> &CommitCounts {
        &self.progress.counts
    }

    /// The number of the last journal entry on disk.
    pub(crate) fn journal_last(&self) -> u64 {
        self.progress.journal_last.load(Ordering::Acquire)
    }

    pub(crate) async fn ask<T>(
        &self,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, EngineError> {
        let (reply, answer) = oneshot::channel();
        let queue = self
            .queue
            .as_ref()
            .expect("the queue is open until the engine is dropped");
        let stopped = || EngineError::Unavailable {
            reason: "the engine has stopped".to_owned(),
        };
        queue.send(request(reply)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| EngineError::OutcomeUnknown {
            reason: "the engine stopped before it answered".to_owned(),
        })?
    }
}

impl Drop for Committer {
    /// What is queued is still committed.
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // A panic was printed by the thread that had it.
            let _ = thread.join();
        }
    }
}

impl Progress {
    pub(crate) fn failure(&self) -> Option<&EngineError> {
        self.failure.get()
    }

    /// Nothing is written any more. The first reason stays.
    pub(crate) fn fail(&self, reason: &str, is_full: bool) {
        self.failure.get_or_init(|| match is_full {
            true => EngineError::StorageFull {
                reason: reason.to_owned(),
            },
            false => EngineError::Unavailable {
                reason: format!("{reason}; restart to go on"),
            },
        });
    }

    pub(crate) fn journal_moved(&self, last: u64) {
        self.journal_last.store(last, Ordering::Release);
    }

    pub(crate) fn applied(&self) -> JobNumber {
        *self.lock()
    }

    pub(crate) fn move_on(&self, number: JobNumber) {
        *self.lock() = number;
        self.moved_on.notify_one();
    }

    pub(crate) fn wait_until(&self, number: JobNumber) {
        drop(
            self.moved_on
                .wait_while(self.lock(), |applied| *applied < number)
                .expect("no code panics while it holds the lock"),
        );
    }

    fn lock(&self) -> MutexGuard<'_, JobNumber> {
        self.applied
            .lock()
            .expect("no code panics while it holds the lock")
    }
}
