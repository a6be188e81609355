//! What the ledger says must be there, may be there, and must not. Pure: entries in, expectations out.
//!
//! A request without an answer may have been done or not, so a cart or an order can be in one of several states.
//! Each is kept as a world of its own; every answer that shows the record leaves only the worlds that agree.
//! Shoppers change a record one request after the other and leave it alone after an answer got lost, so there
//! are never more than a few.

mod cart;
mod order;
mod session;

use std::collections::BTreeMap;

pub use cart::{ExpectedCart, World};
pub use order::{ExpectedOrder, Presence};
pub use session::{Alive, ExpectedSession};

use crate::ledger::{Done, Entry, Operation, Wish};
use crate::verdict::Verdict;
use crate::wire::Owner;

/// Refusals that only ask to come again.
const COME_AGAIN: [&str; 2] = ["too-many-requests", "changed-meanwhile"];
/// How a shop may refuse an order that is well-formed.
const ORDER_REFUSED: [&str; 2] = ["sold-out", "order-aborted"];

#[derive(Debug, Default)]
pub struct Expected {
    pending: BTreeMap<Operation, Wish>,
    /// By idempotency key; the judge never uses one for two users.
    pub orders: BTreeMap<String, ExpectedOrder>,
    key_of_order: BTreeMap<String, String>,
    /// The keys of each user's acknowledged orders, in the order of the ledger.
    keys_of_user: BTreeMap<String, Vec<String>>,
    pub carts: BTreeMap<String, ExpectedCart>,
    /// The cart that each owner opened last.
    opened: BTreeMap<Owner, String>,
    pub sessions: BTreeMap<String, ExpectedSession>,
    /// Sign-ins that may have stopped half-way: user and guest session.
    pub unresolved_logins: Vec<(String, String)>,
    /// Answers that contradict earlier ones.
    pub verdict: Verdict,
    pub counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub acknowledged: u64,
    pub refused: u64,
    pub unanswered: u64,
}

impl Expected {
    pub fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Intent { operation, wish } => {
                if let Wish::Order { key, order } = &wish {
                    self.orders
                        .entry(key.clone())
                        .or_insert_with(|| ExpectedOrder::intended(order.clone()));
                }
                self.pending.insert(operation, wish);
            }
            Entry::Acknowledged { operation, done } => {
                self.counts.acknowledged += 1;
                match self.pending.remove(&operation) {
                    Some(wish) => self.acknowledge(wish, done),
                    None => self
                        .verdict
                        .wrong(format!("{operation:?} was answered but never sent")),
                }
            }
            Entry::Refused {
                operation,
                status,
                code,
            } => {
                self.counts.refused += 1;
                if let Some(wish) = self.pending.remove(&operation) {
                    self.refuse(&wish, status, &code);
                }
            }
            Entry::Killed => {
                for wish in std::mem::take(&mut self.pending).into_values() {
                    self.counts.unanswered += 1;
                    self.lose_answer(wish);
                }
            }
            Entry::Seen { cart } => {
                if let Some(expected) = self.carts.get_mut(&cart.cart_id) {
                    expected.show(&cart, &mut self.verdict);
                }
            }
            Entry::SeenOrder { order_id, status } => {
                if let Some(order) = self.order_mut(&order_id) {
                    order.statuses = [status].into();
                }
            }
            Entry::Judged => {}
        }
    }

    fn acknowledge(&mut self, wish: Wish, done: Done) {
        match (wish, done) {
            (Wish::Order { key, .. }, Done::Order(order)) => self.order_done(&key, &order),
            (Wish::Status { order_id, status }, Done::Order(order)) => {
                let verdict = &mut self.verdict;
                if order.status != status {
                    let what = format!(
                        "order {order_id} became {status:?}, answered {:?}",
                        order.status
                    );
                    verdict.wrong(what);
                }
                if let Some(expected) = self.order_mut(&order_id) {
                    expected.statuses = [status].into();
                }
            }
            (Wish::OpenCart { owner }, Done::Cart(cart)) => self.cart_opened(owner, &cart),
            (
                Wish::Login {
                    user_id,
                    guest_session_id,
                },
                Done::Login(login),
            ) => {
                self.signed_in(&user_id, &guest_session_id, &login);
            }
            (Wish::OpenSession | Wish::TouchSession { .. }, Done::Session(session)) => {
                self.session_active(&session);
            }
            (Wish::CloseSession { session_id }, Done::SessionClosed) => {
                self.session_ends(&session_id, Alive::No);
            }
            (Wish::LookAtCart { cart_id }, Done::Cart(cart)) => self.cart_shown(&cart_id, &cart),
            (Wish::LookAtOrder { .. }, Done::Order(order)) => self.order_shown(&order),
            (Wish::LookAtHistory { user_id }, Done::History(orders)) => {
                self.history_shown(&user_id, &orders);
            }
            (wish, Done::Cart(cart)) => match cart::change_of(&wish) {
                Some((cart_id, change)) => self.cart_changed(&cart_id, &cart, change),
                None => self
                    .verdict
                    .wrong(format!("{wish:?} was answered with a cart")),
            },
            (wish, done) => self
                .verdict
                .wrong(format!("{wish:?} was answered with {done:?}")),
        }
    }

    fn refuse(&mut self, wish: &Wish, status: u16, code: &str) {
        if COME_AGAIN.contains(&code) {
            return;
        }
        if let Wish::Order { key, .. } = wish
            && let Some(order) = self.orders.get_mut(key)
            && order.order_id.is_none()
            && ORDER_REFUSED.contains(&code)
        {
            // Nothing else under this key is on its way, or it is lost later, which says so again.
            order.unknown = false;
            return;
        }
        self.verdict
            .wrong(format!("{wish:?} was refused with {status} {code}"));
    }

    /// The server died before it answered.
    fn lose_answer(&mut self, wish: Wish) {
        match wish {
            Wish::Order { key, .. } => self.order_unknown(&key),
            Wish::Status { order_id, status } => {
                if let Some(order) = self.order_mut(&order_id) {
                    order.statuses.insert(status);
                }
            }
            Wish::Login {
                user_id,
                guest_session_id,
            } => self.login_unknown(user_id, guest_session_id),
            Wish::CloseSession { session_id } => self.session_ends(&session_id, Alive::Maybe),
            // What they would have made has no name, and nobody uses it before it is opened again.
            Wish::OpenCart { .. } | Wish::OpenSession | Wish::TouchSession { .. } => {}
            Wish::LookAtCart { .. } | Wish::LookAtOrder { .. } | Wish::LookAtHistory { .. } => {}
            Wish::PutItem { .. } | Wish::RemoveItem { .. } | Wish::CloseCart { .. } => {
                if let Some((cart_id, change)) = cart::change_of(&wish)
                    && let Some(cart) = self.carts.get_mut(&cart_id)
                {
                    cart.may_have(change);
                }
            }
        }
    }

    fn order_mut(&mut self, order_id: &str) -> Option<&mut ExpectedOrder> {
        let key = self.key_of_order.get(order_id)?;
        self.orders.get_mut(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Cart, CartItem, CartStatus, Owner};

    fn cart(items: &[(&str, u64)]) -> Cart {
        let items = items.iter().map(|(product, quantity)| CartItem {
            product_id: (*product).to_owned(),
            quantity: *quantity,
        });
        Cart {
            cart_id: "c".into(),
            status: CartStatus::Active,
            items: items.collect(),
        }
    }

    fn put(product: &str, quantity: u64) -> Wish {
        Wish::PutItem {
            cart_id: "c".into(),
            product_id: product.into(),
            quantity,
        }
    }

    /// A cart with one pear, then so many apples without an answer.
    fn cut_off(apples: u64) -> Expected {
        let mut expected = Expected::default();
        let owner = Owner::UserId("u".into());
        let mut operation = 0;
        let mut done = |expected: &mut Expected, wish: Wish, shown: Option<Cart>| {
            operation += 1;
            let operation = Operation(operation);
            expected.take(Entry::Intent { operation, wish });
            if let Some(shown) = shown {
                let done = Done::Cart(shown);
                expected.take(Entry::Acknowledged { operation, done });
            }
        };
        done(&mut expected, Wish::OpenCart { owner }, Some(cart(&[])));
        done(&mut expected, put("pear", 1), Some(cart(&[("pear", 1)])));
        done(&mut expected, put("apple", apples), None);
        expected.take(Entry::Killed);
        expected
    }

    #[test]
    fn an_item_whose_answer_was_lost_is_there_or_not_and_nothing_else() {
        let check = |shown: &[(&str, u64)], breaches: usize| {
            let mut expected = cut_off(3);
            expected.take(Entry::Seen { cart: cart(shown) });
            assert_eq!(expected.verdict.breaches.len(), breaches, "{shown:?}");
        };
        check(&[("pear", 1)], 0);
        check(&[("pear", 1), ("apple", 3)], 0);
        check(&[("pear", 1), ("apple", 2)], 1);
        check(&[("apple", 3)], 1);
        check(&[], 1);
    }

    #[test]
    fn what_was_seen_after_a_restart_has_to_stay_so() {
        let mut expected = cut_off(3);
        expected.take(Entry::Seen {
            cart: cart(&[("pear", 1), ("apple", 3)]),
        });
        expected.take(Entry::Seen {
            cart: cart(&[("pear", 1)]),
        });
        assert_eq!(expected.verdict.breaches.len(), 1, "{}", expected.verdict);
    }

    #[test]
    fn a_second_active_cart_of_one_owner_is_one_too_many() {
        let mut expected = cut_off(3);
        let operation = Operation(9);
        let wish = Wish::OpenCart {
            owner: Owner::UserId("u".into()),
        };
        expected.take(Entry::Intent { operation, wish });
        let mut other = cart(&[]);
        other.cart_id = "d".into();
        expected.take(Entry::Acknowledged {
            operation,
            done: Done::Cart(other),
        });
        assert_eq!(expected.verdict.count(crate::verdict::Kind::Doubled), 1);
    }
}
