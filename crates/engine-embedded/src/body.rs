//! A file of bodies: written once, in the order of their changes, and read by place.
//!
//! ```text
//! ┌────────────────────────────────────────────────┬────────────────
//! │ checksum · lengths · key of the record · body  │ the next entry …
//! └────────────────────────────────────────────────┴────────────────
//! ```
//!
//! As long as its bodies are only in the commit log the file is a list of chunks in memory, one for
//! each group; a checkpoint writes it out as it is. A place holds for both.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use xxhash_rust::xxh3::xxh3_64;

use crate::places::Place;

/// Checksum of all that follows, length of the key, length of the body.
const HEAD_BYTES: usize = 8 + 2 + 4;

const SUFFIX: &str = ".bodies";
pub(crate) const DRAFT: &str = "draft";

/// Files are written in pieces of this size and at multiples of it: the system then keeps them in
/// memory in pieces as large, and a read finds one of a few instead of one of many thousand pages.
const WRITE_BYTES: usize = 2 * 1024 * 1024;

/// What is read at once where bodies are asked for one after the other that lie near each other.
const BLOCK_BYTES: u32 = 64 * 1024;
/// And how much of it before the body that is asked for: those of one group lie in any order.
const BEFORE_BYTES: u32 = 16 * 1024;

const FILES_ARE_BOUNDED: &str = "writers wait for a checkpoint long before";
const NO_PANIC: &str = "no code panics while it holds the lock";

/// The bodies of a group, as they will stand in their file.
#[derive(Debug)]
pub(crate) struct Chunk {
    file: u32,
    start: u32,
    bytes: Vec<u8>,
}

impl Chunk {
    pub(crate) fn new(file: u32, start: u32) -> Chunk {
        let bytes = Vec::new();
        Chunk { file, start, bytes }
    }

    pub(crate) fn push(&mut self, key: &[u8], body: &[u8]) -> Place {
        let start = self.bytes.len();
        let key_length = u16::try_from(key.len()).expect("ids are bounded");
        let body_length = u32::try_from(body.len()).expect("records are bounded");
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes.extend_from_slice(&key_length.to_le_bytes());
        self.bytes.extend_from_slice(&body_length.to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(body);
        let checksum = xxh3_64(&self.bytes[start + 8..]).to_le_bytes();
        self.bytes[start..start + 8].copy_from_slice(&checksum);
        let number = |bytes: usize| u32::try_from(bytes).expect(FILES_ARE_BOUNDED);
        let offset = self.start.checked_add(number(start));
        Place {
            file: self.file,
            offset: offset.expect(FILES_ARE_BOUNDED),
            bytes: number(self.bytes.len() - start),
        }
    }

    pub(crate) fn bytes(&self) -> u32 {
        u32::try_from(self.bytes.len()).expect(FILES_ARE_BOUNDED)
    }
}

/// What somebody who asks for one body after the other has read around the last one. Bodies of a copy lie nearly in the
/// order of their keys; elsewhere they may lie anywhere, and each is read by itself.
#[derive(Debug, Default)]
pub(crate) struct Around {
    block: Option<Arc<Chunk>>,
    last: Option<Place>,
}

impl Around {
    fn held(&self, place: Place) -> Option<&Arc<Chunk>> {
        let holds = |block: &&Arc<Chunk>| {
            let start = place.offset.checked_sub(block.start);
            let end = start.and_then(|start| start.checked_add(place.bytes));
            block.file == place.file && end.is_some_and(|end| end <= block.bytes())
        };
        self.block.as_ref().filter(holds)
    }

    fn is_near(&self, place: Place) -> bool {
        let near = |last: Place| last.offset.abs_diff(place.offset) < BLOCK_BYTES;
        let same_file = self.last.filter(|last| last.file == place.file);
        same_file.is_some_and(near)
    }
}

/// One file: in memory until a checkpoint, then on disk.
#[derive(Debug)]
pub(crate) enum BodyFile {
    Memory(RwLock<Vec<Arc<Chunk>>>),
    /// Held open: who still reads it may do so after it was deleted.
    Disk(File),
}

impl BodyFile {
    pub(crate) fn in_memory() -> BodyFile {
        BodyFile::Memory(RwLock::default())
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self, BodyFile::Disk(_))
    }

    /// Chunks follow one another without a gap.
    pub(crate) fn add(&self, chunk: Chunk) {
        match self {
            BodyFile::Memory(chunks) => chunks.write().expect(NO_PANIC).push(Arc::new(chunk)),
            BodyFile::Disk(_) => unreachable!("a file on disk is not written to"),
        }
    }

    pub(crate) fn read(&self, place: Place) -> io::Result<Entry> {
        match self {
            BodyFile::Memory(chunks) => {
                let chunks = chunks.read().expect(NO_PANIC);
                let after = chunks.partition_point(|chunk| chunk.start <= place.offset);
                let chunk = after.checked_sub(1).map(|index| chunks[index].clone());
                let chunk = chunk.ok_or_else(|| damaged(place))?;
                Entry::within(chunk, place).ok_or_else(|| damaged(place))
            }
            BodyFile::Disk(file) => {
                let mut bytes = vec![0; place.bytes as usize];
                file.read_exact_at(&mut bytes, u64::from(place.offset))?;
                let entry = Entry::new(Bytes::Own(bytes), 0..place.bytes as usize);
                entry.filter(Entry::is_whole).ok_or_else(|| damaged(place))
            }
        }
    }

    /// The same for somebody who asks for many.
    pub(crate) fn read_on(&self, place: Place, around: &mut Around) -> io::Result<Entry> {
        let BodyFile::Disk(file) = self else {
            return self.read(place);
        };
        let is_near = around.is_near(place);
        around.last = Some(place);
        if around.held(place).is_none() {
            if !is_near {
                return self.read(place);
            }
            around.block = Some(Arc::new(read_block(file, place)?));
        }
        let block = around.held(place).cloned();
        let entry = block.and_then(|block| Entry::within(block, place));
        entry.filter(Entry::is_whole).ok_or_else(|| damaged(place))
    }

    /// The entry that begins here, on disk, and where the next one does.
    pub(crate) fn read_next(&self, file: u32, offset: u32) -> io::Result<(Place, Entry)> {
        let mut place = Place {
            file,
            offset,
            bytes: HEAD_BYTES as u32,
        };
        let BodyFile::Disk(read) = self else {
            unreachable!("what is in memory is not gone through");
        };
        let mut head = [0; HEAD_BYTES];
        read.read_exact_at(&mut head, u64::from(offset))?;
        let (key_bytes, body_bytes) = lengths(&head);
        let bytes = u32::from(key_bytes).checked_add(body_bytes);
        let bytes = bytes.and_then(|bytes| bytes.checked_add(place.bytes));
        place.bytes = bytes.ok_or_else(|| damaged(place))?;
        let end = u64::from(offset) + u64::from(place.bytes);
        if end > read.metadata()?.len() {
            return Err(damaged(place));
        }
        Ok((place, self.read(place)?))
    }

    /// Makes the file on disk. It has its name only when it is whole and synced.
    pub(crate) fn write_out(&self, folder: &Path, number: u32) -> io::Result<BodyFile> {
        let BodyFile::Memory(chunks) = self else {
            unreachable!("a file is written out once");
        };
        let chunks = chunks.read().expect(NO_PANIC).clone();
        let draft = folder.join(DRAFT);
        let mut file = File::create(&draft)?;
        let mut buffer = Vec::with_capacity(WRITE_BYTES);
        for chunk in &chunks {
            let mut rest = chunk.bytes.as_slice();
            while !rest.is_empty() {
                let (fits, after) = rest.split_at(rest.len().min(WRITE_BYTES - buffer.len()));
                buffer.extend_from_slice(fits);
                rest = after;
                if buffer.len() == WRITE_BYTES {
                    file.write_all(&buffer)?;
                    buffer.clear();
                }
            }
        }
        file.write_all(&buffer)?;
        file.sync_all()?;
        let path = path_of(folder, number);
        fs::rename(&draft, &path)?;
        File::open(folder)?.sync_all()?;
        Ok(BodyFile::Disk(File::open(path)?))
    }
}

/// What lies around the place, as far as the file goes.
fn read_block(file: &File, place: Place) -> io::Result<Chunk> {
    let start = place.offset.saturating_sub(BEFORE_BYTES);
    let end = u64::from(place.offset) + u64::from(place.bytes.max(BLOCK_BYTES - BEFORE_BYTES));
    let end = end.min(file.metadata()?.len());
    let length = end.saturating_sub(u64::from(start));
    let mut bytes = vec![0; usize::try_from(length).expect("two bodies are far less")];
    file.read_exact_at(&mut bytes, u64::from(start))?;
    Ok(Chunk {
        file: place.file,
        start,
        bytes,
    })
}

pub(crate) fn path_of(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:08x}{SUFFIX}"))
}

pub(crate) fn number_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
    u32::from_str_radix(name, 16)
        .ok()
        .filter(|number| *number > 0)
}

fn lengths(entry: &[u8]) -> (u16, u32) {
    let key = u16::from_le_bytes([entry[8], entry[9]]);
    let body = u32::from_le_bytes([entry[10], entry[11], entry[12], entry[13]]);
    (key, body)
}

fn damaged(place: Place) -> io::Error {
    let Place { file, offset, .. } = place;
    let what = format!("the body at {offset} of {file:08x}{SUFFIX} is damaged");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A record's key and its body.
#[derive(Debug)]
pub(crate) struct Entry {
    bytes: Bytes,
    range: Range<usize>,
    key_end: usize,
}

#[derive(Debug)]
enum Bytes {
    Own(Vec<u8>),
    Shared(Arc<Chunk>),
}

impl Entry {
    fn within(chunk: Arc<Chunk>, place: Place) -> Option<Entry> {
        let start = place.offset.checked_sub(chunk.start)? as usize;
        Entry::new(Bytes::Shared(chunk), start..start + place.bytes as usize)
    }

    fn new(bytes: Bytes, range: Range<usize>) -> Option<Entry> {
        let mut entry = Entry {
            bytes,
            range,
            key_end: 0,
        };
        let stored = entry.bytes()?;
        stored.get(..HEAD_BYTES)?;
        let (key, body) = lengths(stored);
        let key_end = HEAD_BYTES + usize::from(key);
        let is_so_long = stored.len() == key_end.checked_add(usize::try_from(body).ok()?)?;
        entry.key_end = key_end;
        is_so_long.then_some(entry)
    }

    fn bytes(&self) -> Option<&[u8]> {
        let bytes = match &self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::Shared(chunk) => &chunk.bytes,
        };
        bytes.get(self.range.clone())
    }

    fn stored(&self) -> &[u8] {
        self.bytes().expect("checked when it was made")
    }

    fn is_whole(&self) -> bool {
        let stored = self.stored();
        xxh3_64(&stored[8..]).to_le_bytes() == stored[..8]
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.stored()[HEAD_BYTES..self.key_end]
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.stored()[self.key_end..]
    }
}
