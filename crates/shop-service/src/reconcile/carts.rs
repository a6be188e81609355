//! The round of the carts: merges that never arrived (W14), and owners with two active carts.

use engine_api::{Query, Record, SharedRecord};
use layout::{AccessPath, Collection, Value};
use model::{CartError, CartOwner, CartStatus, GuestCart, MergeOutcome};

use super::care::Problem;
use super::report::Kind;
use super::{Place, Reconciler};
use crate::error::ShopError;
use crate::records::CartRecord;

/// Active carts of one owner that are looked at; one is the rule.
const ACTIVE_CARTS_MAX: usize = 100;

impl Reconciler<'_> {
    pub(super) async fn carts(&mut self, place: &Place) -> Result<Option<Place>, ShopError> {
        let (images, next) = self.survey(Collection::Carts, place).await?;
        self.report.read(images.len());
        for image in images {
            if image.live_at(self.shop.now()).is_none() {
                continue;
            }
            self.report.look(Kind::Unreadable, 1);
            let key = image.key.id.to_string();
            match CartRecord::read(&SharedRecord::from(image)) {
                Ok(cart) => self.cart(cart).await?,
                Err(error) => {
                    let reason = error.to_string();
                    self.take_care(Problem::Unreadable { key, reason }).await;
                }
            }
        }
        Ok(next)
    }

    async fn cart(&mut self, cart: CartRecord) -> Result<(), ShopError> {
        let header = cart.cart.header();
        match (header.status, &header.merges_into) {
            (CartStatus::Active, _) => {
                self.report.look(Kind::SecondCart, 1);
                if let Some(problem) = self.judge_active(&cart).await? {
                    self.take_care(problem).await;
                }
            }
            (CartStatus::Abandoned, Some(_)) => {
                self.report.look(Kind::UnmergedCart, 1);
                if let Some(problem) = self.judge_merge(&cart).await? {
                    self.take_care(problem).await;
                }
            }
            (CartStatus::Abandoned | CartStatus::Ordered, _) => {}
        }
        Ok(())
    }

    /// Of several, all but the last are too many: a number is used only when those
    /// below it are closed.
    async fn judge_active(&self, cart: &CartRecord) -> Result<Option<Problem>, ShopError> {
        let active = self.active_carts(&cart.cart.header().owner).await?;
        let last = active.iter().max_by_key(|other| other.ordinal);
        let Some(last) = last.filter(|last| last.ordinal > cart.ordinal) else {
            return Ok(None);
        };
        // The one that was met may have been closed, and the last opened after that.
        let again = self.shop.find_cart(cart.cart.id()).await?;
        let still_active = again.is_some_and(|again| again.is_active());
        Ok(still_active.then(|| Problem::SecondCart {
            cart: cart.cart.id().clone(),
            beside: last.cart.id().clone(),
        }))
    }

    async fn active_carts(&self, owner: &CartOwner) -> Result<Vec<CartRecord>, ShopError> {
        let (path, id) = match owner {
            CartOwner::User(user) => (AccessPath::ActiveCartByUser, user.as_str()),
            CartOwner::Guest(session) => (AccessPath::ActiveCartBySession, session.as_str()),
        };
        let mut query = Query::first(path, vec![Value::text(id)], ACTIVE_CARTS_MAX);
        let mut carts = Vec::new();
        loop {
            let page = self.shop.router.query(&query).await?;
            let read = |record: Record| CartRecord::read(&SharedRecord::from(record));
            carts.extend(
                page.records
                    .into_iter()
                    .map(read)
                    .collect::<Result<Vec<_>, _>>()?,
            );
            match page.next {
                Some(next) if carts.len() < ACTIVE_CARTS_MAX => query = query.after(next),
                _ => return Ok(carts),
            }
        }
    }

    async fn judge_merge(&self, met: &CartRecord) -> Result<Option<Problem>, ShopError> {
        let Some(guest) = self.shop.find_cart(met.cart.id()).await? else {
            return Ok(None);
        };
        let header = guest.cart.header();
        let (Some(target), Some(closed_at)) = (&header.merges_into, header.closed_at) else {
            return Ok(None);
        };
        // Sent on to another cart is a step of a merge, too.
        let newest = closed_at.max(guest.header_revision.time());
        if newest > self.shop.patience_ends() {
            return Ok(None);
        }
        let key = guest.cart.id().to_string();
        let unreadable = |reason: String| Ok(Some(Problem::Unreadable { key, reason }));
        let Some(mut target) = self.shop.find_cart(target).await? else {
            return unreadable(format!("it goes into cart {target}, which is gone"));
        };
        let CartOwner::User(user) = target.cart.header().owner.clone() else {
            return unreadable(format!(
                "it goes into cart {}, which is no user's",
                target.cart.id()
            ));
        };
        match arrived(&guest, &mut target) {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(Problem::UnmergedCart { guest, user })),
            Err(error) => unreadable(error.to_string()),
        }
    }
}

/// Whether the target has taken the guest's cart in.
fn arrived(guest: &CartRecord, target: &mut CartRecord) -> Result<bool, CartError> {
    let closed = GuestCart::closed(&guest.cart)?;
    match target.cart.change().merge_guest(&closed) {
        Ok(MergeOutcome::AlreadyMerged | MergeOutcome::BelowFloor { .. }) => Ok(true),
        Ok(MergeOutcome::Merged)
        | Err(
            CartError::NotActive { .. }
            | CartError::TooManyLines { .. }
            | CartError::TooManyBytes { .. }
            | CartError::LineQuantity { .. },
        ) => Ok(false),
        Err(error) => Err(error),
    }
}
