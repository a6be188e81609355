//! Many writers, one durable commit at a time.
//!
//! ```text
//! writers ──▶ queue ──▶ judge ──▶ jobs ──▶ disk: one commit of all jobs that wait ──▶ answers
//! ```
//!
//! Two threads, so that requests are judged while a commit is on its way to the
//! disk. The judge works on what the jobs before leave behind; an answer,
//! whatever it says, is given only after everything it rests on is on disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as jobs;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use engine_api::{
    Change, EngineError, Fence, Maintained, Maintenance, MoverTerm, Outcome, Seal, SetOutcome,
    Timestamp, WriteContext,
};
use tokio::sync::{mpsc, oneshot};

use crate::directory::{Directory, FREE_BYTES_MIN};
use crate::state::{JobNumber, State};
use crate::store::{Batch, Store, StoreError};

/// Requests that wait; more are held back at the sender.
const QUEUE_REQUESTS_MAX: usize = 8192;

/// Requests in one job.
const JOB_REQUESTS_MAX: usize = 256;

/// Jobs that wait for the disk; the judge waits when there are more.
const JOBS_MAX: usize = 32;

/// Rows in one commit: bounds how long the first request waits for the last.
const COMMIT_ROWS_MAX: usize = 8192;

/// How long a commit waits for the writers of the one before it: less than a
/// sync takes when the disk is busy.
const GATHER_MAX: Duration = Duration::from_micros(300);

/// How often the free space is asked for, in jobs.
const FREE_CHECK_JOBS: u64 = 64;

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
    judge: Option<JoinHandle<()>>,
    progress: Arc<Progress>,
}

/// What the two threads and the engine tell one another.
#[derive(Debug, Default)]
struct Progress {
    committed: Mutex<JobNumber>,
    moved_on: Condvar,
    journal_last: AtomicU64,
    counts: CommitCounts,
    /// Why nothing is written any more.
    failure: OnceLock<EngineError>,
}

impl Committer {
    pub(crate) fn start(
        state: State,
        store: Arc<dyn Store>,
        directory: Option<Directory>,
    ) -> std::io::Result<Committer> {
        let (queue, requests) = mpsc::channel(QUEUE_REQUESTS_MAX);
        let (jobs, waiting) = jobs::sync_channel(JOBS_MAX);
        let progress = Arc::new(Progress {
            journal_last: AtomicU64::new(state.journal_last()),
            ..Progress::default()
        });
        let disk = Disk {
            store,
            progress: progress.clone(),
        };
        let disk = thread::Builder::new()
            .name("disk".to_owned())
            .spawn(move || disk.run(&waiting))?;
        let judge = Judge {
            state,
            jobs: Some(jobs),
            progress: progress.clone(),
            directory,
        };
        let judge = thread::Builder::new()
            .name("judge".to_owned())
            .spawn(move || judge.run(requests, disk))?;
        Ok(Committer {
            queue: Some(queue),
            judge: Some(judge),
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
    /// What is queued is still committed; the directory is free when this returns.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(judge) = self.judge.take() {
            // A panic was printed by the thread that had it.
            let _ = judge.join();
        }
    }
}

/// Sends an answer that was decided, or what became of its commit instead.
type Answer = Box<dyn FnOnce(Option<EngineError>) + Send>;

/// What was judged together and goes to the disk.
struct Job {
    number: JobNumber,
    batch: Batch,
    answers: Vec<Answer>,
    journal_last: u64,
}

struct Judge {
    state: State,
    jobs: Option<jobs::SyncSender<Job>>,
    progress: Arc<Progress>,
    /// Held for its lock, asked for free space.
    directory: Option<Directory>,
}

impl Judge {
    fn run(mut self, mut requests: mpsc::Receiver<Request>, disk: JoinHandle<()>) {
        let mut waiting = Vec::with_capacity(JOB_REQUESTS_MAX);
        let mut job_count = 0;
        while requests.blocking_recv_many(&mut waiting, JOB_REQUESTS_MAX) > 0 {
            let counts = &self.progress.counts;
            counts
                .requests
                .fetch_add(waiting.len() as u64, Ordering::Relaxed);
            self.state.settle(self.progress.committed());
            let refusal = if job_count % FREE_CHECK_JOBS == 0 {
                self.no_room()
            } else {
                None
            };
            job_count += 1;
            let mut answers = Vec::with_capacity(waiting.len());
            for request in waiting.drain(..) {
                let refusal = self.progress.failure.get().or(refusal.as_ref()).cloned();
                match request {
                    Request::Maintain { work, reply } => {
                        self.hand_over(std::mem::take(&mut answers));
                        self.maintain(&work, reply, refusal);
                    }
                    request => answers.push(self.judge(request, refusal)),
                }
            }
            self.hand_over(answers);
        }
        self.jobs = None;
        // A panic was printed by the thread that had it.
        let _ = disk.join();
    }

    fn judge(&mut self, request: Request, refusal: Option<EngineError>) -> Answer {
        if matches!(request, Request::CompareAndSet { .. }) {
            // Control values are looked up in the store, so it must be up to date.
            self.wait_for_the_disk();
        }
        let state = &mut self.state;
        match request {
            Request::Apply {
                changes,
                context,
                reply,
            } => answer(reply, unless(refusal, || state.apply(&changes, &context))),
            Request::RaiseFence {
                fence,
                term,
                now,
                reply,
            } => answer(
                reply,
                unless(refusal, || state.raise_fence(fence, &term, now)),
            ),
            Request::ClaimTerm { term, reply } => {
                answer(reply, unless(refusal, || state.claim_term(&term)))
            }
            Request::CompareAndSet {
                name,
                expected,
                bytes,
                reply,
            } => answer(
                reply,
                unless(refusal, || state.compare_and_set(&name, expected, bytes)),
            ),
            Request::Maintain { work, reply } => {
                answer(reply, unless(refusal, || state.maintain(&work)))
            }
        }
    }

    /// Erases, so it stands alone: everything before it on disk, nothing judged
    /// until it is there too. A full disk does not refuse it: it is what helps.
    fn maintain(
        &mut self,
        work: &Maintenance,
        reply: Reply<Maintained>,
        refusal: Option<EngineError>,
    ) {
        let refusal = refusal.filter(|_| self.progress.failure.get().is_some());
        self.wait_for_the_disk();
        let maintained = unless(refusal, || self.state.maintain(work));
        self.hand_over(vec![answer(reply, maintained)]);
        self.wait_for_the_disk();
    }

    fn hand_over(&mut self, answers: Vec<Answer>) {
        if !self.state.has_writes() && self.state.last_under_way().is_none() {
            return answers.into_iter().for_each(|answer| answer(None));
        }
        let (number, batch) = self.state.take_job();
        let job = Job {
            number,
            batch,
            answers,
            journal_last: self.state.journal_last(),
        };
        let jobs = self
            .jobs
            .as_ref()
            .expect("jobs are taken until the judge ends");
        // Without the disk's thread the answers are dropped: unknown to who asked.
        let _ = jobs.send(job);
    }

    fn wait_for_the_disk(&mut self) {
        if let Some(last) = self.state.last_under_way() {
            self.progress.wait_until(last);
            self.state.settle(last);
        }
    }

    /// Refuses writes while the disk is nearly full: nothing was changed, and
    /// they are taken again once there is room.
    fn no_room(&self) -> Option<EngineError> {
        let directory = self.directory.as_ref()?;
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

struct Disk {
    store: Arc<dyn Store>,
    progress: Arc<Progress>,
}

impl Disk {
    fn run(self, jobs: &jobs::Receiver<Job>) {
        let mut requests_before = 0;
        while let Ok(first) = jobs.recv() {
            let group = gather(first, jobs, requests_before * 3 / 4);
            requests_before = group.iter().map(|job| job.answers.len()).sum();
            self.commit(group);
        }
    }

    /// One commit for all, then their answers. When it fails nobody can say
    /// what reached the disk: these answers become unknown. What comes after is
    /// refused and not written, until the directory is opened anew.
    fn commit(&self, mut group: Vec<Job>) {
        let lost = match self.progress.failure.get() {
            Some(failure) => Some(failure.clone()),
            None => {
                let batches = group
                    .iter_mut()
                    .map(|job| std::mem::take(&mut job.batch.writes));
                let batch = Batch {
                    writes: batches.flatten().collect(),
                };
                self.write(batch).err().map(|error| self.fail(&error))
            }
        };
        if let Some(last) = group.last() {
            if lost.is_none() {
                self.progress
                    .journal_last
                    .store(last.journal_last, Ordering::Release);
            }
            self.progress.move_on(last.number);
        }
        for answer in group.into_iter().flat_map(|job| job.answers) {
            answer(lost.clone());
        }
    }

    fn write(&self, batch: Batch) -> Result<(), StoreError> {
        if batch.writes.is_empty() {
            return Ok(());
        }
        self.progress.counts.commits.fetch_add(1, Ordering::Relaxed);
        self.store.commit(batch)
    }

    /// Remembers the failure for all who come after; answers what to tell those
    /// whose changes were in the commit.
    fn fail(&self, error: &StoreError) -> EngineError {
        let reason = format!("the commit failed: {error}");
        let failure = if error.is_full() {
            EngineError::StorageFull {
                reason: reason.clone(),
            }
        } else {
            EngineError::Unavailable {
                reason: format!("{reason}; restart to go on"),
            }
        };
        self.progress.failure.get_or_init(|| failure);
        EngineError::OutcomeUnknown { reason }
    }
}

/// Everything that waits for the disk. After a commit its writers come back one
/// by one, and a sync costs as much for the first few as for all: so it waits a
/// moment for `requests_expected`. A lone writer never waits.
fn gather(first: Job, jobs: &jobs::Receiver<Job>, requests_expected: usize) -> Vec<Job> {
    let patience = Instant::now() + GATHER_MAX;
    let mut requests = first.answers.len();
    let mut rows = first.batch.writes.len();
    let mut group = vec![first];
    while rows < COMMIT_ROWS_MAX {
        match jobs.try_recv() {
            Ok(job) => {
                requests += job.answers.len();
                rows += job.batch.writes.len();
                group.push(job);
            }
            Err(_) if requests >= requests_expected || Instant::now() >= patience => break,
            Err(_) => thread::yield_now(),
        }
    }
    group
}

impl Progress {
    fn committed(&self) -> JobNumber {
        *self
            .committed
            .lock()
            .expect("no code panics while it holds the lock")
    }

    fn move_on(&self, number: JobNumber) {
        *self
            .committed
            .lock()
            .expect("no code panics while it holds the lock") = number;
        self.moved_on.notify_one();
    }

    fn wait_until(&self, number: JobNumber) {
        let committed = self
            .committed
            .lock()
            .expect("no code panics while it holds the lock");
        drop(
            self.moved_on
                .wait_while(committed, |committed| *committed < number)
                .expect("no code panics while it holds the lock"),
        );
    }
}

fn unless<T>(
    refusal: Option<EngineError>,
    act: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    match refusal {
        Some(refusal) => Err(refusal),
        None => act(),
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
