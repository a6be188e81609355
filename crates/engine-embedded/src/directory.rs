//! The data directory: one process at a time, one format, enough room.

use std::cmp::Ordering;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use engine_api::EngineError;

/// Raised when what stands on disk changes its meaning.
///
/// 1: the storage library with a journal of its own. 2: our commit log, the library's trees under it.
/// 3: a row of the journal holds a whole group. 4: bodies in files of their own, rows with their places.
pub const FORMAT: u32 = 4;

const FORMAT_FILE: &str = "CARAVAN-FORMAT";
const FORMAT_DRAFT: &str = "CARAVAN-FORMAT.new";
const LOCK_FILE: &str = "LOCK";
const DATA_FOLDER: &str = "data";
const DATA_DRAFT: &str = "data.new";
const LOG_FOLDER: &str = "log";

/// Writes are refused while less than this is free, so that a full disk is met
/// before a commit and not in the middle of one.
pub const FREE_BYTES_MIN: u64 = 64 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the directory {path} is in use by another process: stop it, or choose another directory"
    )]
    Locked { path: PathBuf },
    #[error(
        "the directory {path} has format {found}, this program knows {known}: use a newer caravan"
    )]
    NewerFormat {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error(
        "the directory {path} has format {found}, this program reads {known} only: open it with the caravan that made it and move the data"
    )]
    OlderFormat {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error(
        "{path} holds files but no {FORMAT_FILE}: choose an empty directory or one made by caravan"
    )]
    NotOurs { path: PathBuf },
    #[error("{path} cannot be read ({reason}): restore the directory from a copy")]
    Damaged { path: PathBuf, reason: String },
    #[error(
        "the directory {path} was made with other tables than the layout has ({found}, the layout: {wanted}): open it with its own layout and move the data"
    )]
    OtherTables {
        path: PathBuf,
        found: String,
        wanted: String,
    },
    #[error(
        "the directory {path} cannot be used ({source}): check the path, its rights and free space"
    )]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Layout(#[from] EngineError),
}

/// A directory that this process holds; let go when dropped or killed.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
    /// What a test says is free, instead of what is.
    #[cfg(test)]
    pub(crate) pretended_free: std::sync::Mutex<Option<u64>>,
}

impl Directory {
    /// Takes the lock, then looks at the format before anything else is touched.
    pub(crate) fn open(path: &Path) -> Result<Directory, OpenError> {
        let io = |source| OpenError::Io {
            path: path.to_owned(),
            source,
        };
        fs::create_dir_all(path).map_err(io)?;
        if !path.join(FORMAT_FILE).exists() && holds_foreign_files(path).map_err(io)? {
            return Err(OpenError::NotOurs {
                path: path.to_owned(),
            });
        }
        let lock = File::create(path.join(LOCK_FILE)).map_err(io)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => OpenError::Locked {
                path: path.to_owned(),
            },
            TryLockError::Error(source) => io(source),
        })?;
        check_format(path)?;
        Ok(Directory {
            path: path.to_owned(),
            _lock: lock,
            #[cfg(test)]
            pretended_free: std::sync::Mutex::default(),
        })
    }

    /// The folder of the storage library. It is made under another name and
    /// renamed when it is whole: a crash while it is made leaves a draft, which
    /// is thrown away.
    pub(crate) fn data<E>(
        &self,
        make: impl FnOnce(&Path) -> Result<(), E>,
        failed: impl Fn(io::Error) -> E,
    ) -> Result<PathBuf, E> {
        let (data, draft) = (self.path.join(DATA_FOLDER), self.path.join(DATA_DRAFT));
        if data.exists() {
            return Ok(data);
        }
        if draft.exists() {
            fs::remove_dir_all(&draft).map_err(&failed)?;
        }
        make(&draft)?;
        fs::rename(&draft, &data).map_err(&failed)?;
        File::open(&self.path)
            .and_then(|folder| folder.sync_all())
            .map_err(&failed)?;
        Ok(data)
    }

    /// The folder of the commit log.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join(LOG_FOLDER)
    }

    /// Asks the file system, whoever filled it.
    pub(crate) fn refuses_writes(&self) -> Option<EngineError> {
        match self.free_bytes() {
            Ok(free) if free >= FREE_BYTES_MIN => None,
            Ok(free) => Some(EngineError::StorageFull {
                reason: format!(
                    "{} has {free} bytes free, {FREE_BYTES_MIN} are kept in reserve",
                    self.path.display()
                ),
            }),
            Err(error) => Some(EngineError::Unavailable {
                reason: error.to_string(),
            }),
        }
    }

    fn free_bytes(&self) -> io::Result<u64> {
        #[cfg(test)]
        if let Some(free) = *self.pretended_free.lock().unwrap() {
            return Ok(free);
        }
        let stat = rustix::fs::statvfs(&self.path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

fn holds_foreign_files(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        // A crash while the directory was made leaves these two.
        if name != LOCK_FILE && name != FORMAT_DRAFT {
            return Ok(true);
        }
    }
    Ok(false)
}

fn check_format(path: &Path) -> Result<(), OpenError> {
    let file = path.join(FORMAT_FILE);
    let io = |source| OpenError::Io {
        path: file.clone(),
        source,
    };
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return write_format(path, &file).map_err(io);
        }
        Err(error) => return Err(io(error)),
    };
    let found: u32 = text.trim().parse().map_err(|_| OpenError::Damaged {
        path: file.clone(),
        reason: "it does not hold a number".to_owned(),
    })?;
    match found.cmp(&FORMAT) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(OpenError::NewerFormat {
            path: path.to_owned(),
            found,
            known: FORMAT,
        }),
        Ordering::Less => Err(OpenError::OlderFormat {
            path: path.to_owned(),
            found,
            known: FORMAT,
        }),
    }
}

/// Under another name first: a crash never leaves half a format file.
fn write_format(path: &Path, file: &Path) -> io::Result<()> {
    let draft = path.join(FORMAT_DRAFT);
    let mut out = File::create(&draft)?;
    writeln!(out, "{FORMAT}")?;
    out.sync_all()?;
    fs::rename(&draft, file)?;
    File::open(path)?.sync_all()
}
