//! Everything that was acknowledged against everything that can be read back.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::ledger::{Ledger, OrderTold};

/// Findings that are told by name.
const FINDINGS_TOLD_MAX: usize = 10;

/// What the shop holds, as anybody may ask it.
pub trait ReadBack {
    /// The quantity of the cart's only line; `None`: there is no such cart.
    fn cart(&self, cart: &str) -> Result<Option<u32>>;
    fn order(&self, order: &str) -> Result<Option<Placed>>;
    fn orders_of(&self, user: &str) -> Result<BTreeSet<String>>;
    /// Sends an order again that was never answered, under its own key: its id.
    fn settle(&self, key: &str, told: &OrderTold) -> Result<String>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub user: String,
    pub quantity: u32,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub cart_changes: u64,
    pub orders: u64,
    pub lost: u64,
    pub doubled: u64,
    pub wrong: u64,
    /// Some of them, in words.
    pub findings: Vec<String>,
}

impl Verdict {
    pub fn of(ledger: &Ledger, shop: &impl ReadBack) -> Result<Verdict> {
        let mut verdict = Verdict {
            cart_changes: ledger.cart_changes,
            orders: ledger.orders_acknowledged() as u64,
            ..Verdict::default()
        };
        verdict.judge_carts(ledger, shop)?;
        verdict.judge_orders(ledger, shop)?;
        for finding in &ledger.shown_older {
            verdict.wrong += 1;
            verdict.find(finding.clone());
        }
        Ok(verdict)
    }

    /// Nothing is amiss, and there was something to judge.
    pub fn holds(&self) -> bool {
        let amiss = self.lost + self.doubled + self.wrong;
        amiss == 0 && self.cart_changes > 0 && self.orders > 0
    }

    fn judge_carts(&mut self, ledger: &Ledger, shop: &impl ReadBack) -> Result<()> {
        for (cart, told) in &ledger.carts {
            let (least, most) = (told.acknowledged, told.sent);
            match shop.cart(cart)? {
                None if least == 0 => {}
                None => {
                    self.lost += 1;
                    self.find(format!("cart {cart} is gone"));
                }
                Some(shown) if shown < least => {
                    self.lost += u64::from(least - shown);
                    self.find(format!(
                        "cart {cart} shows {shown}, {least} was acknowledged"
                    ));
                }
                Some(shown) if shown > most => {
                    self.wrong += 1;
                    self.find(format!(
                        "cart {cart} shows {shown}, nobody sent more than {most}"
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn judge_orders(&mut self, ledger: &Ledger, shop: &impl ReadBack) -> Result<()> {
        let mut told_of: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (key, told) in &ledger.orders {
            let order = match &told.order {
                Some(order) => order.clone(),
                None => shop.settle(key, told)?,
            };
            match shop.order(&order)? {
                None => {
                    self.lost += 1;
                    self.find(format!("order {order} is gone"));
                }
                Some(placed) if placed.user != told.user || placed.quantity != told.quantity => {
                    self.wrong += 1;
                    self.find(format!("order {order} is {placed:?}, sent was {told:?}"));
                }
                Some(_) => {}
            }
            let of_user = told_of.entry(&told.user).or_default();
            if !of_user.insert(order.clone()) {
                self.wrong += 1;
                self.find(format!("order {order} answers two keys"));
            }
        }
        for (user, told) in told_of {
            let listed = shop.orders_of(user)?;
            for extra in listed.difference(&told) {
                self.doubled += 1;
                self.find(format!("order {extra} of {user} was never acknowledged"));
            }
            for missing in told.difference(&listed) {
                self.lost += 1;
                self.find(format!("order {missing} is not listed for {user}"));
            }
        }
        Ok(())
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS_TOLD_MAX {
            self.findings.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Event;
    use super::*;

    /// A shop that can be tampered with.
    #[derive(Clone, Default)]
    struct Shelf {
        carts: BTreeMap<String, u32>,
        orders: BTreeMap<String, Placed>,
    }

    impl ReadBack for Shelf {
        fn cart(&self, cart: &str) -> Result<Option<u32>> {
            Ok(self.carts.get(cart).copied())
        }

        fn order(&self, order: &str) -> Result<Option<Placed>> {
            Ok(self.orders.get(order).cloned())
        }

        fn orders_of(&self, user: &str) -> Result<BTreeSet<String>> {
            let own = self.orders.iter().filter(|(_, placed)| placed.user == user);
            Ok(own.map(|(order, _)| order.clone()).collect())
        }

        fn settle(&self, key: &str, _: &OrderTold) -> Result<String> {
            Ok(format!("o-{key}"))
        }
    }

    /// Two carts and two orders, one of which was never answered.
    fn day() -> (Ledger, Shelf) {
        let (mut ledger, mut shelf) = (Ledger::default(), Shelf::default());
        for cart in ["c-1", "c-2"] {
            for quantity in 1..=5 {
                let cart = cart.to_owned();
                ledger.take(Event::CartSent {
                    cart: cart.clone(),
                    quantity,
                });
                if quantity < 5 {
                    ledger.take(Event::CartAcknowledged { cart, quantity });
                }
            }
            shelf.carts.insert(cart.to_owned(), 4);
        }
        for key in ["1", "2"] {
            let (key, user, quantity) = (key.to_owned(), "ann".to_owned(), 2);
            let placed = Placed {
                user: user.clone(),
                quantity,
            };
            shelf.orders.insert(format!("o-{key}"), placed);
            ledger.take(Event::OrderSent {
                key: key.clone(),
                user,
                quantity,
            });
            if key == "1" {
                let order = "o-1".to_owned();
                ledger.take(Event::OrderAcknowledged { key, order });
            }
        }
        (ledger, shelf)
    }

    #[test]
    fn a_shop_that_kept_everything_is_believed() {
        let (ledger, mut shelf) = day();
        let verdict = Verdict::of(&ledger, &shelf).unwrap();
        assert!(verdict.holds(), "{verdict:?}");
        assert_eq!((verdict.cart_changes, verdict.orders), (8, 1));
        // What was sent and never answered may be there as well.
        shelf.carts.insert("c-1".to_owned(), 5);
        assert!(Verdict::of(&ledger, &shelf).unwrap().holds());
        let nothing = Verdict::of(&Ledger::default(), &shelf).unwrap();
        assert!(!nothing.holds(), "nothing was judged");
    }

    #[test]
    fn whatever_is_lost_doubled_or_wrong_is_noticed() {
        fn check(tamper: impl FnOnce(&mut Ledger, &mut Shelf), expected: (u64, u64, u64)) {
            let (mut ledger, mut shelf) = day();
            tamper(&mut ledger, &mut shelf);
            let verdict = Verdict::of(&ledger, &shelf).unwrap();
            let found = (verdict.lost, verdict.doubled, verdict.wrong);
            assert_eq!(found, expected, "{verdict:?}");
            assert!(!verdict.holds());
            assert!(!verdict.findings.is_empty());
        }
        let placed = |user: &str, quantity| Placed {
            user: user.to_owned(),
            quantity,
        };
        let gone = |_: &mut Ledger, shelf: &mut Shelf| {
            shelf.carts.remove("c-1");
        };
        check(gone, (1, 0, 0));
        for (shown, expected) in [(3, (1, 0, 0)), (6, (0, 0, 1))] {
            let other = |_: &mut Ledger, shelf: &mut Shelf| {
                shelf.carts.insert("c-1".to_owned(), shown);
            };
            check(other, expected);
        }
        // Gone by its id, and from the list.
        check(|_, shelf| drop(shelf.orders.remove("o-1")), (2, 0, 0));
        let twice = |_: &mut Ledger, shelf: &mut Shelf| {
            shelf.orders.insert("o-9".to_owned(), placed("ann", 2));
        };
        check(twice, (0, 1, 0));
        let other = |_: &mut Ledger, shelf: &mut Shelf| {
            shelf.orders.insert("o-1".to_owned(), placed("ann", 3));
        };
        check(other, (0, 0, 1));
        let older = |ledger: &mut Ledger, _: &mut Shelf| {
            let cart = "c-1".to_owned();
            ledger.take(Event::ShownOlder {
                cart,
                told: 4,
                shown: 3,
            });
        };
        check(older, (0, 0, 1));
    }
}
