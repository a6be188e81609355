//! Brings what lies in memory to tables on disk, beside the writers.
//!
//! Two threads: one writes sealed memory tables out, so that segments of the
//! log become free; the other merges tables and goes through worn files of bodies,
//! which may take long and must not keep the first one waiting.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use crate::log::Checkpointed;
use crate::salvage::{Living, Salvage};
use crate::segment::Sequence;
use crate::store::{Store, StoreError};

/// How much lies in memory before a checkpoint begins. More means fewer and
/// larger tables, and more to replay after a crash.
pub(crate) const MEMORY_BYTES: u64 = 64 * 1024 * 1024;

/// How far the two threads stand back behind those that somebody waits for. Writing
/// out frees the log; merging only makes later reads cheaper. When writers have to
/// wait for a checkpoint, nobody is before it.
const FLUSH_NICENESS: i32 = 5;
const TIDY_NICENESS: i32 = 10;

/// Writers wait for a checkpoint when this many times as much lies in memory.
const MEMORY_TIMES_MAX: u64 = 4;

#[derive(Debug)]
pub(crate) struct Checkpointer {
    store: Store,
    memory_bytes: u64,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    /// Sealed up to here and not yet on disk.
    sealed: Option<Sequence>,
    untidy: bool,
    tidying: bool,
    /// Bodies for the thread that applies to move.
    living: Option<Living>,
    /// The engine ends, or the disk has failed.
    stopped: bool,
}

impl Checkpointer {
    pub(crate) fn start(
        store: Store,
        memory_bytes: u64,
        checkpointed: Checkpointed,
        failed: impl Fn(&StoreError) + Clone + Send + 'static,
    ) -> io::Result<Checkpointer> {
        let shared = Arc::new(Shared::default());
        let spawn = |name: &str, niceness, run: fn(&Shared, &Store, &Checkpointed) -> Step| {
            let (shared, store) = (shared.clone(), store.clone());
            let (checkpointed, failed) = (checkpointed.clone(), failed.clone());
            let run = move || {
                stand_back(niceness);
                if let Err(error) = run(&shared, &store, &checkpointed) {
                    failed(&error);
                    shared.change(|work| work.stopped = true);
                }
            };
            thread::Builder::new().name(name.to_owned()).spawn(run)
        };
        let threads = vec![
            spawn("flush", FLUSH_NICENESS, flush)?,
            spawn("tidy", TIDY_NICENESS, tidy)?,
        ];
        Ok(Checkpointer {
            store,
            memory_bytes,
            shared,
            threads,
        })
    }

    /// Called after each group, which was the `last`: begins a checkpoint when
    /// enough lies in memory, and waits when far too much does.
    pub(crate) fn look(&self, memory_bytes: u64, last: Sequence) -> Step {
        let mut work = self.shared.work();
        let memory_bytes = match work.living.take() {
            Some(living) => {
                let moved = self.store.move_bodies(&living);
                self.shared.changed.notify_all();
                moved?
            }
            None => memory_bytes,
        };
        if memory_bytes < self.memory_bytes {
            return Ok(());
        }
        if memory_bytes >= self.memory_bytes * MEMORY_TIMES_MAX {
            work = self.shared.wait(work, |work| work.sealed.is_some());
        }
        if work.sealed.is_none() {
            self.begin(work, last);
        }
        Ok(())
    }

    /// Brings everything to disk and waits until the tables are at rest and no file of
    /// bodies is worn.
    pub(crate) fn rest(&self, last: Sequence) -> Step {
        let is_sealed = |work: &mut Work| work.sealed.is_some();
        let is_busy = |work: &Work| work.sealed.is_some() || work.untidy || work.tidying;
        loop {
            let work = self.shared.wait(self.shared.work(), is_sealed);
            self.begin(work, last);
            let mut has_moved = false;
            loop {
                let waits = |work: &mut Work| is_busy(work) && work.living.is_none();
                let mut work = self.shared.wait(self.shared.work(), waits);
                let Some(living) = work.living.take() else {
                    break;
                };
                let moved = self.store.move_bodies(&living);
                self.shared.changed.notify_all();
                moved?;
                has_moved = true;
            }
            if !has_moved {
                return Ok(());
            }
        }
    }

    fn begin(&self, mut work: MutexGuard<'_, Work>, last: Sequence) {
        self.store.seal(last);
        work.sealed = Some(last);
        self.shared.changed.notify_all();
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.shared.change(|work| work.stopped = true);
        for thread in self.threads.drain(..) {
            // A panic was printed by the thread that had it.
            let _ = thread.join();
        }
    }
}

type Step = Result<(), StoreError>;

/// This thread alone, which only Linux can do. Where it may not, all go alike.
fn stand_back(niceness: i32) {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(niceness);
    #[cfg(not(target_os = "linux"))]
    let _ = niceness;
}

fn flush(shared: &Shared, store: &Store, checkpointed: &Checkpointed) -> Step {
    loop {
        let work = shared.wait(shared.work(), |work| work.sealed.is_none());
        let (false, Some(last)) = (work.stopped, work.sealed) else {
            return Ok(());
        };
        drop(work);
        store.flush()?;
        checkpointed.set(last);
        shared.change(|work| {
            work.sealed = None;
            work.untidy = true;
        });
    }
}

fn tidy(shared: &Shared, store: &Store, _: &Checkpointed) -> Step {
    loop {
        let mut work = shared.wait(shared.work(), |work| !work.untidy);
        if work.stopped {
            return Ok(());
        }
        (work.untidy, work.tidying) = (false, true);
        drop(work);
        store.tidy()?;
        salvage(shared, store);
        shared.change(|work| work.tidying = false);
    }
}

/// Hands over what lives in worn files, a part with each group: garbage comes with
/// groups, so that it cannot grow while nothing takes them.
fn salvage(shared: &Shared, store: &Store) {
    while let Some(mut salvage) = Salvage::begin(store) {
        while let Some(living) = salvage.next(store) {
            shared.change(|work| work.living = Some(living));
            let work = shared.wait(shared.work(), |work| work.living.is_some());
            if work.stopped {
                return;
            }
        }
    }
}

impl Shared {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work
            .lock()
            .expect("no code panics while it holds the lock")
    }

    /// Waits while there is a reason to, or until everything stops.
    fn wait<'a>(
        &'a self,
        work: MutexGuard<'a, Work>,
        mut reason: impl FnMut(&mut Work) -> bool,
    ) -> MutexGuard<'a, Work> {
        self.changed
            .wait_while(work, |work| !work.stopped && reason(work))
            .expect("no code panics while it holds the lock")
    }

    fn change(&self, change: impl FnOnce(&mut Work)) {
        change(&mut self.work());
        self.changed.notify_all();
    }
}
