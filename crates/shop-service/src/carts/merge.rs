//! The merge at sign-in (C5, W14).
//!
//! ```text
//!   guest's cart  ── active ──▶ abandoned, merges into U ─────────────▶ (expires)
//!                                    │ nothing can be added any more
//!   user's cart U ───────────────────┴──▶ merged += guest's cart, contributions
//! ```
//!
//! Two conditional changes, each of which says by itself whether it was made: the guest
//! cart names its target, and the target names the guest carts it took in. A merge that
//! died between them, or two at once, therefore only has to look and go on. If the
//! target was closed before it took the guest cart in, it never will, and the guest
//! cart may be sent on to the user's next one.

use engine_api::{PartKey, PartsChange, Revision, expiry_fields};
use model::{
    Cart, CartError, CartHeader, CartId, CartOwner, CartPart, GuestCart, MergeOutcome,
    ShopperSessionId, UserId,
};

use super::MergeEnd;
use super::active::GUEST_CARTS_MAX;
use super::closing::HeaderChange;
use crate::error::ShopError;
use crate::records::{CartRecord, cart_part};
use crate::shop::{ATTEMPTS_MAX, Shop};

impl Shop {
    /// Merges every cart of the guest that goes to this user: the active one, and those
    /// that an earlier merge closed and did not bring over.
    pub(super) async fn merge_carts_of(
        &self,
        guest: &ShopperSessionId,
        user: &UserId,
        seen: Revision,
    ) -> Result<MergeEnd, ShopError> {
        let mut end = MergeEnd::NothingToMerge;
        for cart in self.carts_to_merge(guest).await? {
            let next = self.merge_cart(cart, user, seen).await?;
            end = more_telling(end, next);
        }
        Ok(end)
    }

    /// Lower numbers may have expired before the active cart, so that the search ends
    /// at the first free number above it.
    async fn carts_to_merge(&self, guest: &ShopperSessionId) -> Result<Vec<CartRecord>, ShopError> {
        let owner = CartOwner::Guest(guest.clone());
        let active = self.find_active(&owner).await?;
        let active_ordinal = active.map_or(0, |active| active.ordinal);
        let mut carts = Vec::new();
        for ordinal in 1..=GUEST_CARTS_MAX {
            match self.nth_cart(&owner, ordinal).await? {
                Some(cart) if cart.is_active() || cart.cart.header().merges_into.is_some() => {
                    carts.push(cart);
                }
                Some(_) => {}
                None if ordinal < active_ordinal => {}
                None => break,
            }
        }
        Ok(carts)
    }

    pub(crate) async fn merge_cart(
        &self,
        mut guest: CartRecord,
        user: &UserId,
        seen: Revision,
    ) -> Result<MergeEnd, ShopError> {
        for _ in 0..ATTEMPTS_MAX {
            let course = match (guest.is_active(), &guest.cart.header().merges_into) {
                (true, _) => self.close_for(&guest, user, seen).await?,
                (false, Some(target)) => self.bring_over(&guest, target, user, seen).await?,
                (false, None) => Course::Ended(MergeEnd::NothingToMerge),
            };
            match course {
                Course::Ended(end) => return Ok(end),
                Course::LookAgain => {}
            }
            guest = match self.find_cart(guest.cart.id()).await? {
                Some(guest) => guest,
                None => return Ok(MergeEnd::NothingToMerge),
            };
        }
        Err(ShopError::Contended)
    }

    /// The first half: the guest cart is closed and says where it goes. It has to live
    /// long enough to be brought over, even if its session ends in this moment.
    async fn close_for(
        &self,
        guest: &CartRecord,
        user: &UserId,
        seen: Revision,
    ) -> Result<Course, ShopError> {
        let (_, target) = self.open_active(&owner_of(user), seen).await?;
        let mut closed = guest.clone();
        let closing = closed
            .cart
            .change()
            .abandon_into(target.cart.id(), self.now());
        closing.map_err(contradiction)?;
        let parts = match self.extension_of(&guest.cart) {
            Some(until) => PartsChange::Put(vec![(PartKey::expiry(), expiry_fields(until))]),
            None => PartsChange::Keep,
        };
        // Whatever came of it: what is stored now decides.
        self.change_header(&closed, parts, seen).await?;
        Ok(Course::LookAgain)
    }

    /// The second half: the target takes in the lines of the closed guest cart.
    async fn bring_over(
        &self,
        guest: &CartRecord,
        target: &CartId,
        user: &UserId,
        seen: Revision,
    ) -> Result<Course, ShopError> {
        let mut target = match self.find_cart(target).await? {
            Some(target) => target,
            None => {
                return Err(ShopError::Damaged {
                    reason: format!("cart {target} of a user is gone"),
                });
            }
        };
        // Another user signed in from the same browser before: the items are theirs.
        if target.cart.header().owner != owner_of(user) {
            return Ok(Course::Ended(MergeEnd::NothingToMerge));
        }
        let closed = GuestCart::closed(&guest.cart).map_err(contradiction)?;
        match target.cart.change().merge_guest(&closed) {
            Ok(MergeOutcome::Merged) => self.take_in(&target, guest, seen).await,
            Ok(MergeOutcome::AlreadyMerged | MergeOutcome::BelowFloor { .. }) => {
                Ok(Course::Ended(MergeEnd::AlreadyMerged))
            }
            Err(CartError::NotActive { .. }) => self.send_on(guest, &target, user, seen).await,
            Err(
                error @ (CartError::TooManyLines { .. }
                | CartError::TooManyBytes { .. }
                | CartError::LineQuantity { .. }),
            ) => Ok(refused(ShopError::CartFull(error))),
            Err(error) => Err(contradiction(error)),
        }
    }

    /// Header and contributions in one change: whoever sees the one sees the other.
    async fn take_in(
        &self,
        target: &CartRecord,
        guest: &CartRecord,
        seen: Revision,
    ) -> Result<Course, ShopError> {
        let contributions = contributions_of(&target.cart, guest.cart.header());
        let parts = PartsChange::Put(contributions.map(|part| cart_part(&part)).collect());
        let seen = seen.max(guest.newest_revision);
        match self.change_header(target, parts, seen).await {
            Ok(HeaderChange::Done(_)) => Ok(Course::Ended(MergeEnd::Merged)),
            Ok(HeaderChange::Overtaken | HeaderChange::Gone) => Ok(Course::LookAgain),
            Err(full @ ShopError::CartFull(_)) => Ok(refused(full)),
            Err(error) => Err(error),
        }
    }

    /// The target was closed without the guest cart: it goes to the user's next one.
    async fn send_on(
        &self,
        guest: &CartRecord,
        closed: &CartRecord,
        user: &UserId,
        seen: Revision,
    ) -> Result<Course, ShopError> {
        let (_, next) = self.open_active(&owner_of(user), seen).await?;
        let mut redirected = guest.clone();
        let redirecting = redirected
            .cart
            .change()
            .redirect(&closed.cart, next.cart.id());
        redirecting.map_err(contradiction)?;
        self.change_header(&redirected, PartsChange::Keep, seen)
            .await?;
        Ok(Course::LookAgain)
    }
}

/// Where the merge of one guest cart stands after a step.
enum Course {
    Ended(MergeEnd),
    LookAgain,
}

fn refused(why: ShopError) -> Course {
    Course::Ended(MergeEnd::Refused { why })
}

fn owner_of(user: &UserId) -> CartOwner {
    CartOwner::User(user.clone())
}

fn contributions_of<'a>(
    cart: &'a Cart,
    guest: &'a CartHeader,
) -> impl Iterator<Item = CartPart> + 'a {
    cart.parts().filter(
        |part| matches!(part, CartPart::Contribution { guest_cart, .. } if *guest_cart == guest.id),
    )
}

/// What the rules refuse although the carts were read and found to allow it.
fn contradiction(error: CartError) -> ShopError {
    ShopError::Damaged {
        reason: error.to_string(),
    }
}

/// Of several guest carts: what the shopper has to do something about, then what changed.
fn more_telling(one: MergeEnd, other: MergeEnd) -> MergeEnd {
    let rank = |end: &MergeEnd| match end {
        MergeEnd::Refused { .. } => 3,
        MergeEnd::Merged => 2,
        MergeEnd::AlreadyMerged => 1,
        MergeEnd::NothingToMerge => 0,
    };
    if rank(&other) > rank(&one) {
        other
    } else {
        one
    }
}
