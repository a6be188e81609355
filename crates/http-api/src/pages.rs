//! Listings page by page: what `limit` and `cursor` ask for, and where the next page starts.

use engine_api::Cursor;
use layout::AccessPath;
use shop_service::{Listing, PageWish};

use crate::cursor;
use crate::limits::HttpLimits;
use crate::problem::{Code, Problem};

const RECORDS_DEFAULT: usize = 20;

/// One listing: which it is, and whose. A cursor belongs to one and no other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages<'a> {
    pub(crate) path: AccessPath,
    /// Empty where the listing is the whole shop's.
    pub(crate) whose: &'a str,
}

impl Pages<'_> {
    pub(crate) fn wish(
        self,
        limits: &HttpLimits,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<PageWish, Problem> {
        let limit = checked_limit(limit, limits.page_records_max)?;
        let after = match cursor {
            None => None,
            Some(text) => Some(cursor::decode(text, self.path, self.whose).ok_or_else(|| {
                let detail = "this cursor belongs to no such listing, start again without one";
                Problem::new(Code::UnknownCursor, detail)
            })?),
        };
        Ok(PageWish { after, limit })
    }

    pub(crate) fn next_cursor<T>(self, listing: &Listing<T>) -> Result<Option<String>, Problem> {
        let text = |next: &Cursor| {
            cursor::encode(next, self.path, self.whose).ok_or_else(|| {
                Problem::internal(format!("{} is sorted by what no cursor holds", self.path))
            })
        };
        listing.next.as_ref().map(text).transpose()
    }
}

pub(crate) fn checked_limit(limit: Option<usize>, most: usize) -> Result<usize, Problem> {
    match limit {
        None => Ok(RECORDS_DEFAULT.min(most)),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(_) => Err(Problem::field("limit", format!("choose 1 to {most}"))),
    }
}
