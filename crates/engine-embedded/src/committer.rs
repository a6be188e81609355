//! Many writers, one log: from judged to acknowledged.
//!
//! ```text
//! writers ──▶ desk ──▶ committer: write the log ▶ memory ▶ sync ▶ show ──▶ answers
//! ```
//!
//! One thread takes what lies on the desk as one group. It goes into memory before
//! the disk has it, and is shown after: readers never see what is not on disk, and
//! what is acknowledged can be read. Writers judge the next group meanwhile.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use engine_api::EngineError;
use tokio::sync::{Semaphore, oneshot};

use crate::checkpoint::Checkpointer;
use crate::desk::{Care, Desk, Group, Reply, Request, Work};
use crate::directory::Directory;
use crate::log::{Checkpointed, Log};
use crate::segment::Sequence;
use crate::state::{GroupNumber, State};
use crate::store::{Store, StoreError, is_full};

/// Requests under way; more wait at their sender.
const REQUESTS_MAX: usize = 8192;

/// How often the free space is asked for, in groups; while there is none, each time, and what is refused is a group too.
const FREE_CHECK_GROUPS: u64 = 64;

/// Commits and requests since the start, for metrics.
#[derive(Debug, Default)]
pub struct CommitCounts {
    pub commits: AtomicU64,
    pub requests: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Committer {
    desk: Arc<Desk>,
    places: Semaphore,
    thread: Option<JoinHandle<()>>,
    progress: Arc<Progress>,
}

/// What the threads and the engine tell one another.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    journal_first: AtomicU64,
    journal_last: AtomicU64,
    pub counts: CommitCounts,
    /// Why nothing is written any more.
    failure: OnceLock<EngineError>,
}

/// What the thread works on.
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
    pub(crate) fn start(parts: Parts) -> io::Result<Committer> {
        let progress = Arc::new(Progress {
            journal_first: AtomicU64::new(parts.state.journal_first()),
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
        let desk = Arc::new(Desk::new(parts.state));
        let mut work = Working {
            desk: desk.clone(),
            checkpointer: Checkpointer::start(store, parts.memory_bytes, checkpointed, failed)?,
            log: parts.log,
            store: parts.store,
            progress: progress.clone(),
            last: parts.last,
            directory: parts.directory,
            groups: 0,
            has_room: true,
        };
        work.look_for_room();
        let thread = thread::Builder::new().name("committer".to_owned());
        Ok(Committer {
            desk,
            places: Semaphore::new(REQUESTS_MAX),
            thread: Some(thread.spawn(move || work.run())?),
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

    /// How many journal entries are kept. Both numbers only rise; with the lower one read
    /// first, a group that comes between makes the journal seem longer, never negative.
    pub(crate) fn journal_entries(&self) -> u64 {
        let first = self.progress.journal_first.load(Ordering::Acquire);
        (self.journal_last() + 1).saturating_sub(first)
    }

    /// Why nothing is written any more.
    pub(crate) fn failure(&self) -> Option<EngineError> {
        self.progress.failure().cloned()
    }

    pub(crate) async fn ask<T>(
        &self,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, EngineError> {
        let (reply, answer) = oneshot::channel();
        let places = self.places.acquire().await;
        let _place = places.expect("nobody closes the places");
        self.progress
            .counts
            .requests
            .fetch_add(1, Ordering::Relaxed);
        self.desk.submit(request(reply), &self.progress);
        answer.await.map_err(|_| EngineError::OutcomeUnknown {
            reason: "the engine stopped before it answered".to_owned(),
        })?
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.desk.close();
        if let Some(thread) = self.thread.take() {
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
    fn fail(&self, reason: &str, is_full: bool) {
        self.failure.get_or_init(|| match is_full {
            true => EngineError::StorageFull {
                reason: format!("{reason}; restart once there is room"),
            },
            false => EngineError::Unavailable {
                reason: format!("{reason}; restart to go on"),
            },
        });
    }
}

struct Working {
    desk: Arc<Desk>,
    log: Box<dyn Log>,
    store: Store,
    checkpointer: Checkpointer,
    progress: Arc<Progress>,
    last: Sequence,
    /// Asked for free space.
    directory: Option<Arc<Directory>>,
    groups: u64,
    has_room: bool,
}

impl Working {
    fn run(mut self) {
        let (mut settled, mut answers) = (GroupNumber::default(), 0);
        while let Some(work) = self.desk.work(settled, answers) {
            settled = match work {
                Work::Group(group) => {
                    answers = group.answers.len();
                    self.commit(group)
                }
                Work::Care(group, state, care) => self.take_care(group, state, care),
            };
            self.groups += 1;
            if self.groups.is_multiple_of(FREE_CHECK_GROUPS) || !self.has_room {
                self.look_for_room();
            }
        }
    }

    fn take_care(
        &mut self,
        before: Group,
        mut state: Box<State>,
        care: impl IntoIterator<Item = Care>,
    ) -> GroupNumber {
        let mut settled = self.commit(before);
        for care in care {
            state.settle(settled);
            let answers = vec![care.take(&mut state, self.progress.failure().cloned())];
            settled = self.commit(state.take_group(answers, false));
        }
        state.settle(settled);
        self.desk.reopen(state, &self.progress);
        settled
    }

    fn commit(&mut self, group: Group) -> GroupNumber {
        let lost = match self.progress.failure() {
            Some(failure) => Some(failure.clone()),
            None => self.bring_to_disk(&group).err(),
        };
        for answer in group.answers {
            answer(lost.clone());
        }
        group.number
    }

    /// When the log fails nobody can say what reached the disk: the answers become
    /// unknown. What comes after is refused and not written, until the directory is
    /// opened anew.
    fn bring_to_disk(&mut self, group: &Group) -> Result<(), EngineError> {
        if !group.batch.is_empty() {
            self.progress.counts.commits.fetch_add(1, Ordering::Relaxed);
            let batches = std::slice::from_ref(&group.batch);
            let written = self.log.write(batches);
            let sequence = written.map_err(|error| self.failed(&error))?;
            let synced = || self.log.sync();
            let shown = self.store.apply_when(batches, &group.changed, synced);
            let memory_bytes = shown.map_err(|error| self.failed(&error))?;
            self.last = sequence;
            self.progress
                .journal_last
                .store(group.journal_last, Ordering::Release);
            self.progress
                .journal_first
                .store(group.journal_first, Ordering::Release);
            let looked = self.checkpointer.look(memory_bytes, sequence);
            // What was just committed stands; nothing comes after it.
            if let Err(error) = looked {
                self.move_failed(&error);
            }
        }
        if group.rests {
            if let Err(error) = self.checkpointer.rest(self.last) {
                self.move_failed(&error);
            }
            if let Some(failure) = self.progress.failure() {
                return Err(failure.clone());
            }
        }
        Ok(())
    }

    fn move_failed(&self, error: &StoreError) {
        let reason = format!("moving bodies failed: {error}");
        self.progress.fail(&reason, error.is_full());
    }

    fn failed(&self, error: &io::Error) -> EngineError {
        let reason = format!("the commit log failed: {error}");
        self.progress.fail(&reason, is_full(error));
        EngineError::OutcomeUnknown { reason }
    }

    /// Refuses writes while the disk is nearly full: nothing was changed, and
    /// they are taken again once there is room.
    fn look_for_room(&mut self) {
        let Some(directory) = &self.directory else {
            return;
        };
        let refusal = directory.refuses_writes();
        self.has_room = refusal.is_none();
        self.desk.refuse(refusal);
    }
}
