//! From memory to disk: checkpoints, and merging what they leave.

use std::io;
use std::sync::Arc;

use lsm_tree::compaction::Leveled;
use lsm_tree::{AbstractTree, AnyTree};

use super::{Inner, Store, StoreError};
use crate::batch::{Batch, Space};
use crate::bodies::delete;
use crate::segment::Sequence;
use crate::view::lock;

/// The last group that the tables on disk hold, written by each checkpoint.
const META_CHECKPOINT: &[u8] = b"checkpoint";

/// Steps of one tidying: bounds it should the library never come to rest.
const COMPACTIONS_MAX: usize = 64;

const LEVELS: usize = 7;

/// Between these a checkpoint may be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    BodiesWritten,
    PlacesWritten,
    TablesWritten,
    FilesDeleted,
}

impl Store {
    /// Seals everything applied so far, which goes up to `last`, for
    /// [`Store::flush`]. Called by the thread that applies.
    pub(crate) fn seal(&self, last: Sequence) {
        let mut batch = Batch::default();
        batch.put(Space::Meta, META_CHECKPOINT, &last.0.to_be_bytes());
        self.apply([&batch]);
        let mut memory = self.0.memory();
        for tree in &self.0.trees {
            tree.rotate_memtable();
        }
        memory.bodies.seal();
        memory.bytes = 0;
    }

    /// Writes what was sealed to disk: bodies first, then the tables that point to them. The
    /// space that says how far they go comes last: it is there only if all others are.
    /// After it, nothing on disk points into the files that are deleted.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        let turn = self.0.memory().bodies.turn();
        let mut written = Vec::new();
        for (number, file) in turn.sealed {
            written.push((number, file.write_out(&turn.folder, number)?));
        }
        self.0.reach(Step::BodiesWritten)?;
        for space in Space::ALL {
            let tree = self.0.tree(space);
            tree.flush(&tree.get_flush_lock(), self.unseen())?;
            if space == Space::Records {
                self.0.reach(Step::PlacesWritten)?;
            }
        }
        self.0.reach(Step::TablesWritten)?;
        self.0.memory().bodies.turned(written, &turn.leaving);
        self.move_on();
        for number in turn.leaving {
            delete(&turn.folder, number)?;
            self.0.reach(Step::FilesDeleted)?;
        }
        Ok(())
    }

    /// The last group that the tables on disk hold.
    pub(crate) fn checkpoint(&self) -> Result<Sequence, StoreError> {
        let stored = self.get(Space::Meta, META_CHECKPOINT)?;
        let number = stored.as_deref().map(<[u8; 8]>::try_from).transpose();
        match number {
            Ok(number) => Ok(Sequence(number.map_or(0, u64::from_be_bytes))),
            Err(_) => Err(StoreError::Library(
                "the number of the checkpoint has a wrong length".to_owned(),
            )),
        }
    }

    /// Merges tables until the library finds nothing more to do.
    pub(crate) fn tidy(&self) -> Result<(), StoreError> {
        for tree in &self.0.trees {
            for _ in 0..COMPACTIONS_MAX {
                let before = shape(tree);
                tree.compact(Arc::new(Leveled::default()), self.unseen())?;
                if shape(tree) == before {
                    break;
                }
            }
        }
        self.move_on();
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn cut_off(&self, step: Step) {
        *lock(&self.0.fault) = Some(step);
    }

    /// Lets readers see the newest tables: without a new batch they would go on
    /// with those before, whose memory stays in use.
    fn move_on(&self) {
        let memory = self.0.memory();
        if !memory.spoilt {
            self.0.show(self.0.numbers.get(), &memory.bodies);
        }
    }

    /// Older versions of a key below this number are seen by no view.
    fn unseen(&self) -> u64 {
        // The current sight is one of them.
        let oldest = lock(&self.0.sights).keys().next().copied();
        oldest.unwrap_or_default().saturating_sub(1)
    }
}

impl Inner {
    /// Where tests cut a checkpoint off.
    fn reach(&self, step: Step) -> io::Result<()> {
        #[cfg(test)]
        if *lock(&self.fault) == Some(step) {
            return Err(io::Error::other(format!("cut off after {step:?}")));
        }
        let _ = step;
        Ok(())
    }
}

/// How many tables each level has: changes with every step of a compaction.
fn shape(tree: &AnyTree) -> [Option<usize>; LEVELS] {
    std::array::from_fn(|level| tree.level_table_count(level))
}
