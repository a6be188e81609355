//! Stock changes of a record: the model's rules applied to a stock part.

use std::collections::BTreeMap;

use layout::{Field, Fields, Value};
use model::{
    ClaimOutcome, GiveOutcome, OrderId, Quantity, Reservation, ReservationState, Stock,
    StockCounts, TakeOutcome,
};

use crate::change::{Change, Outcome, PriceCondition, StockAction, StockRefusal};
use crate::context::WriteContext;
use crate::decide::{Decision, live, write};
use crate::error::EngineError;
use crate::record::{Part, PartKey, Record};
use crate::revision::Revision;
use crate::validate::invalid;

/// Whether the change may go only beside a conditional one that guards it.
pub(crate) fn needs_company(change: &Change) -> bool {
    matches!(
        change,
        Change::Stock {
            action: StockAction::Sell { .. } | StockAction::Unsell { .. },
            ..
        }
    )
}

pub(crate) fn decide(
    stored: Option<&Record>,
    part: &PartKey,
    price: PriceCondition,
    action: &StockAction,
    context: &WriteContext,
) -> Result<Decision, EngineError> {
    let Some(stored) = live(stored, context.now) else {
        return Ok(Decision::Answer(Outcome::NoRecord));
    };
    let current = stored.parts.get(part);
    let mut stock = match (current.and_then(|part| part.content.live()), action) {
        (Some(fields), _) => stock_of(fields)?,
        (None, StockAction::Receive { .. }) => Stock::default(),
        (None, _) => return Ok(refused(StockRefusal::NoSuchStock)),
    };
    let step = match act(&mut stock, action)? {
        Step::Changed if takes(action) => match price_refusal(stored, price) {
            Some(refusal) => return Ok(refused(refusal)),
            None => Step::Changed,
        },
        step => step,
    };
    let floor = current.map_or(Revision::ZERO, |part| part.revision);
    // An absolute count has no reservation to know its repeat by: like any
    // patch it must be newer than what it replaces.
    if matches!(
        (&step, action),
        (Step::Changed, StockAction::Receive { .. })
    ) && context.revision <= floor
    {
        return Ok(Decision::Answer(Outcome::Stale { stored: floor }));
    }
    Ok(match step {
        Step::Refused(refusal) => refused(refusal),
        Step::Repeated => Decision::Answer(Outcome::Done { revision: floor }),
        Step::Changed => {
            // Numbered by the engine: concurrent takes must not refuse one another (W5).
            let revision = if context.revision > floor {
                context.revision
            } else {
                Revision::above(floor, context.revision.writer())
            };
            let mut record = stored.clone();
            record
                .parts
                .insert(part.clone(), Part::live(revision, stock_fields(&stock)));
            write(record, revision)
        }
    })
}

enum Step {
    Changed,
    /// The order did this before.
    Repeated,
    Refused(StockRefusal),
}

fn act(stock: &mut Stock, action: &StockAction) -> Result<Step, EngineError> {
    use Step::{Changed, Refused, Repeated};
    Ok(match action {
        StockAction::Receive { total } => {
            let counts = stock.counts();
            if counts.received == *total {
                Repeated
            } else if stock.receive_total(*total).is_ok() {
                Changed
            } else {
                Refused(StockRefusal::BelowSold {
                    bound: counts.reserved + counts.sold,
                })
            }
        }
        StockAction::Take {
            order,
            quantity,
            at,
        } => match stock.take(&order_id(order)?, pieces(*quantity)?, *at) {
            TakeOutcome::Taken => Changed,
            TakeOutcome::AlreadyTaken | TakeOutcome::AlreadySold => Repeated,
            TakeOutcome::AlreadyReturned => Refused(StockRefusal::NoReservation),
            TakeOutcome::QuantityDiffers { taken } => {
                let taken = u32::try_from(taken.pieces()).unwrap_or(u32::MAX);
                Refused(StockRefusal::OtherQuantity { taken })
            }
            TakeOutcome::SoldOut { available } => Refused(StockRefusal::SoldOut { available }),
            TakeOutcome::BelowFloor { floor } => Refused(StockRefusal::BelowFloor { floor }),
            TakeOutcome::TooManyHeld => Refused(StockRefusal::TooManyHeld),
        },
        StockAction::Claim { order } => match stock.claim(&order_id(order)?) {
            ClaimOutcome::Claimed => Changed,
            ClaimOutcome::AlreadySold => Repeated,
            ClaimOutcome::AlreadyReturned | ClaimOutcome::Unknown => {
                Refused(StockRefusal::NoReservation)
            }
        },
        StockAction::Give {
            order,
            quantity,
            at,
        } => given(stock.give(&order_id(order)?, pieces(*quantity)?, *at)),
        StockAction::Return {
            order,
            quantity,
            at,
        } => match stock.give_forgotten(&order_id(order)?, pieces(*quantity)?, *at) {
            Ok(outcome) => given(outcome),
            Err(_) => Refused(StockRefusal::NoReservation),
        },
        StockAction::Sell { quantity } => match stock.sell(pieces(*quantity)?) {
            Ok(()) => Changed,
            Err(_) => Refused(StockRefusal::SoldOut {
                available: stock.available(),
            }),
        },
        StockAction::Unsell { quantity } => match stock.unsell(pieces(*quantity)?) {
            Ok(()) => Changed,
            Err(_) => Refused(StockRefusal::NoReservation),
        },
    })
}

fn given(outcome: GiveOutcome) -> Step {
    match outcome {
        GiveOutcome::Given | GiveOutcome::NothingHeld => Step::Changed,
        GiveOutcome::AlreadyReturned => Step::Repeated,
        GiveOutcome::BelowFloor { floor } => Step::Refused(StockRefusal::BelowFloor { floor }),
    }
}

fn takes(action: &StockAction) -> bool {
    matches!(action, StockAction::Take { .. } | StockAction::Sell { .. })
}

fn price_refusal(stored: &Record, price: PriceCondition) -> Option<StockRefusal> {
    let PriceCondition::Exactly(seen) = price else {
        return None;
    };
    let now = stored
        .header
        .content
        .live()?
        .get(Field::Price)
        .and_then(Value::as_decimal);
    (now != Some(seen)).then_some(StockRefusal::PriceMoved { now })
}

fn refused(refusal: StockRefusal) -> Decision {
    Decision::Answer(Outcome::Stock(refusal))
}

fn order_id(order: &str) -> Result<OrderId, EngineError> {
    OrderId::parse(order).map_err(|error| invalid(error.to_string()))
}

fn pieces(quantity: u32) -> Result<Quantity, EngineError> {
    Quantity::new(quantity).map_err(|error| invalid(error.to_string()))
}

/// The fields that keep a stock.
pub fn stock_fields(stock: &Stock) -> Fields {
    let count = |count: u64| Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
    let counts = stock.counts();
    let mut fields = Fields::new()
        .with(Field::Received, count(counts.received))
        .with(Field::Available, count(counts.available))
        .with(Field::Reserved, count(counts.reserved))
        .with(Field::Sold, count(counts.sold));
    let reservations: BTreeMap<String, Value> = stock
        .reservations()
        .map(|(order, known)| (order.as_str().to_owned(), reservation_value(known)))
        .collect();
    if !reservations.is_empty() {
        fields = fields.with(Field::Reservations, Value::Map(reservations));
    }
    match stock.floor() {
        Some(floor) => fields.with(Field::Floor, Value::Timestamp(floor)),
        None => fields,
    }
}

/// Reads a stock part back; refuses one that the rules could not have made.
pub fn stock_of(fields: &Fields) -> Result<Stock, EngineError> {
    let damaged = |reason: String| EngineError::Damaged { reason };
    let count = |field: Field| {
        let value = fields
            .get(field)
            .and_then(Value::as_int)
            .and_then(|int| u64::try_from(int).ok());
        value.ok_or_else(|| damaged(format!("a stock part lacks {field}")))
    };
    let counts = StockCounts {
        received: count(Field::Received)?,
        available: count(Field::Available)?,
        reserved: count(Field::Reserved)?,
        sold: count(Field::Sold)?,
    };
    let mut reservations = BTreeMap::new();
    if let Some(Value::Map(map)) = fields.get(Field::Reservations) {
        for (order, value) in map {
            let reservation = reservation_of(value)
                .ok_or_else(|| damaged(format!("the reservation of {order} is incomplete")))?;
            let order = OrderId::parse(order).map_err(|error| damaged(error.to_string()))?;
            reservations.insert(order, reservation);
        }
    }
    let floor = fields.get(Field::Floor).and_then(Value::as_timestamp);
    Stock::restore(counts, reservations, floor).map_err(|error| damaged(error.to_string()))
}

fn reservation_value(known: &Reservation) -> Value {
    let state = match known.state {
        ReservationState::Held => "held",
        ReservationState::Sold => "sold",
        ReservationState::Returned => "returned",
    };
    let quantity = i64::try_from(known.quantity.pieces()).unwrap_or(i64::MAX);
    Value::Map(BTreeMap::from([
        ("quantity".to_owned(), Value::Int(quantity)),
        ("at".to_owned(), Value::Timestamp(known.at)),
        ("state".to_owned(), Value::text(state)),
    ]))
}

fn reservation_of(value: &Value) -> Option<Reservation> {
    let Value::Map(map) = value else { return None };
    let quantity = u32::try_from(map.get("quantity")?.as_int()?).ok()?;
    let state = match map.get("state")?.as_text()? {
        "held" => ReservationState::Held,
        "sold" => ReservationState::Sold,
        "returned" => ReservationState::Returned,
        _ => return None,
    };
    let at = map.get("at")?.as_timestamp()?;
    Some(Reservation {
        quantity: Quantity::new(quantity).ok()?,
        at,
        state,
    })
}
