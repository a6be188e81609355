//! Carts of visitors: one active cart for each owner at any moment, closed is
//! final, and every item is there until it is replaced or removed.

use std::collections::{BTreeMap, BTreeSet};

use engine_api::{Authority, Record, Revision};
use layout::{Collection, Field, PartKind, Value};
use model::{CartPart, CartStatus};

use super::registers::{Read, Write, judge};
use crate::ledger::{Told, Wish};
use crate::recording::{History, Moment};
use crate::scenery::VISITORS_USERS;

pub fn check(history: &History) -> Vec<String> {
    let mut breaches = two_active(history);
    breaches.extend(reopened(history));
    breaches.extend(items(history));
    breaches.extend(ends(history));
    breaches
}

/// A visitors' cart as a record shows it.
pub(super) struct CartShown<'a> {
    pub id: &'a str,
    pub owner: &'a str,
    pub status: &'a str,
    pub merges_into: Option<&'a str>,
    /// Pieces by product, put by the owner.
    pub own: BTreeMap<&'a str, i64>,
    /// Pieces by product and guest cart.
    pub contributions: BTreeMap<(&'a str, &'a str), i64>,
}

pub(super) fn shown(record: &Record) -> Option<CartShown<'_>> {
    (record.key.collection == Collection::Carts).then_some(())?;
    let header = record.header.content.live()?;
    let session = header.text(Field::SessionId);
    let user = header
        .text(Field::UserId)
        .filter(|user| VISITORS_USERS.contains(user));
    let mut cart = CartShown {
        id: record.key.id.as_str(),
        owner: session.or(user)?,
        status: header.text(Field::Status)?,
        merges_into: header.text(Field::MergesInto),
        own: BTreeMap::new(),
        contributions: BTreeMap::new(),
    };
    for (key, fields) in record.live_parts() {
        let pieces = fields.get(Field::Quantity).and_then(Value::as_int);
        match (key.kind(), key.path(), pieces) {
            (PartKind::Line, [product], Some(pieces)) => {
                cart.own.insert(product, pieces);
            }
            (PartKind::Contribution, [product, guest], Some(pieces)) => {
                cart.contributions.insert((product, guest), pieces);
            }
            _ => {}
        }
    }
    Some(cart)
}

/// Looks at every moment: the newest header of each cart says whether it is active.
fn two_active(history: &History) -> Vec<String> {
    let mut newest: BTreeMap<String, (Revision, String, bool)> = BTreeMap::new();
    let mut breaches = Vec::new();
    for applied in &history.applied {
        let images = applied
            .images
            .iter()
            .filter_map(|(_, after)| after.as_ref());
        for image in images {
            let Some(cart) = shown(image) else { continue };
            let revision = image.header.revision;
            if newest.get(cart.id).is_some_and(|known| known.0 >= revision) {
                continue;
            }
            let active = cart.status == "active";
            newest.insert(
                cart.id.to_owned(),
                (revision, cart.owner.to_owned(), active),
            );
            let mut others = newest.iter().filter(|(id, (_, owner, active))| {
                *active && *owner == cart.owner && id.as_str() != cart.id
            });
            if let (true, Some((other, _))) = (active, others.next()) {
                breaches.push(format!(
                    "{} has two active carts at {}: {} and {other}",
                    cart.owner, applied.moment.0, cart.id
                ));
            }
        }
    }
    breaches
}

fn reopened(history: &History) -> Vec<String> {
    let by_routers = history
        .applied
        .iter()
        .filter(|applied| matches!(applied.context.authority, Authority::Router { .. }));
    let mut breaches = Vec::new();
    for (before, after) in by_routers.flat_map(|applied| &applied.images) {
        let before = before.as_ref().and_then(shown);
        let after = after.as_ref().and_then(shown);
        if let (Some(before), Some(after)) = (before, after)
            && before.status != after.status
            && before.status != "active"
        {
            breaches.push(format!(
                "{} was {} and became {}",
                before.id, before.status, after.status
            ));
        }
    }
    breaches
}

/// The owner's own line of each product is a register, and every put has a
/// quantity of its own.
fn items(history: &History) -> Vec<String> {
    let mut writes: BTreeMap<(&str, &str), Vec<Write<i64>>> = BTreeMap::new();
    for deed in &history.deeds {
        let (cart, product, value) = match &deed.wish {
            Wish::PutItem {
                cart,
                product,
                pieces,
            } => (cart, product, Some(i64::from(*pieces))),
            Wish::RemoveItem { cart, product } => (cart, product, None),
            _ => continue,
        };
        let register = writes
            .entry((cart.as_str(), product.as_str()))
            .or_insert_with(|| vec![Write::nothing()]);
        register.push(Write {
            value,
            began: deed.invoked,
            happened: deed.ended.filter(|_| deed.is_acknowledged()),
            refused: deed.is_refused(),
        });
    }
    let mut breaches = Vec::new();
    let end = Moment(u64::MAX);
    let carts: BTreeMap<&str, CartShown<'_>> = history
        .standing
        .iter()
        .filter_map(shown)
        .map(|cart| (cart.id, cart))
        .collect();
    for ((cart, product), writes) in &writes {
        let own = carts.get(cart).and_then(|cart| cart.own.get(product));
        let mut reads = vec![Read {
            value: own.copied(),
            began: end,
            ended: end,
        }];
        reads.extend(answered(history, cart, product));
        let found = reads.iter().filter_map(|read| judge(read, writes));
        breaches.extend(found.map(|what| format!("{product} in {cart} {what}")));
    }
    let put: BTreeSet<(&str, &str)> = writes.keys().copied().collect();
    for cart in carts.values() {
        for product in cart.own.keys() {
            if !put.contains(&(cart.id, product)) {
                breaches.push(format!("nobody put {product} into {}", cart.id));
            }
        }
    }
    breaches
}

fn answered(history: &History, cart: &str, product: &str) -> Vec<Read<i64>> {
    let reads = history.deeds.iter().filter_map(|deed| {
        let (Wish::ReadCart { cart: of }, Told::Cart { cart: shown, .. }) =
            (&deed.wish, &deed.told)
        else {
            return None;
        };
        (of.as_str() == cart).then_some(())?;
        let own = shown.parts().find_map(|part| match part {
            CartPart::Own(line) if line.product.as_str() == product => {
                Some(i64::from(line.quantity.get()))
            }
            _ => None,
        });
        Some(Read {
            value: own,
            began: deed.invoked,
            ended: deed.ended?,
        })
    });
    reads.collect()
}

/// A cart that was told of is there, and ends as its visitors were told.
fn ends(history: &History) -> Vec<String> {
    let carts: BTreeMap<&str, CartShown<'_>> = history
        .standing
        .iter()
        .filter_map(shown)
        .map(|cart| (cart.id, cart))
        .collect();
    let mut breaches = Vec::new();
    for deed in &history.deeds {
        let (id, status) = match (&deed.wish, &deed.told) {
            (Wish::OpenCart { .. }, Told::Cart { cart, .. }) => (cart.id(), None),
            (Wish::CloseCart { cart, status }, Told::Cart { .. }) => (cart, Some(*status)),
            _ => continue,
        };
        let status = status.map(|status| match status {
            CartStatus::Active => "active",
            CartStatus::Ordered => "ordered",
            CartStatus::Abandoned => "abandoned",
        });
        match carts.get(id.as_str()) {
            None => breaches.push(format!("cart {id} was told of and is not there")),
            Some(cart) if status.is_some_and(|status| status != cart.status) => {
                breaches.push(format!(
                    "cart {id} was told to be {status:?} and is {}",
                    cart.status
                ));
            }
            Some(_) => {}
        }
    }
    // An order takes its cart along.
    for deed in &history.deeds {
        if let (Wish::PlaceOrder(wish), Told::Order { .. }) = (&deed.wish, &deed.told)
            && let Some(cart) = &wish.cart
            && carts
                .get(cart.as_str())
                .is_none_or(|cart| cart.status == "active")
        {
            breaches.push(format!("cart {cart} was ordered and is active"));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use engine_api::{Change, Content, Header, Part, PartKey};
    use layout::Fields;
    use model::{Cart, CartId};

    use super::*;
    use crate::checks::story::{Story, revision, router_context};
    use crate::scenery::{cart, create, noun};

    fn record(name: &str, number: i64, status: &str, mugs: Option<i64>) -> Record {
        let fields = Fields::new()
            .with(Field::UserId, Value::text("dan"))
            .with(Field::Status, Value::text(status));
        let line = |mugs| {
            let fields = Fields::new().with(Field::Quantity, Value::Int(mugs));
            (PartKey::line("mug"), Part::live(revision(number), fields))
        };
        Record {
            key: cart(name),
            header: Header {
                revision: revision(number),
                cleared: revision(1),
                content: Content::Live(fields),
            },
            parts: mugs.map(line).into_iter().collect(),
        }
    }

    fn applies(story: &mut Story, before: Option<Record>, after: Record) {
        let change: Change = create(&after.key, Fields::new(), vec![]);
        let context = router_context(after.header.revision, 1);
        story.applies(change, context, before, Some(after));
    }

    #[test]
    fn two_active_carts_of_one_owner_are_found() {
        let (first, second) = (
            record("x", 2, "active", None),
            record("y", 6, "active", None),
        );
        let closed = record("x", 4, "abandoned", None);
        let mut story = Story::begin();
        applies(&mut story, None, first.clone());
        applies(&mut story, Some(first.clone()), closed.clone());
        applies(&mut story, None, second.clone());
        assert_eq!(check(&story.history), Vec::<String>::new());
        applies(&mut story, Some(closed), record("x", 8, "active", None));
        assert_eq!(check(&story.history).len(), 2, "two active, and reopened");
        let mut story = Story::begin();
        applies(&mut story, None, first);
        applies(&mut story, None, second);
        assert_eq!(check(&story.history).len(), 1);
    }

    fn told() -> Told {
        let now = engine_api::Timestamp::from_unix_micros(0);
        Told::Cart {
            made: None,
            cart: Cart::for_user(&noun("dan"), 1, now),
        }
    }

    fn put(pieces: u32) -> Wish {
        Wish::PutItem {
            cart: noun("cart-x"),
            product: noun("mug"),
            pieces,
        }
    }

    #[test]
    fn an_item_is_there_until_it_is_replaced_or_removed() {
        let found = |mugs: Option<i64>, more: Option<Wish>| {
            let mut story = Story::begin();
            story.visits(put(1), told());
            story.visits(put(2), told());
            if let Some(wish) = more {
                story.visits(wish, told());
            }
            story.history.standing = vec![record("x", 2, "active", mugs)];
            check(&story.history).len()
        };
        let remove = || {
            Some(Wish::RemoveItem {
                cart: noun("cart-x"),
                product: noun("mug"),
            })
        };
        assert_eq!(found(Some(2), None), 0);
        assert_eq!(found(None, remove()), 0);
        assert_eq!(found(Some(1), None), 1, "replaced");
        assert_eq!(found(None, None), 1, "lost");
        assert_eq!(found(Some(3), None), 1, "nobody put 3");
        assert_eq!(found(Some(2), remove()), 1, "removed");
    }

    #[test]
    fn a_cart_ends_as_it_was_told() {
        let found = |status: &str| {
            let mut story = Story::begin();
            let wish = Wish::CloseCart {
                cart: noun::<CartId>("cart-x"),
                status: CartStatus::Abandoned,
            };
            story.visits(wish, told());
            story.history.standing = vec![record("x", 2, status, None)];
            check(&story.history).len()
        };
        assert_eq!(found("abandoned"), 0);
        assert_eq!(found("active"), 1);
        assert_eq!(found("ordered"), 1);
    }
}
