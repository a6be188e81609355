//! The one active cart of an owner (C1, C2).
//!
//! The carts of an owner are numbered from 1, and owner and number make the id: who
//! opens the next one at the same time meets at the same key, and `CreateIfAbsent`
//! decides. A number is used only after every cart found below it was seen closed, and
//! closed is final. So whatever cart is found active is *the* active one, and a user's
//! is always the last.
//!
//! # Guests
//!
//! A user's carts stay for ever, a guest's expire (C7), closed ones too, and a number
//! whose cart is gone is free again. Without care that makes two active carts:
//!
//! ```text
//!   A: no active cart · 1 is closed · 2 is free ·             creates 2
//!   B: no active cart ·                          1 expires ·             1 is free · creates 1
//! ```
//!
//! Therefore whoever opens number n sees to it first that every cart below lives for
//! [`SUCCESSION_MARGIN_S`] more, and gives up an attempt that takes longer than
//! [`SUCCESSION_ATTEMPT_S_MAX`] from asking for the active cart to creating one. Then
//! two carts of one guest cannot both be active. Say A created first, and B, which did
//! not see A's cart, therefore asked for the active cart before that:
//!
//! - B's number is below A's. A saw B's number taken and made it last for the margin.
//!   When B finds it free, the margin has passed since A looked; but A created within
//!   one attempt of looking, and B within one attempt of that: less than the margin.
//! - B's number is above A's. B saw A's number taken by a closed cart. If that was A's,
//!   it is not active. If it was there before, B made it last for the margin, and A
//!   found it free only after that, when B's attempt was over.

use std::time::Duration;

use engine_api::{
    Aged, Because, Change, Freshness, Guard, Outcome, PartChange, PartKey, Query, Revision, Served,
    SharedRecord, expiry_fields,
};
use layout::{AccessPath, Collection, Value};
use model::{Cart, CartId, CartOwner, CartStatus, ShopperSession, Timestamp, UserId};

use super::items::while_active;
use super::unforeseen;
use crate::error::ShopError;
use crate::records::{CartRecord, cart_header, cart_owner, cart_parts};
use crate::shop::{ATTEMPTS_MAX, Made, Shop, Stored};

/// How long closed carts of a guest have to live on when the next one is opened. One
/// that does not is given twice as much, so that the same care of somebody slower, which
/// arrives later and was counted from an earlier moment, leaves the margin whole.
const SUCCESSION_MARGIN_S: i64 = 300;

/// How long one attempt to open a guest's cart may take up to its write. Two attempts,
/// each with as much again for the write on its way and for clocks that differ, stay
/// below the margin.
const SUCCESSION_ATTEMPT_S_MAX: u64 = 60;

/// Carts that one guest can have at a time, closed ones included. Whoever closes more
/// waits until the first expire.
pub(super) const GUEST_CARTS_MAX: u64 = 256;

/// Records in a page of the active path. One is the rule.
const ACTIVE_PAGE_RECORDS: usize = 4;

/// Where the next cart of an owner can be created.
enum Succession {
    /// There is an active one after all.
    Active(Box<CartRecord>),
    Free {
        ordinal: u64,
    },
    /// A cart below went meanwhile: look again.
    Unsteady,
}

impl Shop {
    pub(crate) async fn find_active(
        &self,
        owner: &CartOwner,
    ) -> Result<Option<CartRecord>, ShopError> {
        let found = self.find_active_aged(owner, Freshness::Latest);
        Ok(found.await?.answer)
    }

    /// The same for who may be shown something older.
    pub(crate) async fn find_active_aged(
        &self,
        owner: &CartOwner,
        freshness: Freshness,
    ) -> Result<Aged<Option<CartRecord>>, ShopError> {
        if let Some(ordinal) = self.cart_hints.get(owner) {
            let hinted = self.nth_cart_aged(owner, ordinal, freshness).await?;
            if hinted.answer.as_ref().is_some_and(CartRecord::is_active) {
                return Ok(hinted);
            }
        }
        let active = self.query_active(owner, freshness).await?;
        if let Some(active) = &active.answer {
            self.cart_hints.put(owner, active.ordinal);
        }
        Ok(active)
    }

    pub(super) async fn open_active(
        &self,
        owner: &CartOwner,
        seen: Revision,
    ) -> Result<(Made, CartRecord), ShopError> {
        for _ in 0..ATTEMPTS_MAX {
            let opened = match owner {
                CartOwner::User(user) => self.try_open_for_user(owner, user, seen).await?,
                CartOwner::Guest(session) => {
                    let session = self.session(session).await?;
                    self.try_open_for_guest(owner, &session, seen).await?
                }
            };
            if let Some((made, active)) = opened {
                self.cart_hints.put(owner, active.ordinal);
                return Ok((made, active));
            }
        }
        Err(ShopError::Contended)
    }

    /// The owner's `ordinal`-th cart, if it lives.
    pub(super) async fn nth_cart(
        &self,
        owner: &CartOwner,
        ordinal: u64,
    ) -> Result<Option<CartRecord>, ShopError> {
        let found = self.nth_cart_aged(owner, ordinal, Freshness::Latest);
        Ok(found.await?.answer)
    }

    async fn nth_cart_aged(
        &self,
        owner: &CartOwner,
        ordinal: u64,
        freshness: Freshness,
    ) -> Result<Aged<Option<CartRecord>>, ShopError> {
        let id = CartId::of_owner(owner, ordinal);
        let hints = cart_owner(owner);
        let found = self.find_aged(Collection::Carts, id.as_str(), &hints, freshness);
        let Aged { answer, served } = found.await?;
        let answer = answer.as_ref().map(CartRecord::read).transpose()?;
        Ok(Aged { answer, served })
    }

    /// Lets an active cart live until then; one that ended meanwhile stays as it is.
    pub(crate) async fn extend_active_cart(
        &self,
        active: &CartRecord,
        until: Timestamp,
        seen: Revision,
    ) -> Result<(), ShopError> {
        self.extend_cart(active, until, while_active(), seen)
            .await?;
        Ok(())
    }

    async fn extend_cart(
        &self,
        record: &CartRecord,
        until: Timestamp,
        guard: Guard,
        seen: Revision,
    ) -> Result<Extended, ShopError> {
        let change = Change::Patch {
            key: record.key.clone(),
            guard,
            parts: vec![(PartKey::expiry(), PartChange::Set(expiry_fields(until)))],
        };
        let floor = seen.max(record.newest_revision);
        match self.router.write(change, floor).await?.outcome {
            Outcome::Done { .. } => Ok(Extended::Lives),
            Outcome::NoRecord | Outcome::GuardFailed { .. } => Ok(Extended::Ended),
            outcome => Err(unforeseen(record.cart.id(), &outcome)),
        }
    }

    /// Until when a guest's closed cart has to be extended, if it does not live for the
    /// margin as it is.
    pub(super) fn extension_of(&self, closed: &Cart) -> Option<Timestamp> {
        let after = |seconds| self.now().checked_add_seconds(seconds);
        let margin = after(SUCCESSION_MARGIN_S)?;
        closed
            .is_expired(margin)
            .then(|| after(2 * SUCCESSION_MARGIN_S))?
    }

    async fn query_active(
        &self,
        owner: &CartOwner,
        freshness: Freshness,
    ) -> Result<Aged<Option<CartRecord>>, ShopError> {
        let (path, id) = match owner {
            CartOwner::User(user) => (AccessPath::ActiveCartByUser, user.as_str()),
            CartOwner::Guest(session) => (AccessPath::ActiveCartBySession, session.as_str()),
        };
        let mut query = Query::first(path, vec![Value::text(id)], ACTIVE_PAGE_RECORDS);
        let mut served = Served::Latest(Because::Asked);
        loop {
            let page = self.router.query_aged(&query, freshness).await?;
            served = served.and(page.served);
            let page = page.answer;
            let answer = match (page.records.into_iter().next(), page.next) {
                (Some(record), _) => Some(CartRecord::read(&record.into())?),
                // A page without own records of its shards may have others behind it.
                (None, Some(next)) => {
                    query = query.after(next);
                    continue;
                }
                (None, None) => None,
            };
            return Ok(Aged { answer, served });
        }
    }

    async fn try_open_for_user(
        &self,
        owner: &CartOwner,
        user: &UserId,
        seen: Revision,
    ) -> Result<Option<(Made, CartRecord)>, ShopError> {
        if let Some(active) = self.find_active(owner).await? {
            return Ok(Some((Made::Before, active)));
        }
        let ordinal = match self.last_of_user(owner).await? {
            Some(last) if last.is_active() => return Ok(Some((Made::Before, last))),
            Some(last) => last.ordinal + 1,
            None => 1,
        };
        let cart = Cart::for_user(user, ordinal, self.now());
        self.create_cart(cart, ordinal, seen).await
    }

    /// The user's cart with the highest number. The numbers have no holes and never
    /// end sooner than they did, so that it is found in steps that double, and then
    /// between two of them.
    async fn last_of_user(&self, owner: &CartOwner) -> Result<Option<CartRecord>, ShopError> {
        let mut last = None;
        let mut free = None;
        let mut step = 1;
        let mut ordinal = self.cart_hints.get(owner).unwrap_or(1);
        loop {
            match self.nth_cart(owner, ordinal).await? {
                Some(found) => last = Some(found),
                None => free = Some(ordinal),
            }
            let below = last.as_ref().map_or(0, |last| last.ordinal);
            ordinal = match free {
                None => below.saturating_add(step),
                Some(free) if free > below + 1 => below + (free - below) / 2,
                Some(_) => return Ok(last),
            };
            step = step.saturating_mul(2);
        }
    }

    async fn try_open_for_guest(
        &self,
        owner: &CartOwner,
        session: &ShopperSession,
        seen: Revision,
    ) -> Result<Option<(Made, CartRecord)>, ShopError> {
        let began = self.world.elapsed();
        if let Some(active) = self.find_active(owner).await? {
            return Ok(Some((Made::Before, active)));
        }
        let ordinal = match self.succession_of_guest(owner, seen).await? {
            Succession::Active(active) => return Ok(Some((Made::Before, *active))),
            Succession::Free { ordinal } => ordinal,
            Succession::Unsteady => return Ok(None),
        };
        let lifetime = self.settings.guest_cart_lifetime_s;
        let cart = Cart::for_guest(session, ordinal, lifetime, self.now());
        let spent = self.world.elapsed().saturating_sub(began);
        if spent > Duration::from_secs(SUCCESSION_ATTEMPT_S_MAX) {
            return Ok(None);
        }
        let created = self.create_cart(cart, ordinal, seen).await?;
        if let Some((Made::Now, cart)) = &created {
            self.check_session_of(cart, session, seen).await?;
        }
        Ok(created)
    }

    async fn succession_of_guest(
        &self,
        owner: &CartOwner,
        seen: Revision,
    ) -> Result<Succession, ShopError> {
        for ordinal in 1..=GUEST_CARTS_MAX {
            let Some(found) = self.nth_cart(owner, ordinal).await? else {
                return Ok(Succession::Free { ordinal });
            };
            if found.is_active() {
                return Ok(Succession::Active(Box::new(found)));
            }
            if let Some(until) = self.extension_of(&found.cart) {
                let guard = Guard::default();
                match self.extend_cart(&found, until, guard, seen).await? {
                    Extended::Lives => {}
                    Extended::Ended => return Ok(Succession::Unsteady),
                }
            }
        }
        Err(ShopError::Contended)
    }

    /// A session that was closed while its cart was being created did not find it: the
    /// cart ends here. The one that closes looks for the cart after closing.
    async fn check_session_of(
        &self,
        cart: &CartRecord,
        session: &ShopperSession,
        seen: Revision,
    ) -> Result<(), ShopError> {
        match self.session(session.id()).await {
            Err(ended @ ShopError::SessionEnded(_)) => {
                self.close(cart.cart.id(), CartStatus::Abandoned, seen)
                    .await?;
                Err(ended)
            }
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    /// `None` if the number was taken by a cart that is closed already.
    async fn create_cart(
        &self,
        cart: Cart,
        ordinal: u64,
        seen: Revision,
    ) -> Result<Option<(Made, CartRecord)>, ShopError> {
        let header = cart_header(&cart, ordinal);
        let key = self.key(Collection::Carts, cart.id().as_str(), &header)?;
        let change = Change::CreateIfAbsent {
            key: key.clone(),
            header,
            parts: cart_parts(&cart),
        };
        match self.router.write(change, seen).await?.outcome {
            Outcome::Done { revision } => {
                let record = CartRecord {
                    cart: Stored::new(cart, revision),
                    ordinal,
                    key,
                    header_revision: revision,
                    newest_revision: revision,
                };
                Ok(Some((Made::Now, record)))
            }
            Outcome::Exists { record } => {
                let other = CartRecord::read(&SharedRecord::from(*record))?;
                Ok(other.is_active().then_some((Made::Before, other)))
            }
            outcome => Err(unforeseen(cart.id(), &outcome)),
        }
    }
}

/// Whether a cart was there to be extended.
enum Extended {
    Lives,
    Ended,
}
