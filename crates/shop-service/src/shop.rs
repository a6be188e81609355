//! The shop: what all operations share, and the shapes of their answers.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use engine_api::{Cursor, Memo, Page, Query, Record, Revision, SharedRecord, World};
use router::{Map, Precedence, Router};

use crate::carts::CartHints;
use crate::error::ShopError;
use crate::history::OrderHistory;
use crate::policies::Policies;
use crate::read_counts::ReadCounts;
use crate::reading::ShopReader;
use crate::settings::Settings;

/// How often an operation decides anew because somebody else was faster.
pub(crate) const ATTEMPTS_MAX: u32 = 16;

#[derive(Clone, Debug)]
pub struct ShopConfig {
    pub router: Arc<Router>,
    pub world: Arc<dyn World>,
    pub settings: Settings,
}

/// Cheap to make for one request: see [`Shop::within`].
#[derive(Debug)]
pub struct Shop {
    /// With what the request may still take.
    pub(crate) router: Router,
    shared: Arc<Shared>,
}

/// What all requests share. Public only in name: it is what [`Shop`] points to.
#[derive(Clone, Debug)]
pub struct Shared {
    whole_router: Arc<Router>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) settings: Settings,
    pub(crate) cart_hints: Arc<CartHints>,
    histories: Vec<OrderHistory>,
    pub(crate) policies: Policies,
    pub(crate) read_counts: Arc<ReadCounts>,
}

impl Deref for Shop {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// A noun as it is stored, held by all who read it at the same revision.
#[derive(Debug)]
pub struct Stored<T>(Arc<Held<T>>);

/// A noun, and where in time it is.
#[derive(Debug)]
pub struct Held<T> {
    pub value: T,
    /// The newest revision anywhere in the record: its tag, and the token of who saw it.
    pub revision: Revision,
    memo: Memo,
}

/// Whether a call made the thing or found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    Now,
    Before,
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    pub items: Vec<Stored<T>>,
    pub next: Option<Cursor>,
}

/// Which page is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageWish {
    pub after: Option<Cursor>,
    pub limit: usize,
}

impl<T> Stored<T> {
    pub fn new(value: T, revision: Revision) -> Stored<T> {
        let memo = Memo::default();
        Stored(Arc::new(Held {
            value,
            revision,
            memo,
        }))
    }

    /// What `make` makes of the noun, from the last time if it was made before.
    pub fn made<M, E>(&self, make: impl FnOnce(&T) -> Result<M, E>) -> Result<Arc<M>, E>
    where
        M: Send + Sync + 'static,
    {
        self.memo.made(|| make(&self.value))
    }
}

impl<T: Clone> Stored<T> {
    /// The noun to be changed: one's own, copied if others hold it too.
    pub(crate) fn change(&mut self) -> &mut T {
        &mut self.own().value
    }

    /// The same noun where a write of ours brought it.
    #[must_use]
    pub(crate) fn at(mut self, revision: Revision) -> Stored<T> {
        if self.revision != revision {
            self.own().revision = revision;
        }
        self
    }

    fn own(&mut self) -> &mut Held<T> {
        if Arc::get_mut(&mut self.0).is_none() {
            *self = Stored::new(self.value.clone(), self.revision);
        }
        let own = Arc::get_mut(&mut self.0).expect("a new one has one holder");
        own.memo = Memo::default();
        own
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Deref for Stored<T> {
    type Target = Held<T>;

    fn deref(&self) -> &Held<T> {
        &self.0
    }
}

impl<T> Clone for Stored<T> {
    fn clone(&self) -> Stored<T> {
        Stored(self.0.clone())
    }
}

impl<T: PartialEq> PartialEq for Stored<T> {
    fn eq(&self, other: &Stored<T>) -> bool {
        self.revision == other.revision && self.value == other.value
    }
}

impl<T: Eq> Eq for Stored<T> {}

impl Shop {
    pub fn new(config: ShopConfig) -> Shop {
        Shop {
            router: Router::clone(&config.router),
            shared: Arc::new(Shared {
                whole_router: config.router,
                world: config.world,
                settings: config.settings,
                cart_hints: Arc::default(),
                histories: Vec::new(),
                policies: Policies::default(),
                read_counts: Arc::default(),
            }),
        }
    }

    /// The same shop for one request, which has `left` to be answered in: whatever it
    /// asks of the router, and however often, ends with that.
    #[must_use]
    pub fn within(&self, left: Duration, precedence: Precedence) -> Shop {
        Shop {
            router: self.whole_router.within(left, precedence),
            shared: Arc::clone(&self.shared),
        }
    }

    /// The same shop, whose finished orders are kept apart; of several histories each is of another layout.
    #[must_use]
    pub fn with_history(mut self, history: OrderHistory) -> Shop {
        Arc::make_mut(&mut self.shared).histories.push(history);
        self
    }

    /// The same shop, which answers those who only look as old as the layouts allow.
    #[must_use]
    pub fn with_policies(mut self, policies: Policies) -> Shop {
        Arc::make_mut(&mut self.shared).policies = policies;
        self
    }

    /// Where finished orders are, if the layout that the map names for them keeps them apart.
    pub(crate) fn history(&self) -> Option<&OrderHistory> {
        self.history_under(&self.router.map())
    }

    pub(crate) fn history_under(&self, map: &Map) -> Option<&OrderHistory> {
        self.histories.iter().find(|history| history.is_of(map))
    }

    /// Whether what was read since the map was looked at is of one map: a move may have given orders another layout in
    /// between, and with it another history, or none (W46).
    pub(crate) fn still_under(&self, map: &Map) -> bool {
        self.histories.is_empty() || self.router.map().generation == map.generation
    }

    /// Whether orders are kept apart in some layout that this process knows.
    pub(crate) fn knows_histories(&self) -> bool {
        !self.histories.is_empty()
    }

    /// The shop as it is shown to a client who has seen the change `seen`. What reads
    /// here decides nothing: whatever decides asks the shop itself, for the latest.
    pub fn shown_to(&self, seen: Revision) -> ShopReader<'_> {
        ShopReader::new(self, seen)
    }

    /// How the reads of clients were answered.
    pub fn read_counts(&self) -> &ReadCounts {
        &self.read_counts
    }

    pub fn router(&self) -> &Arc<Router> {
        &self.whole_router
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) async fn listing<T>(
        &self,
        query: &Query,
        noun_of: impl Fn(&Record) -> Result<T, ShopError>,
    ) -> Result<Listing<T>, ShopError> {
        self.listed(self.router.query(query).await?, noun_of)
    }

    pub(crate) fn listed<T>(
        &self,
        page: Page,
        noun_of: impl Fn(&Record) -> Result<T, ShopError>,
    ) -> Result<Listing<T>, ShopError> {
        let items = page.records.iter().map(|record| stored(record, &noun_of));
        Ok(Listing {
            items: items.collect::<Result<_, _>>()?,
            next: page.next,
        })
    }
}

pub(crate) fn stored<T>(
    record: &Record,
    noun_of: impl Fn(&Record) -> Result<T, ShopError>,
) -> Result<Stored<T>, ShopError> {
    Ok(Stored::new(noun_of(record)?, record.newest_revision()))
}

/// The same for a record that others hold too: the noun is made once for all of them.
pub(crate) fn shared<T: Send + Sync + 'static>(
    record: &SharedRecord,
    noun_of: impl Fn(&Record) -> Result<T, ShopError>,
) -> Result<Stored<T>, ShopError> {
    let made = record.made(|record| stored(record, noun_of))?;
    Ok(Stored::clone(&made))
}
