//! The demo's own shop: a child process on a temporary directory, asked over HTTP and told by its ops listener.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use ops_api::{Client, Request};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Request as HttpRequest;

use super::ledger::{Ledger, OrderTold};
use super::verdict::{Placed, ReadBack};
use crate::ops::{Standing, standing};

/// What everybody buys; the sample's own things run out.
pub const PRODUCT: &str = "DEMO-LAMP";
const PRICE: &str = "990";
const ZONE: &str = "moscow";
const PIECES: u64 = 100_000_000;

const DATA: &str = "data";
const LOG: &str = "serve.log";

/// How long one request may take, and how long it is sent again before the shop counts as gone.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

const PAGE: usize = 100;

#[derive(Debug)]
pub struct OwnShop {
    child: Child,
    /// Its output stays open, so that it is never told that nobody listens.
    _output: BufReader<std::process::ChildStdout>,
    pub web: Web,
    pub ops: Client,
}

/// The shop as a shopper sees it.
#[derive(Clone, Debug)]
pub struct Web {
    agent: Agent,
    url: String,
}

/// What the shop said, whatever it was.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl OwnShop {
    pub fn start(folder: &Path) -> Result<OwnShop> {
        let data = folder.join(DATA);
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--sample", "--listen", "127.0.0.1:0"]);
        command.args(["--log", "plain/warn", "--data"]).arg(&data);
        // Settings of another shop are not this one's.
        for (name, _) in std::env::vars_os() {
            if name
                .to_str()
                .is_some_and(|name| name.starts_with("CARAVAN_"))
            {
                command.env_remove(name);
            }
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.join(LOG))?)
            .spawn()
            .context("the shop does not start: check the limits of this user")?;
        let output = child.stdout.take().context("its output was asked for")?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let url = line
            .strip_prefix("caravan is open at ")
            .and_then(|rest| rest.split(' ').next());
        let Some(url) = url.map(str::to_owned) else {
            // It has ended or is of no use.
            let _ = child.kill();
            child.wait()?;
            let log = std::fs::read_to_string(folder.join(LOG))?;
            bail!("the shop did not open: {}", log.trim());
        };
        let Standing::Served(ops) = standing(&data)? else {
            bail!("the shop does not listen to operators: try again");
        };
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(REQUEST_TIMEOUT))
            .proxy(None)
            .build();
        let web = Web {
            agent: agent.into(),
            url,
        };
        let shop = OwnShop {
            child,
            _output: output,
            web,
            ops,
        };
        shop.stock_up()?;
        Ok(shop)
    }

    /// Ends in peace.
    pub fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the shop ended with {status}");
        Ok(())
    }

    /// Changes one cart behind the ledger's back, so that an acknowledged change is gone.
    pub fn overwrite_one(&self, ledger: &Ledger) -> Result<String> {
        let most = ledger
            .carts
            .iter()
            .max_by_key(|(_, told)| told.acknowledged);
        let (cart, told) = most.context("nobody has changed a cart: let it run for longer")?;
        let quantity = told.acknowledged.saturating_sub(1).max(1);
        self.web.set_cart(cart, quantity)?;
        Ok(format!(
            "cart {cart} is set back from {} to {quantity}",
            told.acknowledged
        ))
    }

    fn stock_up(&self) -> Result<()> {
        let path = format!("/v1/products/{PRODUCT}");
        let page = json!({"category": "lamps", "name": "Lamp of the demo", "price": PRICE});
        self.web.done("PUT", &path, None, &page)?;
        let stock = format!("{path}/stock/{ZONE}");
        self.web
            .done("PUT", &stock, None, &json!({"received": PIECES}))?;
        Ok(())
    }
}

impl Drop for OwnShop {
    fn drop(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Web {
    /// The active cart of a user, made if there is none.
    pub fn new_cart(&self, user: &str) -> Result<String> {
        let made = self.done("POST", "/v1/carts", None, &json!({"user_id": user}))?;
        text(&made, "cart_id")
    }

    /// Sets the cart's only line. The same again changes nothing, so it may be sent again.
    pub fn set_cart(&self, cart: &str, quantity: u32) -> Result<()> {
        let path = format!("/v1/carts/{cart}/items/{PRODUCT}");
        self.done("PUT", &path, None, &json!({"quantity": quantity}))?;
        Ok(())
    }

    /// The order's id. The same key again is the same order, so it may be sent again.
    pub fn place(&self, key: &str, user: &str, quantity: u32) -> Result<String> {
        let order = json!({
            "user_id": user,
            "geo_zone": ZONE,
            "address": "Demo street 1",
            "payment_method": "card",
            "lines": [{"product_id": PRODUCT, "quantity": quantity, "price": PRICE}],
        });
        let placed = self.done("POST", "/v1/orders", Some(key), &order)?;
        text(&placed, "order_id")
    }

    pub fn cart(&self, cart: &str) -> Result<Option<u32>> {
        let found = self.found(&format!("/v1/carts/{cart}"))?;
        found.map(|cart| pieces(&cart, "items")).transpose()
    }

    fn found(&self, path: &str) -> Result<Option<Value>> {
        let answer = self.answered("GET", path, None, None)?;
        match answer.status {
            200 => Ok(Some(answer.body)),
            404 | 410 => Ok(None),
            status => Err(anyhow!("GET {path}: {status} {}", answer.body)),
        }
    }

    fn done(&self, method: &str, path: &str, key: Option<&str>, body: &Value) -> Result<Value> {
        let answer = self.answered(method, path, key, Some(body))?;
        match answer.status {
            200..300 => Ok(answer.body),
            status => Err(anyhow!("{method} {path}: {status} {}", answer.body)),
        }
    }

    /// Sends until the shop has answered, and not that it is busy.
    fn answered(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let began = Instant::now();
        loop {
            let reason = match self.send(method, path, key, body) {
                Ok(answer) if !matches!(answer.status, 408 | 429 | 500 | 503 | 504) => {
                    return Ok(answer);
                }
                Ok(answer) => format!("{} {}", answer.status, answer.body),
                Err(error) => error.to_string(),
            };
            ensure!(
                began.elapsed() < PATIENCE,
                "{method} {path} has no answer for {} s: {reason}",
                PATIENCE.as_secs()
            );
            thread::sleep(PAUSE);
        }
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answer, ureq::Error> {
        let mut request = HttpRequest::builder()
            .method(method)
            .uri(format!("{}{path}", self.url));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let mut response = match body {
            Some(body) => {
                let request = request.header("content-type", "application/json");
                self.agent.run(request.body(body.to_string())?)?
            }
            None => self.agent.run(request.body(())?)?,
        };
        let text = response.body_mut().read_to_string()?;
        Ok(Answer {
            status: response.status().as_u16(),
            body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
        })
    }
}

impl ReadBack for OwnShop {
    fn cart(&self, cart: &str) -> Result<Option<u32>> {
        self.web.cart(cart)
    }

    fn order(&self, order: &str) -> Result<Option<Placed>> {
        let Some(found) = self.web.found(&format!("/v1/orders/{order}"))? else {
            return Ok(None);
        };
        Ok(Some(Placed {
            user: text(&found, "user_id")?,
            quantity: pieces(&found, "lines")?,
        }))
    }

    fn orders_of(&self, user: &str) -> Result<BTreeSet<String>> {
        let mut orders = BTreeSet::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/users/{user}/orders?limit={PAGE}{cursor}");
            let page = self.web.found(&path)?.context("a list is always there")?;
            for order in page["orders"].as_array().into_iter().flatten() {
                orders.insert(text(order, "order_id")?);
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(orders),
            }
        }
    }

    fn settle(&self, key: &str, told: &OrderTold) -> Result<String> {
        self.web.place(key, &told.user, told.quantity)
    }
}

/// How the shards stand, as the shop tells its operators.
pub fn shards(ops: &Client) -> Result<Value> {
    Ok(ops.ask(&Request::Shards)?)
}

/// The quantity of the only line there is.
fn pieces(value: &Value, lines: &str) -> Result<u32> {
    let lines = value[lines].as_array();
    let line = lines.and_then(|lines| lines.first());
    // A cart without its line holds nothing.
    let Some(line) = line else { return Ok(0) };
    let pieces = line["quantity"].as_u64();
    let pieces = pieces.and_then(|pieces| u32::try_from(pieces).ok());
    pieces.with_context(|| format!("the shop's answer has no quantity: {value}"))
}

fn text(value: &Value, field: &str) -> Result<String> {
    let text = value[field].as_str();
    let text = text.with_context(|| format!("the shop's answer has no {field}: {value}"))?;
    Ok(text.to_owned())
}
