//! The judgement after a restart: everything in the ledger against everything the shop shows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::acting::{Performed, Scribe};
use super::reading::{self, Listed};
use crate::catalogue::{self, Product};
use crate::client::{Client, Reply};
use crate::expected::{Alive, Expected, ExpectedOrder, Presence};
use crate::ledger::{Done, Entry, Reader, Wish};
use crate::verdict::Verdict;
use crate::wire::{Cart, Order, Session, ZoneStock};

const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Judge<'a> {
    pub address: SocketAddr,
    pub scribe: &'a Scribe,
    pub products: &'a [Product],
    /// How long the sweeper may take to finish what the kill cut off.
    pub settle: Duration,
}

impl Judge<'_> {
    /// Reads the ledger to its end, the shop from its beginning, and says where they differ.
    pub async fn judge(
        &self,
        expected: &mut Expected,
        reader: &mut Reader,
    ) -> anyhow::Result<Verdict> {
        let mut verdict = Verdict::default();
        let mut client = Client::new(self.address);
        self.finish_logins(&mut client, expected).await?;

        let users = users(expected);
        let period = reading::period(self.address, &mut verdict).await?;
        let histories = reading::histories(self.address, &users, &mut verdict).await?;
        judge_orders(expected, &period, &histories, &mut verdict);
        self.judge_orders_by_id(expected, &period, &mut verdict)
            .await?;
        self.send_unresolved_again(&mut client, expected, &period, &mut verdict)
            .await?;
        reader.read_on(|entry| expected.take(entry))?;

        let period = self.settle(&mut client, &mut verdict).await?;
        let histories = reading::histories(self.address, &users, &mut verdict).await?;
        judge_orders(expected, &period, &histories, &mut verdict);
        self.judge_carts(expected, &mut verdict).await?;
        self.judge_sessions(expected, &mut verdict).await?;
        self.note_what_is_settled(expected, &period).await?;
        reader.read_on(|entry| expected.take(entry))?;
        verdict.append(std::mem::take(&mut expected.verdict));
        dedup(&mut verdict);
        Ok(verdict)
    }

    /// A client whose sign-in was cut off signs in again; only then the carts can be told.
    async fn finish_logins(&self, client: &mut Client, expected: &Expected) -> anyhow::Result<()> {
        for (user_id, guest_session_id) in expected.unresolved_logins.clone() {
            let wish = Wish::Login {
                user_id,
                guest_session_id,
            };
            self.again(client, wish).await?;
        }
        Ok(())
    }

    async fn again(&self, client: &mut Client, wish: Wish) -> anyhow::Result<Performed> {
        match self.scribe.perform(client, wish.clone()).await? {
            Performed::Unknown => {
                bail!("nobody but the judge is here, and {wish:?} was not answered")
            }
            known => Ok(known),
        }
    }

    /// Sent again with the same key, an order that is there stays one, and one that is not becomes one.
    async fn send_unresolved_again(
        &self,
        client: &mut Client,
        expected: &Expected,
        period: &Listed,
        verdict: &mut Verdict,
    ) -> anyhow::Result<()> {
        for (key, order) in &expected.orders {
            if order.presence() != Presence::May {
                continue;
            }
            let wish = Wish::Order {
                key: key.clone(),
                order: order.wish.clone(),
            };
            let there = orders_of(period, key).next();
            match (there, self.again(client, wish).await?) {
                (Some(there), Performed::Done(Done::Order(answer)))
                    if answer.order_id != there.order_id =>
                {
                    verdict.doubled(format!(
                        "order {key} was there as {}, sent again it is {}",
                        there.order_id, answer.order_id
                    ));
                }
                (Some(there), Performed::Refused { code }) => verdict.wrong(format!(
                    "order {key} is there as {}, sent again it was refused with {code}",
                    there.order_id
                )),
                _ => {}
            }
        }
        Ok(())
    }

    async fn judge_orders_by_id(
        &self,
        expected: &Expected,
        period: &Listed,
        verdict: &mut Verdict,
    ) -> anyhow::Result<()> {
        let mut sought = Vec::new();
        for (key, order) in &expected.orders {
            let listed = || {
                orders_of(period, key)
                    .next()
                    .map(|order| order.order_id.clone())
            };
            if let Some(id) = order.order_id.clone().or_else(listed) {
                sought.push((key, order, format!("/v1/orders/{id}")));
            }
        }
        let paths: Vec<_> = sought.iter().map(|(_, _, path)| path.clone()).collect();
        let replies = reading::read_all(self.address, &paths).await?;
        for ((key, order, path), reply) in sought.iter().zip(replies) {
            match reply {
                Reply::Answered(answer) => {
                    if let Some(difference) = order.difference(&answer.parse()?) {
                        verdict.wrong(format!("{path} (key {key}): {difference}"));
                    }
                }
                Reply::Refused { status, code } => {
                    verdict.lost(format!("{path} (key {key}) answers {status} {code}"));
                }
                Reply::Unknown { why } => bail!("{path}: {why}"),
            }
        }
        Ok(())
    }

    /// Waits until stock and orders agree; the identity of the stock has to hold at every look.
    async fn settle(&self, client: &mut Client, verdict: &mut Verdict) -> anyhow::Result<Listed> {
        let end = Instant::now() + self.settle;
        loop {
            let period = reading::period(self.address, &mut Verdict::default()).await?;
            let taken = pieces_taken(&period);
            let mut disagreements = Vec::new();
            for product in self.products {
                let stock = catalogue::stock(client, &product.id).await?;
                catalogue::judge_identity(product, &stock, verdict);
                for ZoneStock {
                    zone,
                    reserved,
                    sold,
                    ..
                } in stock.into_values()
                {
                    let ordered = taken.get(&(product.id.clone(), zone.clone())).copied();
                    let ordered = ordered.unwrap_or(0);
                    if sold + reserved != ordered {
                        disagreements.push(format!(
                            "product {} in {zone}: {sold} sold + {reserved} reserved, but the orders take {ordered}",
                            product.id
                        ));
                    }
                }
            }
            if disagreements.is_empty() {
                return Ok(period);
            }
            if Instant::now() >= end {
                disagreements
                    .into_iter()
                    .for_each(|what| verdict.wrong(what));
                return Ok(period);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn judge_carts(
        &self,
        expected: &mut Expected,
        verdict: &mut Verdict,
    ) -> anyhow::Result<()> {
        let ids: Vec<_> = expected.carts.keys().cloned().collect();
        let paths: Vec<_> = ids.iter().map(|id| format!("/v1/carts/{id}")).collect();
        let replies = reading::read_all(self.address, &paths).await?;
        for (id, reply) in ids.iter().zip(replies) {
            let Some(cart) = expected.carts.get_mut(id) else {
                continue;
            };
            match reply {
                Reply::Answered(answer) => {
                    let shown: Cart = answer.parse()?;
                    if cart.worlds.len() > 1 {
                        self.scribe.ledger().write(&Entry::Seen {
                            cart: shown.clone(),
                        })?;
                    }
                    cart.show(&shown, verdict);
                }
                Reply::Refused { status, code } => {
                    verdict.lost(format!(
                        "cart {id} of {:?} answers {status} {code}",
                        cart.owner
                    ));
                }
                Reply::Unknown { why } => bail!("cart {id}: {why}"),
            }
        }
        Ok(())
    }

    async fn judge_sessions(
        &self,
        expected: &Expected,
        verdict: &mut Verdict,
    ) -> anyhow::Result<()> {
        let paths: Vec<_> = expected
            .sessions
            .keys()
            .map(|id| format!("/v1/sessions/{id}"))
            .collect();
        let replies = reading::read_all(self.address, &paths).await?;
        let owners: BTreeSet<String> = expected
            .sessions
            .values()
            .filter_map(|session| session.user_id.clone())
            .collect();
        let owners: Vec<_> = owners.into_iter().collect();
        let listed = reading::sessions_of(self.address, &owners).await?;
        for ((id, session), reply) in expected.sessions.iter().zip(replies) {
            match (session.alive, reply) {
                (Alive::Yes | Alive::Maybe, Reply::Answered(answer)) => {
                    let shown: Session = answer.parse()?;
                    if shown.last_active < session.last_active {
                        verdict.lost(format!(
                            "session {id} was active at {}, shows {}",
                            session.last_active, shown.last_active
                        ));
                    }
                    let times = listed.get(id).copied().unwrap_or(0);
                    match (times, &session.user_id) {
                        (1, _) | (_, None) => {}
                        (0, Some(user)) => {
                            verdict.lost(format!("session {id} is not listed for {user}"))
                        }
                        (_, Some(user)) => verdict
                            .doubled(format!("session {id} is listed {times} times for {user}")),
                    }
                }
                (Alive::Yes, Reply::Refused { status, code }) => {
                    verdict.lost(format!("session {id} is live and answers {status} {code}"));
                }
                (Alive::No | Alive::Maybe, Reply::Refused { code, .. })
                    if code == "session-ended" || code == "no-such-session" => {}
                (Alive::No, Reply::Answered(_)) => {
                    verdict.wrong(format!("session {id} was closed and is live again"));
                }
                (_, reply) => verdict.wrong(format!("session {id} answers {reply:?}")),
            }
        }
        Ok(())
    }

    /// What the kill left open is decided now, and has to stay so after the next one.
    async fn note_what_is_settled(
        &self,
        expected: &Expected,
        period: &Listed,
    ) -> anyhow::Result<()> {
        for (key, order) in &expected.orders {
            if order.statuses.len() > 1
                && let Some(shown) = orders_of(period, key).next()
            {
                self.scribe.ledger().write(&Entry::SeenOrder {
                    order_id: shown.order_id.clone(),
                    status: shown.status,
                })?;
            }
        }
        self.scribe.ledger().write_synced(&Entry::Judged).await
    }
}

fn users(expected: &Expected) -> Vec<String> {
    let users: BTreeSet<_> = expected
        .orders
        .values()
        .map(|order| order.wish.user_id.clone())
        .collect();
    users.into_iter().collect()
}

/// Left-overs of a saga are no orders.
fn orders_of<'a>(listed: &'a Listed, key: &str) -> impl Iterator<Item = &'a Order> {
    let orders = listed.get(key).into_iter().flatten();
    orders.filter(|order| order.status.is_an_order())
}

/// Every order of the ledger against both listings.
fn judge_orders(expected: &Expected, period: &Listed, histories: &Listed, verdict: &mut Verdict) {
    for (key, order) in &expected.orders {
        judge_order(key, order, period, histories, verdict);
    }
    for key in period.keys().chain(histories.keys()) {
        if !expected.orders.contains_key(key) {
            verdict.wrong(format!(
                "order {key} is listed, but nobody placed it; was the directory empty at the beginning?"
            ));
        }
    }
}

fn judge_order(
    key: &str,
    order: &ExpectedOrder,
    period: &Listed,
    histories: &Listed,
    verdict: &mut Verdict,
) {
    let user = &order.wish.user_id;
    let id = order.order_id.as_deref().unwrap_or("not acknowledged");
    let places = [("the period", period), ("the history", histories)];
    let times = places.map(|(_, listed)| orders_of(listed, key).count());
    for ((place, listed), times) in places.iter().zip(times) {
        match (order.presence(), times) {
            (Presence::Must, 0) => {
                verdict.lost(format!(
                    "order {id} (key {key}, user {user}) is not in {place}"
                ));
            }
            (Presence::MustNot, 1..) => {
                verdict.wrong(format!(
                    "order {key} of {user} was refused and is in {place}"
                ));
            }
            (_, 2..) => verdict.doubled(format!(
                "order {id} (key {key}) is in {place} {times} times"
            )),
            _ => {}
        }
        for shown in orders_of(listed, key) {
            if let Some(difference) = order.difference(shown) {
                verdict.wrong(format!("order {id} (key {key}) in {place}: {difference}"));
            }
        }
    }
    if order.presence() == Presence::May
        && times.contains(&0)
        && times.iter().any(|times| *times > 0)
    {
        verdict.lost(format!(
            "order {key} of {user} is half there: in the period {} times, in the history {} times",
            times[0], times[1]
        ));
    }
}

fn pieces_taken(period: &Listed) -> BTreeMap<(String, String), u64> {
    let mut pieces = BTreeMap::new();
    let orders = period.values().flatten();
    for order in orders.filter(|order| order.status.takes_stock()) {
        for line in &order.lines {
            let place = (line.product_id.clone(), order.geo_zone.clone());
            *pieces.entry(place).or_default() += line.quantity;
        }
    }
    pieces
}

/// Both looks at the orders find the same mistake.
fn dedup(verdict: &mut Verdict) {
    let mut known = BTreeSet::new();
    verdict
        .breaches
        .retain(|breach| known.insert(breach.what.clone()));
}
