//! Runs a command for a limited time, with everything it prints in a file.
//!
//! A file and not a pipe: a grandchild that keeps a pipe open would hold up the reader after the time is over.

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

/// How often a running check is looked at.
const POLL_MS: u64 = 10;

#[derive(Debug)]
pub enum Ended {
    Exited(ExitStatus),
    /// The time was over; the process was killed.
    OutOfTime,
}

pub fn run(command: &mut Command, log: &Path, deadline: Instant) -> anyhow::Result<Ended> {
    let file = File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("cannot write {}", log.display()))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::Exited(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(Ended::OutOfTime);
        }
        thread::sleep(Duration::from_millis(POLL_MS));
    }
}
