//! Processes that outlive their starter: known by number and start time, so
//! that a reused number is never taken for the old process.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use crate::Unavailable;

const MOVE_MAX: Duration = Duration::from_secs(10);
/// Closing files and handing over a primary takes a loaded machine a while.
const POLITE_END_MAX: Duration = Duration::from_secs(40);
pub(crate) const POLL: Duration = Duration::from_millis(25);

/// One process, for ever. `started` is in clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub(crate) pid: i32,
    started: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Running,
    Paused,
    Gone,
}

impl Process {
    /// Starts `command` apart from this process: a group of its own (an
    /// interrupt on the terminal does not reach it), no input, output appended
    /// to `log`, as many open files as the system allows.
    pub(crate) fn spawn(command: &mut Command, log: &Path) -> Result<Process, Unavailable> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(Unavailable::io("open", log))?;
        let errors = output.try_clone().map_err(Unavailable::io("open", log))?;
        let program = Path::new(command.get_program()).to_owned();
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(Unavailable::io("start", &program))?;
        let pid = Pid::from_child(&child);
        let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
        // Refused only when the process is gone already, which the first wait for it reports better.
        let _ = rustix::process::prlimit(
            Some(pid),
            Resource::Nofile,
            Rlimit {
                current: hard,
                maximum: hard,
            },
        );
        let pid = pid.as_raw_nonzero().get();
        // A child is not reaped before `Process` does it, so its entry in /proc is there.
        let entry = entry(pid).expect("a child that was not waited for has a /proc entry");
        Ok(Process {
            pid,
            started: entry.started,
        })
    }

    pub(crate) fn own() -> Process {
        let pid = std::process::id() as i32;
        let entry = entry(pid).expect("the running process has a /proc entry");
        Process {
            pid,
            started: entry.started,
        }
    }

    pub(crate) fn condition(self) -> Condition {
        match entry(self.pid).filter(|entry| entry.started == self.started) {
            None => Condition::Gone,
            // The first thread is dead before the others; while one of them lives, so do the open ports.
            Some(Entry {
                state: 'Z' | 'X',
                threads: 0 | 1,
                ..
            }) => Condition::Gone,
            Some(Entry {
                state: 'T' | 't', ..
            }) => Condition::Paused,
            Some(_) => Condition::Running,
        }
    }

    pub(crate) fn started(self) -> u64 {
        self.started
    }

    /// Ends it at once and waits until it is gone. Fine when it is gone already.
    pub(crate) fn kill(self) -> Result<(), Unavailable> {
        self.signal(Signal::KILL)?;
        self.await_condition("end", MOVE_MAX, |condition| condition == Condition::Gone)?;
        self.reap();
        Ok(())
    }

    /// Asks it to end, paused or not, and waits until it has.
    pub(crate) fn stop(self) -> Result<(), Unavailable> {
        self.signal(Signal::TERM)?;
        self.signal(Signal::CONT)?;
        self.await_condition("end", POLITE_END_MAX, |condition| {
            condition == Condition::Gone
        })?;
        self.reap();
        Ok(())
    }

    pub(crate) fn pause(self) -> Result<(), Unavailable> {
        self.signal(Signal::STOP)?;
        self.await_condition("pause", MOVE_MAX, |condition| {
            condition != Condition::Running
        })
    }

    pub(crate) fn resume(self) -> Result<(), Unavailable> {
        self.signal(Signal::CONT)?;
        self.await_condition("resume", MOVE_MAX, |condition| {
            condition != Condition::Paused
        })
    }

    fn signal(self, signal: Signal) -> Result<(), Unavailable> {
        let failed = |errno: Errno| Unavailable::Signal {
            pid: self.pid,
            source: errno.into(),
        };
        let pid = Pid::from_raw(self.pid).ok_or_else(|| failed(Errno::INVAL))?;
        let handle = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(Errno::SRCH) => return Ok(()),
            Err(errno) => return Err(failed(errno)),
        };
        // Compared after the handle is open: the handle cannot come to mean another process.
        if self.condition() == Condition::Gone {
            return Ok(());
        }
        match rustix::process::pidfd_send_signal(handle, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn await_condition(
        self,
        what: &'static str,
        limit: Duration,
        wanted: impl Fn(Condition) -> bool,
    ) -> Result<(), Unavailable> {
        let start = Instant::now();
        while !wanted(self.condition()) {
            if start.elapsed() > limit {
                return Err(Unavailable::Unmoved {
                    pid: self.pid,
                    what,
                    waited_s: limit.as_secs(),
                });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Frees the number when this process is the parent; otherwise there is nothing to free.
    fn reap(self) {
        let _ = rustix::process::waitpid(Pid::from_raw(self.pid), WaitOptions::NOHANG);
    }
}

/// What /proc says of a process that has not been reaped.
struct Entry {
    started: u64,
    state: char,
    threads: u64,
}

/// The name in the second field may hold spaces and brackets, so fields are
/// counted from its last bracket.
fn entry(pid: i32) -> Option<Entry> {
    const THREADS_FIELD: usize = 17;
    const STARTED_FIELD: usize = 19;
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = line[line.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .collect();
    Some(Entry {
        started: fields.get(STARTED_FIELD)?.parse().ok()?,
        state: fields.first()?.chars().next()?,
        threads: fields.get(THREADS_FIELD)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Process {
        Process::spawn(Command::new("sleep").arg("600"), Path::new("/dev/null")).unwrap()
    }

    #[test]
    fn a_process_is_paused_resumed_and_ended() {
        let process = sleeper();
        process.pause().unwrap();
        assert_eq!(process.condition(), Condition::Paused);
        process.resume().unwrap();
        assert_eq!(process.condition(), Condition::Running);
        process.pause().unwrap();
        process.stop().unwrap();
        assert_eq!(process.condition(), Condition::Gone);
        process.kill().unwrap();
    }

    #[test]
    fn a_reused_number_is_not_taken_for_the_old_process() {
        let process = sleeper();
        let impostor = Process {
            pid: process.pid,
            started: process.started - 1,
        };
        assert_eq!(impostor.condition(), Condition::Gone);
        impostor.kill().unwrap();
        assert_eq!(process.condition(), Condition::Running);
        process.kill().unwrap();
    }
}
