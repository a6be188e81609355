//! The committer: many writers, one durable commit at a time.
//!
//! Requests queue up while a commit is on its way to the disk; all that are
//! there when it returns go into the next one. An answer is given only after
//! the commit that holds its change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use engine_api::{
    Change, EngineError, Fence, Maintained, Maintenance, MoverTerm, Outcome, Seal, SetOutcome,
    Timestamp, WriteContext,
};
use tokio::sync::{mpsc, oneshot};

use crate::directory::{Directory, FREE_BYTES_MIN};
use crate::state::State;

/// Requests that wait; more are held back at the sender.
const QUEUE_REQUESTS_MAX: usize = 8192;

/// Requests in one commit: bounds how long the first waits for the last.
const COMMIT_REQUESTS_MAX: usize = 1024;

/// How often the free space is asked for, in commits.
const FREE_CHECK_COMMITS: u64 = 64;

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
    thread: Option<JoinHandle<()>>,
    pub(crate) journal_last: Arc<AtomicU64>,
    pub(crate) counts: Arc<CommitCounts>,
}

impl Committer {
    pub(crate) fn start(state: State, directory: Option<Directory>) -> std::io::Result<Committer> {
        let (queue, requests) = mpsc::channel(QUEUE_REQUESTS_MAX);
        let journal_last = Arc::new(AtomicU64::new(state.journal_last()));
        let counts = Arc::new(CommitCounts::default());
        let work = Work {
            state,
            directory,
            journal_last: journal_last.clone(),
            counts: counts.clone(),
            failure: None,
        };
        let thread = std::thread::Builder::new()
            .name("committer".to_owned())
            .spawn(|| work.run(requests))?;
        Ok(Committer {
            queue: Some(queue),
            thread: Some(thread),
            journal_last,
            counts,
        })
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
    /// What is queued is still committed; the directory is free when this returns.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the committer was printed by its own thread.
            let _ = thread.join();
        }
    }
}

struct Work {
    state: State,
    /// Held for its lock, asked for free space.
    directory: Option<Directory>,
    journal_last: Arc<AtomicU64>,
    counts: Arc<CommitCounts>,
    /// Why nothing is written any more.
    failure: Option<EngineError>,
}

/// Sends an answer that was decided, or what became of the commit instead.
type Answer = Box<dyn FnOnce(Option<EngineError>) + Send>;

impl Work {
    fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut batch = Vec::with_capacity(COMMIT_REQUESTS_MAX);
        while requests.blocking_recv_many(&mut batch, COMMIT_REQUESTS_MAX) > 0 {
            self.counts
                .requests
                .fetch_add(batch.len() as u64, Ordering::Relaxed);
            let mut answers = Vec::with_capacity(batch.len());
            let refusal = self.refusal();
            for request in batch.drain(..) {
                if matches!(request, Request::Maintain { .. }) {
                    self.finish(std::mem::take(&mut answers));
                }
                answers.push(self.judge(request, self.failure.clone().or_else(|| refusal.clone())));
            }
            self.finish(answers);
        }
    }

    fn judge(&mut self, request: Request, refusal: Option<EngineError>) -> Answer {
        let state = &mut self.state;
        match (request, refusal) {
            (Request::Apply { reply, .. }, Some(refusal)) => answer(reply, Err(refusal)),
            (Request::RaiseFence { reply, .. }, Some(refusal)) => answer(reply, Err(refusal)),
            (Request::ClaimTerm { reply, .. }, Some(refusal)) => answer(reply, Err(refusal)),
            (Request::CompareAndSet { reply, .. }, Some(refusal)) => answer(reply, Err(refusal)),
            (Request::Maintain { work, reply }, Some(EngineError::StorageFull { .. }))
                if self.failure.is_none() =>
            {
                // Collecting garbage is what helps a full disk.
                answer(reply, state.maintain(&work))
            }
            (Request::Maintain { reply, .. }, Some(refusal)) => answer(reply, Err(refusal)),
            (
                Request::Apply {
                    changes,
                    context,
                    reply,
                },
                None,
            ) => answer(reply, state.apply(&changes, &context)),
            (
                Request::RaiseFence {
                    fence,
                    term,
                    now,
                    reply,
                },
                None,
            ) => answer(reply, state.raise_fence(fence, &term, now)),
            (Request::ClaimTerm { term, reply }, None) => answer(reply, state.claim_term(&term)),
            (
                Request::CompareAndSet {
                    name,
                    expected,
                    bytes,
                    reply,
                },
                None,
            ) => answer(reply, state.compare_and_set(&name, expected, bytes)),
            (Request::Maintain { work, reply }, None) => answer(reply, state.maintain(&work)),
        }
    }

    /// Commits what was judged, then answers. When the commit fails nobody can
    /// say what reached the disk: every answer becomes unknown, and nothing is
    /// written until the directory is opened anew.
    fn finish(&mut self, answers: Vec<Answer>) {
        let mut lost = None;
        if self.state.has_writes() {
            self.counts.commits.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = self.state.commit() {
                let reason = format!("the commit failed: {error}");
                self.failure = Some(if error.is_full() {
                    EngineError::StorageFull {
                        reason: reason.clone(),
                    }
                } else {
                    EngineError::Unavailable {
                        reason: format!("{reason}; restart to go on"),
                    }
                });
                lost = Some(EngineError::OutcomeUnknown { reason });
            } else {
                self.journal_last
                    .store(self.state.journal_last(), Ordering::Release);
            }
        }
        answers.into_iter().for_each(|answer| answer(lost.clone()));
    }

    /// Refuses writes while the disk is nearly full: nothing was changed, and
    /// they are taken again once there is room.
    fn refusal(&self) -> Option<EngineError> {
        let directory = self.directory.as_ref()?;
        if !self
            .counts
            .commits
            .load(Ordering::Relaxed)
            .is_multiple_of(FREE_CHECK_COMMITS)
        {
            return None;
        }
        match directory.free_bytes() {
            Ok(free) if free >= FREE_BYTES_MIN => None,
            Ok(free) => Some(EngineError::StorageFull {
                reason: format!(
                    "{} has {free} bytes free, {FREE_BYTES_MIN} are kept in reserve",
                    directory.path().display()
                ),
            }),
            Err(error) => Some(EngineError::Unavailable {
                reason: error.to_string(),
            }),
        }
    }
}

fn answer<T: Send + 'static>(reply: Reply<T>, result: Result<T, EngineError>) -> Answer {
    Box::new(move |lost| {
        // An asker that went away reads back, as after any lost answer.
        let _ = reply.send(match lost {
            Some(lost) => Err(lost),
            None => result,
        });
    })
}
