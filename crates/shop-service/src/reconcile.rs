//! The reconciler: looks at every record for what crashes, lost rows and mistakes have
//! left, mends what can be mended without guessing, and names the rest.
//!
//! ```text
//!   products ─▶ orders ─▶ shelves ─▶ carts ─▶ rows          one page a step
//!      │          │          │         │        │
//!      └──────────┴──────────┴─────────┴────────┴─▶ problem ─▶ care: mend it, or only look
//! ```
//!
//! Nothing that a page shows is believed: a problem is one only if the records, read
//! again in the right order, still say so. Each mending is one that a request or a
//! sweeper could make at any time, so that any number of reconcilers may run beside
//! them and one another, and one may be stopped anywhere.

mod care;

mod carts;

mod limits;

mod orders;

mod place;

mod products;

mod report;

mod rows;

mod shelves;

use std::time::Duration;

use engine_api::Timestamp;
use layout::Collection;

use crate::error::ShopError;
use crate::shop::Shop;
use care::{Care, End, Looking, Mending, Problem};
use shelves::Counting;

pub use limits::{ReconcileLimits, ReconcileLimitsError};
pub use place::{Place, PlaceError, Round};
pub use report::{Kind, Left, Report, Tally};

/// What is done about a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Mend,
    /// The same search, and nothing is written.
    LookOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    More,
    Ended,
}

#[derive(Debug)]
pub struct Reconciler<'a> {
    shop: &'a Shop,
    care: Box<dyn Care + 'a>,
    limits: ReconcileLimits,
    place: Option<Place>,
    /// Only within the round of the shelves, which begins anew in another process.
    counting: Option<Counting>,
    report: Report,
    began: Duration,
}

impl Shop {
    /// A reconciler that begins at `from`, or at the beginning.
    pub fn reconciler(
        &self,
        wish: Wish,
        limits: ReconcileLimits,
        from: Option<Place>,
    ) -> Result<Reconciler<'_>, ReconcileLimitsError> {
        limits.check()?;
        let care: Box<dyn Care + '_> = match wish {
            Wish::Mend => Box::new(Mending(self)),
            Wish::LookOnly => Box::new(Looking),
        };
        Ok(Reconciler {
            shop: self,
            care,
            limits,
            place: Some(from.unwrap_or_else(Place::first)),
            counting: None,
            report: Report::default(),
            began: self.world.elapsed(),
        })
    }

    /// Younger than this, unfinished work belongs to a request that is under way.
    fn patience_ends(&self) -> Timestamp {
        let patience_s = i64::from(self.settings.sweep_after_s.seconds());
        let before = self.now().checked_add_seconds(-patience_s);
        before.unwrap_or(Timestamp::from_unix_micros(i64::MIN))
    }
}

impl Reconciler<'_> {
    /// One page of one round. What it cannot read ends it; what it cannot mend is left.
    pub async fn step(&mut self) -> Result<Step, ShopError> {
        let Some(place) = self.place.clone() else {
            return Ok(Step::Ended);
        };
        let next = match place.round {
            Round::Products => self.products(&place).await?,
            Round::Orders => self.orders(&place).await?,
            Round::Shelves => self.shelves(&place).await?,
            Round::Carts => self.carts(&place).await?,
            Round::Rows(collection) => self.rows(collection, &place).await?,
        };
        self.place = next.or_else(|| place.round.next().map(Place::beginning_of));
        self.pace().await;
        Ok(match self.place {
            Some(_) => Step::More,
            None => Step::Ended,
        })
    }

    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Where the next step begins; another reconciler may go on there.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Shoppers come first: the reconciler waits until as much time has passed as its
    /// records may take.
    async fn pace(&self) {
        let records = self.report.looked_at();
        let allowed_us = records.saturating_mul(1_000_000) / u64::from(self.limits.records_per_s);
        let spent = self.shop.world.elapsed().saturating_sub(self.began);
        let ahead = Duration::from_micros(allowed_us).saturating_sub(spent);
        if !ahead.is_zero() {
            self.shop.world.sleep(ahead).await;
        }
    }

    async fn take_care(&mut self, problem: Problem) {
        let (kind, key, what) = (problem.kind(), problem.key(), problem.to_string());
        match self.care.of(&problem).await {
            Ok(End::Gone) => {}
            Ok(End::Mended) => {
                tracing::info!(%kind, key, what, "mended");
                self.report.mended(kind);
            }
            Ok(End::Left { why: None }) => self.report.left(kind, key, what),
            Ok(End::Left { why: Some(why) }) => {
                self.report.left(kind, key, format!("{what}: {why}"));
            }
            Err(error) => {
                let what = format!("{what}: it cannot be mended now ({error})");
                self.report.left(kind, key, what);
            }
        }
    }

    /// A page of images, and where the next begins.
    async fn survey(
        &self,
        collection: Collection,
        place: &Place,
    ) -> Result<(Vec<engine_api::Record>, Option<Place>), ShopError> {
        let from = place.survey();
        let page = self
            .shop
            .router
            .survey(collection, from.as_ref(), self.limits.page_records);
        let page = page.await?;
        let next = page.next.map(|next| place.round.at(next));
        Ok((page.images, next))
    }
}
