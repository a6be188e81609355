//! The contract, as far as feeds, verifiers and cutovers ask for it.

use async_trait::async_trait;
use engine_api::{
    Capabilities, Change, Content, Engine, EngineError, Fence, FenceKind, Freshness, JournalEntry,
    JournalEvent, JournalPage, Maintained, Maintenance, MoverTerm, Outcome, Page, Position, Query,
    ReadContext, Record, RecordKey, Scan, ScanPage, ScanPosition, Seal, Stray, StrayEnd, StrayPage,
    StraySearch, Terms, Timestamp, WriteContext,
};
use futures::future::join_all;

use super::places::{joined, merged, parted, scan_parts, scan_place};
use super::{Side, of};

#[async_trait]
impl Engine for Side {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// An image goes to the shard that the placement gives its record to, under the key it has there.
    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        let Change::PutImage { image } = change else {
            return Err(unsupported("take a shopper's change"));
        };
        let revision = image.newest_revision();
        if self.shows_through(&image, context.now).await? {
            return Ok(Outcome::Done { revision });
        }
        let Some(key) = self.key_for(&image, &context).await? else {
            return Ok(Outcome::Done { revision });
        };
        let shard = self.owner(&key.shard_key);
        let image = Record { key, ..image };
        let put = shard
            .engine
            .apply(Change::PutImage { image }, context)
            .await;
        put.map_err(|error| of(shard, error))
    }

    async fn apply_together(
        &self,
        _: Vec<Change>,
        _: WriteContext,
    ) -> Result<Outcome, EngineError> {
        Err(unsupported("take several changes at once"))
    }

    async fn get(
        &self,
        name: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        let image = self.kept(name, context).await?;
        let shown = image.filter(|image| !self.hides_marks || !is_mark(image));
        Ok(shown.map(|image| self.named(image)))
    }

    async fn query(&self, _: &Query, _: ReadContext) -> Result<Page, EngineError> {
        Err(unsupported("answer listings"))
    }

    /// One shard after the other, the history last: what becomes finished meanwhile is met there.
    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        let (place, after) = match &scan.after {
            Some(after) => scan_parts(after)?,
            None => (0, None),
        };
        let (last, until) = match &scan.until {
            Some(until) => scan_parts(until)?,
            None => (self.places().saturating_sub(1), None),
        };
        let ends_before = place == last && scan.until.is_some() && until.is_none();
        let shard = match self.place(place) {
            Some(shard) if place <= last && !ends_before => shard,
            _ => {
                return Ok(ScanPage {
                    images: Vec::new(),
                    next: None,
                });
            }
        };
        let scan = Scan {
            after,
            until: until.filter(|_| place == last),
            ..scan.clone()
        };
        let page = shard.engine.scan(&scan).await;
        let page = page.map_err(|error| of(shard, error))?;
        let own = page.images.into_iter();
        let own = own.filter(|image| self.is_own(shard, image)).collect();
        let own = self.counting(shard, own).await?.into_iter();
        let next = match page.next {
            Some(after) => Some(scan_place(place, Some(&after))),
            None if place == last => None,
            None => Some(scan_place(place + 1, None)),
        };
        Ok(ScanPage {
            images: own.map(|image| self.named(image)).collect(),
            next,
        })
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        let ends = self.shards.iter().map(|shard| async move {
            let end = shard.engine.journal_end().await;
            end.map_err(|error| of(shard, error))
        });
        let ends = join_all(ends).await.into_iter();
        Ok(joined(&ends.collect::<Result<Vec<_>, _>>()?))
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        let from = parted(from, self.shards.len())?;
        let pages = self
            .shards
            .iter()
            .zip(&from)
            .map(|(shard, from)| async move {
                let page = shard.engine.journal_read(from, limit).await;
                page.map_err(|error| of(shard, error))
            });
        let pages = join_all(pages).await.into_iter();
        let pages = pages.collect::<Result<Vec<_>, _>>()?;
        let mut page = merged(&from, pages, limit);
        for entry in &mut page.entries {
            self.rename(entry);
            self.look_behind(entry).await?;
        }
        Ok(page)
    }

    /// On every shard that fences; of the others every lease has acknowledged the freeze,
    /// and their journals' ends are the seal.
    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        let raised = self.shards.iter().map(|shard| {
            let (fence, term) = (fence.clone(), term.clone());
            async move {
                let sealed = match shard.engine.capabilities().fence {
                    FenceKind::InStore => {
                        let seal = shard.engine.raise_fence(fence, term, now).await;
                        seal.map(|seal| seal.position)
                    }
                    FenceKind::ByLease => shard.engine.journal_end().await,
                };
                sealed.map_err(|error| of(shard, error))
            }
        });
        let raised = join_all(raised).await.into_iter();
        Ok(Seal {
            position: joined(&raised.collect::<Result<Vec<_>, _>>()?),
        })
    }

    /// Where some shards have met higher terms, the highest is told: whoever goes above it is above all.
    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        let knows = |shard: &&super::Shard| shard.engine.capabilities().terms == Terms::InStore;
        let claims = self.shards.iter().filter(knows).map(|shard| {
            let term = term.clone();
            async move {
                let claim = shard.engine.claim_term(term).await;
                claim.map_err(|error| of(shard, error))
            }
        });
        let refused: Vec<EngineError> = join_all(claims)
            .await
            .into_iter()
            .filter_map(Result::err)
            .collect();
        let highest = refused.iter().filter_map(|error| match error {
            EngineError::TermLost { current, .. } => Some(*current),
            _ => None,
        });
        match highest.max() {
            Some(current) => Err(EngineError::TermLost {
                lost: term,
                current,
            }),
            None => refused.into_iter().next().map_or(Ok(()), Err),
        }
    }

    async fn maintain(&self, _: Maintenance) -> Result<Maintained, EngineError> {
        Err(unsupported("be maintained"))
    }

    async fn restore(&self, image: Record, context: WriteContext) -> Result<Outcome, EngineError> {
        let revision = image.newest_revision();
        let Some(key) = self.key_for(&image, &context).await? else {
            return Ok(Outcome::Done { revision });
        };
        let shard = self.owner(&key.shard_key);
        let image = Record { key, ..image };
        let restored = shard.engine.restore(image, context).await;
        restored.map_err(|error| of(shard, error))
    }

    /// One shard after the other, what earlier moves left there included. A row says which it is on.
    async fn find_strays(&self, search: &StraySearch) -> Result<StrayPage, EngineError> {
        let (place, after) = match &search.after {
            Some(after) => scan_parts(after)?,
            None => (0, None),
        };
        let Some(shard) = self.place(place) else {
            return Ok(StrayPage::default());
        };
        let search = StraySearch {
            after,
            ..search.clone()
        };
        let page = shard.engine.find_strays(&search).await;
        let mut page = page.map_err(|error| of(shard, error))?;
        for stray in &mut page.strays {
            let row = ScanPosition(std::mem::take(&mut stray.row));
            stray.row = scan_place(place, Some(&row)).0;
        }
        page.next = match page.next {
            Some(after) => Some(scan_place(place, Some(&after))),
            None => (place + 1 < self.places()).then(|| scan_place(place + 1, None)),
        };
        Ok(page)
    }

    async fn is_stray(&self, stray: &Stray, now: Timestamp) -> Result<bool, EngineError> {
        let (shard, stray) = self.stray_of(stray)?;
        let found = shard.engine.is_stray(&stray, now).await;
        found.map_err(|error| of(shard, error))
    }

    async fn mend_stray(&self, stray: &Stray, now: Timestamp) -> Result<StrayEnd, EngineError> {
        let (shard, stray) = self.stray_of(stray)?;
        let mended = shard.engine.mend_stray(&stray, now).await;
        mended.map_err(|error| of(shard, error))
    }
}

impl Side {
    /// The key of the image's record here; `None` for a removal of what is not here.
    async fn key_for(
        &self,
        image: &Record,
        context: &WriteContext,
    ) -> Result<Option<RecordKey>, EngineError> {
        if let Some(header) = image.header.content.live() {
            let key = self
                .placement
                .key_for(self.collection, image.key.id.clone(), header);
            return key.map(Some).map_err(|error| EngineError::Invalid {
                reason: error.to_string(),
            });
        }
        if let Some(key) = self.common.key_in(&self.placement, &image.key) {
            return Ok(Some(key));
        }
        let context = ReadContext {
            now: context.now,
            freshness: Freshness::OfEveryCopy,
        };
        let stands = self.sought(&image.key, context).await?;
        Ok(stands.map(|stands| stands.key))
    }

    /// The shard that the row is on, and the row as that shard calls it.
    fn stray_of(&self, stray: &Stray) -> Result<(&super::Shard, Stray), EngineError> {
        let (place, row) = scan_parts(&ScanPosition(stray.row.clone()))?;
        let shard = self.place(place);
        let (Some(shard), Some(ScanPosition(row))) = (shard, row) else {
            return Err(EngineError::Invalid {
                reason: "the row was found elsewhere".to_owned(),
            });
        };
        let stray = Stray {
            row,
            ..stray.clone()
        };
        Ok((shard, stray))
    }

    fn rename(&self, entry: &mut JournalEntry) {
        if let JournalEvent::Changed { key, .. } = &mut entry.event
            && key.collection == self.collection
        {
            *key = self.name_of(key);
        }
    }
}

pub(super) fn is_mark(image: &Record) -> bool {
    image.header.content == Content::Removed
}

fn unsupported(what: &str) -> EngineError {
    EngineError::Unsupported {
        what: format!("{what} as one side of a move"),
    }
}
