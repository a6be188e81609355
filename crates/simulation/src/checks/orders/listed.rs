//! Lists of orders show what was told before.

use std::collections::BTreeMap;

use super::course::{name, reaches};
use crate::ledger::{Told, Wish};
use crate::recording::History;

/// A user's list of orders shows each once, and all that were told of before.
pub(super) fn missing_in_history(history: &History) -> Vec<String> {
    let mut breaches = Vec::new();
    for listing in &history.deeds {
        let (Wish::ListOrders { user }, Told::Orders { orders }) = (&listing.wish, &listing.told)
        else {
            continue;
        };
        let mut shown = BTreeMap::new();
        for order in orders {
            let header = order.header();
            if header.user != *user || shown.insert(&header.id, header.status).is_some() {
                breaches.push(format!("{} is twice or wrongly among {user}'s", header.id));
            }
        }
        for deed in history.deeds.iter().filter(|deed| deed.is_before(listing)) {
            let Told::Order { order, .. } = &deed.told else {
                continue;
            };
            let (id, status) = (&order.header().id, name(order.header().status));
            if order.header().user != *user {
                continue;
            }
            if !shown
                .get(id)
                .is_some_and(|shown| reaches(status, name(*shown)))
            {
                breaches.push(format!(
                    "{id} was told to be {status} and is missing or older in the list at {}",
                    listing.invoked.0
                ));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use model::Order;

    use super::super::stage::{acknowledged, order, record, takes_at, wish};
    use super::*;
    use crate::checks::orders::check;
    use crate::checks::story::Story;
    use crate::scenery::noun;

    #[test]
    fn a_list_of_orders_shows_what_was_told_before() {
        let placed = order(1, 7);
        let found = |orders: Vec<Order>| {
            let mut story = Story::begin();
            takes_at(&mut story, &placed, 500);
            story.visits(Wish::PlaceOrder(wish(1)), acknowledged(&placed));
            let listing = Wish::ListOrders { user: noun("dan") };
            story.visits(listing, Told::Orders { orders });
            story.history.standing = vec![record(&placed, "created")];
            check(&story.history).len()
        };
        assert_eq!(found(vec![placed.clone()]), 0);
        assert_eq!(found(vec![]), 1);
        assert_eq!(found(vec![placed.clone(), placed.clone()]), 1);
    }
}
