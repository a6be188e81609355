//! Servers that belong to one test, which may kill, pause and restart them.
//! They end when the value is dropped, or by their guardian when the test
//! process is killed.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::instance::{Instance, Plan, Watch};
use crate::processes::Process;
use crate::{Unavailable, names, say};

/// Servers are counted from 0; an index past the last is a mistake in the test and panics.
#[derive(Debug)]
pub struct Exclusive<P: Plan> {
    pub(crate) plan: P,
    /// Locked, so that a test may break servers from one thread while others use them.
    instance: Mutex<Instance>,
}

impl<P: Plan> Exclusive<P> {
    pub(crate) fn start(root: &Path, what: &str, plan: P) -> Result<Exclusive<P>, Unavailable> {
        let folder: PathBuf = root.join("exclusive").join(names::unique(what));
        let instance = Instance::start(&folder, &plan, &Watch::Owner(Process::own()))?;
        Ok(Exclusive {
            plan,
            instance: Mutex::new(instance),
        })
    }

    /// Ends one server as a power cut would, and returns when it is gone.
    pub fn kill9(&self, index: usize) -> Result<(), Unavailable> {
        self.process(index).kill()
    }

    /// One server stands still but keeps its connections.
    pub fn pause(&self, index: usize) -> Result<(), Unavailable> {
        self.process(index).pause()
    }

    pub fn resume(&self, index: usize) -> Result<(), Unavailable> {
        self.process(index).resume()
    }

    /// Starts one server again with its records, and returns when it serves.
    /// One that still runs is killed first.
    pub fn restart(&self, index: usize) -> Result<(), Unavailable> {
        self.instance().restart(&self.plan, index)
    }

    /// Ends every server politely; `restart` brings each back with its records.
    pub fn stop(&self) -> Result<(), Unavailable> {
        let processes: Vec<Process> = self.instance().processes().collect();
        processes.into_iter().try_for_each(Process::stop)
    }

    /// Throws every record away: the same addresses, empty, ready for writes.
    pub fn wipe(&self) -> Result<(), Unavailable> {
        self.instance().start_afresh(&self.plan)
    }

    fn process(&self, index: usize) -> Process {
        self.instance().process(index)
    }

    pub(crate) fn instance(&self) -> MutexGuard<'_, Instance> {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Plan> Drop for Exclusive<P> {
    fn drop(&mut self) {
        if let Err(reason) = self.instance().end() {
            say(&format!("a server was not ended cleanly: {reason}"));
        }
    }
}
