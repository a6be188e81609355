//! Orders: once and whole, or not at all.

use std::collections::BTreeSet;

use super::Expected;
use super::cart::Change;
use crate::wire::{CartStatus, Order, OrderStatus, OrderWish};

/// So many of a user's orders have to be on the first page, whatever else is on it.
const LAST_ORDERS: usize = 30;

#[derive(Clone, Debug)]
pub struct ExpectedOrder {
    pub wish: OrderWish,
    /// Known once it was acknowledged.
    pub order_id: Option<String>,
    /// Those that it may be in.
    pub statuses: BTreeSet<OrderStatus>,
    pub(super) unknown: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Must,
    /// Wholly or not at all.
    May,
    MustNot,
}

impl ExpectedOrder {
    pub(super) fn intended(wish: OrderWish) -> ExpectedOrder {
        ExpectedOrder {
            wish,
            order_id: None,
            statuses: BTreeSet::new(),
            unknown: false,
        }
    }

    pub fn presence(&self) -> Presence {
        match (&self.order_id, self.unknown) {
            (Some(_), _) => Presence::Must,
            (None, true) => Presence::May,
            (None, false) => Presence::MustNot,
        }
    }

    /// What is not as it was asked for and acknowledged, if anything.
    pub fn difference(&self, order: &Order) -> Option<String> {
        let wish = &self.wish;
        let wanted = wish
            .lines
            .iter()
            .map(|line| (&line.product_id, line.quantity, line.price));
        let found = order
            .lines
            .iter()
            .map(|line| (&line.product_id, line.quantity, line.price));
        let (mut wanted, mut found): (Vec<_>, Vec<_>) = (wanted.collect(), found.collect());
        // The contract does not promise an order of lines.
        wanted.sort_unstable();
        found.sort_unstable();
        if wanted != found {
            return Some(format!("its lines are {found:?}, not {wanted:?}"));
        }
        if order.total != wish.total() {
            return Some(format!(
                "its total is {}, not {}",
                order.total,
                wish.total()
            ));
        }
        if (&order.user_id, &order.geo_zone) != (&wish.user_id, &wish.geo_zone) {
            return Some(format!(
                "it belongs to {} in {}",
                order.user_id, order.geo_zone
            ));
        }
        match &self.order_id {
            Some(id) if *id != order.order_id => {
                Some(format!("its id is {}, not {id}", order.order_id))
            }
            Some(_) if !self.statuses.contains(&order.status) => Some(format!(
                "it is {:?}, acknowledged was {:?}",
                order.status, self.statuses
            )),
            _ => None,
        }
    }
}

impl Expected {
    pub(super) fn order_done(&mut self, key: &str, order: &Order) {
        let Some(expected) = self.orders.get_mut(key) else {
            return self
                .verdict
                .wrong(format!("order {key} was answered but never sent"));
        };
        if let Some(id) = &expected.order_id
            && *id != order.order_id
        {
            let what = format!("key {key} made two orders, {id} and {}", order.order_id);
            return self.verdict.doubled(what);
        }
        let first = expected.order_id.is_none();
        if first {
            expected.statuses = [OrderStatus::Created].into();
        }
        if let Some(difference) = expected.difference(order) {
            self.verdict
                .wrong(format!("order {key} was answered, but {difference}"));
        }
        expected.order_id = Some(order.order_id.clone());
        self.key_of_order
            .insert(order.order_id.clone(), key.to_owned());
        if first {
            let keys = self.keys_of_user.entry(order.user_id.clone()).or_default();
            keys.push(key.to_owned());
        }
        if first
            && let Some(cart_id) = &expected.wish.cart_id
            && let Some(cart) = self.carts.get_mut(cart_id)
        {
            cart.has(&Change::Close(CartStatus::Ordered));
        }
    }

    pub(super) fn order_shown(&mut self, order: &Order) {
        let difference = match self.order_mut(&order.order_id) {
            Some(expected) => expected.difference(order),
            None => Some("nobody placed it".to_owned()),
        };
        if let Some(difference) = difference {
            self.verdict.wrong(format!(
                "order {} was shown, but {difference}",
                order.order_id
            ));
        }
    }

    /// The first page of a user's orders: the last acknowledged ones are there, each as it was left.
    pub(super) fn history_shown(&mut self, user_id: &str, shown: &[Order]) {
        let keys = self.keys_of_user.get(user_id).into_iter().flatten();
        for key in keys.rev().take(LAST_ORDERS) {
            let Some(expected) = self.orders.get(key) else {
                continue;
            };
            let found = |order: &&Order| Some(&order.order_id) == expected.order_id.as_ref();
            match shown.iter().find(found) {
                None => self.verdict.lost(format!(
                    "order {key} of {user_id} is not among its {} last ones",
                    shown.len()
                )),
                Some(order) => {
                    if let Some(difference) = expected.difference(order) {
                        self.verdict
                            .wrong(format!("order {key} was listed, but {difference}"));
                    }
                }
            }
        }
    }

    pub(super) fn order_unknown(&mut self, key: &str) {
        let Some(expected) = self.orders.get_mut(key) else {
            return;
        };
        if expected.order_id.is_some() {
            return;
        }
        expected.unknown = true;
        if let Some(cart_id) = &expected.wish.cart_id
            && let Some(cart) = self.carts.get_mut(cart_id)
        {
            cart.may_have(Change::Close(CartStatus::Ordered));
        }
    }
}
