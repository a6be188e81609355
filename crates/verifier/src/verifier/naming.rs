//! The keys of unequal buckets: both sides are read once more, and only those buckets are kept.

use std::collections::BTreeMap;

use engine_api::{RecordKey, ScanPosition};

use super::{Phase, Verifier};
use crate::digest::{bucket_of, digest};
use crate::error::VerifyError;
use crate::progress::Side;

/// The digests of the source's records in a few buckets, from which the target's are taken.
#[derive(Debug)]
pub(super) struct Names {
    side: Side,
    after: Option<ScanPosition>,
    /// Those that are read now, in order.
    buckets: Vec<usize>,
    /// Those that come after them.
    later: Vec<usize>,
    left: BTreeMap<RecordKey, u128>,
}

impl Verifier {
    /// One page. When the last buckets are named, their suspects are looked at like all others.
    pub(super) async fn name(&mut self) -> Result<(), VerifyError> {
        let mut names = match self.names.take() {
            Some(names) => names,
            None => match &self.phase {
                Phase::Naming { buckets, .. } => self.names_of(buckets.clone()),
                Phase::Summing(_) | Phase::Watching { .. } => return Ok(()),
            },
        };
        let page = self.reader().scan(names.side, names.after.take()).await?;
        for image in page.images {
            if names
                .buckets
                .binary_search(&bucket_of(&image.key.id))
                .is_err()
            {
                continue;
            }
            let digest = digest(&image);
            match names.side {
                Side::Source => {
                    names.left.insert(image.key, digest);
                }
                Side::Target if names.left.get(&image.key) == Some(&digest) => {
                    names.left.remove(&image.key);
                }
                Side::Target => self.suspect(image.key),
            }
        }
        match (page.next, names.side) {
            (Some(next), _) => names.after = Some(next),
            (None, Side::Source) => (names.side, names.after) = (Side::Target, None),
            (None, Side::Target) => {
                names.left.into_keys().for_each(|key| self.suspect(key));
                if names.later.is_empty() {
                    self.watch();
                    return Ok(());
                }
                names = self.names_of(names.later);
            }
        }
        self.names = Some(names);
        Ok(())
    }

    /// As many of the buckets as may be held at once, one at least; the others come later.
    fn names_of(&self, mut buckets: Vec<usize>) -> Names {
        let (source, target) = self.phase.sums();
        let sizes: BTreeMap<usize, u64> = source.unequal(target).into_iter().collect();
        let mut room = self.limits.keys_at_once_max as u64;
        buckets.sort_unstable();
        let fits = |bucket: &&usize| {
            let size = sizes.get(*bucket).copied().unwrap_or(0);
            let fits = size <= room;
            room = room.saturating_sub(size);
            fits
        };
        let chosen = buckets.iter().take_while(fits).count().max(1);
        let later = buckets.split_off(chosen.min(buckets.len()));
        Names {
            side: Side::Source,
            after: None,
            buckets,
            later,
            left: BTreeMap::new(),
        }
    }

    fn watch(&mut self) {
        if let Phase::Naming {
            buckets,
            source,
            target,
        } = &mut self.phase
        {
            self.unsettled = std::mem::take(buckets);
            let (source, target) = (std::mem::take(source), std::mem::take(target));
            self.phase = Phase::Watching { source, target };
        }
    }
}
