//! Merges: what a guest had is in the user's cart once, whatever was repeated and
//! whoever died; and a guest cart that was merged is closed.

use std::collections::{BTreeMap, BTreeSet};

use engine_api::{PartKey, RecordKey, Revision};
use layout::PartKind;
use shop_service::MergeEnd;

use super::carts::{CartShown, shown};
use crate::ledger::{Deed, Told, Wish};
use crate::recording::{History, Moment};

pub fn check(history: &History) -> Vec<String> {
    let carts: BTreeMap<&str, CartShown<'_>> = history
        .standing
        .iter()
        .filter_map(shown)
        .map(|cart| (cart.id, cart))
        .collect();
    let mut breaches = contributed_twice(history);
    for cart in carts.values() {
        breaches.extend(foreign(cart, &carts));
    }
    for deed in &history.deeds {
        if let (Wish::SignIn { guest, user }, Told::Merged { end }) = (&deed.wish, &deed.told) {
            let came = Came {
                deed,
                guest: guest.as_str(),
                user: user.as_str(),
            };
            if let MergeEnd::Refused { why } = end {
                breaches.push(format!("{guest} was not merged: {why}"));
            } else {
                breaches.extend(lost(history, &came, &carts));
            }
        }
    }
    breaches
}

/// A merge that was acknowledged.
struct Came<'a> {
    deed: &'a Deed,
    guest: &'a str,
    user: &'a str,
}

/// A contribution that is not what the closed guest cart holds.
fn foreign(cart: &CartShown<'_>, carts: &BTreeMap<&str, CartShown<'_>>) -> Vec<String> {
    let mut breaches = Vec::new();
    for ((product, guest), pieces) in &cart.contributions {
        let of_guest = carts.get(guest);
        let holds = of_guest.is_some_and(|guest| {
            guest.own.get(product) == Some(pieces)
                && guest.merges_into == Some(cart.id)
                && guest.status == "abandoned"
        });
        if !holds {
            breaches.push(format!(
                "{pieces} {product} came into {} from {guest}, which does not say so",
                cart.id
            ));
        }
    }
    breaches
}

/// Carts of the guest that stood when the merge began are closed after it, and
/// what they held is in the user's cart unless somebody changed it there.
fn lost(history: &History, came: &Came<'_>, carts: &BTreeMap<&str, CartShown<'_>>) -> Vec<String> {
    let mut breaches = Vec::new();
    let known: BTreeSet<String> = history
        .deeds
        .iter()
        .filter(|deed| deed.is_before(came.deed))
        .filter_map(|deed| match &deed.told {
            Told::Cart { cart, .. } => Some(cart.id().to_string()),
            _ => None,
        })
        .collect();
    for guest in carts.values().filter(|cart| cart.owner == came.guest) {
        if !known.contains(guest.id) {
            continue;
        }
        if guest.status == "active" {
            breaches.push(format!("{} was merged and is active", guest.id));
        }
        let Some(target) = guest.merges_into.and_then(|target| carts.get(target)) else {
            continue;
        };
        if target.owner != came.user {
            continue;
        }
        for (product, pieces) in &guest.own {
            let there = target.contributions.get(&(*product, guest.id)) == Some(pieces);
            if !there && !may_be_replaced(history, target.id, product) {
                breaches.push(format!(
                    "{pieces} {product} of {} are not in {}",
                    guest.id, target.id
                ));
            }
        }
    }
    breaches
}

fn may_be_replaced(history: &History, cart: &str, product: &str) -> bool {
    history.deeds.iter().any(|deed| {
        let (of, what) = match &deed.wish {
            Wish::PutItem { cart, product, .. } | Wish::RemoveItem { cart, product } => {
                (cart, product)
            }
            _ => return false,
        };
        of.as_str() == cart && what.as_str() == product && !deed.is_refused()
    })
}

/// A contribution is made once. Without a fence in the store a copy that nobody
/// was told of may stand at a former owner, and another at the next.
fn contributed_twice(history: &History) -> Vec<String> {
    let mut made: BTreeMap<(&RecordKey, &PartKey), BTreeMap<Revision, Moment>> = BTreeMap::new();
    let fenced = history.applied.iter();
    let fenced = fenced.filter(|applied| !history.by_lease.contains(&applied.shard));
    for applied in fenced {
        let images = applied
            .images
            .iter()
            .filter_map(|(_, after)| after.as_ref());
        for image in images {
            let contributions = image
                .parts
                .iter()
                .filter(|(key, _)| key.kind() == PartKind::Contribution);
            for (key, part) in contributions {
                if part.content.live().is_some() {
                    let times = made.entry((&image.key, key)).or_default();
                    times.entry(part.revision).or_insert(applied.moment);
                }
            }
        }
    }
    made.into_iter()
        .filter(|(_, times)| times.len() > 1)
        .map(|((cart, part), times)| {
            let at: Vec<u64> = times.values().map(|moment| moment.0).collect();
            format!("{part} came into {cart} {} times, at {at:?}", times.len())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use engine_api::{Change, Content, Header, Part, Record};
    use layout::{Field, Fields, Value};
    use model::{Cart, CartOwner};
    use shop_service::Made;

    use super::*;
    use crate::checks::story::{Story, revision, router_context};
    use crate::scenery::{cart, create, noun};

    fn record(name: &str, owner: (Field, &str), status: &str, part: Option<PartKey>) -> Record {
        let fields = Fields::new()
            .with(owner.0, Value::text(owner.1))
            .with(Field::Status, Value::text(status));
        let line = |part| {
            let fields = Fields::new().with(Field::Quantity, Value::Int(3));
            (part, Part::live(revision(4), fields))
        };
        Record {
            key: cart(name),
            header: Header {
                revision: revision(2),
                cleared: revision(1),
                content: Content::Live(fields),
            },
            parts: part.map(line).into_iter().collect(),
        }
    }

    /// The guest's cart, named as the guest's first one is.
    fn guests(status: &str, merges: bool) -> Record {
        let owner = (Field::SessionId, "s-9");
        let mut guests = record("guest", owner, status, Some(PartKey::line("mug")));
        if merges && let Content::Live(fields) = &mut guests.header.content {
            *fields = fields
                .clone()
                .with(Field::MergesInto, Value::text("cart-user"));
        }
        guests
    }

    fn users(contributed: bool) -> Record {
        let part = contributed.then(|| PartKey::contribution("mug", "cart-guest"));
        record("user", (Field::UserId, "dan"), "active", part)
    }

    fn found(standing: Vec<Record>, more: Option<Wish>) -> usize {
        let mut story = Story::begin();
        let told = Told::Cart {
            made: Some(Made::Now),
            cart: Cart::restore(header_of_guest(), []).unwrap(),
        };
        let owner = CartOwner::Guest(noun("s-9"));
        story.visits(Wish::OpenCart { owner }, told.clone());
        let merge = Wish::SignIn {
            guest: noun("s-9"),
            user: noun("dan"),
        };
        let end = MergeEnd::Merged;
        story.visits(merge, Told::Merged { end });
        if let Some(wish) = more {
            story.visits(wish, told.clone());
        }
        story.history.standing = standing;
        check(&story.history).len()
    }

    fn header_of_guest() -> model::CartHeader {
        let now = engine_api::Timestamp::from_unix_micros(0);
        model::CartHeader {
            id: noun("cart-guest"),
            owner: CartOwner::Guest(noun("s-9")),
            status: model::CartStatus::Active,
            created_at: now,
            closed_at: None,
            expires_at: Some(now),
            merges_into: None,
            merged: BTreeMap::new(),
            merged_floor: None,
        }
    }

    #[test]
    fn what_the_guest_had_is_in_the_users_cart() {
        let put = Wish::PutItem {
            cart: noun("cart-user"),
            product: noun("mug"),
            pieces: 9,
        };
        assert_eq!(found(vec![guests("abandoned", true), users(true)], None), 0);
        assert_eq!(
            found(vec![guests("abandoned", true), users(false)], None),
            1
        );
        assert_eq!(
            found(vec![guests("abandoned", true), users(false)], Some(put)),
            0
        );
        assert_eq!(found(vec![guests("active", false), users(false)], None), 1);
        assert_eq!(
            found(vec![guests("abandoned", false), users(true)], None),
            1
        );
        assert_eq!(found(vec![users(true)], None), 1, "from nowhere");
    }

    #[test]
    fn a_contribution_that_comes_twice_is_found() {
        let mut story = Story::begin();
        let first = users(true);
        let mut second = first.clone();
        for part in second.parts.values_mut() {
            part.revision = revision(8);
        }
        let change = |after: &Record| -> Change { create(&after.key, Fields::new(), vec![]) };
        let context = router_context(revision(4), 1);
        story.applies(change(&first), context.clone(), None, Some(first.clone()));
        let moved = Some(first.clone());
        story.applies(change(&first), context.clone(), None, moved);
        assert!(contributed_twice(&story.history).is_empty());
        story.applies(change(&second), context, Some(first), Some(second));
        assert_eq!(contributed_twice(&story.history).len(), 1);
    }
}
