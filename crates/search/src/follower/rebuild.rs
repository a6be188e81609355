//! Building the whole index from scans.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use engine_api::{PAGE_RECORDS_MAX, Remedy, Scan, ScanPage, ScanPosition};
use layout::{Collection, Scope};
use router::ShardName;

use super::{Following, Owners, Progress, Sources, of_shard};
use crate::error::FollowError;
use crate::index::Put;

/// How often one page of a scan is asked for while its shard is not available.
/// A scan that began again at every hiccup might never end.
const SCAN_TRIES_MAX: u32 = 5;

const SCAN_RETRY_MS: u64 = 500;

impl Sources {
    /// Scans every owner into a new index. `None` when products changed their
    /// owners meanwhile: a scan under two maps may have met both copies of a
    /// product or neither.
    pub(super) async fn rebuild(&self, owners: Owners) -> Result<Option<Following>, FollowError> {
        self.counts.rebuilds.add(1);
        let mut positions = BTreeMap::new();
        for shard in owners.shards() {
            let end = self.engine(shard)?.journal_end().await;
            positions.insert(shard.clone(), end.map_err(of_shard(shard))?);
        }
        self.index.start_over()?;
        let (mut scanned, mut products) = (0, 0);
        for shard in owners.shards() {
            let mut after = None;
            loop {
                let page = self.scan_page(shard, after).await?;
                scanned += page.images.len() as u64;
                for image in page.images.iter().filter(|image| owners.own(shard, image)) {
                    products += u64::from(self.take_over(&image.key, Some(image))? == Put::Changed);
                }
                (self.progress)(Progress {
                    shard,
                    scanned,
                    products,
                });
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        self.router.refresh().await?;
        if Owners::of(&self.router.map())? != owners {
            return Ok(None);
        }
        self.index.commit()?;
        Ok(Some(Following {
            owners,
            positions,
            waiting: BTreeMap::new(),
            headers: HashMap::new(),
        }))
    }

    async fn scan_page(
        &self,
        shard: &ShardName,
        after: Option<ScanPosition>,
    ) -> Result<ScanPage, FollowError> {
        let scan = Scan {
            collection: Collection::Products,
            scope: Scope::All,
            after,
            until: None,
            limit: PAGE_RECORDS_MAX,
        };
        let mut tries = 0;
        loop {
            tries += 1;
            match self.engine(shard)?.scan(&scan).await {
                Ok(page) => return Ok(page),
                Err(error) if error.remedy() == Remedy::Retry && tries < SCAN_TRIES_MAX => {
                    self.world.sleep(Duration::from_millis(SCAN_RETRY_MS)).await;
                }
                Err(error) => return Err(of_shard(shard)(error)),
            }
        }
    }
}
