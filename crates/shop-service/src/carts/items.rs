//! Items of a cart (C3, C4): one patch each, guarded by the cart's status.
//!
//! A patch names only the parts of its product, so that changes of different products
//! never meet (C9). Limits are judged against the cart that was read: changes that pass
//! them together are let through, and the next one is refused.

use engine_api::{Change, Guard, Outcome, PartChange, PartKey, Revision};
use layout::path::STATUS_ACTIVE;
use layout::{Field, Value};
use model::{Cart, CartId, CartLine, CartPart, ProductId, Removal};

use super::{ItemWish, no_cart, too_many_parts, unforeseen};
use crate::error::{Noun, ShopError};
use crate::records::{CartRecord, cart_part, cart_part_key};
use crate::shop::{Shop, Stored};

impl Shop {
    pub(super) async fn put_line(
        &self,
        id: &CartId,
        wish: ItemWish,
        seen: Revision,
    ) -> Result<Stored<Cart>, ShopError> {
        let mut record = self.active_by_id(id).await?;
        let line = self.line(wish).await?;
        let product = line.product.clone();
        let own = CartPart::Own(line.clone());
        let contributions = parts_of(&record.cart, &product)
            .filter(|part| matches!(part, CartPart::Contribution { .. }))
            .map(|part| (cart_part_key(&part), PartChange::Remove));
        let (key, fields) = cart_part(&own);
        let parts = contributions
            .chain([(key, PartChange::Set(fields))])
            .collect();
        record
            .cart
            .change()
            .put_line(line)
            .map_err(ShopError::CartFull)?;
        self.patch_items(record, parts, seen).await
    }

    pub(super) async fn remove_line(
        &self,
        id: &CartId,
        product: &ProductId,
        seen: Revision,
    ) -> Result<Stored<Cart>, ShopError> {
        let mut record = self.active_by_id(id).await?;
        let parts = parts_of(&record.cart, product)
            .map(|part| (cart_part_key(&part), PartChange::Remove))
            .collect();
        let closed = |_| ShopError::CartClosed { cart: id.clone() };
        match record.cart.change().remove_line(product).map_err(closed)? {
            Removal::Removed => self.patch_items(record, parts, seen).await,
            Removal::NothingThere => Ok(record.stored()),
        }
    }

    async fn active_by_id(&self, id: &CartId) -> Result<CartRecord, ShopError> {
        let record = self.known_cart(id).await?;
        if record.is_active() {
            Ok(record)
        } else {
            Err(ShopError::CartClosed { cart: id.clone() })
        }
    }

    /// The line as it is put: name, price and image as the product has them now.
    async fn line(&self, wish: ItemWish) -> Result<CartLine, ShopError> {
        let product = match self.product(&wish.product, wish.category.as_ref()).await {
            Ok(product) => product,
            Err(ShopError::NotFound {
                noun: Noun::Product,
                ..
            }) => {
                return Err(ShopError::UnknownProduct {
                    product: wish.product,
                });
            }
            Err(error) => return Err(error),
        };
        Ok(CartLine {
            category: product.category().clone(),
            quantity: wish.quantity,
            name: product.name.clone(),
            price: product.price,
            image: product.image.clone(),
            changed_at: self.now(),
            product: wish.product,
        })
    }

    /// Writes the parts, and answers the cart as it was read with the change applied.
    async fn patch_items(
        &self,
        mut record: CartRecord,
        parts: Vec<(PartKey, PartChange)>,
        seen: Revision,
    ) -> Result<Stored<Cart>, ShopError> {
        let change = Change::Patch {
            key: record.key.clone(),
            guard: while_active(),
            parts,
        };
        let floor = seen.max(record.newest_revision);
        let id = record.cart.id();
        match self.router.write(change, floor).await?.outcome {
            Outcome::Done { revision } => {
                record.newest_revision = record.newest_revision.max(revision);
                Ok(record.stored())
            }
            Outcome::GuardFailed { .. } => Err(ShopError::CartClosed { cart: id.clone() }),
            Outcome::NoRecord => Err(no_cart(id)),
            Outcome::TooManyParts { parts_max } => Err(too_many_parts(parts_max)),
            outcome => Err(unforeseen(id, &outcome)),
        }
    }
}

/// Lets a patch count only while the cart takes changes.
pub(super) fn while_active() -> Guard {
    Guard {
        header: vec![(Field::Status, Value::text(STATUS_ACTIVE))],
    }
}

fn parts_of<'a>(cart: &'a Cart, product: &'a ProductId) -> impl Iterator<Item = CartPart> + 'a {
    cart.parts()
        .filter(move |part| part.line().product == *product)
}
