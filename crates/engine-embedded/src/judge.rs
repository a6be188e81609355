//! The judge: one thread that decides every request, one after the other.
//!
//! It works on what the jobs before leave behind, on disk or not; an answer,
//! whatever it says, is given only after everything it rests on is on disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use engine_api::{EngineError, Maintained, Maintenance, Record};
use tokio::sync::mpsc;

use crate::batch::Batch;
use crate::committer::{Progress, Reply, Request};
use crate::directory::{Directory, FREE_BYTES_MIN};
use crate::state::{JobNumber, State};

/// Requests in one job.
const JOB_REQUESTS_MAX: usize = 256;

/// How often the free space is asked for, in jobs.
const FREE_CHECK_JOBS: u64 = 64;

/// Sends an answer that was decided, or what became of its commit instead.
pub(crate) type Answer = Box<dyn FnOnce(Option<EngineError>) + Send>;

/// What was judged together and goes to the disk.
pub(crate) struct Job {
    pub number: JobNumber,
    pub batch: Batch,
    /// Records for the readers' cache, in the order of their changes.
    pub changed: Vec<Arc<Record>>,
    pub answers: Vec<Answer>,
    pub journal_last: u64,
    /// Everything goes to tables on disk before it is answered.
    pub rests: bool,
}

pub(crate) struct Judge {
    pub state: State,
    pub jobs: SyncSender<Job>,
    pub progress: Arc<Progress>,
    /// Asked for free space.
    pub directory: Option<Arc<Directory>>,
}

impl Judge {
    pub(crate) fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut waiting = Vec::with_capacity(JOB_REQUESTS_MAX);
        let mut job_count = 0;
        while requests.blocking_recv_many(&mut waiting, JOB_REQUESTS_MAX) > 0 {
            let counts = &self.progress.counts;
            counts
                .requests
                .fetch_add(waiting.len() as u64, Ordering::Relaxed);
            self.state.settle(self.progress.applied());
            let refusal = if job_count % FREE_CHECK_JOBS == 0 {
                self.no_room()
            } else {
                None
            };
            job_count += 1;
            let mut answers = Vec::with_capacity(waiting.len());
            for request in waiting.drain(..) {
                let refusal = self.progress.failure().or(refusal.as_ref()).cloned();
                match request {
                    Request::Maintain { work, reply } => {
                        self.hand_over(std::mem::take(&mut answers));
                        self.maintain(&work, reply, refusal);
                    }
                    Request::Rest { reply } => {
                        self.hand_over(std::mem::take(&mut answers));
                        let answer = answer(reply, refusal.map_or(Ok(()), Err));
                        self.send(vec![answer], true);
                    }
                    request => answers.push(self.judge(request, refusal)),
                }
            }
            self.hand_over(answers);
        }
    }

    fn judge(&mut self, request: Request, refusal: Option<EngineError>) -> Answer {
        if matches!(request, Request::CompareAndSet { .. }) {
            // Control values are looked up in the store, so it must be up to date.
            self.wait_for_all();
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
            Request::Maintain { .. } | Request::Rest { .. } => {
                unreachable!("these stand alone and are not judged with others")
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
        let refusal = refusal.filter(|_| self.progress.failure().is_some());
        self.wait_for_all();
        let maintained = unless(refusal, || self.state.maintain(work));
        self.hand_over(vec![answer(reply, maintained)]);
        self.wait_for_all();
    }

    fn hand_over(&mut self, answers: Vec<Answer>) {
        if !self.state.has_writes() && self.state.last_under_way().is_none() {
            return answers.into_iter().for_each(|answer| answer(None));
        }
        self.send(answers, false);
    }

    fn send(&mut self, answers: Vec<Answer>, rests: bool) {
        let (number, batch, changed) = self.state.take_job();
        let job = Job {
            number,
            batch,
            changed,
            answers,
            journal_last: self.state.journal_last(),
            rests,
        };
        // Without the logger's thread the answers are dropped: unknown to who asked.
        let _ = self.jobs.send(job);
    }

    fn wait_for_all(&mut self) {
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
