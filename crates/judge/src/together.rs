//! Many clients who ask at the same moment, and ask again where the answer was no answer.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::bail;
use futures::future::try_join_all;
use tokio::sync::Barrier;

use crate::client::{Answer, Client, Reply};
use crate::wire::OrderWish;

const ATTEMPTS_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// What came of an order in the end.
#[derive(Clone, Debug)]
pub enum Placed {
    Answered(Answer),
    Refused { status: u16, code: String },
}

/// Every order on a connection of its own, all at once. Where no answer came, or one that says to come again, the
/// same is sent again under the same key.
pub async fn order(
    address: SocketAddr,
    orders: &[(String, OrderWish)],
) -> anyhow::Result<Vec<Placed>> {
    let start = Barrier::new(orders.len());
    let buyers = orders.iter().map(|(key, wish)| {
        let start = &start;
        async move {
            let mut client = connected(address).await?;
            start.wait().await;
            for _ in 0..ATTEMPTS_MAX {
                match client.order(key, wish).await {
                    Reply::Answered(answer) => return Ok(Placed::Answered(answer)),
                    Reply::Refused { status, code }
                        if code != "too-many-requests" && code != "changed-meanwhile" =>
                    {
                        return Ok(Placed::Refused { status, code });
                    }
                    Reply::Refused { .. } | Reply::Unknown { .. } => {
                        tokio::time::sleep(PAUSE).await
                    }
                }
            }
            bail!("order {key} got no definite answer in {ATTEMPTS_MAX} attempts")
        }
    });
    try_join_all(buyers).await
}

/// A client whose connection is open, so that a start together is one.
pub async fn connected(address: SocketAddr) -> anyhow::Result<Client> {
    let mut client = Client::new(address);
    client
        .get("/health/live")
        .await
        .done("asking whether the server lives")?;
    Ok(client)
}

/// Differs from that of every earlier run.
pub fn run_number() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// Tells the records of this run from those of earlier ones on the same directory.
pub fn run_name() -> String {
    format!("{:x}", run_number())
}
