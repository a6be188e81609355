//! Bringing an order back: one that the history has and somebody changes.
//!
//! What decides needs a condition, and the history takes none: it is written by the
//! feed alone. So the changed order is made anew among the live ones, where its
//! stock, its sweeper and its next way into the history are. The condition is the
//! number it is made under: drawn before both stores were read, so that an order
//! which came and went in between has left a mark above it, and refuses.

use engine_api::{Change, Generation, Outcome, RecordId, RecordKey, Revision};
use layout::Collection;
use model::{OrderId, UserId};
use router::{RouterError, Written};

use crate::error::ShopError;
use crate::orders::Current;
use crate::records::{KeptOrder, order_header};
use crate::shop::Shop;

/// Under what an order is made that nobody has looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    /// Nothing ever removes an order.
    Plainly,
    /// It may be in the history: whoever makes it has drawn this number before looking.
    Numbered(Revision),
    /// The map of this generation has orders without a history. Under another one they may have one: this order may be
    /// in it, and would be made a second time (W46).
    Under(Generation),
}

pub(crate) enum Recalled {
    Done(Current),
    /// Somebody was faster: decide anew, and draw a number above this.
    Again {
        above: Revision,
    },
}

impl Shop {
    /// For an order that is made if neither store has it. `beside` are the records that the same commit changes: two
    /// orders of one cart must not share a number.
    pub(crate) fn making(
        &self,
        id: &OrderId,
        beside: Vec<RecordKey>,
        above: Revision,
    ) -> Result<Making, ShopError> {
        if !self.knows_histories() {
            return Ok(Making::Plainly);
        }
        let map = self.router.map();
        if self.history_under(&map).is_none() {
            return Ok(Making::Under(map.generation));
        }
        let mut keys = beside;
        keys.push(numbered_key(Collection::Orders, id.as_str()));
        Ok(Making::Numbered(self.router.number(&keys, above)?))
    }

    /// Writes what makes a new order. Under another map nothing is written, as if something newer stood there: whoever
    /// makes it looks again.
    pub(crate) async fn write_new(
        &self,
        changes: Vec<Change>,
        seen: Revision,
        making: Making,
    ) -> Result<Written, RouterError> {
        let generation = match making {
            Making::Plainly => return self.router.write_together(changes, seen).await,
            Making::Numbered(number) => return self.router.write_as_of(changes, number).await,
            Making::Under(generation) => generation,
        };
        match self.router.write_under(changes, seen, generation).await {
            Err(RouterError::OtherMap { standing, .. }) => Ok(Written {
                outcome: Outcome::Stale { stored: seen },
                revision: seen,
                generation: standing,
            }),
            written => written,
        }
    }

    /// Makes `next` among the live orders, if the history still has `archived` and
    /// they have none.
    pub(crate) async fn recall(
        &self,
        archived: &Current,
        next: KeptOrder,
        above: Revision,
    ) -> Result<Recalled, ShopError> {
        let above = above.max(archived.revision);
        let (id, user): (OrderId, UserId) = {
            let header = next.order.header();
            (header.id.clone(), header.user.clone())
        };
        let making = self.making(&id, Vec::new(), above)?;
        let live = self.live_order(&id, Some(&user)).await?;
        let again = self
            .archived_order(self.history(), &id, Some(&user))
            .await?;
        let unchanged = again.is_some_and(|record| record.header.revision == archived.revision);
        if live.is_some() || !unchanged {
            return Ok(Recalled::Again { above });
        }
        let header = order_header(&next);
        let creation = Change::CreateIfAbsent {
            key: self.key(Collection::Orders, id.as_str(), &header)?,
            header,
            parts: Vec::new(),
        };
        let written = self.write_new(vec![creation], above, making).await?;
        Ok(match written.outcome {
            Outcome::Done { revision } => Recalled::Done(Current {
                kept: next,
                revision,
            }),
            Outcome::Stale { stored } => Recalled::Again {
                above: above.max(stored),
            },
            _ => Recalled::Again { above },
        })
    }
}

/// The key as far as numbers are told apart by it.
pub(crate) fn numbered_key(collection: Collection, id: &str) -> RecordKey {
    let id = RecordId::new(id).expect("the model's ids are as short as the engine's");
    RecordKey::by_id(collection, id)
}
