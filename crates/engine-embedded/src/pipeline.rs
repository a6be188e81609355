//! From judged to acknowledged: the log, then the tables, then the answers.
//!
//! ```text
//!                           ┌──▶ sync ─────────────┐
//! jobs ──▶ logger: write ───┤                      ├──▶ shown ──▶ answers
//!                           └──▶ applier: memory ──┘
//! ```
//!
//! A group goes into memory while the disk works, and is shown when both are
//! done: readers never see what is not on disk, and what is acknowledged can be
//! read. Between groups both threads and the judge work at the same time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use engine_api::{EngineError, Record};

use crate::batch::Batch;
use crate::checkpoint::Checkpointer;
use crate::committer::Progress;
use crate::judge::{Answer, Job};
use crate::log::Log;
use crate::segment::Sequence;
use crate::state::JobNumber;
use crate::store::{Store, is_full};

/// Groups on disk that wait to be applied; the logger waits when there are more.
pub(crate) const GROUPS_MAX: usize = 4;

/// Rows in one group: bounds how long the first request waits for the last.
const GROUP_ROWS_MAX: usize = 8192;

/// Jobs that went to the disk together.
pub(crate) struct Group {
    batches: Vec<Batch>,
    changed: Vec<Arc<Record>>,
    answers: Vec<Answer>,
    last_job: JobNumber,
    journal_last: u64,
    /// Without writes there is nothing in the log: it only waits for what came before.
    logged: Option<Logged>,
    lost: Option<EngineError>,
    rests: bool,
}

/// A group that was written, and the word that it is on disk.
struct Logged {
    sequence: Sequence,
    synced: Receiver<Result<(), EngineError>>,
}

pub(crate) struct Logger {
    pub log: Box<dyn Log>,
    pub progress: Arc<Progress>,
    pub groups: SyncSender<Group>,
}

impl Logger {
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let mut group = gather(first, jobs);
            let sender = self.write(&mut group);
            if self.groups.send(group).is_err() {
                return;
            }
            if let Some(sender) = sender {
                let synced = self.log.sync().map_err(|error| self.failed(&error));
                // An applier that is gone has nobody to tell.
                let _ = sender.send(synced);
            }
        }
    }

    /// When the log fails nobody can say what reached the disk: these answers
    /// become unknown. What comes after is refused and not written, until the
    /// directory is opened anew.
    fn write(&mut self, group: &mut Group) -> Option<SyncSender<Result<(), EngineError>>> {
        if let Some(failure) = self.progress.failure() {
            group.lost = Some(failure.clone());
            return None;
        }
        if group.batches.is_empty() {
            return None;
        }
        self.progress.counts.commits.fetch_add(1, Ordering::Relaxed);
        match self.log.write(&group.batches) {
            Ok(sequence) => {
                let (sender, synced) = sync_channel(1);
                group.logged = Some(Logged { sequence, synced });
                Some(sender)
            }
            Err(error) => {
                group.lost = Some(self.failed(&error));
                None
            }
        }
    }

    fn failed(&self, error: &io::Error) -> EngineError {
        let reason = format!("the commit log failed: {error}");
        self.progress.fail(&reason, is_full(error));
        EngineError::OutcomeUnknown { reason }
    }
}

pub(crate) struct Applier {
    pub store: Store,
    pub checkpointer: Checkpointer,
    pub progress: Arc<Progress>,
    pub last: Sequence,
}

impl Applier {
    pub(crate) fn run(mut self, groups: &Receiver<Group>) {
        while let Ok(mut group) = groups.recv() {
            if let Some(logged) = group.logged.take() {
                let synced = || logged.synced.recv().unwrap_or_else(|_| Err(logger_gone()));
                match self
                    .store
                    .apply_when(&group.batches, &group.changed, synced)
                {
                    Ok(memory_bytes) => {
                        self.last = logged.sequence;
                        self.progress.journal_moved(group.journal_last);
                        self.checkpointer.look(memory_bytes, logged.sequence);
                    }
                    Err(lost) => group.lost = Some(lost),
                }
            }
            if group.rests && group.lost.is_none() {
                self.checkpointer.rest(self.last);
                group.lost = self.progress.failure().cloned();
            }
            self.progress.move_on(group.last_job);
            for answer in group.answers {
                answer(group.lost.clone());
            }
        }
    }
}

/// Everything that waits for the disk. It does not wait for more: what comes
/// during one sync is the next group.
fn gather(first: Job, jobs: &Receiver<Job>) -> Group {
    let mut group = Group {
        batches: Vec::new(),
        changed: Vec::new(),
        answers: Vec::new(),
        last_job: first.number,
        journal_last: first.journal_last,
        logged: None,
        lost: None,
        rests: false,
    };
    let mut rows = group.add(first);
    while rows < GROUP_ROWS_MAX && !group.rests {
        match jobs.try_recv() {
            Ok(job) => rows += group.add(job),
            Err(_) => break,
        }
    }
    group
}

fn logger_gone() -> EngineError {
    EngineError::OutcomeUnknown {
        reason: "the thread of the commit log has ended".to_owned(),
    }
}

impl Group {
    /// Answers how many rows were added.
    fn add(&mut self, job: Job) -> usize {
        let rows = job.batch.row_count();
        if rows > 0 {
            self.batches.push(job.batch);
        }
        self.changed.extend(job.changed);
        self.answers.extend(job.answers);
        self.last_job = job.number;
        self.journal_last = job.journal_last;
        self.rests |= job.rests;
        rows
    }
}
