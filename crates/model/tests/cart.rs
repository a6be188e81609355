//! Carts as a shopper meets them: lines, limits, and the merge at sign-in.

#![allow(clippy::unwrap_used)]

use model::{
    Attributes, CART_BYTES_MAX, Cart, CartError, CartLine, CartOwner, CartPart, CartStatus,
    CategoryName, GUEST_CARTS_REMEMBERED_MAX, GuestCart, Image, LINES_MAX, Lifetime, MergeOutcome,
    Money, ProductId, ProductName, QUANTITY_MAX, Quantity, Removal, SessionDetails, ShopperSession,
    ShopperSessionId, Timestamp, UserId,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn at(second: i64) -> Timestamp {
    Timestamp::from_unix_micros(second * 1_000_000)
}

fn session(name: &str) -> ShopperSession {
    let details = SessionDetails {
        id: ShopperSessionId::parse(name).unwrap(),
        user: None,
        ip_address: None,
        user_agent: None,
        device_type: None,
        geo_zone: None,
        attributes: Attributes::default(),
    };
    ShopperSession::open(details, Lifetime::from_seconds(86_400).unwrap(), at(0))
}

fn product(number: u32) -> ProductId {
    ProductId::parse(&format!("p-{number}")).unwrap()
}

fn line(number: u32, quantity: u32, cents: u32) -> CartLine {
    CartLine {
        product: product(number),
        category: CategoryName::parse("phones").unwrap(),
        quantity: Quantity::new(quantity).unwrap(),
        name: ProductName::parse(&format!("Phone for {cents}")).unwrap(),
        price: Money::parse(&format!("{}.{:02}", cents / 100, cents % 100)).unwrap(),
        image: None,
        changed_at: at(i64::from(cents)),
    }
}

type Lines = BTreeMap<u32, (u32, u32)>;

fn user_cart(lines: &Lines) -> Cart {
    let mut cart = Cart::for_user(&UserId::parse("ann").unwrap(), 1, at(0));
    put_all(&mut cart, lines);
    cart
}

fn guest_cart(name: &str, target: &Cart, lines: &Lines) -> Cart {
    let week = Lifetime::from_seconds(7 * 86_400).unwrap();
    let mut cart = Cart::for_guest(&session(name), 1, week, at(0));
    put_all(&mut cart, lines);
    cart.abandon_into(target.id(), at(10)).unwrap();
    cart
}

fn put_all(cart: &mut Cart, lines: &Lines) {
    for (number, (quantity, cents)) in lines {
        cart.put_line(line(*number, *quantity, *cents)).unwrap();
    }
}

fn merge(cart: &mut Cart, guest: &Cart) -> Result<MergeOutcome, CartError> {
    cart.merge_guest(&GuestCart::closed(guest).unwrap())
}

fn shown(cart: &Cart) -> BTreeMap<ProductId, u64> {
    cart.lines()
        .map(|shown| (shown.line.product.clone(), shown.pieces))
        .collect()
}

fn lines() -> impl Strategy<Value = Lines> {
    prop::collection::btree_map(0..12_u32, (1..=4_000_u32, 0..100_000_u32), 0..8)
}

proptest! {
    #[test]
    fn merging_is_idempotent_adds_up_and_does_not_depend_on_the_order(
        own in lines(), first in lines(), second in lines(),
    ) {
        let start = user_cart(&own);
        let first_guest = guest_cart("s-1", &start, &first);
        let second_guest = guest_cart("s-2", &start, &second);
        let mut one = start.clone();
        let one_results = [merge(&mut one, &first_guest), merge(&mut one, &second_guest)];
        let mut other = start.clone();
        let other_results = [merge(&mut other, &second_guest), merge(&mut other, &first_guest)];

        let all_fit = one_results.iter().all(Result::is_ok);
        prop_assert_eq!(all_fit, other_results.iter().all(Result::is_ok));
        if all_fit {
            prop_assert_eq!(&one, &other);
            let mut expected = BTreeMap::new();
            for (number, (quantity, _)) in own.iter().chain(&first).chain(&second) {
                *expected.entry(product(*number)).or_insert(0) += u64::from(*quantity);
            }
            prop_assert_eq!(shown(&one), expected);
            let merged = one.clone();
            prop_assert_eq!(merge(&mut one, &first_guest), Ok(MergeOutcome::AlreadyMerged));
            prop_assert_eq!(merge(&mut one, &second_guest), Ok(MergeOutcome::AlreadyMerged));
            prop_assert_eq!(one, merged);
        }
    }

    #[test]
    fn a_refused_merge_changes_nothing(own in lines(), extra in 1..=QUANTITY_MAX) {
        let mut cart = user_cart(&own);
        cart.put_line(line(50, QUANTITY_MAX, 1)).unwrap();
        let guest = guest_cart("s-1", &cart, &Lines::from([(50, (extra, 1)), (51, (1, 1))]));
        let before = cart.clone();
        let refused = matches!(merge(&mut cart, &guest), Err(CartError::LineQuantity { .. }));
        prop_assert!(refused);
        prop_assert_eq!(&cart, &before);
        cart.remove_line(&product(50)).unwrap();
        prop_assert_eq!(merge(&mut cart, &guest), Ok(MergeOutcome::Merged));
    }

    #[test]
    fn totals_are_exact(own in lines()) {
        let cents: u64 = own.values().map(|(quantity, cents)| u64::from(*quantity) * u64::from(*cents)).sum();
        let expected = Money::parse(&format!("{}.{:02}", cents / 100, cents % 100)).unwrap();
        prop_assert_eq!(user_cart(&own).total(), Ok(expected));
    }

    #[test]
    fn a_cart_comes_back_from_its_header_and_parts(own in lines(), guest in lines()) {
        let mut cart = user_cart(&own);
        let guest = guest_cart("s-1", &cart, &guest);
        let _ = merge(&mut cart, &guest);
        for cart in [cart, guest] {
            let restored = Cart::restore(cart.header().clone(), cart.parts());
            prop_assert_eq!(restored, Ok(cart));
        }
    }
}

#[test]
fn what_the_shopper_changed_after_a_merge_is_not_undone_by_its_retry() {
    let mut cart = user_cart(&Lines::from([(1, (2, 100))]));
    let guest = guest_cart("s-1", &cart, &Lines::from([(1, (3, 90)), (2, (1, 50))]));
    merge(&mut cart, &guest).unwrap();
    assert_eq!(
        shown(&cart),
        BTreeMap::from([(product(1), 5), (product(2), 1)])
    );
    assert_eq!(cart.total(), Money::parse("5.50"));

    cart.put_line(line(1, 4, 100)).unwrap();
    assert_eq!(cart.remove_line(&product(2)), Ok(Removal::Removed));
    assert_eq!(cart.remove_line(&product(2)), Ok(Removal::NothingThere));
    assert_eq!(merge(&mut cart, &guest), Ok(MergeOutcome::AlreadyMerged));
    assert_eq!(shown(&cart), BTreeMap::from([(product(1), 4)]));

    cart.mark_ordered(at(20)).unwrap();
    assert_eq!(merge(&mut cart, &guest), Ok(MergeOutcome::AlreadyMerged));
}

/// All carts of the guest have expired, and the numbers start again.
#[test]
fn a_later_guest_cart_of_the_same_id_adds_to_what_the_first_one_brought() {
    let mut cart = user_cart(&Lines::from([(1, (1, 100))]));
    let first = guest_cart("s-1", &cart, &Lines::from([(1, (2, 100))]));
    assert_eq!(merge(&mut cart, &first), Ok(MergeOutcome::Merged));
    let week = Lifetime::from_seconds(7 * 86_400).unwrap();
    let mut second = Cart::for_guest(&session("s-1"), 1, week, at(20));
    put_all(&mut second, &Lines::from([(1, (3, 100)), (2, (4, 100))]));
    second.abandon_into(cart.id(), at(30)).unwrap();
    assert_eq!(second.id(), first.id());
    for expected in [MergeOutcome::Merged, MergeOutcome::AlreadyMerged] {
        assert_eq!(merge(&mut cart, &second), Ok(expected));
        let pieces = BTreeMap::from([(product(1), 6), (product(2), 4)]);
        assert_eq!(shown(&cart), pieces);
    }
}

#[test]
fn a_guest_cart_goes_into_one_cart_only_and_only_when_closed() {
    let ann = user_cart(&Lines::new());
    let mut bob = Cart::for_user(&UserId::parse("bob").unwrap(), 1, at(0));
    let mut guest = guest_cart("s-1", &ann, &Lines::from([(1, (1, 100))]));
    assert_eq!(guest.abandon_into(ann.id(), at(99)), Ok(()));
    assert_eq!(guest.header().closed_at, Some(at(10)));
    let elsewhere = CartError::OtherTarget {
        cart: guest.id().clone(),
        target: ann.id().clone(),
    };
    assert_eq!(guest.abandon_into(bob.id(), at(11)), Err(elsewhere.clone()));
    assert_eq!(merge(&mut bob, &guest), Err(elsewhere));

    let open = Cart::for_guest(
        &session("s-2"),
        1,
        Lifetime::from_seconds(60).unwrap(),
        at(0),
    );
    assert!(matches!(
        GuestCart::closed(&open),
        Err(CartError::NotClosedForMerge { .. })
    ));
    assert!(matches!(
        GuestCart::closed(&ann),
        Err(CartError::NotAGuestCart { .. })
    ));
}

#[test]
fn forgotten_guest_carts_are_not_merged_again() {
    let mut cart = user_cart(&Lines::new());
    let guests: Vec<Cart> = (0..=GUEST_CARTS_REMEMBERED_MAX)
        .map(|number| {
            let week = Lifetime::from_seconds(7 * 86_400).unwrap();
            let mut guest = Cart::for_guest(&session(&format!("s-{number}")), 1, week, at(0));
            guest.put_line(line(1, 1, 100)).unwrap();
            guest
                .abandon_into(cart.id(), at(i64::try_from(number).unwrap()))
                .unwrap();
            guest
        })
        .collect();
    for guest in &guests {
        assert_eq!(merge(&mut cart, guest), Ok(MergeOutcome::Merged));
    }
    let before = cart.clone();
    assert_eq!(
        merge(&mut cart, &guests[0]),
        Ok(MergeOutcome::BelowFloor { floor: at(0) })
    );
    assert_eq!(
        merge(&mut cart, &guests[1]),
        Ok(MergeOutcome::AlreadyMerged)
    );
    assert_eq!(cart, before);
}

#[test]
fn a_cart_past_its_limits_is_refused_but_can_be_read_and_emptied() {
    let mut cart = user_cart(&Lines::new());
    for number in 0..u32::try_from(LINES_MAX).unwrap() {
        cart.put_line(line(number, 1, 100)).unwrap();
    }
    let lines = LINES_MAX + 1;
    assert_eq!(
        cart.put_line(line(100, 1, 100)),
        Err(CartError::TooManyLines { lines })
    );
    cart.put_line(line(99, 7, 100)).unwrap();

    let raced = cart.parts().chain([CartPart::Own(line(100, 1, 100))]);
    let mut too_large = Cart::restore(cart.header().clone(), raced).unwrap();
    assert_eq!(too_large.lines().count(), lines);
    too_large.put_line(line(100, 2, 100)).unwrap();
    too_large.remove_line(&product(0)).unwrap();

    let mut pictures = user_cart(&Lines::new());
    let refusal = (0..100).find_map(|number| {
        let mut line = line(number, 1, 100);
        line.image = Some(Image::parse(&"i".repeat(512)).unwrap());
        pictures.put_line(line).err()
    });
    assert!(matches!(refusal, Some(CartError::TooManyBytes { .. })));
    assert!(pictures.bytes() <= CART_BYTES_MAX);
}

#[test]
fn a_closed_cart_takes_no_changes_and_a_guest_cart_ends_with_its_session() {
    for next in [
        CartStatus::Active,
        CartStatus::Ordered,
        CartStatus::Abandoned,
    ] {
        let legal = next != CartStatus::Active;
        assert_eq!(CartStatus::Active.change_to(next).is_ok(), legal);
        assert!(CartStatus::Ordered.change_to(next).is_err());
        assert!(CartStatus::Abandoned.change_to(next).is_err());
    }
    let month = Lifetime::from_seconds(30 * 86_400).unwrap();
    let mut guest = Cart::for_guest(&session("s-1"), 1, month, at(0));
    assert!(!guest.is_expired(at(86_399)));
    assert!(guest.is_expired(at(86_400)));
    guest.abandon(at(5)).unwrap();
    let status = CartStatus::Abandoned;
    assert_eq!(
        guest.put_line(line(1, 1, 1)),
        Err(CartError::NotActive { status })
    );
    assert_eq!(
        guest.remove_line(&product(1)),
        Err(CartError::NotActive { status })
    );
}

#[test]
fn a_stored_header_that_contradicts_itself_is_refused() {
    let header = user_cart(&Lines::new()).header().clone();
    let mut guest_without_end = header.clone();
    guest_without_end.owner = CartOwner::Guest(ShopperSessionId::parse("s").unwrap());
    let mut closed_without_time = header;
    closed_without_time.status = CartStatus::Ordered;
    for header in [guest_without_end, closed_without_time] {
        let restored = Cart::restore(header, []);
        assert!(matches!(restored, Err(CartError::Contradiction { .. })));
    }
}
