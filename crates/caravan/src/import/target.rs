//! Where offers go: the shop's operations on a directory, or the interface of a running shop.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use engine_api::{RealWorld, Revision};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use shop_service::{ProductWish, Shop, ShopConfig, ShopError};
use ureq::Agent;

use super::lines::Offer;
use crate::config::Config;
use crate::shards::Shards;

/// Offers at the same time: enough to share commits with one another.
const OFFLINE_AT_ONCE_MAX: usize = 256;
const RUNNING_AT_ONCE_MAX: usize = 32;

/// How often a request goes again while the shop is busy; it may always be repeated.
const TRIES_MAX: u32 = 6;

/// The pause before the second try; each next is twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The answer is looked at only when it is a refusal, which is short.
const ANSWER_BYTES_MAX: u64 = 256 * 1024;

#[derive(Debug)]
pub enum Target {
    Offline {
        shop: Box<Shop>,
        /// Closes the directory when the import is over.
        shards: Box<Shards>,
    },
    Running {
        agent: Agent,
        /// Without a slash at the end.
        url: String,
    },
}

/// Why an offer was not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    OfThisLine(String),
    OfAll(String),
}

impl Target {
    pub async fn offline(config: &Config) -> Result<Target> {
        let shards = Shards::open(config).await?;
        let shop = Shop::new(ShopConfig {
            router: shards.router.clone(),
            world: Arc::new(RealWorld::new()),
            settings: config.shop.clone(),
        });
        Ok(Target::Offline {
            shop: Box::new(shop),
            shards: Box::new(shards),
        })
    }

    /// Lets go of what was opened.
    pub async fn leave(self) {
        match self {
            Target::Offline { mut shards, .. } => shards.leave().await,
            Target::Running { .. } => {}
        }
    }

    pub fn running(url: &str) -> Result<Target> {
        ensure!(
            url.strip_prefix("http://")
                .is_some_and(|rest| !rest.is_empty()),
            "{url} is not where a shop can be: give http:// and its address, as caravan serve prints it"
        );
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(REQUEST_TIMEOUT))
            // The shop is asked itself, whatever the environment says of proxies.
            .proxy(None)
            .max_idle_connections_per_host(RUNNING_AT_ONCE_MAX)
            .max_idle_connections(RUNNING_AT_ONCE_MAX)
            .build();
        Ok(Target::Running {
            agent: config.into(),
            url: url.trim_end_matches('/').to_owned(),
        })
    }

    pub fn offers_at_once_max(&self) -> usize {
        match self {
            Target::Offline { .. } => OFFLINE_AT_ONCE_MAX,
            Target::Running { .. } => RUNNING_AT_ONCE_MAX,
        }
    }

    pub async fn take(self: Arc<Self>, offer: Offer) -> Result<(), Refusal> {
        match self.as_ref() {
            Target::Offline { shop, .. } => put(shop, offer).await.map_err(of_shop),
            Target::Running { .. } => {
                let sending = tokio::task::spawn_blocking(move || self.send(&offer));
                let lost = |_| Refusal::OfAll("the import was cut short".to_owned());
                sending.await.map_err(lost)?
            }
        }
    }

    /// Blocks until the shop has answered.
    fn send(&self, offer: &Offer) -> Result<(), Refusal> {
        let Target::Running { agent, url } = self else {
            return Ok(());
        };
        let product = format!("{url}/v1/products/{}", escaped(offer.product_id.as_str()));
        let page = json!({
            "category": offer.category,
            "name": offer.name,
            "price": offer.price,
            "image": offer.image,
            "description": offer.description,
            "attributes": offer.attributes,
        });
        put_json(agent, &product, &page)?;
        for (zone, received) in &offer.stock {
            let stock = format!("{product}/stock/{}", escaped(zone.as_str()));
            put_json(agent, &stock, &json!({ "received": received }))?;
        }
        Ok(())
    }
}

async fn put(shop: &Shop, offer: Offer) -> Result<(), ShopError> {
    let id = offer.product_id.clone();
    let wish = ProductWish {
        id: offer.product_id,
        category: offer.category,
        name: offer.name,
        price: offer.price,
        image: offer.image,
        description: offer.description,
        attributes: offer.attributes,
    };
    shop.put_product(wish, None, Revision::ZERO).await?;
    for (zone, received) in &offer.stock {
        shop.receive_stock(&id, zone, received.pieces(), Revision::ZERO)
            .await?;
    }
    Ok(())
}

fn of_shop(error: ShopError) -> Refusal {
    match &error {
        ShopError::CategoryFixed { .. } | ShopError::StockBelowSold { .. } => {
            Refusal::OfThisLine(error.to_string())
        }
        _ => Refusal::OfAll(error.to_string()),
    }
}

/// Sends until there is an answer that another try would not change.
fn put_json(agent: &Agent, url: &str, body: &Value) -> Result<(), Refusal> {
    let body = body.to_string();
    let mut pause = RETRY_PAUSE;
    let mut tries = 0;
    loop {
        tries += 1;
        let request = agent.put(url).content_type("application/json");
        let failure = match request.send(&body) {
            Ok(mut response) => match response.status().as_u16() {
                200..300 => return Ok(()),
                429 | 503 | 504 => format!("the shop is busy ({})", response.status()),
                status => {
                    let answer = response.body_mut().with_config().limit(ANSWER_BYTES_MAX);
                    let reason = explained(status, &answer.read_to_string().unwrap_or_default());
                    return Err(match status {
                        409 | 422 => Refusal::OfThisLine(reason),
                        _ => Refusal::OfAll(reason),
                    });
                }
            },
            Err(error) => format!("the shop does not answer ({error})"),
        };
        if tries == TRIES_MAX {
            return Err(Refusal::OfAll(failure));
        }
        thread::sleep(pause);
        pause *= 2;
    }
}

/// The detail of a problem, or the status where there is none.
fn explained(status: u16, answer: &str) -> String {
    let problem: Option<Value> = serde_json::from_str(answer).ok();
    let detail = problem
        .as_ref()
        .and_then(|problem| problem.get("detail")?.as_str());
    match detail {
        Some(detail) => detail.to_owned(),
        None => format!("the shop answers with status {status}: check the address"),
    }
}

fn escaped(id: &str) -> String {
    utf8_percent_encode(id, NON_ALPHANUMERIC).to_string()
}
