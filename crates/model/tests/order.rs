//! Orders: their total, their way through the statuses, and requests that come twice.

#![allow(clippy::unwrap_used)]

use model::{
    Address, AskedLine, AskedOrder, CategoryName, Fingerprint, IdempotencyKey, Money,
    ORDER_LINES_MAX, Order, OrderError, OrderId, OrderLine, OrderRequest, OrderStatus,
    PaymentMethod, ProductId, ProductName, Quantity, Repeat, RequestFields, StatusChange,
    StatusError, StockEffect, Timestamp, UserId, ZoneName,
};
use proptest::prelude::*;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_unix_micros(micros)
}

fn line(number: usize, quantity: u32, cents: u64) -> OrderLine {
    OrderLine {
        product: ProductId::parse(&format!("p-{number}")).unwrap(),
        category: CategoryName::parse("phones").unwrap(),
        name: ProductName::parse("Phone").unwrap(),
        quantity: Quantity::new(quantity).unwrap(),
        price: Money::parse(&format!("{}.{:02}", cents / 100, cents % 100)).unwrap(),
    }
}

fn fields(lines: Vec<OrderLine>) -> RequestFields {
    RequestFields {
        idempotency_key: IdempotencyKey::parse("key-1").unwrap(),
        lines,
        geo_zone: ZoneName::parse("north").unwrap(),
        address: Address::parse("1 Main Street").unwrap(),
        payment_method: PaymentMethod::parse("card").unwrap(),
    }
}

fn request(lines: Vec<OrderLine>) -> OrderRequest {
    OrderRequest::new(fields(lines)).unwrap()
}

fn asked(request: &OrderRequest) -> AskedOrder {
    let lines = request.lines().iter().rev().map(|line| AskedLine {
        product: line.product.clone(),
        quantity: line.quantity,
        price: line.price,
    });
    AskedOrder {
        idempotency_key: request.idempotency_key().clone(),
        lines: lines.collect(),
        geo_zone: request.geo_zone().clone(),
        address: request.address().clone(),
        payment_method: request.payment_method().clone(),
    }
}

fn ann() -> UserId {
    UserId::parse("ann").unwrap()
}

#[test]
fn exactly_the_drawn_changes_are_legal() {
    use OrderStatus::*;
    let legal = [
        (Pending, Created, StockEffect::Claim),
        (Pending, Aborted, StockEffect::GiveBack),
        (Created, Paid, StockEffect::None),
        (Created, Cancelled, StockEffect::GiveBack),
        (Paid, Shipped, StockEffect::None),
        (Paid, Cancelled, StockEffect::GiveBack),
        (Shipped, Delivered, StockEffect::None),
        (Delivered, Returned, StockEffect::GiveBack),
    ];
    for from in OrderStatus::ALL {
        for to in OrderStatus::ALL {
            let expected = legal.iter().find(|(f, t, _)| (*f, *t) == (from, to));
            match (StatusChange::new(from, to), expected) {
                (Ok(change), Some((_, _, effect))) => assert_eq!(change.stock_effect(), *effect),
                (Err(StatusError::Already { .. }), None) => assert_eq!(from, to),
                (Err(StatusError::Illegal { .. }), None) => assert_ne!(from, to),
                (result, _) => panic!("{from:?} to {to:?} gave {result:?}"),
            }
        }
    }
}

proptest! {
    /// Any walk claims at most once, gives back at most once, and rests where it ended.
    #[test]
    fn stock_is_given_back_exactly_when_an_order_ends_without_its_goods(
        wishes in prop::collection::vec(prop::sample::select(&OrderStatus::ALL[..]), 0..40),
    ) {
        let mut order = Order::pending(&ann(), request(vec![line(1, 1, 100)]), at(0));
        let (mut claims, mut gives) = (0, 0);
        for wish in wishes {
            let before = order.header().status;
            match order.change_status(wish, at(1)) {
                Ok(change) => {
                    prop_assert!(!before.is_terminal());
                    prop_assert_eq!(before.change_to(wish), Ok(order.header().status));
                    match change.stock_effect() {
                        StockEffect::Claim => claims += 1,
                        StockEffect::GiveBack => gives += 1,
                        StockEffect::None => {}
                    }
                }
                Err(_) => prop_assert_eq!(order.header().status, before),
            }
        }
        let status = order.header().status;
        let never_created = [OrderStatus::Pending, OrderStatus::Aborted];
        prop_assert_eq!(claims, i32::from(!never_created.contains(&status)));
        prop_assert_eq!(gives, i32::from(status.is_terminal()));
    }

    #[test]
    fn totals_are_exact_and_do_not_depend_on_the_order_of_lines(
        wanted in prop::collection::vec((1..=10_000_u32, 0..1_000_000_u64), 1..20),
    ) {
        let lines: Vec<OrderLine> = wanted.iter().enumerate().map(|(n, (q, c))| line(n, *q, *c)).collect();
        let mut turned = lines.clone();
        turned.reverse();
        let cents: u64 = wanted.iter().map(|(quantity, cents)| u64::from(*quantity) * cents).sum();
        let expected = Money::parse(&format!("{}.{:02}", cents / 100, cents % 100)).unwrap();
        let request = request(lines);
        prop_assert_eq!(request.total(), expected);
        let turned = OrderRequest::new(fields(turned)).unwrap();
        prop_assert_eq!(turned.fingerprint(), request.fingerprint());
        prop_assert_eq!(turned, request);
    }
}

#[test]
fn a_request_is_refused_with_the_reason() {
    fn check(lines: Vec<OrderLine>, part: &str) {
        let refusal = OrderRequest::new(fields(lines)).unwrap_err().to_string();
        assert!(refusal.contains(part), "{refusal}");
    }
    check(vec![], "no lines");
    check(
        (0..=ORDER_LINES_MAX).map(|n| line(n, 1, 1)).collect(),
        "at most 100",
    );
    check(
        vec![line(1, 1, 1), line(2, 1, 1), line(1, 2, 1)],
        "p-1 is in the order twice",
    );
    check(vec![line(1, 10_000, 100_000_000_000)], "too large");
}

#[test]
fn a_repeated_request_is_recognised_and_another_one_is_refused() {
    let first = request(vec![line(1, 1, 100)]);
    let order = Order::pending(&ann(), first.clone(), at(0));
    assert_eq!(
        order.header().id,
        OrderId::derived(&ann(), first.idempotency_key())
    );
    assert_eq!(order.judge_repeat(&ann(), &asked(&first)), Repeat::Same);
    let bob = UserId::parse("bob").unwrap();
    assert_eq!(order.judge_repeat(&bob, &asked(&first)), Repeat::OtherOrder);

    let mut key = fields(vec![line(1, 1, 100)]);
    key.idempotency_key = IdempotencyKey::parse("key-2").unwrap();
    let key = OrderRequest::new(key).unwrap();
    assert_eq!(order.judge_repeat(&ann(), &asked(&key)), Repeat::OtherOrder);
    assert_eq!(key.fingerprint(), first.fingerprint());

    let mut zone = fields(vec![line(1, 1, 100)]);
    zone.geo_zone = ZoneName::parse("south").unwrap();
    let others = [
        request(vec![line(1, 2, 100)]),
        request(vec![line(1, 1, 101)]),
        request(vec![line(1, 1, 100), line(2, 1, 100)]),
        OrderRequest::new(zone).unwrap(),
    ];
    for other in others {
        assert_eq!(
            order.judge_repeat(&ann(), &asked(&other)),
            Repeat::OtherRequest
        );
        assert_ne!(other.fingerprint(), first.fingerprint());
    }
    let text = first.fingerprint().to_string();
    assert_eq!(Fingerprint::parse(&text), Ok(first.fingerprint()));
    assert!(Fingerprint::parse(&text.to_uppercase().replace(char::is_numeric, "A")).is_err());
}

#[test]
fn an_order_aborted_before_it_arrived_stays_aborted() {
    let late = request(vec![line(1, 1, 100)]);
    let id = OrderId::derived(&ann(), late.idempotency_key());
    let mut order = Order::aborted_unseen(id, ann(), at(5));
    assert_eq!(
        order.judge_repeat(&ann(), &asked(&late)),
        Repeat::AbortedUnseen
    );
    assert_eq!((order.lines().len(), order.total()), (0, Money::ZERO));
    for next in OrderStatus::ALL {
        assert!(order.change_status(next, at(6)).is_err());
    }
}

#[test]
fn a_stored_order_without_its_request_is_refused_unless_aborted() {
    let order = Order::pending(&ann(), request(vec![line(1, 1, 100)]), at(0));
    let (header, request) = (order.header().clone(), order.request().cloned());
    let refused = Order::restore(header.clone(), None);
    assert!(matches!(refused, Err(OrderError::Contradiction { .. })));
    assert_eq!(Order::restore(header, request), Ok(order));
}
