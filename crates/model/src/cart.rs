//! A cart: a header and its parts, as storage keeps them (W1).
//!
//! A part is the owner's own line for a product, or what one guest cart contributed to
//! that product at sign-in (W14). The shopper sees one line per product, whose quantity
//! is the sum of the parts. Putting a line says what the whole line shall be, so it
//! replaces the contributions too; the header remembers which guest carts were merged,
//! so a merge that is retried later does not bring them back.

mod line;
mod merge;

pub use line::{CartLine, CartPart, ShownLine};
pub use merge::{GUEST_CARTS_REMEMBERED_MAX, GuestCart, MergeOutcome};

use crate::id::{CartId, ProductId, ShopperSessionId, UserId};
use crate::money::{Money, MoneyError};
use crate::quantity::QuantityError;
use crate::session::ShopperSession;
use crate::time::{Lifetime, Timestamp};
use line::LineParts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// Products in one cart (C8).
pub const LINES_MAX: usize = 100;

/// Bytes of all parts of one cart (C8), counted as `CartPart::bytes` does.
pub const CART_BYTES_MAX: usize = 10 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CartOwner {
    Guest(ShopperSessionId),
    User(UserId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CartStatus {
    Active,
    Ordered,
    Abandoned,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CartHeader {
    pub id: CartId,
    pub owner: CartOwner,
    pub status: CartStatus,
    pub created_at: Timestamp,
    /// Set when the cart stops being active.
    pub closed_at: Option<Timestamp>,
    /// Guest carts expire, user carts never (C7).
    pub expires_at: Option<Timestamp>,
    /// The user's cart that a guest cart was closed for. Only that one may merge it:
    /// a second sign-in from the same browser must not get the items again.
    pub merges_into: Option<CartId>,
    /// Guest carts merged into this one, by the moment they were closed.
    pub merged: BTreeMap<CartId, Timestamp>,
    /// Guest carts closed up to here are no longer told apart from merged ones.
    pub merged_floor: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cart {
    header: CartHeader,
    lines: BTreeMap<ProductId, LineParts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    Removed,
    NothingThere,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CartError {
    #[error("a cart that is {from:?} cannot become {to:?}, open a new cart")]
    StatusChange { from: CartStatus, to: CartStatus },
    #[error("the cart is {status:?} and takes no changes, open a new cart")]
    NotActive { status: CartStatus },
    #[error("the cart would have {lines} products, remove some to stay within {LINES_MAX}")]
    TooManyLines { lines: usize },
    #[error("the cart would have {bytes} bytes, remove products to stay within {CART_BYTES_MAX}")]
    TooManyBytes { bytes: usize },
    #[error("the line of product {product} cannot be merged, lower its quantity first: {source}")]
    LineQuantity {
        product: ProductId,
        source: QuantityError,
    },
    #[error("cart {cart} belongs to no guest, merge only guest carts")]
    NotAGuestCart { cart: CartId },
    #[error("cart {cart} belongs to no user, merge only into a user's cart")]
    NotAUserCart { cart: CartId },
    #[error("guest cart {cart} was not closed for a merge, close it before merging it")]
    NotClosedForMerge { cart: CartId },
    #[error("guest cart {cart} was closed to go into cart {target}, merge it there")]
    OtherTarget { cart: CartId, target: CartId },
    #[error("the stored cart {cart} contradicts itself ({what}), restore it from a good copy")]
    Contradiction { cart: CartId, what: &'static str },
}

impl CartStatus {
    pub fn change_to(self, next: Self) -> Result<Self, CartError> {
        match (self, next) {
            (Self::Active, Self::Ordered | Self::Abandoned) => Ok(next),
            (Self::Active, Self::Active) | (Self::Ordered | Self::Abandoned, _) => {
                Err(CartError::StatusChange {
                    from: self,
                    to: next,
                })
            }
        }
    }
}

impl Cart {
    /// Lives as long as asked, but never longer than the session it belongs to (C7).
    pub fn for_guest(
        session: &ShopperSession,
        ordinal: u64,
        lifetime: Lifetime,
        now: Timestamp,
    ) -> Self {
        let owner = CartOwner::Guest(session.id().clone());
        let expires_at = now.end_of(lifetime).min(session.times().expires_at);
        Self::open(owner, ordinal, Some(expires_at), now)
    }

    pub fn for_user(user: &UserId, ordinal: u64, now: Timestamp) -> Self {
        Self::open(CartOwner::User(user.clone()), ordinal, None, now)
    }

    fn open(owner: CartOwner, ordinal: u64, expires_at: Option<Timestamp>, now: Timestamp) -> Self {
        let header = CartHeader {
            id: CartId::of_owner(&owner, ordinal),
            owner,
            status: CartStatus::Active,
            created_at: now,
            closed_at: None,
            expires_at,
            merges_into: None,
            merged: BTreeMap::new(),
            merged_floor: None,
        };
        Self {
            header,
            lines: BTreeMap::new(),
        }
    }

    /// Puts a stored cart together. Its limits are not judged: a cart that two patches
    /// made too large together has to be readable, or nobody could make it smaller.
    pub fn restore(
        header: CartHeader,
        parts: impl IntoIterator<Item = CartPart>,
    ) -> Result<Self, CartError> {
        let mut lines: BTreeMap<ProductId, LineParts> = BTreeMap::new();
        let mut has_contribution = false;
        for part in parts {
            has_contribution |= matches!(part, CartPart::Contribution { .. });
            let product = part.line().product.clone();
            lines.entry(product).or_default().set(part);
        }
        let is_guest = matches!(header.owner, CartOwner::Guest(_));
        let is_active = header.status == CartStatus::Active;
        let what = if is_guest != header.expires_at.is_some() {
            "guest carts expire and user carts do not"
        } else if is_active == header.closed_at.is_some() {
            "a closing time belongs to a closed cart"
        } else if header.merges_into.is_some()
            && !(is_guest && header.status == CartStatus::Abandoned)
        {
            "only an abandoned guest cart goes into another one"
        } else if is_guest && (has_contribution || !header.merged.is_empty()) {
            "nothing is merged into a guest cart"
        } else {
            return Ok(Self { header, lines });
        };
        Err(CartError::Contradiction {
            cart: header.id,
            what,
        })
    }

    /// Adds the line, or replaces it with all its contributions.
    pub fn put_line(&mut self, line: CartLine) -> Result<(), CartError> {
        self.check_active()?;
        let mut lines = self.lines.clone();
        lines.insert(line.product.clone(), LineParts::own(line));
        self.accept(lines)
    }

    /// Removes the line with its contributions.
    pub fn remove_line(&mut self, product: &ProductId) -> Result<Removal, CartError> {
        self.check_active()?;
        Ok(match self.lines.remove(product) {
            Some(_) => Removal::Removed,
            None => Removal::NothingThere,
        })
    }

    pub fn mark_ordered(&mut self, now: Timestamp) -> Result<(), CartError> {
        self.close(CartStatus::Ordered, now)
    }

    /// Leaves the cart behind without merging it anywhere.
    pub fn abandon(&mut self, now: Timestamp) -> Result<(), CartError> {
        self.close(CartStatus::Abandoned, now)
    }

    /// The first half of a merge (W14): the guest cart is closed and says where it goes.
    /// Repeating it for the same cart changes nothing.
    pub fn abandon_into(&mut self, target: &CartId, now: Timestamp) -> Result<(), CartError> {
        match (&self.header.owner, &self.header.merges_into) {
            (CartOwner::User(_), _) => Err(CartError::NotAGuestCart {
                cart: self.header.id.clone(),
            }),
            (CartOwner::Guest(_), Some(other)) if other == target => Ok(()),
            (CartOwner::Guest(_), Some(other)) => Err(CartError::OtherTarget {
                cart: self.header.id.clone(),
                target: other.clone(),
            }),
            (CartOwner::Guest(_), None) => {
                self.close(CartStatus::Abandoned, now)?;
                self.header.merges_into = Some(target.clone());
                Ok(())
            }
        }
    }

    /// Sends a guest cart on whose target was closed before it took the guest's lines.
    /// Closed is final, so that the first target never will, and nothing is merged twice.
    pub fn redirect(&mut self, closed: &Self, target: &CartId) -> Result<(), CartError> {
        let taken = closed.header.merged.get(&self.header.id) == self.header.closed_at.as_ref()
            || closed
                .header
                .merged_floor
                .is_some_and(|floor| self.header.closed_at <= Some(floor));
        let is_target = self.header.merges_into.as_ref() == Some(&closed.header.id);
        if is_target && closed.header.status != CartStatus::Active && !taken {
            self.header.merges_into = Some(target.clone());
            return Ok(());
        }
        Err(CartError::NotClosedForMerge {
            cart: self.header.id.clone(),
        })
    }

    pub fn header(&self) -> &CartHeader {
        &self.header
    }

    pub fn id(&self) -> &CartId {
        &self.header.id
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.header.expires_at.is_some_and(|at| now >= at)
    }

    /// What storage keeps, in the order of product and guest cart.
    pub fn parts(&self) -> impl Iterator<Item = CartPart> + '_ {
        self.lines.values().flat_map(LineParts::parts)
    }

    /// What the shopper sees, one line per product.
    pub fn lines(&self) -> impl Iterator<Item = ShownLine<'_>> {
        self.lines.values().filter_map(LineParts::shown)
    }

    pub fn total(&self) -> Result<Money, MoneyError> {
        self.lines().try_fold(Money::ZERO, |total, shown| {
            total.checked_add(shown.total()?)
        })
    }

    pub fn bytes(&self) -> usize {
        bytes_of(&self.lines)
    }

    fn check_active(&self) -> Result<(), CartError> {
        match self.header.status {
            CartStatus::Active => Ok(()),
            status @ (CartStatus::Ordered | CartStatus::Abandoned) => {
                Err(CartError::NotActive { status })
            }
        }
    }

    /// Takes the changed lines if they are within the limits, or at least make a cart
    /// that is already past them no larger.
    fn accept(&mut self, lines: BTreeMap<ProductId, LineParts>) -> Result<(), CartError> {
        if lines.len() > LINES_MAX.max(self.lines.len()) {
            return Err(CartError::TooManyLines { lines: lines.len() });
        }
        let bytes = bytes_of(&lines);
        if bytes > CART_BYTES_MAX.max(self.bytes()) {
            return Err(CartError::TooManyBytes { bytes });
        }
        self.lines = lines;
        Ok(())
    }

    fn close(&mut self, next: CartStatus, now: Timestamp) -> Result<(), CartError> {
        self.header.status = self.header.status.change_to(next)?;
        self.header.closed_at = Some(now);
        Ok(())
    }
}

fn bytes_of(lines: &BTreeMap<ProductId, LineParts>) -> usize {
    lines
        .values()
        .flat_map(LineParts::parts)
        .map(|part| part.bytes())
        .sum()
}
