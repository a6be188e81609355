//! All files of bodies: in memory or on disk, and how much of each still lives.
//!
//! New bodies go to the youngest file. A checkpoint closes it and writes it to disk before the tables
//! that point into it. Of a file whose bodies are mostly replaced the living ones are put into the youngest file
//! again, beside new ones. A file in which nothing lives is deleted after the next checkpoint:
//! until then tables on disk may point there. Views that still do hold it open.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::body::{BodyFile, Chunk, DRAFT, number_of, path_of};
use crate::places::Place;

/// Files by number. A view holds those that were there when it was taken.
pub(crate) type Files = FxHashMap<u32, Arc<BodyFile>>;

/// File and offset where the next body goes: what a view sees lies before.
pub(crate) type End = (u32, u32);

#[derive(Debug)]
pub(crate) struct Bodies {
    folder: PathBuf,
    files: Arc<Files>,
    end: End,
    usage: FxHashMap<u32, Usage>,
    /// Where going through them has met damage: who reads there is told.
    left_alone: FxHashSet<u32>,
    /// Nothing lived there when the checkpoint under way began.
    leaving: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    bytes: u64,
    /// Never less than there is: what is not known to be dead counts as living.
    living: u64,
}

/// Files to be written to disk by a checkpoint, and those it may delete then.
#[derive(Debug)]
pub(crate) struct Turn {
    pub folder: PathBuf,
    pub sealed: Vec<(u32, Arc<BodyFile>)>,
    pub leaving: Vec<u32>,
}

impl Bodies {
    pub(crate) fn open(folder: &Path) -> io::Result<Bodies> {
        fs::create_dir_all(folder)?;
        if let Some(parent) = folder.parent() {
            File::open(parent)?.sync_all()?;
        }
        let (mut files, mut usage) = (Files::default(), FxHashMap::default());
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            match number_of(&path) {
                Some(number) => {
                    let file = File::open(&path)?;
                    let bytes = file.metadata()?.len();
                    usage.insert(number, Usage { bytes, living: 0 });
                    files.insert(number, Arc::new(BodyFile::Disk(file)));
                }
                None if path.file_name().is_some_and(|name| name == DRAFT) => {
                    fs::remove_file(&path)?;
                }
                None => {
                    let what = format!("{} is no file of bodies", path.display());
                    return Err(io::Error::other(what));
                }
            }
        }
        let youngest = files.keys().max().map_or(1, |last| last + 1);
        files.insert(youngest, Arc::new(BodyFile::in_memory()));
        Ok(Bodies {
            folder: folder.to_owned(),
            files: Arc::new(files),
            end: (youngest, 0),
            usage,
            left_alone: FxHashSet::default(),
            leaving: Vec::new(),
        })
    }

    pub(crate) fn files(&self) -> Arc<Files> {
        self.files.clone()
    }

    pub(crate) fn end(&self) -> End {
        self.end
    }

    /// For the bodies of the next group.
    pub(crate) fn chunk(&self) -> Chunk {
        Chunk::new(self.end.0, self.end.1)
    }

    pub(crate) fn add(&mut self, chunk: Chunk) {
        let (bytes, (number, offset)) = (chunk.bytes(), self.end);
        if bytes > 0 {
            self.end = (number, offset + bytes);
            self.usage.entry(number).or_default().bytes += u64::from(bytes);
            self.files[&number].add(chunk);
        }
    }

    pub(crate) fn born(&mut self, place: Place) {
        self.usage.entry(place.file).or_default().living += u64::from(place.bytes);
    }

    pub(crate) fn died(&mut self, place: Place) {
        if let Some(usage) = self.usage.get_mut(&place.file) {
            // Should the counts ever be wrong, the file stays.
            let left = usage.living.checked_sub(u64::from(place.bytes));
            usage.living = left.unwrap_or(u64::MAX);
        }
    }

    /// A place that the tables name when the directory is opened; false if there is no such place.
    pub(crate) fn found(&mut self, place: Place) -> bool {
        let end = u64::from(place.offset) + u64::from(place.bytes);
        match self.usage.get_mut(&place.file) {
            Some(usage) if end <= usage.bytes => {
                usage.living += u64::from(place.bytes);
                true
            }
            _ => false,
        }
    }

    /// The file on disk of which least lives, if that is less than half. One where nothing
    /// does needs no care.
    pub(crate) fn most_worn(&self) -> Option<(u32, Arc<BodyFile>, u64)> {
        let on_disk = self.files.iter().filter(|(_, file)| file.is_on_disk());
        let known = on_disk.filter_map(|(number, file)| {
            let usage = self.usage.get(number)?;
            let is_worn = usage.living > 0 && usage.living < usage.bytes / 2;
            (is_worn && !self.left_alone.contains(number)).then_some((*number, file, usage))
        });
        let share = |usage: &Usage| usage.living * 1000 / usage.bytes.max(1);
        let least = known.min_by_key(|(number, _, usage)| (share(usage), *number));
        least.map(|(number, file, usage)| (number, file.clone(), usage.bytes))
    }

    pub(crate) fn leave_alone(&mut self, file: u32) {
        self.left_alone.insert(file);
    }

    /// All that lived in the file lives elsewhere now.
    pub(crate) fn salvaged(&mut self, file: u32) {
        if let Some(usage) = self.usage.get_mut(&file) {
            usage.living = 0;
        }
    }

    /// Closes the youngest file, for a checkpoint.
    pub(crate) fn seal(&mut self) {
        let on_disk = self.files.iter().filter(|(_, file)| file.is_on_disk());
        let numbers = on_disk.map(|(number, _)| *number);
        let is_empty = |number: &u32| self.usage.get(number).is_none_or(|usage| usage.living == 0);
        self.leaving = numbers.filter(is_empty).collect();
        if self.end.1 > 0 {
            self.end = (self.end.0 + 1, 0);
            let mut files = Files::clone(&self.files);
            files.insert(self.end.0, Arc::new(BodyFile::in_memory()));
            self.files = Arc::new(files);
        }
    }

    /// What the checkpoint under way has to do.
    pub(crate) fn turn(&mut self) -> Turn {
        let closed = self.files.iter();
        let closed = closed.filter(|(number, file)| **number < self.end.0 && !file.is_on_disk());
        Turn {
            folder: self.folder.clone(),
            sealed: closed
                .map(|(number, file)| (*number, file.clone()))
                .collect(),
            leaving: std::mem::take(&mut self.leaving),
        }
    }

    /// The checkpoint is whole: these are read from disk from now on, and those by nobody new.
    pub(crate) fn turned(&mut self, written: Vec<(u32, BodyFile)>, left: &[u32]) {
        let mut files = Files::clone(&self.files);
        for (number, file) in written {
            files.insert(number, Arc::new(file));
        }
        for number in left {
            files.remove(number);
            self.usage.remove(number);
        }
        self.files = Arc::new(files);
    }
}

/// Takes the name; the bytes go when the last view that reads them ends.
pub(crate) fn delete(folder: &Path, number: u32) -> io::Result<()> {
    fs::remove_file(path_of(folder, number))
}

#[cfg(test)]
mod tests;
