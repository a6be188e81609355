//! Why there is no server, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error("{tool} is not on the PATH: install it (Debian: {package})")]
    ToolMissing {
        tool: &'static str,
        package: &'static str,
    },
    #[error(
        "java on the PATH is not version 17 (it says {found:?}): install it (Debian: openjdk-17-jre-headless) and put it first"
    )]
    WrongJava { found: String },
    #[error("mongod cannot load {library}: install it (Debian: {package})")]
    LibraryMissing { library: String, package: String },
    #[error(
        "fetching {what} failed: check that the package registry is reachable and run `cargo run -p testbed -- install`; it said:\n{detail}"
    )]
    FetchFailed { what: &'static str, detail: String },
    #[error("{what} ended while starting; the end of its log is below:\n{log_tail}")]
    Died { what: String, log_tail: String },
    #[error(
        "{what} did not answer within {waited_s} s: free some memory and processor time and try again; the end of its log is below:\n{log_tail}"
    )]
    Silent {
        what: String,
        waited_s: u64,
        log_tail: String,
    },
    #[error("the lock {} was held by another process for {waited_s} s: see with `cargo run -p testbed -- status` what is starting", path.display())]
    LockHeld { path: PathBuf, waited_s: u64 },
    #[error(
        "{what} refused a command (code {code:?}): see that it is up and of the role you meant"
    )]
    Refused { what: String, code: Option<i32> },
    #[error("{label:?} is no label: write 1 to 16 of a-z and 0-9")]
    BadLabel { label: String },
    #[error("no free {what} on loopback: end servers that are no longer needed")]
    NothingFree { what: &'static str },
    #[error(
        "neither CARAVAN_TESTBED_DIR nor XDG_CACHE_HOME nor HOME is set to an absolute path: set CARAVAN_TESTBED_DIR to a folder for the servers"
    )]
    NoCacheFolder,
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{tool} failed: see what it said:\n{detail}")]
    ToolFailed { tool: &'static str, detail: String },
    #[error("cannot signal process {pid}: {source}")]
    Signal { pid: i32, source: io::Error },
    #[error("process {pid} did not {what} within {waited_s} s")]
    Unmoved {
        pid: i32,
        what: &'static str,
        waited_s: u64,
    },
}

impl Unavailable {
    /// For `map_err`: the action and the path that an I/O error lacks.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Unavailable {
        let path = path.to_owned();
        move |source| Unavailable::Io {
            action,
            path,
            source,
        }
    }
}
