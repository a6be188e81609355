//! From judged to acknowledged: the log, then the tables, then the answers.
//!
//! ```text
//! jobs ──▶ logger: one group, one sync ──▶ applier: memory tables ──▶ answers
//! ```
//!
//! For one group strictly in this order: readers never see what is not on disk,
//! and what is acknowledged can be read. Between groups both threads and the
//! judge work at the same time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};

use engine_api::EngineError;

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
    answers: Vec<Answer>,
    last_job: JobNumber,
    journal_last: u64,
    /// Without writes it has none: it only waits for what came before.
    sequence: Option<Sequence>,
    lost: Option<EngineError>,
    rests: bool,
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
            self.append(&mut group);
            if self.groups.send(group).is_err() {
                return;
            }
        }
    }

    /// When the log fails nobody can say what reached the disk: these answers
    /// become unknown. What comes after is refused and not written, until the
    /// directory is opened anew.
    fn append(&mut self, group: &mut Group) {
        if let Some(failure) = self.progress.failure() {
            group.lost = Some(failure.clone());
        } else if !group.batches.is_empty() {
            self.progress.counts.commits.fetch_add(1, Ordering::Relaxed);
            match self.log.append(&group.batches) {
                Ok(sequence) => group.sequence = Some(sequence),
                Err(error) => {
                    let reason = format!("the commit log failed: {error}");
                    self.progress.fail(&reason, is_full(&error));
                    group.lost = Some(EngineError::OutcomeUnknown { reason });
                }
            }
        }
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
            if let Some(sequence) = group.sequence {
                let memory_bytes = self.store.apply(&group.batches);
                self.last = sequence;
                self.progress.journal_moved(group.journal_last);
                self.checkpointer.look(memory_bytes, sequence);
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
        answers: Vec::new(),
        last_job: first.number,
        journal_last: first.journal_last,
        sequence: None,
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

impl Group {
    /// Answers how many rows were added.
    fn add(&mut self, job: Job) -> usize {
        let rows = job.batch.row_count();
        if rows > 0 {
            self.batches.push(job.batch);
        }
        self.answers.extend(job.answers);
        self.last_job = job.number;
        self.journal_last = job.journal_last;
        self.rests |= job.rests;
        rows
    }
}
