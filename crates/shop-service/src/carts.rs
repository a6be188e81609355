//! Carts (C1–C9): the one active cart of an owner, its items, its end, and the merge
//! at sign-in.
//!
//! Items are patches and may be changed side by side. What decides on the cart itself
//! (that it begins, that it is closed, what was merged into it) is a conditional change
//! of its header.

mod active;

mod hints;

mod items;

mod closing;

mod merge;

use engine_api::{Outcome, Revision};
use layout::{Collection, Fields};
use model::{
    Cart, CartError, CartId, CartOwner, CartStatus, CategoryName, ProductId, Quantity,
    ShopperSessionId, UserId,
};

pub(crate) use hints::CartHints;

use crate::error::{Noun, ShopError};
use crate::records::CartRecord;
use crate::shop::{Made, Shop, Stored};

/// An item as a shopper wants it; the rest is copied from the product (C3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemWish {
    pub product: ProductId,
    /// Where layouts find products by it; otherwise not needed.
    pub category: Option<CategoryName>,
    pub quantity: Quantity,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    pub end: MergeEnd,
    /// The user's active cart after the merge, if there is one.
    pub cart: Option<Stored<Cart>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeEnd {
    Merged,
    AlreadyMerged,
    NothingToMerge,
    /// The guest cart waits, closed, until there is room in the user's.
    Refused {
        why: ShopError,
    },
}

impl Shop {
    /// The owner's active cart, made if there is none (C1). A guest's session must be live.
    pub async fn open_cart(
        &self,
        owner: &CartOwner,
        seen: Revision,
    ) -> Result<(Made, Stored<Cart>), ShopError> {
        let (made, active) = self.open_active(owner, seen).await?;
        Ok((made, active.stored()))
    }

    /// C2.
    pub async fn active_cart(&self, owner: &CartOwner) -> Result<Stored<Cart>, ShopError> {
        match self.find_active(owner).await? {
            Some(active) => Ok(active.stored()),
            None => Err(ShopError::NoActiveCart),
        }
    }

    pub async fn cart(&self, id: &CartId) -> Result<Stored<Cart>, ShopError> {
        Ok(self.known_cart(id).await?.stored())
    }

    /// C3, C8.
    pub async fn put_item(
        &self,
        id: &CartId,
        wish: ItemWish,
        seen: Revision,
    ) -> Result<Stored<Cart>, ShopError> {
        self.put_line(id, wish, seen).await
    }

    /// C4.
    pub async fn remove_item(
        &self,
        id: &CartId,
        product: &ProductId,
        seen: Revision,
    ) -> Result<Stored<Cart>, ShopError> {
        self.remove_line(id, product, seen).await
    }

    /// C6. Closing again with the same status changes nothing.
    pub async fn close_cart(
        &self,
        id: &CartId,
        status: CartStatus,
        seen: Revision,
    ) -> Result<Stored<Cart>, ShopError> {
        self.close(id, status, seen).await
    }

    /// C5, by W14.
    pub async fn merge_guest_cart(
        &self,
        guest: &ShopperSessionId,
        user: &UserId,
        seen: Revision,
    ) -> Result<Merge, ShopError> {
        let end = self.merge_carts_of(guest, user, seen).await?;
        let owner = CartOwner::User(user.clone());
        let cart = self.find_active(&owner).await?.map(CartRecord::stored);
        Ok(Merge { end, cart })
    }

    pub(crate) async fn find_cart(&self, id: &CartId) -> Result<Option<CartRecord>, ShopError> {
        let record = self
            .find(Collection::Carts, id.as_str(), &Fields::new())
            .await?;
        record.as_ref().map(CartRecord::read).transpose()
    }

    async fn known_cart(&self, id: &CartId) -> Result<CartRecord, ShopError> {
        self.find_cart(id).await?.ok_or_else(|| no_cart(id))
    }
}

pub(crate) fn no_cart(id: &CartId) -> ShopError {
    ShopError::NotFound {
        noun: Noun::Cart,
        id: id.to_string(),
    }
}

/// Marks of removed items count as well, until the engine forgets them.
fn too_many_parts(parts_max: usize) -> ShopError {
    ShopError::CartFull(CartError::TooManyLines { lines: parts_max })
}

/// An answer that the contract does not allow for the change that was sent.
fn unforeseen(id: &CartId, outcome: &Outcome) -> ShopError {
    ShopError::Damaged {
        reason: format!("a change of cart {id} was answered by {outcome:?}"),
    }
}
