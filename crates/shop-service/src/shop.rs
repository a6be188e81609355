//! The shop: what all operations share, and the shapes of their answers.

use std::sync::Arc;

use engine_api::{Cursor, Query, Record, Revision, World};
use router::Router;

use crate::carts::CartHints;
use crate::error::ShopError;
use crate::settings::Settings;

/// How often an operation decides anew because somebody else was faster.
pub(crate) const ATTEMPTS_MAX: u32 = 16;

#[derive(Clone, Debug)]
pub struct ShopConfig {
    pub router: Arc<Router>,
    pub world: Arc<dyn World>,
    pub settings: Settings,
}

#[derive(Debug)]
pub struct Shop {
    pub(crate) router: Arc<Router>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) settings: Settings,
    pub(crate) cart_hints: CartHints,
}

/// A noun as it is stored, and where in time that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<T> {
    pub value: T,
    /// The newest revision anywhere in the record: its tag, and the token of who saw it.
    pub revision: Revision,
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

impl Shop {
    pub fn new(config: ShopConfig) -> Shop {
        Shop {
            router: config.router,
            world: config.world,
            settings: config.settings,
            cart_hints: CartHints::default(),
        }
    }

    pub fn router(&self) -> &Arc<Router> {
        &self.router
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) async fn listing<T>(
        &self,
        query: &Query,
        noun_of: impl Fn(&Record) -> Result<T, ShopError>,
    ) -> Result<Listing<T>, ShopError> {
        let page = self.router.query(query).await?;
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
    Ok(Stored {
        value: noun_of(record)?,
        revision: record.newest_revision(),
    })
}
