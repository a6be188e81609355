//! The course of an order, told again without the model's rules: never back, and never
//! behind what was told.

use engine_api::Authority;
use layout::Field;
use model::{Order, OrderStatus};

use super::{OrderShown, read};
use crate::ledger::{Deed, Told, Wish};
use crate::recording::History;

/// Where an order may go in one step.
fn next(status: &str) -> &'static [&'static str] {
    match status {
        "pending" => &["created", "aborted"],
        "created" => &["paid", "cancelled"],
        "paid" => &["shipped", "cancelled"],
        "shipped" => &["delivered"],
        "delivered" => &["returned"],
        _ => &[],
    }
}

pub(super) fn reaches(from: &str, to: &str) -> bool {
    from == to || next(from).iter().any(|step| reaches(step, to))
}

pub(super) fn illegal_courses(history: &History) -> Vec<String> {
    let by_routers = history
        .applied
        .iter()
        .filter(|applied| matches!(applied.context.authority, Authority::Router { .. }));
    let images = by_routers.flat_map(|applied| &applied.images);
    let mut breaches = Vec::new();
    for (before, after) in images {
        let before = before.as_ref().and_then(read);
        let after = after.as_ref().and_then(read);
        let (Some(before), Some(after)) = (before, after) else {
            continue;
        };
        let (from, to) = (before.status, after.status);
        let key = &before.record.key;
        if from != to && !next(from).contains(&to) {
            breaches.push(format!("{key} went from {from} to {to}"));
        }
        let created_at = |order: &OrderShown<'_>| order.fields.get(Field::CreatedAt).cloned();
        if created_at(&before) != created_at(&after) || before.lines != after.lines {
            breaches.push(format!("{key} changed what was asked for, or when"));
        }
    }
    breaches
}

/// What was told once holds later: in every answer that was asked for after it,
/// and at the end.
pub(super) fn behind_what_was_told(history: &History, orders: &[OrderShown<'_>]) -> Vec<String> {
    let mut breaches = Vec::new();
    let told: Vec<(&Deed, &Order)> = history
        .deeds
        .iter()
        .filter_map(|deed| match &deed.told {
            Told::Order { order, .. } => Some((deed, order)),
            _ => None,
        })
        .collect();
    for (index, (earlier, order)) in told.iter().enumerate() {
        let (id, status) = (&order.header().id, name(order.header().status));
        let standing = orders
            .iter()
            .find(|order| order.record.key.id.as_str() == id.as_str());
        match standing {
            Some(standing) if reaches(status, standing.status) => {}
            Some(standing) => breaches.push(format!(
                "{id} was told to be {status} and ends {}",
                standing.status
            )),
            None => breaches.push(format!("{id} was told of and is not there")),
        }
        for (later, other) in &told[index + 1..] {
            let then = name(other.header().status);
            if other.header().id == *id && earlier.is_before(later) && !reaches(status, then) {
                breaches.push(format!("{id} was told to be {status} and later {then}"));
            }
        }
        if let Wish::ChangeStatus { status: wished, .. } = earlier.wish
            && !reaches(name(wished), status)
        {
            breaches.push(format!("{id} was asked to be {wished:?} and told {status}"));
        }
    }
    breaches
}

pub(super) fn name(status: OrderStatus) -> &'static str {
    match status {
        OrderStatus::Pending => "pending",
        OrderStatus::Created => "created",
        OrderStatus::Paid => "paid",
        OrderStatus::Shipped => "shipped",
        OrderStatus::Delivered => "delivered",
        OrderStatus::Cancelled => "cancelled",
        OrderStatus::Returned => "returned",
        OrderStatus::Aborted => "aborted",
    }
}

#[cfg(test)]
mod tests {
    use engine_api::Change;

    use super::super::stage::{acknowledged, order, record, takes_at, wish};
    use super::*;
    use crate::checks::orders::check;
    use crate::checks::story::{Story, revision, router_context};

    #[test]
    fn a_status_does_not_go_back_and_ends_where_it_was_told() {
        let placed = order(1, 7);
        let id = placed.header().id.clone();
        let told_paid = |ends: &str| {
            let mut paid = placed.clone();
            let now = placed.header().created_at;
            paid.change_status(OrderStatus::Paid, now).unwrap();
            let mut story = Story::begin();
            takes_at(&mut story, &placed, 500);
            story.visits(Wish::PlaceOrder(wish(1)), acknowledged(&placed));
            let wish = Wish::ChangeStatus {
                order: id.clone(),
                status: OrderStatus::Paid,
            };
            story.visits(wish, acknowledged(&paid));
            story.history.standing = vec![record(&placed, ends)];
            story
        };
        assert!(check(&told_paid("paid").history).is_empty());
        assert!(check(&told_paid("shipped").history).is_empty());
        assert_eq!(check(&told_paid("created").history).len(), 1);
        let mut story = told_paid("paid");
        story.visits(Wish::ReadOrder { order: id.clone() }, acknowledged(&placed));
        assert_eq!(check(&story.history).len(), 1, "an older answer");
        let mut story = told_paid("paid");
        let change = Change::Remove {
            key: record(&placed, "paid").key,
            expected: revision(2),
        };
        let (before, after) = (record(&placed, "cancelled"), record(&placed, "shipped"));
        let context = router_context(revision(4), 1);
        story.applies(change, context, Some(before), Some(after));
        assert_eq!(
            check(&story.history).len(),
            1,
            "shipped after it was cancelled"
        );
    }
}
