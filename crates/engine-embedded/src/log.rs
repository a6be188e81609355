//! The commit log: every group of changes, on disk before anything else
//! happens with it.
//!
//! A group is acknowledged after its sync and lies in the memory tables of the
//! store until a checkpoint has brought these to disk. Then its segment is used
//! again. Opening replays the groups after the last checkpoint, in their order;
//! a group is absolute, so one that is replayed twice changes nothing.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::batch::Batch;
use crate::segment::{BLOCK_BYTES, Header, Segment, Sequence, encode, group_bytes};

/// How much a segment holds, unless one group alone is larger.
pub(crate) const SEGMENT_BYTES: u64 = 16 * 1024 * 1024;

/// Segments kept for their next use; more are deleted.
const SPARE_SEGMENTS_MAX: usize = 4;

/// What the engine asks of its log while it runs: one group after the other,
/// each written and then synced. After an error nobody knows what reached the
/// disk, and nothing may be written until the log was opened anew.
pub(crate) trait Log: Send + Debug {
    /// Hands the group to the system: everything or nothing.
    fn write(&mut self, batches: &[Batch]) -> io::Result<Sequence>;

    /// Answers when the group is on disk.
    fn sync(&mut self) -> io::Result<()>;

    fn append(&mut self, batches: &[Batch]) -> io::Result<Sequence> {
        let sequence = self.write(batches)?;
        self.sync()?;
        Ok(sequence)
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The disk has lost what was acknowledged.
    #[error("{0}")]
    Lost(String),
}

/// The last group whose effects stand in tables on disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checkpointed(Arc<AtomicU64>);

impl Checkpointed {
    pub(crate) fn get(&self) -> Sequence {
        Sequence(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, sequence: Sequence) {
        self.0.store(sequence.0, Ordering::Release);
    }
}

#[derive(Debug)]
pub(crate) struct CommitLog {
    folder: PathBuf,
    segment_bytes: u64,
    active: Segment,
    number: u64,
    position: u64,
    last: Sequence,
    /// Full, with the last group of each, oldest first.
    sealed: VecDeque<(Segment, Sequence)>,
    spare: Vec<Segment>,
    checkpointed: Checkpointed,
    buffer: Vec<u8>,
}

impl CommitLog {
    /// Replays what the checkpoint does not hold yet, then goes on in a new
    /// segment. Refuses a log that cannot be all that was acknowledged: one with
    /// a hole, or with a whole group behind a broken one. Only the last group
    /// may be torn, because each is synced before the next is written.
    pub(crate) fn open(
        folder: &Path,
        segment_bytes: u64,
        checkpointed: Checkpointed,
        mut replay: impl FnMut(&Batch),
    ) -> Result<CommitLog, LogError> {
        fs::create_dir_all(folder)?;
        if let Some(parent) = folder.parent() {
            File::open(parent)?.sync_all()?;
        }
        let mut segments = Vec::new();
        for segment in Segment::open_all(folder)? {
            segments.push((segment.header()?, segment));
        }
        let kept = checkpointed.get();
        if segments.is_empty() && kept > Sequence(0) {
            // There is always one: without it nobody knows what was in it.
            return Err(LogError::Lost(format!(
                "the commit log is gone from {}",
                folder.display()
            )));
        }
        segments.sort_by_key(|(header, _)| header.map(|header| header.number));
        let (mut last, mut highest, mut number) = (kept, kept, 0);
        let (mut sealed, mut spare) = (VecDeque::new(), Vec::new());
        for (header, segment) in segments {
            let content = segment.read(header)?;
            highest = highest.max(content.highest);
            if let Some(header) = header {
                number = header.number;
                if header.first > last.next() {
                    return Err(hole(last, header.first));
                }
            }
            let before = last;
            let groups = content.groups.into_iter();
            for (group, batch) in groups.filter(|(group, _)| *group > before) {
                if group > last.next() {
                    return Err(hole(last, group));
                }
                replay(&batch);
                last = group;
            }
            if last > before {
                // The last group may be whole without ever having been synced:
                // what is built on it must not outlive it.
                segment.sync()?;
                sealed.push_back((segment, last));
            } else {
                spare.push(segment);
            }
        }
        if highest > last {
            return Err(hole(last, highest));
        }
        let active = take(&mut spare, folder, segment_bytes)?;
        let mut log = CommitLog {
            folder: folder.to_owned(),
            segment_bytes,
            active,
            number,
            position: 0,
            last,
            sealed,
            spare,
            checkpointed,
            buffer: Vec::new(),
        };
        log.begin()?;
        Ok(log)
    }

    /// The last group.
    pub(crate) fn last(&self) -> Sequence {
        self.last
    }

    fn begin(&mut self) -> io::Result<()> {
        self.number += 1;
        self.position = BLOCK_BYTES;
        self.active.begin(Header {
            number: self.number,
            first: self.last.next(),
        })
    }

    fn switch(&mut self, group_bytes: u64) -> io::Result<()> {
        self.reclaim()?;
        let needed = self.segment_bytes.max(BLOCK_BYTES + group_bytes);
        let next = take(&mut self.spare, &self.folder, needed)?;
        let full = std::mem::replace(&mut self.active, next);
        self.sealed.push_back((full, self.last));
        self.begin()
    }

    /// What the checkpoint holds is not needed any more.
    fn reclaim(&mut self) -> io::Result<()> {
        let kept = self.checkpointed.get();
        while self.sealed.front().is_some_and(|(_, last)| *last <= kept) {
            let Some((segment, _)) = self.sealed.pop_front() else {
                break;
            };
            if self.spare.len() < SPARE_SEGMENTS_MAX && segment.bytes == self.segment_bytes {
                self.spare.push(segment);
            } else {
                segment.delete()?;
            }
        }
        Ok(())
    }
}

impl Log for CommitLog {
    fn write(&mut self, batches: &[Batch]) -> io::Result<Sequence> {
        let bytes = group_bytes(batches);
        if self.position + bytes > self.active.bytes {
            self.switch(bytes)?;
        }
        let sequence = self.last.next();
        let seed = self.active.seed();
        encode(&mut self.buffer, batches, sequence, self.number, seed);
        self.active.write(&self.buffer, self.position)?;
        self.position += bytes;
        self.last = sequence;
        Ok(sequence)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.active.sync()
    }
}

/// A spare segment that is large enough, or a new one.
fn take(spare: &mut Vec<Segment>, folder: &Path, bytes: u64) -> io::Result<Segment> {
    match spare.iter().position(|segment| segment.bytes >= bytes) {
        Some(index) => Ok(spare.swap_remove(index)),
        None => Segment::create(folder, bytes),
    }
}

fn hole(last: Sequence, found: Sequence) -> LogError {
    LogError::Lost(format!(
        "the commit log is whole up to group {} and broken before group {}, which was written later: \
         acknowledged changes are lost",
        last.0, found.0
    ))
}

#[cfg(test)]
mod tests;
