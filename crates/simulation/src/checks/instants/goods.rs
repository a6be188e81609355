//! The stock of the shop's goods as visitors see it: each order takes its pieces once,
//! at one instant, whatever was lost and sent again, and gives them back once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::{OrderId, OrderStatus, Product};
use shop_service::{OrderWish, ShopError};

use super::told;
use crate::ledger::{Deed, Told, Wish};
use crate::linear::{Call, Specification};
use crate::recording::{History, Moment};
use crate::scenery::{GOODS, ZONE};

pub(super) fn check(history: &History) -> Vec<String> {
    let one = |product: &&str| {
        let mut told_of = Calls::of(product);
        for deed in &history.deeds {
            told_of.add(deed);
        }
        told(product, &Shelf, &told_of.finish())
    };
    GOODS.iter().filter_map(one).collect()
}

struct Shelf;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Standing {
    received: u64,
    /// Pieces by order; none of those that gave them back.
    orders: BTreeMap<String, u64>,
}

#[derive(Debug)]
enum Act {
    Receive(u64),
    Take { order: String, pieces: u64 },
    Give { order: String },
    Available(u64),
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What the ledger says about one product.
struct Calls<'a> {
    product: &'a str,
    calls: Vec<Call<Act>>,
    placed: BTreeSet<String>,
    /// Orders that nobody was told of, with the pieces they may have taken, and since when.
    doubtful: BTreeMap<(String, u64), Moment>,
    /// Orders that may have given their pieces back, and since when.
    ending: BTreeMap<String, Moment>,
}

impl<'a> Calls<'a> {
    fn of(product: &'a str) -> Calls<'a> {
        Calls {
            product,
            calls: Vec::new(),
            placed: BTreeSet::new(),
            doubtful: BTreeMap::new(),
            ending: BTreeMap::new(),
        }
    }

    fn add(&mut self, deed: &Deed) {
        if let Told::Product { product } = &deed.told
            && product.id().as_str() == self.product
            && let Some(available) = available(product)
        {
            self.answered(deed, Act::Available(available));
        }
        match &deed.wish {
            Wish::Receive { product, total } if product.as_str() == self.product => {
                if deed.is_acknowledged() {
                    self.answered(deed, Act::Receive(*total));
                } else if !deed.is_refused() {
                    self.call(deed.invoked, None, Act::Receive(*total));
                }
            }
            Wish::PlaceOrder(wish) => self.place(deed, wish),
            Wish::ChangeStatus { order, status } => self.end(deed, order, *status),
            _ => {}
        }
    }

    fn place(&mut self, deed: &Deed, wish: &OrderWish) {
        let lines = wish.lines.iter();
        let mut own = lines.filter(|line| line.product.as_str() == self.product);
        let Some(line) = own.next() else { return };
        let pieces = line.quantity.pieces();
        let order = OrderId::derived(&wish.user, &wish.key).to_string();
        match &deed.told {
            Told::Order { .. } => {
                self.placed.insert(order.clone());
                self.answered(deed, Act::Take { order, pieces });
            }
            Told::Refused {
                why:
                    ShopError::SoldOut {
                        product, available, ..
                    },
            } if product.as_str() == self.product => {
                self.answered(deed, Act::Available(*available));
            }
            Told::Refused {
                why: ShopError::KeyReused,
            } => {}
            // Another line was refused, perhaps after this one was taken.
            Told::Refused { why } if wish.lines.len() == 1 && !is_given_up(why) => {}
            _ => {
                let since = self.doubtful.entry((order, pieces));
                since.or_insert(deed.invoked);
            }
        }
    }

    fn end(&mut self, deed: &Deed, order: &OrderId, status: OrderStatus) {
        let gives = matches!(status, OrderStatus::Cancelled | OrderStatus::Returned);
        if !gives || deed.is_refused() {
            return;
        }
        let order = order.to_string();
        if deed.is_acknowledged() {
            self.answered(deed, Act::Give { order });
        } else {
            self.ending.entry(order).or_insert(deed.invoked);
        }
    }

    /// What nobody was told of, once each: sending it again adds nothing.
    fn finish(mut self) -> Vec<Call<Act>> {
        for ((order, pieces), since) in std::mem::take(&mut self.doubtful) {
            if !self.placed.contains(&order) {
                self.ending.entry(order.clone()).or_insert(since);
            }
            self.call(since, None, Act::Take { order, pieces });
        }
        for (order, since) in std::mem::take(&mut self.ending) {
            self.call(since, None, Act::Give { order });
        }
        self.calls
    }

    fn answered(&mut self, deed: &Deed, operation: Act) {
        self.call(deed.invoked, deed.ended, operation);
    }

    fn call(&mut self, invoked: Moment, returned: Option<Moment>, operation: Act) {
        self.calls.push(Call {
            operation,
            invoked,
            returned,
        });
    }
}

fn is_given_up(why: &ShopError) -> bool {
    matches!(why, ShopError::OrderAborted { .. })
}

fn available(product: &Product) -> Option<u64> {
    let mut stocks = product.stocks();
    let (_, stock) = stocks.find(|(key, _)| key.zone.as_str() == ZONE)?;
    Some(stock.available())
}

impl Specification for Shelf {
    type State = Standing;
    type Operation = Act;

    fn first(&self) -> Standing {
        Standing::default()
    }

    fn observes(&self, act: &Act) -> bool {
        matches!(act, Act::Available(_))
    }

    fn step(&self, state: &Standing, act: &Act) -> Option<Standing> {
        let mut next = state.clone();
        let taken: u64 = state.orders.values().sum();
        let left = state.received.checked_sub(taken)?;
        match act {
            Act::Receive(total) => next.received = *total,
            Act::Take { order, pieces } => {
                if !state.orders.contains_key(order) {
                    (left >= *pieces).then_some(())?;
                    next.orders.insert(order.clone(), *pieces);
                }
            }
            Act::Give { order } => {
                next.orders.insert(order.clone(), 0);
            }
            Act::Available(available) => (left == *available).then_some(())?,
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(calls: Vec<(u64, Option<u64>, Act)>) -> Option<String> {
        let calls = calls
            .into_iter()
            .map(|(invoked, returned, operation)| Call {
                operation,
                invoked: Moment(invoked),
                returned: returned.map(Moment),
            });
        told(&"mug", &Shelf, &calls.collect::<Vec<_>>())
    }

    fn take(order: &str, pieces: u64) -> Act {
        let order = order.to_owned();
        Act::Take { order, pieces }
    }

    fn give(order: &str) -> Act {
        Act::Give {
            order: order.to_owned(),
        }
    }

    #[test]
    fn an_order_takes_once_however_often_it_is_sent() {
        let sent_twice = |left: u64| {
            judged(vec![
                (1, Some(2), Act::Receive(9)),
                (3, None, take("one", 2)),
                (4, Some(5), take("one", 2)),
                (6, Some(7), Act::Available(left)),
            ])
        };
        assert_eq!(sent_twice(7), None);
        assert!(sent_twice(5).is_some(), "taken twice");
        assert!(sent_twice(9).is_some(), "not taken");
    }

    #[test]
    fn more_is_not_promised_than_there_is_and_what_came_back_is_there_once() {
        let both = judged(vec![
            (1, Some(2), Act::Receive(3)),
            (3, Some(9), take("one", 2)),
            (4, Some(8), take("other", 2)),
        ]);
        assert!(both.is_some());
        let given_back = |left: u64| {
            judged(vec![
                (1, Some(2), Act::Receive(3)),
                (3, Some(4), take("one", 2)),
                (5, Some(9), give("one")),
                (6, Some(8), give("one")),
                (10, Some(11), Act::Available(left)),
            ])
        };
        assert_eq!(given_back(3), None);
        assert!(given_back(5).is_some(), "given back twice");
        assert!(given_back(1).is_some(), "not given back");
    }

    #[test]
    fn what_nobody_was_told_of_may_hold_pieces_for_a_while() {
        let doubtful = |left: u64| {
            judged(vec![
                (1, Some(2), Act::Receive(3)),
                (3, None, take("one", 2)),
                (3, None, give("one")),
                (4, Some(5), Act::Available(1)),
                (6, Some(7), Act::Available(left)),
            ])
        };
        assert_eq!((doubtful(1), doubtful(3)), (None, None));
        assert!(doubtful(2).is_some());
    }
}
