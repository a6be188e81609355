//! The second half of a merge at sign-in (W14): a closed guest cart contributes its
//! lines to the user's cart, once, however often the merge is tried.

use super::line::{CartPart, LineParts};
use super::{Cart, CartError, CartOwner, CartStatus};
use crate::id::CartId;
use crate::time::Timestamp;

/// Merged guest carts that a user's cart knows by name. User carts live for ever, so
/// older ones are forgotten, and a floor says up to when.
pub const GUEST_CARTS_REMEMBERED_MAX: usize = 16;

/// A guest cart that is closed and says where it goes. Nothing can be added to it any
/// more, which is what makes copying its lines safe.
#[derive(Debug, Clone, Copy)]
pub struct GuestCart<'a> {
    cart: &'a Cart,
    target: &'a CartId,
    closed_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeOutcome {
    Merged,
    AlreadyMerged,
    /// Closed so long ago that it may have been merged and forgotten: nothing changed.
    BelowFloor {
        floor: Timestamp,
    },
}

impl<'a> GuestCart<'a> {
    pub fn closed(cart: &'a Cart) -> Result<Self, CartError> {
        let header = cart.header();
        let CartOwner::Guest(_) = header.owner else {
            return Err(CartError::NotAGuestCart {
                cart: header.id.clone(),
            });
        };
        match (header.status, &header.merges_into, header.closed_at) {
            (CartStatus::Abandoned, Some(target), Some(closed_at)) => Ok(Self {
                cart,
                target,
                closed_at,
            }),
            _ => Err(CartError::NotClosedForMerge {
                cart: header.id.clone(),
            }),
        }
    }
}

impl Cart {
    /// All lines or none: past a limit the user's cart stays as it is, the guest cart
    /// keeps its lines, and the merge can be tried again once there is room.
    pub fn merge_guest(&mut self, guest: &GuestCart<'_>) -> Result<MergeOutcome, CartError> {
        let guest_id = guest.cart.id();
        let CartOwner::User(_) = self.header.owner else {
            return Err(CartError::NotAUserCart {
                cart: self.header.id.clone(),
            });
        };
        if *guest.target != self.header.id {
            return Err(CartError::OtherTarget {
                cart: guest_id.clone(),
                target: guest.target.clone(),
            });
        }
        // Before the status: a retry that comes after the cart was ordered is done, too.
        // By the moment, too: a guest whose carts have all expired gets the same ids again.
        if self.header.merged.get(guest_id) == Some(&guest.closed_at) {
            return Ok(MergeOutcome::AlreadyMerged);
        }
        if let Some(floor) = self.header.merged_floor
            && guest.closed_at <= floor
        {
            return Ok(MergeOutcome::BelowFloor { floor });
        }
        self.check_active()?;
        self.contribute(guest)?;
        self.remember(guest_id.clone(), guest.closed_at);
        Ok(MergeOutcome::Merged)
    }

    fn contribute(&mut self, guest: &GuestCart<'_>) -> Result<(), CartError> {
        let mut lines = self.lines.clone();
        for part in guest.cart.parts() {
            let mut line = part.line().clone();
            let product = line.product.clone();
            let parts: &mut LineParts = lines.entry(product.clone()).or_default();
            // What an earlier cart of the same id contributed stays.
            if let Some(earlier) = parts.contribution(guest.cart.id()) {
                line.quantity = line
                    .quantity
                    .checked_add(earlier.quantity)
                    .map_err(|source| CartError::LineQuantity {
                        product: product.clone(),
                        source,
                    })?;
            }
            parts.set(CartPart::Contribution {
                guest_cart: guest.cart.id().clone(),
                line,
            });
            if let Some(shown) = parts.shown() {
                shown
                    .quantity()
                    .map_err(|source| CartError::LineQuantity { product, source })?;
            }
        }
        self.accept(lines)
    }

    fn remember(&mut self, guest_cart: CartId, closed_at: Timestamp) {
        let header = &mut self.header;
        header.merged.insert(guest_cart, closed_at);
        while header.merged.len() > GUEST_CARTS_REMEMBERED_MAX {
            let oldest = header
                .merged
                .iter()
                .min_by_key(|(id, closed_at)| (**closed_at, *id))
                .map(|(id, closed_at)| (id.clone(), *closed_at));
            let Some((id, closed_at)) = oldest else {
                return;
            };
            header.merged.remove(&id);
            header.merged_floor = header.merged_floor.max(Some(closed_at));
        }
    }
}
