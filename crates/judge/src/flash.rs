//! `judge flash`: many buyers at once on one product with few pieces. As many are sold as there are, to the last.

use std::net::SocketAddr;

use serde_json::json;

use crate::catalogue::{self, Product, ZONES};
use crate::client::{Client, Reply};
use crate::together::{self, Placed};
use crate::verdict::Verdict;
use crate::wire::{LineWish, Order, OrderWish, ZoneStock};

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub buyers: u64,
    pub pieces: u64,
    /// So many orders are cancelled when all is sold, and their pieces are fought for again.
    pub cancelled: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            buyers: 200,
            pieces: 50,
            cancelled: 10,
        }
    }
}

pub async fn run(address: SocketAddr, plan: Plan) -> anyhow::Result<Verdict> {
    let run = together::run_name();
    let product = Product::numbered(&format!("flash-{run}"), 0, plan.pieces);
    let mut client = Client::new(address);
    catalogue::put(&mut client, std::slice::from_ref(&product)).await?;
    let mut verdict = Verdict::default();

    let first = rush(
        address,
        &product,
        &format!("{run}-first"),
        plan.buyers,
        &mut verdict,
    )
    .await?;
    judge_sold(
        &mut client,
        &product,
        "the first rush",
        &first,
        plan.pieces,
        &mut verdict,
    )
    .await?;

    let mut kept = first;
    for order in kept.drain(..kept.len().min(plan.cancelled as usize)) {
        let path = format!("/v1/orders/{}/status", order.order_id);
        client
            .post(&path, &json!({"status": "cancelled"}))
            .await
            .done("cancelling")?;
    }
    let second = rush(
        address,
        &product,
        &format!("{run}-second"),
        plan.buyers,
        &mut verdict,
    )
    .await?;
    if second.len() as u64 != plan.cancelled {
        verdict.wrong(format!(
            "{} pieces came back and {} were sold to {} buyers",
            plan.cancelled,
            second.len(),
            plan.buyers
        ));
    }
    kept.extend(second);
    judge_sold(
        &mut client,
        &product,
        "the second rush",
        &kept,
        plan.pieces,
        &mut verdict,
    )
    .await?;
    judge_kept(&mut client, &kept, &mut verdict).await?;
    println!(
        "flash: {} buyers twice, {} pieces, {} orders",
        plan.buyers,
        plan.pieces,
        kept.len()
    );
    Ok(verdict)
}

/// One piece each, all at once.
async fn rush(
    address: SocketAddr,
    product: &Product,
    name: &str,
    buyers: u64,
    verdict: &mut Verdict,
) -> anyhow::Result<Vec<Order>> {
    let orders: Vec<_> = (0..buyers)
        .map(|buyer| {
            let wish = OrderWish {
                user_id: format!("buyer-{name}-{buyer}"),
                lines: vec![LineWish {
                    product_id: product.id.clone(),
                    quantity: 1,
                    price: product.price,
                }],
                geo_zone: ZONES[0].to_owned(),
                address: "Flash street".into(),
                payment_method: "card".into(),
                cart_id: None,
            };
            (format!("{name}-{buyer}"), wish)
        })
        .collect();
    let mut sold = Vec::new();
    for placed in together::order(address, &orders).await? {
        match placed {
            Placed::Answered(answer) => sold.push(answer.parse()?),
            Placed::Refused { code, .. } if code == "sold-out" => {}
            Placed::Refused { status, code } => {
                verdict.wrong(format!("a buyer was refused with {status} {code}"))
            }
        }
    }
    Ok(sold)
}

/// More buyers than pieces: any piece left is a buyer falsely sent away, any order more is one without stock.
async fn judge_sold(
    client: &mut Client,
    product: &Product,
    when: &str,
    orders: &[Order],
    pieces: u64,
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    let count = orders.len() as u64;
    if count > pieces {
        verdict.doubled(format!(
            "after {when} {count} orders were acknowledged for {pieces} pieces"
        ));
    } else if count < pieces {
        verdict.wrong(format!(
            "after {when} {count} of {pieces} pieces are sold, though buyers were sent away"
        ));
    }
    let stock = catalogue::stock(client, &product.id).await?;
    catalogue::judge_identity(product, &stock, verdict);
    if let Some(ZoneStock { sold, reserved, .. }) = stock.get(ZONES[0])
        && sold + reserved != count
    {
        verdict.wrong(format!(
            "after {when} {count} orders, but {sold} sold + {reserved} reserved"
        ));
    }
    Ok(())
}

async fn judge_kept(
    client: &mut Client,
    orders: &[Order],
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    for order in orders {
        if let Reply::Refused { status, code } =
            client.get(&format!("/v1/orders/{}", order.order_id)).await
        {
            verdict.lost(format!("order {} answers {status} {code}", order.order_id));
        }
    }
    Ok(())
}
