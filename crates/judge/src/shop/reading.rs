//! Reads a shop that nobody changes: many records at once, listings page by page.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::bail;
use futures::future::try_join_all;

use super::shopper::ADDRESS_PREFIX;
use crate::client::{Client, Reply};
use crate::verdict::Verdict;
use crate::wire::{Order, OrderPage, SessionPage};

const READERS: usize = 32;
const PAGE: u64 = 100;

/// Orders by their idempotency key; more than one where the shop shows more than one.
pub type Listed = BTreeMap<String, Vec<Order>>;

/// Asks for every path, many at a time, and keeps the order.
pub async fn read_all(address: SocketAddr, paths: &[String]) -> anyhow::Result<Vec<Reply>> {
    let next = Cell::new(0);
    let readers = (0..READERS).map(|_| async {
        let mut client = Client::new(address);
        let mut replies = Vec::new();
        loop {
            let index = next.replace(next.get() + 1);
            let Some(path) = paths.get(index) else {
                return anyhow::Ok(replies);
            };
            match client.get(path).await {
                Reply::Unknown { why } => bail!("the shop cannot be read after its restart: {why}"),
                reply => replies.push((index, reply)),
            }
        }
    });
    let mut replies: Vec<_> = try_join_all(readers).await?.into_iter().flatten().collect();
    replies.sort_unstable_by_key(|(index, _)| *index);
    Ok(replies.into_iter().map(|(_, reply)| reply).collect())
}

/// The whole shop's orders, as far as they are the judge's.
pub async fn period(address: SocketAddr, verdict: &mut Verdict) -> anyhow::Result<Listed> {
    let mut client = Client::new(address);
    let mut listed = Listed::new();
    list_orders(&mut client, "/v1/orders", &mut listed, verdict).await?;
    Ok(listed)
}

pub async fn histories(
    address: SocketAddr,
    users: &[String],
    verdict: &mut Verdict,
) -> anyhow::Result<Listed> {
    let next = Cell::new(0);
    let readers = (0..READERS).map(|_| async {
        let mut client = Client::new(address);
        let (mut listed, mut verdict) = (Listed::new(), Verdict::default());
        loop {
            let index = next.replace(next.get() + 1);
            let Some(user) = users.get(index) else {
                return anyhow::Ok((listed, verdict));
            };
            let path = format!("/v1/users/{user}/orders");
            list_orders(&mut client, &path, &mut listed, &mut verdict).await?;
        }
    });
    let mut all = Listed::new();
    for (listed, found) in try_join_all(readers).await? {
        verdict.append(found);
        for (key, mut orders) in listed {
            all.entry(key).or_default().append(&mut orders);
        }
    }
    Ok(all)
}

async fn list_orders(
    client: &mut Client,
    path: &str,
    listed: &mut Listed,
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    let mut cursor = String::new();
    let mut newest = None::<String>;
    loop {
        let page: OrderPage = client
            .get(&format!("{path}?limit={PAGE}{cursor}"))
            .await
            .done("listing orders")?
            .parse()?;
        for order in page.orders {
            if newest
                .as_ref()
                .is_some_and(|newest| *newest < order.created_at)
            {
                verdict.wrong(format!(
                    "{path} is not newest first at order {}",
                    order.order_id
                ));
            }
            newest = Some(order.created_at.clone());
            // Someone else's order: the shop may have had some before.
            if let Some(key) = order.address.strip_prefix(ADDRESS_PREFIX) {
                listed.entry(key.to_owned()).or_default().push(order);
            }
        }
        match page.next_cursor {
            Some(next) => cursor = format!("&cursor={}", escape(&next)),
            None => return Ok(()),
        }
    }
}

/// How often each session is listed for a user.
pub async fn sessions_of(
    address: SocketAddr,
    users: &[String],
) -> anyhow::Result<BTreeMap<String, u64>> {
    let next = Cell::new(0);
    let readers = (0..READERS).map(|_| async {
        let mut client = Client::new(address);
        let mut listed = Vec::new();
        loop {
            let index = next.replace(next.get() + 1);
            let Some(user) = users.get(index) else {
                return anyhow::Ok(listed);
            };
            let mut cursor = String::new();
            loop {
                let page: SessionPage = client
                    .get(&format!("/v1/users/{user}/sessions?limit={PAGE}{cursor}"))
                    .await
                    .done("listing sessions")?
                    .parse()?;
                listed.extend(page.sessions.into_iter().map(|session| session.session_id));
                match page.next_cursor {
                    Some(next) => cursor = format!("&cursor={}", escape(&next)),
                    None => break,
                }
            }
        }
    });
    let mut times = BTreeMap::new();
    for session_id in try_join_all(readers).await?.into_iter().flatten() {
        *times.entry(session_id).or_default() += 1;
    }
    Ok(times)
}

/// For a query: everything but plain letters and digits is escaped.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_the_query() {
        assert_eq!(escape("aZ-9_.~"), "aZ-9_.~");
        assert_eq!(escape("a+b/c="), "a%2Bb%2Fc%3D");
    }
}
