//! A segment of the commit log: one file of a fixed size.
//!
//! ```text
//! ┌────────┬───────────┬──────────────┬───────┬─ older groups, or zeros ─┐
//! │ header │ group 101 │ group 102    │ 103   │                          │
//! └────────┴───────────┴──────────────┴───────┴──────────────────────────┘
//!  each starts on a block of 4 KiB: writing one never touches what is acknowledged
//! ```
//!
//! The file is filled with zeros when it is made: a sync then writes the group
//! and nothing about the file. Its name is the seed of its checksums, drawn by
//! chance, so that no stored text can pass for a group.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::batch::Batch;

/// Groups are numbered without a gap, from one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sequence(pub u64);

impl Sequence {
    pub(crate) fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

pub(crate) const BLOCK_BYTES: u64 = 4096;

const HEADER_MAGIC: [u8; 8] = *b"CARALOG1";
const GROUP_MAGIC: [u8; 4] = *b"GRUP";

/// Checksum, magic, length of the rows, sequence, number of the segment.
const GROUP_HEAD_BYTES: usize = 8 + 4 + 4 + 8 + 8;

const SUFFIX: &str = ".log";
const DRAFT: &str = "draft";

/// What the segment is used for at present; a segment is used many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Rises with every use of any segment.
    pub number: u64,
    /// The group it begins with.
    pub first: Sequence,
}

#[derive(Debug)]
pub(crate) struct Segment {
    path: PathBuf,
    file: File,
    seed: u64,
    pub bytes: u64,
}

/// What a segment holds: the groups of its present use, one after the other.
#[derive(Debug)]
pub(crate) struct Content {
    pub groups: Vec<(Sequence, Batch)>,
    /// The highest group that stands whole anywhere in the file.
    pub highest: Sequence,
}

impl Segment {
    /// Makes a segment of zeros. It has its name only when it is whole.
    pub(crate) fn create(folder: &Path, bytes: u64) -> io::Result<Segment> {
        let draft = folder.join(DRAFT);
        let seed = RandomState::new().hash_one(bytes);
        let path = folder.join(format!("{seed:016x}{SUFFIX}"));
        let mut file = File::create(&draft)?;
        let zeros = vec![0; 256 * 1024];
        let mut left = bytes;
        while left > 0 {
            let part = left.min(zeros.len() as u64);
            file.write_all(&zeros[..part as usize])?;
            left -= part;
        }
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        File::open(folder)?.sync_all()?;
        Ok(Segment {
            path,
            file,
            seed,
            bytes,
        })
    }

    /// All segments of the folder; a draft of an earlier run is thrown away.
    pub(crate) fn open_all(folder: &Path) -> io::Result<Vec<Segment>> {
        let mut segments = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let seed = name.and_then(|name| name.strip_suffix(SUFFIX));
            match seed.and_then(|seed| u64::from_str_radix(seed, 16).ok()) {
                Some(seed) => {
                    let file = File::options().read(true).write(true).open(&path)?;
                    let bytes = file.metadata()?.len();
                    segments.push(Segment {
                        path,
                        file,
                        seed,
                        bytes,
                    });
                }
                None if name == Some(DRAFT) => fs::remove_file(&path)?,
                None => {
                    let what = format!("{} is no segment of the log", path.display());
                    return Err(io::Error::other(what));
                }
            }
        }
        Ok(segments)
    }

    /// Takes the segment into use; what it held before counts no more.
    pub(crate) fn begin(&self, header: Header) -> io::Result<()> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        block[..8].copy_from_slice(&HEADER_MAGIC);
        block[8..16].copy_from_slice(&header.number.to_le_bytes());
        block[16..24].copy_from_slice(&header.first.0.to_le_bytes());
        let checksum = xxh3_64_with_seed(&block[..24], self.seed);
        block[24..32].copy_from_slice(&checksum.to_le_bytes());
        self.file.write_all_at(&block, 0)?;
        self.file.sync_data()
    }

    /// Writes a group made by [`encode`].
    pub(crate) fn write(&self, group: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(group, position)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// `None` while the segment was never used, or is damaged.
    pub(crate) fn header(&self) -> io::Result<Option<Header>> {
        let mut block = [0; 32];
        if self.bytes < BLOCK_BYTES {
            return Ok(None);
        }
        self.file.read_exact_at(&mut block, 0)?;
        let checksum = xxh3_64_with_seed(&block[..24], self.seed);
        let is_ours = block[..8] == HEADER_MAGIC && number_at(&block, 24) == checksum;
        Ok(is_ours.then(|| Header {
            number: number_at(&block, 8),
            first: Sequence(number_at(&block, 16)),
        }))
    }

    /// Reads the groups of its present use, and looks at every block behind
    /// them for a group that should not be there.
    pub(crate) fn read(&self, header: Option<Header>) -> io::Result<Content> {
        let mut bytes = vec![0; self.bytes as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        let mut content = Content {
            groups: Vec::new(),
            highest: Sequence(0),
        };
        let mut position = BLOCK_BYTES as usize;
        let mut expected = header.map(|header| (header.number, header.first));
        while position < bytes.len() {
            let Some(group) = self.group_at(&bytes[position..]) else {
                expected = None;
                position += BLOCK_BYTES as usize;
                continue;
            };
            content.highest = content.highest.max(group.sequence);
            if expected == Some((group.segment, group.sequence)) {
                expected = Some((group.segment, group.sequence.next()));
                let batch = Batch::parse(group.rows).ok_or_else(|| {
                    let what = format!("group {} is not made of rows", group.sequence.0);
                    io::Error::new(io::ErrorKind::InvalidData, what)
                })?;
                content.groups.push((group.sequence, batch));
            } else {
                expected = None;
            }
            position += whole_blocks(GROUP_HEAD_BYTES + group.rows.len());
        }
        Ok(content)
    }

    fn group_at<'a>(&self, bytes: &'a [u8]) -> Option<Group<'a>> {
        let head = bytes.get(..GROUP_HEAD_BYTES)?;
        if head[8..12] != GROUP_MAGIC {
            return None;
        }
        let length = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
        let end = GROUP_HEAD_BYTES + usize::try_from(length).ok()?;
        let checked = bytes.get(8..end)?;
        let is_whole = xxh3_64_with_seed(checked, self.seed) == number_at(head, 0);
        is_whole.then(|| Group {
            sequence: Sequence(number_at(head, 16)),
            segment: number_at(head, 24),
            rows: &bytes[GROUP_HEAD_BYTES..end],
        })
    }

    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn delete(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

struct Group<'a> {
    sequence: Sequence,
    segment: u64,
    rows: &'a [u8],
}

/// How many bytes of a segment the batches take as one group.
pub(crate) fn group_bytes(batches: &[Batch]) -> u64 {
    let rows: usize = batches.iter().map(|batch| batch.bytes().len()).sum();
    whole_blocks(GROUP_HEAD_BYTES + rows) as u64
}

/// The batches as one group: everything or nothing.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    batches: &[Batch],
    sequence: Sequence,
    segment: u64,
    seed: u64,
) {
    out.clear();
    out.extend_from_slice(&[0; GROUP_HEAD_BYTES]);
    for batch in batches {
        out.extend_from_slice(batch.bytes());
    }
    let length = u32::try_from(out.len() - GROUP_HEAD_BYTES).expect("a group is bounded");
    out[8..12].copy_from_slice(&GROUP_MAGIC);
    out[12..16].copy_from_slice(&length.to_le_bytes());
    out[16..24].copy_from_slice(&sequence.0.to_le_bytes());
    out[24..32].copy_from_slice(&segment.to_le_bytes());
    let checksum = xxh3_64_with_seed(&out[8..], seed);
    out[..8].copy_from_slice(&checksum.to_le_bytes());
    out.resize(whole_blocks(out.len()), 0);
}

fn whole_blocks(bytes: usize) -> usize {
    bytes.next_multiple_of(BLOCK_BYTES as usize)
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}
