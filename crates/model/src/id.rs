//! Ids: opaque text of 1 to 64 bytes without control characters.
//!
//! Two of them can be computed instead of drawn, so that requests which race, or
//! come again, meet at the same key and `create_if_absent` decides between them.

use crate::cart::CartOwner;
use crate::digest::FieldDigest;
use crate::text::{TextError, text_newtype};

pub const ID_BYTES_MAX: usize = 64;

pub type IdError = TextError;

text_newtype!(
    /// A signed-in shopper.
    UserId, "user id", 1..=ID_BYTES_MAX
);
text_newtype!(ShopperSessionId, "shopper session id", 1..=ID_BYTES_MAX);
text_newtype!(CartId, "cart id", 1..=ID_BYTES_MAX);
text_newtype!(OrderId, "order id", 1..=ID_BYTES_MAX);
text_newtype!(ProductId, "product id", 1..=ID_BYTES_MAX);
text_newtype!(CategoryName, "category name", 1..=ID_BYTES_MAX);
text_newtype!(
    /// A geo-zone: where stock lies and where an order goes.
    ZoneName, "zone name", 1..=ID_BYTES_MAX
);
text_newtype!(
    /// What a client calls one intended order, however often it has to send it.
    IdempotencyKey, "idempotency key", 1..=ID_BYTES_MAX
);

impl OrderId {
    /// The order id that belongs to one request of one user (W10). A user chooses the
    /// key, so the reader of an existing order lets `Order::judge_repeat` compare
    /// user and key before it takes the order for its own.
    pub fn derived(user: &UserId, key: &IdempotencyKey) -> Self {
        let digest = FieldDigest::of("order")
            .text(user.as_str())
            .text(key.as_str())
            .finish();
        Self(format!("o-{digest:032x}").into())
    }
}

impl CartId {
    /// The `ordinal`-th cart of an owner (C1): two requests that open it at once make
    /// the same id, and only one creates it.
    pub fn of_owner(owner: &CartOwner, ordinal: u64) -> Self {
        let (kind, id) = match owner {
            CartOwner::Guest(session) => ("guest", session.as_str()),
            CartOwner::User(user) => ("user", user.as_str()),
        };
        let digest = FieldDigest::of("cart")
            .text(kind)
            .text(id)
            .number(ordinal)
            .finish();
        Self(format!("c-{digest:032x}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn derived(user: &str, key: &str) -> OrderId {
        OrderId::derived(
            &UserId::parse(user).unwrap(),
            &IdempotencyKey::parse(key).unwrap(),
        )
    }

    /// Stored orders are found by these ids: a change of the hash loses them.
    #[test]
    fn derived_ids_stay_what_they_were() {
        assert_eq!(
            derived("USER-98765", "key-1").as_str(),
            "o-e3ad9d6cfb4ec866b854a9d65541d43d"
        );
        let owner = CartOwner::User(UserId::parse("USER-98765").unwrap());
        assert_eq!(
            CartId::of_owner(&owner, 1).as_str(),
            "c-0c42ea19474ec53ce8e66db6fbd66137"
        );
    }

    #[test]
    fn a_guest_and_a_user_of_the_same_name_have_different_carts() {
        let guest = CartOwner::Guest(ShopperSessionId::parse("x").unwrap());
        let user = CartOwner::User(UserId::parse("x").unwrap());
        assert_ne!(CartId::of_owner(&guest, 1), CartId::of_owner(&user, 1));
        assert_ne!(CartId::of_owner(&user, 1), CartId::of_owner(&user, 2));
    }

    proptest! {
        #[test]
        fn a_text_is_an_id_exactly_when_it_fits(text in any::<String>()) {
            let fits = (1..=ID_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
            match ProductId::parse(&text) {
                Ok(id) => { prop_assert!(fits); prop_assert_eq!(id.as_str(), text.as_str()); }
                Err(_) => prop_assert!(!fits),
            }
        }

        #[test]
        fn the_same_characters_cut_elsewhere_are_another_order(
            text in "[a-z]{3,40}", first in any::<prop::sample::Index>(), second in any::<prop::sample::Index>(),
        ) {
            let (first, second) = (1 + first.index(text.len() - 1), 1 + second.index(text.len() - 1));
            let one = derived(&text[..first], &text[first..]);
            let other = derived(&text[..second], &text[second..]);
            prop_assert_eq!(one == other, first == second);
            prop_assert_eq!(OrderId::parse(one.as_str()), Ok(one));
        }
    }
}
