//! Stock as shoppers see it through the router: pieces that are taken, sold and given
//! back at a price.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use engine_api::{Change, Outcome, PriceCondition, Record, RecordKey, StockAction, StockRefusal};
use layout::{Collection, Field, Fields, Value};
use rust_decimal::Decimal;

use super::{returned, told};
use crate::checks::stock::known;
use crate::linear::{Call, Specification};
use crate::recording::{End, History, Intent, Operation};
use crate::scenery::shelf;

pub(super) fn check(history: &History) -> Vec<String> {
    let writes = history.writes().flat_map(|(_, changes)| changes);
    let keys: BTreeSet<&RecordKey> = writes
        .map(Change::key)
        .filter(|key| key.collection == Collection::Products)
        .collect();
    let one = |key: &RecordKey| {
        let operations = history.operations.iter();
        let calls = operations.filter_map(|operation| {
            Some(Call {
                operation: act(operation, key)?,
                invoked: operation.invoked,
                returned: returned(operation),
            })
        });
        told(key, &Shelf, &calls.collect::<Vec<_>>())
    };
    keys.into_iter().filter_map(one).collect()
}

struct Shelf;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Standing {
    price: Option<Decimal>,
    received: i64,
    sold: i64,
    /// Pieces and state, by order.
    reservations: BTreeMap<String, (i64, State)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Held,
    Sold,
    Returned,
}

#[derive(Debug)]
enum Act {
    Price(Option<Decimal>),
    Stock {
        price: PriceCondition,
        action: StockAction,
    },
    Read(Standing),
    Refused {
        action: StockAction,
        refusal: StockRefusal,
    },
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

fn act(operation: &Operation, key: &RecordKey) -> Option<Act> {
    match (&operation.intent, &operation.end) {
        (Intent::Read(of), End::Image(Some(image))) if of == key => Some(Act::Read(shown(image)?)),
        (Intent::Write(changes), end) => {
            let change = changes.iter().find(|change| change.key() == key)?;
            match (change, end) {
                // In a group another change may have been the reason.
                (
                    Change::Stock { action, .. },
                    End::Refused {
                        met: Some(Outcome::Stock(refusal)),
                        ..
                    },
                ) if changes.len() == 1 => Some(Act::Refused {
                    action: action.clone(),
                    refusal: refusal.clone(),
                }),
                (_, End::Refused { .. }) => None,
                (Change::Stock { price, action, .. }, _) => Some(Act::Stock {
                    price: *price,
                    action: action.clone(),
                }),
                (Change::CreateIfAbsent { header, .. } | Change::ChangeIf { header, .. }, _) => {
                    Some(Act::Price(price_of(header)))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn price_of(header: &Fields) -> Option<Decimal> {
    header.get(Field::Price).and_then(Value::as_decimal)
}

/// `None` before the first delivery.
fn shown(image: &Record) -> Option<Standing> {
    let fields = image.part(&shelf())?;
    let count = |field: Field| fields.get(field).and_then(Value::as_int);
    let reservations = known(fields).into_iter().map(|known| {
        let state = match known.state.as_str() {
            "held" => State::Held,
            "sold" => State::Sold,
            _ => State::Returned,
        };
        (known.order, (i64::from(known.pieces), state))
    });
    Some(Standing {
        price: price_of(image.header.content.live()?),
        received: count(Field::Received)?,
        sold: count(Field::Sold)?,
        reservations: reservations.collect(),
    })
}

impl Standing {
    fn available(&self) -> i64 {
        let held = self.reservations.values();
        let held = held.filter(|(_, state)| *state == State::Held);
        self.received - self.sold - held.map(|(pieces, _)| pieces).sum::<i64>()
    }

    fn costs(&self, price: PriceCondition) -> bool {
        match price {
            PriceCondition::Any => true,
            PriceCondition::Exactly(seen) => self.price == Some(seen),
        }
    }

    /// `None`: not without a refusal.
    fn after(&self, price: PriceCondition, action: &StockAction) -> Option<Standing> {
        let mut next = self.clone();
        match action {
            StockAction::Receive { total } => next.received = i64::try_from(*total).ok()?,
            StockAction::Take {
                order, quantity, ..
            } => match self.reservations.get(order) {
                Some((_, State::Returned)) => return None,
                Some((pieces, _)) => (*pieces == i64::from(*quantity)).then_some(())?,
                None => {
                    let pieces = i64::from(*quantity);
                    (self.available() >= pieces && self.costs(price)).then_some(())?;
                    next.reservations
                        .insert(order.clone(), (pieces, State::Held));
                }
            },
            StockAction::Claim { order } => match self.reservations.get(order)? {
                (_, State::Returned) => return None,
                (_, State::Sold) => {}
                (pieces, State::Held) => {
                    next.sold += pieces;
                    next.reservations
                        .insert(order.clone(), (*pieces, State::Sold));
                }
            },
            StockAction::Give {
                order, quantity, ..
            }
            | StockAction::Return {
                order, quantity, ..
            } => {
                let known = self.reservations.get(order);
                if let Some((pieces, State::Sold)) = known {
                    next.sold -= pieces;
                }
                let pieces = known.map_or(i64::from(*quantity), |(pieces, _)| *pieces);
                next.reservations
                    .insert(order.clone(), (pieces, State::Returned));
            }
            StockAction::Sell { quantity } => {
                let pieces = i64::from(*quantity);
                (self.available() >= pieces && self.costs(price)).then_some(())?;
                next.sold += pieces;
            }
            StockAction::Unsell { quantity } => {
                next.sold -= i64::from(*quantity);
                (next.sold >= 0).then_some(())?;
            }
        }
        Some(next)
    }

    fn refuses(&self, action: &StockAction, refusal: &StockRefusal) -> bool {
        match refusal {
            StockRefusal::SoldOut { available } => {
                let asked = match action {
                    StockAction::Take { quantity, .. } | StockAction::Sell { quantity } => quantity,
                    _ => return false,
                };
                self.available() < i64::from(*asked)
                    && u64::try_from(self.available()).ok() == Some(*available)
            }
            StockRefusal::PriceMoved { now } => self.price == *now,
            StockRefusal::NoSuchStock => self.received == 0,
            StockRefusal::NoReservation
            | StockRefusal::OtherQuantity { .. }
            | StockRefusal::BelowSold { .. } => self.after(PriceCondition::Any, action).is_none(),
            // Nothing is forgotten, and few orders are open at once, in a seed.
            StockRefusal::BelowFloor { .. } | StockRefusal::TooManyHeld => false,
        }
    }
}

impl Specification for Shelf {
    type State = Standing;
    type Operation = Act;

    fn first(&self) -> Standing {
        Standing::default()
    }

    fn observes(&self, act: &Act) -> bool {
        match act {
            Act::Read(_) | Act::Refused { .. } => true,
            Act::Price(_) | Act::Stock { .. } => false,
        }
    }

    fn step(&self, state: &Standing, act: &Act) -> Option<Standing> {
        match act {
            Act::Price(price) => Some(Standing {
                price: *price,
                ..state.clone()
            }),
            Act::Stock { price, action } => state.after(*price, action),
            Act::Read(shown) => (state == shown).then(|| state.clone()),
            Act::Refused { action, refusal } => {
                state.refuses(action, refusal).then(|| state.clone())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use engine_api::Timestamp;

    use super::*;
    use crate::checks::story::Story;
    use crate::scenery::{PIECES, product, stock};

    fn take(order: &str, quantity: u32) -> Change {
        let action = StockAction::Take {
            order: order.to_owned(),
            quantity,
            at: Timestamp::from_unix_micros(0),
        };
        stock(&product("lamp"), PriceCondition::Any, action)
    }

    fn begin() -> Story {
        let mut story = Story::begin();
        let receive = StockAction::Receive { total: PIECES };
        story.writes(stock(&product("lamp"), PriceCondition::Any, receive), 2);
        story
    }

    fn refused(mut story: Story, change: Change, refusal: StockRefusal) -> usize {
        let number = story.asks(Intent::Write(vec![change]));
        let end = End::Refused {
            why: "said so".to_owned(),
            met: Some(Outcome::Stock(refusal)),
        };
        story.is_told(number, end);
        check(&story.history).len()
    }

    #[test]
    fn more_than_there_is_cannot_be_taken_and_sold_out_must_be_true() {
        let mut story = begin();
        story.writes(take("one", 20), 4);
        assert_eq!(check(&story.history).len(), 0);
        story.writes(take("other", 11), 6);
        assert_eq!(check(&story.history).len(), 1);
        let sold_out = |available: u64| {
            let mut story = begin();
            story.writes(take("one", 20), 4);
            let refusal = StockRefusal::SoldOut { available };
            refused(story, take("other", 11), refusal)
        };
        assert_eq!((sold_out(10), sold_out(30)), (0, 1));
    }

    #[test]
    fn a_reservation_that_was_given_back_is_not_taken_or_sold_any_more() {
        let give = || {
            let action = StockAction::Give {
                order: "one".to_owned(),
                quantity: 2,
                at: Timestamp::from_unix_micros(0),
            };
            stock(&product("lamp"), PriceCondition::Any, action)
        };
        let mut story = begin();
        story.writes(take("one", 2), 4);
        story.writes(give(), 6);
        story.writes(give(), 6);
        assert_eq!(check(&story.history).len(), 0);
        story.writes(take("one", 2), 8);
        assert_eq!(check(&story.history).len(), 1);
        let story = begin();
        let held_by_nobody = refused(story, take("one", 2), StockRefusal::NoReservation);
        assert_eq!(held_by_nobody, 1, "nobody gave it back");
    }
}
