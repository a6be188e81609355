//! The end of a cart (C6), and the conditional change of a cart's header behind
//! everything that decides on the cart as a whole.

use engine_api::{Change, Outcome, PartsChange, Revision};
use model::{Cart, CartId, CartStatus};

use super::{no_cart, too_many_parts, unforeseen};
use crate::error::ShopError;
use crate::records::{CartRecord, cart_header};
use crate::shop::{ATTEMPTS_MAX, Shop, Stored};

/// What became of a conditional change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderChange {
    Done(Revision),
    /// Another change of the header came first: read again, decide again.
    Overtaken,
    /// The cart expired meanwhile.
    Gone,
}

impl Shop {
    pub(super) async fn close(
        &self,
        id: &CartId,
        status: CartStatus,
        seen: Revision,
    ) -> Result<Stored<Cart>, ShopError> {
        for _ in 0..ATTEMPTS_MAX {
            let mut record = self.known_cart(id).await?;
            if record.cart.header().status == status {
                return Ok(record.stored());
            }
            let now = self.now();
            let closing = match status {
                CartStatus::Ordered => record.cart.change().mark_ordered(now),
                CartStatus::Abandoned => record.cart.change().abandon(now),
                // Only a closed cart comes here, and closed is final.
                CartStatus::Active => return Err(ShopError::CartClosed { cart: id.clone() }),
            };
            closing.map_err(|_| ShopError::CartClosed { cart: id.clone() })?;
            match self.change_header(&record, PartsChange::Keep, seen).await? {
                // Items that came between the read and the end belong to the cart, too.
                HeaderChange::Done(revision) => return self.as_closed(record, revision).await,
                HeaderChange::Overtaken => {}
                HeaderChange::Gone => return Err(no_cart(id)),
            }
        }
        Err(ShopError::Contended)
    }

    /// Writes the record's header as the cart has it now, if nobody changed it meanwhile.
    pub(super) async fn change_header(
        &self,
        record: &CartRecord,
        parts: PartsChange,
        seen: Revision,
    ) -> Result<HeaderChange, ShopError> {
        let change = Change::ChangeIf {
            key: record.key.clone(),
            expected: record.header_revision,
            header: cart_header(&record.cart, record.ordinal),
            parts,
        };
        let floor = seen.max(record.newest_revision);
        match self.router.write(change, floor).await?.outcome {
            Outcome::Done { revision } => Ok(HeaderChange::Done(revision)),
            Outcome::Conflict { .. } => Ok(HeaderChange::Overtaken),
            Outcome::NoRecord => Ok(HeaderChange::Gone),
            Outcome::TooManyParts { parts_max } => Err(too_many_parts(parts_max)),
            outcome => Err(unforeseen(record.cart.id(), &outcome)),
        }
    }

    async fn as_closed(
        &self,
        mut record: CartRecord,
        revision: Revision,
    ) -> Result<Stored<Cart>, ShopError> {
        match self.find_cart(record.cart.id()).await? {
            Some(closed) => Ok(closed.stored()),
            None => {
                record.newest_revision = record.newest_revision.max(revision);
                Ok(record.stored())
            }
        }
    }
}
