//! What the shop promises of its records, for whoever compares copies of them. Pure.

use engine_api::{Record, Timestamp};
use layout::{AccessPath, Collection, Field, Value};
use model::OrderStatus;

use crate::error::ShopError;
use crate::records::{Settlement, cart_of, header, order_of, product_of, session_of};

/// The promise that a live record breaks by itself, in words: counts of its stock that do not add up, a total that is not
/// the sum of its lines, a status that there is none of, a field that cannot be read.
pub fn broken_promise(image: &Record, now: Timestamp) -> Option<String> {
    image.live_at(now)?;
    let judged = match image.key.collection {
        Collection::Products => product_of(image).map(drop),
        Collection::Orders => judge_order(image),
        Collection::Carts => cart_of(image).map(drop),
        Collection::Sessions => session_of(image).map(drop),
    };
    judged.err().map(|error| error.to_string())
}

/// The listing in which the record must be the only one: a user has one active cart at most.
pub fn stands_alone(image: &Record, now: Timestamp) -> Option<(AccessPath, Vec<Value>)> {
    let header = image.live_at(now)?;
    let path = AccessPath::ActiveCartByUser;
    let (field, active) = path.shape().only?;
    if image.key.collection != Collection::Carts || header.text(field) != Some(active) {
        return None;
    }
    Some((path, vec![header.get(Field::UserId)?.clone()]))
}

fn judge_order(image: &Record) -> Result<(), ShopError> {
    let (kept, header) = (order_of(image)?, header(image)?);
    if kept.order.request().is_some() && header.money(Field::Total)? != kept.order.total() {
        return Err(header.damaged("the total is not the sum of the lines"));
    }
    if kept.order.header().status == OrderStatus::Pending && kept.settlement == Settlement::Settled
    {
        return Err(header.damaged("a pending order is settled"));
    }
    Ok(())
}
