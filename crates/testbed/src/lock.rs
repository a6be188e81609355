//! An exclusive lock between processes: a file that stays, and an `flock` on it
//! that the kernel drops when its holder dies.

use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::{Unavailable, say};

/// The longest holder is a first fetch over a slow line.
const WAIT_MAX: Duration = Duration::from_secs(20 * 60);
const WAIT_SILENTLY_MAX: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(25);

/// Held until dropped.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    pub(crate) fn acquire(path: &Path) -> Result<FileLock, Unavailable> {
        let start = Instant::now();
        let mut announced = false;
        loop {
            if let Some(lock) = FileLock::try_acquire(path)? {
                return Ok(lock);
            }
            if start.elapsed() > WAIT_MAX {
                return Err(Unavailable::LockHeld {
                    path: path.to_owned(),
                    waited_s: WAIT_MAX.as_secs(),
                });
            }
            if !announced && start.elapsed() > WAIT_SILENTLY_MAX {
                announced = true;
                let what = path.file_stem().unwrap_or_default().to_string_lossy();
                say(&format!(
                    "waiting for another process that prepares {what} …"
                ));
            }
            thread::sleep(POLL);
        }
    }

    /// `None` when another process (or thread) holds it.
    pub(crate) fn try_acquire(path: &Path) -> Result<Option<FileLock>, Unavailable> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(Unavailable::io("create", parent))?;
        }
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(Unavailable::io("open", path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(FileLock { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(Unavailable::io("lock", path)(errno.into())),
        }
    }
}
