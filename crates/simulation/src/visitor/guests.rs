//! Guests: a session and a cart in it, and signing in, which merges the cart;
//! also twice, also at once, also while the guest goes on.

use model::{CartOwner, ShopperSessionId, UserId};
use shop_service::SessionWish;

use super::{Visitor, locked};
use crate::ledger::Wish;

impl Visitor {
    pub(super) async fn come_as_guest(&self) {
        let Some(guest) = self.guest().await else {
            return;
        };
        let owner = CartOwner::Guest(guest.clone());
        let Some(cart) = self.open_by_one_or_two(&owner).await else {
            return;
        };
        self.change_items(&cart).await;
        let user = self.user();
        let end = self.chance().below(100);
        match end {
            0..=19 => self.sign_in(&guest, &user).await,
            // As if the button was pressed twice.
            20..=34 => {
                futures::join!(self.sign_in(&guest, &user), self.sign_in(&guest, &user));
            }
            // The guest goes on in another window.
            35..=59 => {
                let more = async {
                    self.put_item(&cart).await;
                    self.put_item(&cart).await;
                };
                futures::join!(self.sign_in(&guest, &user), more);
                if self.percent(60) {
                    self.sign_in(&guest, &user).await;
                }
            }
            // The items are changed after the merge, and the merge is repeated.
            60..=71 => {
                self.sign_in(&guest, &user).await;
                if let Some(cart) = self
                    .open_by_one_or_two(&CartOwner::User(user.clone()))
                    .await
                {
                    self.change_items(&cart).await;
                }
                self.sign_in(&guest, &user).await;
            }
            // Two users at one browser.
            72..=77 => {
                let other = self.user();
                futures::join!(self.sign_in(&guest, &user), self.sign_in(&guest, &other));
            }
            78..=87 => self.touch_session(&guest).await,
            88..=95 => {
                let closing = self.close_session(&guest);
                futures::join!(closing, self.open_cart(&owner), self.touch_session(&guest));
            }
            _ => {}
        }
    }

    /// Somebody who was here before, or a new one.
    async fn guest(&self) -> Option<ShopperSessionId> {
        let known = locked(&self.hall.guests).clone();
        if !known.is_empty() && self.percent(60) {
            return Some(self.chance().pick(&known).clone());
        }
        let opened = self
            .ask(Wish::OpenSession, |shop, _| async move {
                shop.open_session(SessionWish::default()).await
            })
            .await;
        let guest = opened?.ok()?.value.id().clone();
        locked(&self.hall.guests).push(guest.clone());
        Some(guest)
    }

    async fn sign_in(&self, guest: &ShopperSessionId, user: &UserId) {
        let wish = Wish::SignIn {
            guest: guest.clone(),
            user: user.clone(),
        };
        let (guest, user) = (guest.clone(), user.clone());
        self.ask(wish, |shop, seen| async move {
            shop.login(SessionWish::default(), &user, Some(&guest), seen)
                .await
        })
        .await;
    }

    async fn touch_session(&self, session: &ShopperSessionId) {
        let wish = Wish::TouchSession {
            session: session.clone(),
        };
        let session = session.clone();
        self.ask(wish, |shop, seen| async move {
            shop.touch_session(&session, seen).await
        })
        .await;
    }

    async fn close_session(&self, session: &ShopperSessionId) {
        let wish = Wish::CloseSession {
            session: session.clone(),
        };
        let session = session.clone();
        self.ask(wish, |shop, seen| async move {
            shop.close_session(&session, seen).await
        })
        .await;
    }
}
