//! `judge carts`: one cart and many requests at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use futures::future::try_join_all;
use serde_json::json;
use tokio::sync::Barrier;

use crate::catalogue::{self, Product};
use crate::client::Client;
use crate::together;
use crate::verdict::Verdict;
use crate::wire::{Cart, CartStatus, Login, MergeOutcome, Owner, Session};

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub creations: u32,
    pub changes: u32,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            creations: 2,
            changes: 50,
        }
    }
}

pub async fn run(address: SocketAddr, plan: Plan) -> anyhow::Result<Verdict> {
    let run = together::run_name();
    let products: Vec<_> = (0..plan.changes)
        .map(|number| Product::numbered(&format!("carts-{run}"), number, 10))
        .collect();
    catalogue::put(&mut Client::new(address), &products).await?;
    let mut verdict = Verdict::default();
    let user = format!("carts-{run}");
    let cart = created_at_once(address, &user, plan.creations, &mut verdict).await?;
    changed_at_once(address, &cart, &products, &mut verdict).await?;
    merged_twice(address, &run, &products, &mut verdict).await?;
    println!(
        "carts: {} creations at once, {} changes at once, a merge sent twice",
        plan.creations, plan.changes
    );
    Ok(verdict)
}

/// Whoever asks first, all get the same cart.
async fn created_at_once(
    address: SocketAddr,
    user: &str,
    creations: u32,
    verdict: &mut Verdict,
) -> anyhow::Result<String> {
    let start = Barrier::new(creations as usize);
    let creators = (0..creations).map(|_| async {
        let mut client = together::connected(address).await?;
        start.wait().await;
        let answer = client
            .post("/v1/carts", &json!({"user_id": user}))
            .await
            .done("opening a cart")?;
        anyhow::Ok((answer.status, answer.parse::<Cart>()?))
    });
    let made = try_join_all(creators).await?;
    let first = made[0].1.cart_id.clone();
    if made.iter().any(|(_, cart)| cart.cart_id != first) {
        let ids: Vec<_> = made.iter().map(|(_, cart)| &cart.cart_id).collect();
        verdict.doubled(format!("{user} got more than one cart: {ids:?}"));
    }
    let created = made.iter().filter(|(status, _)| *status == 201).count();
    if created != 1 {
        verdict.wrong(format!(
            "{created} of {creations} creations at once were answered 201"
        ));
    }
    Ok(first)
}

/// Changes of different items do not know of each other: all survive.
async fn changed_at_once(
    address: SocketAddr,
    cart_id: &str,
    products: &[Product],
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    let start = Barrier::new(products.len());
    let quantity = |index: usize| index as u64 % 7 + 1;
    let shoppers = products.iter().enumerate().map(|(index, product)| {
        let start = &start;
        async move {
            let mut client = together::connected(address).await?;
            start.wait().await;
            let path = format!("/v1/carts/{cart_id}/items/{}", product.id);
            let put = client
                .put(&path, &json!({"quantity": quantity(index)}))
                .await;
            put.done("putting an item")
        }
    });
    try_join_all(shoppers).await?;
    let wanted: BTreeMap<_, _> = products
        .iter()
        .enumerate()
        .map(|(index, product)| (product.id.clone(), quantity(index)))
        .collect();
    let path = format!("/v1/carts/{cart_id}");
    let shown: Cart = Client::new(address)
        .get(&path)
        .await
        .done("reading a cart")?
        .parse()?;
    judge_items("the changes at once", &shown, &wanted, verdict);
    Ok(())
}

/// A guest with a cart signs in, and the request comes again.
async fn merged_twice(
    address: SocketAddr,
    run: &str,
    products: &[Product],
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    let mut client = Client::new(address);
    let user = format!("merged-{run}");
    let session: Session = client
        .post("/v1/sessions", &json!({}))
        .await
        .done("opening a session")?
        .parse()?;
    let guest = Owner::SessionId(session.session_id.clone());
    let guest_cart = open(&mut client, &guest).await?;
    let user_cart = open(&mut client, &Owner::UserId(user.clone())).await?;
    let both = &products[0].id;
    let guests_own = &products[1].id;
    for (cart, product, quantity) in [
        (&guest_cart, both, 2),
        (&guest_cart, guests_own, 3),
        (&user_cart, both, 5),
    ] {
        let path = format!("/v1/carts/{}/items/{product}", cart.cart_id);
        client
            .put(&path, &json!({"quantity": quantity}))
            .await
            .done("putting an item")?;
    }
    let wanted = BTreeMap::from([(both.clone(), 7), (guests_own.clone(), 3)]);
    for (time, outcome) in [
        ("first", MergeOutcome::Merged),
        ("second", MergeOutcome::AlreadyMerged),
    ] {
        let body = json!({"user_id": user, "guest_session_id": session.session_id});
        let login: Login = client
            .post("/v1/login", &body)
            .await
            .done("signing in")?
            .parse()?;
        if login.merge.outcome != outcome {
            verdict.wrong(format!(
                "the {time} merge was {:?}, not {outcome:?}",
                login.merge.outcome
            ));
        }
        match &login.cart {
            Some(cart) => judge_items(&format!("the {time} merge"), cart, &wanted, verdict),
            None => verdict.lost(format!("after the {time} merge the user has no cart")),
        }
    }
    let path = format!("/v1/carts/{}", guest_cart.cart_id);
    let closed: Cart = client
        .get(&path)
        .await
        .done("reading the guest's cart")?
        .parse()?;
    if closed.status != CartStatus::Abandoned {
        verdict.wrong(format!("the merged guest cart is {:?}", closed.status));
    }
    Ok(())
}

async fn open(client: &mut Client, owner: &Owner) -> anyhow::Result<Cart> {
    client
        .post("/v1/carts", owner)
        .await
        .done("opening a cart")?
        .parse()
}

fn judge_items(when: &str, cart: &Cart, wanted: &BTreeMap<String, u64>, verdict: &mut Verdict) {
    let shown: BTreeMap<_, _> = cart
        .items
        .iter()
        .map(|item| (item.product_id.clone(), item.quantity))
        .collect();
    for (product, quantity) in wanted {
        match shown.get(product) {
            None => verdict.lost(format!("after {when}: {product} is not in the cart")),
            Some(found) if found > quantity => {
                verdict.doubled(format!(
                    "after {when}: {found} of {product}, not {quantity}"
                ));
            }
            Some(found) if found < quantity => {
                verdict.lost(format!(
                    "after {when}: {found} of {product}, not {quantity}"
                ));
            }
            Some(_) => {}
        }
    }
    if shown.len() > wanted.len() {
        verdict.wrong(format!("after {when}: the cart shows {shown:?}"));
    }
}
