//! `judge keys`: one idempotency key, many requests at once: one order, one answer.

use std::net::SocketAddr;

use crate::catalogue::{self, Product, ZONES};
use crate::client::Client;
use crate::together::{self, Placed};
use crate::verdict::Verdict;
use crate::wire::{LineWish, Order, OrderPage, OrderWish};

const PIECES: u64 = 1_000;
const QUANTITY: u64 = 2;

pub async fn run(address: SocketAddr, requests: u32) -> anyhow::Result<Verdict> {
    let run = together::run_name();
    let product = Product::numbered(&format!("keys-{run}"), 0, PIECES);
    let mut client = Client::new(address);
    catalogue::put(&mut client, std::slice::from_ref(&product)).await?;
    let mut verdict = Verdict::default();
    let key = format!("key-{run}");
    let wish = wish(&product, &format!("{run}-one"), QUANTITY);

    let same: Vec<_> = (0..requests).map(|_| (key.clone(), wish.clone())).collect();
    let placed = together::order(address, &same).await?;
    judge_same(&placed, &mut verdict)?;

    let mut other = wish.clone();
    other.lines[0].quantity += 1;
    match &together::order(address, &[(key.clone(), other)]).await?[..] {
        [Placed::Refused { status: 422, code }] if code == "idempotency-key-reused" => {}
        answers => verdict.wrong(format!(
            "the key with another body: {answers:?}, not 422 idempotency-key-reused"
        )),
    }
    judge_one_order(&mut client, &wish.user_id, &mut verdict).await?;
    judge_sold(&mut client, &product, QUANTITY, &mut verdict).await?;

    // A key is one user's own: another user may choose the same.
    let neighbour = self::wish(&product, &format!("{run}-two"), QUANTITY);
    match &together::order(address, &[(key, neighbour)]).await?[..] {
        [Placed::Answered(answer)] if answer.status == 201 => {}
        answers => verdict.wrong(format!("the key of another user: {answers:?}, not 201")),
    }
    judge_sold(&mut client, &product, 2 * QUANTITY, &mut verdict).await?;
    println!("keys: {requests} requests at once under one key");
    Ok(verdict)
}

fn wish(product: &Product, user: &str, quantity: u64) -> OrderWish {
    OrderWish {
        user_id: user.to_owned(),
        lines: vec![LineWish {
            product_id: product.id.clone(),
            quantity,
            price: product.price,
        }],
        geo_zone: ZONES[0].to_owned(),
        address: "Key street".into(),
        payment_method: "card".into(),
        cart_id: None,
    }
}

/// One made the order, the others were told of it.
fn judge_same(placed: &[Placed], verdict: &mut Verdict) -> anyhow::Result<()> {
    let mut first: Option<Order> = None;
    let mut made = 0;
    for placed in placed {
        let answer = match placed {
            Placed::Answered(answer) => answer,
            Placed::Refused { status, code } => {
                verdict.wrong(format!("the same request was refused with {status} {code}"));
                continue;
            }
        };
        match (answer.status, answer.replayed) {
            (201, false) => made += 1,
            (200, true) => {}
            (status, replayed) => verdict.wrong(format!(
                "the same request was answered {status}, Idempotent-Replay: {replayed}"
            )),
        }
        let order: Order = answer.parse()?;
        match &first {
            None => first = Some(order),
            Some(first) if first.order_id != order.order_id => verdict.doubled(format!(
                "one key made orders {} and {}",
                first.order_id, order.order_id
            )),
            Some(first) if *first != order => {
                verdict.wrong(format!("the same request got {order:?} after {first:?}"));
            }
            Some(_) => {}
        }
    }
    // None of them if the first answer was lost and its request sent again.
    if made > 1 {
        verdict.doubled(format!(
            "{made} requests of one key were told that they made the order"
        ));
    }
    Ok(())
}

async fn judge_one_order(
    client: &mut Client,
    user: &str,
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    let path = format!("/v1/users/{user}/orders");
    let page: OrderPage = client.get(&path).await.done("reading a history")?.parse()?;
    match page.orders.len() {
        1 => {}
        0 => verdict.lost(format!("the order is not in the history of {user}")),
        orders => verdict.doubled(format!("{orders} orders are in the history of {user}")),
    }
    Ok(())
}

async fn judge_sold(
    client: &mut Client,
    product: &Product,
    pieces: u64,
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    let stock = catalogue::stock(client, &product.id).await?;
    catalogue::judge_identity(product, &stock, verdict);
    if let Some(stock) = stock.get(ZONES[0])
        && stock.sold + stock.reserved != pieces
    {
        verdict.wrong(format!(
            "{} sold + {} reserved, ordered were {pieces}",
            stock.sold, stock.reserved
        ));
    }
    Ok(())
}
