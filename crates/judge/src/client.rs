//! One shopper's connections: requests in, answers out, and what no answer means.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::{Connection, write_request};
use crate::wire::{OrderWish, Problem};

/// Longer than the server may take for anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// Before a shopper that found nobody listening comes again.
const NOBODY_THERE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Client {
    /// The processes that serve the shop.
    doors: Vec<Door>,
    /// The one that the next request goes to.
    next: usize,
    patience: Duration,
    /// What the last answer said; the next request shows at least as much (read your writes).
    token: Option<String>,
    request: Vec<u8>,
}

/// One process of the shop.
#[derive(Debug)]
struct Door {
    address: SocketAddr,
    connection: Option<Connection>,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    pub replayed: bool,
}

/// What came of a request.
#[derive(Clone, Debug)]
pub enum Reply {
    Answered(Answer),
    /// Refused: nothing was changed by it.
    Refused {
        status: u16,
        code: String,
    },
    /// It may have been done, or not, or may still be.
    Unknown {
        why: String,
    },
}

impl Client {
    pub fn new(address: SocketAddr) -> Client {
        Client::among(&[address], PATIENCE)
    }

    /// Goes to the processes in turn, so that each request meets another one than the last.
    pub fn among(addresses: &[SocketAddr], patience: Duration) -> Client {
        let door = |address: &SocketAddr| Door {
            address: *address,
            connection: None,
        };
        Client {
            doors: addresses.iter().map(door).collect(),
            next: 0,
            patience,
            token: None,
            request: Vec::new(),
        }
    }

    pub async fn get(&mut self, path: &str) -> Reply {
        self.send("GET", path, &[], None).await
    }

    pub async fn put(&mut self, path: &str, body: &impl Serialize) -> Reply {
        self.send_json("PUT", path, &[], body).await
    }

    pub async fn post(&mut self, path: &str, body: &impl Serialize) -> Reply {
        self.send_json("POST", path, &[], body).await
    }

    pub async fn delete(&mut self, path: &str) -> Reply {
        self.send("DELETE", path, &[], None).await
    }

    pub async fn order(&mut self, key: &str, wish: &OrderWish) -> Reply {
        let headers = [("idempotency-key", key)];
        self.send_json("POST", "/v1/orders", &headers, wish).await
    }

    /// A POST that has no body.
    pub async fn post_nothing(&mut self, path: &str) -> Reply {
        self.send("POST", path, &[], None).await
    }

    async fn send_json(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &impl Serialize,
    ) -> Reply {
        match serde_json::to_vec(body) {
            Ok(body) => self.send(method, path, headers, Some(&body)).await,
            Err(error) => Reply::Unknown {
                why: format!("the judge cannot write its own request: {error}"),
            },
        }
    }

    async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Reply {
        let mut all: Vec<(&str, &str)> = headers.to_vec();
        if let Some(token) = &self.token {
            all.push(("caravan-token", token));
        }
        self.request.clear();
        write_request(&mut self.request, method, path, &all, body);
        let Some(door) = self.enter().await else {
            tokio::time::sleep(NOBODY_THERE).await;
            return Reply::Unknown {
                why: format!("{method} {path}: nobody listens"),
            };
        };
        let exchanged = tokio::time::timeout(self.patience, self.exchange(door)).await;
        match exchanged.map_err(anyhow::Error::from).flatten() {
            Ok(answer) => judge(answer),
            Err(error) => {
                self.doors[door].connection = None;
                let address = self.doors[door].address;
                Reply::Unknown {
                    why: format!("{method} {path} at {address}: {error:#}"),
                }
            }
        }
    }

    /// The first process from the next one on that takes a connection: one that is dead was not asked anything.
    async fn enter(&mut self) -> Option<usize> {
        for _ in 0..self.doors.len() {
            let at = self.next;
            self.next = (at + 1) % self.doors.len();
            let door = &mut self.doors[at];
            if door.connection.is_none() {
                let opening = tokio::time::timeout(self.patience, Connection::open(door.address));
                door.connection = opening.await.ok().and_then(Result::ok);
            }
            if door.connection.is_some() {
                return Some(at);
            }
        }
        None
    }

    async fn exchange(&mut self, door: usize) -> anyhow::Result<Answer> {
        let connection = &mut self.doors[door].connection;
        let open = connection.as_mut().context("the connection is open")?;
        let response = open.exchange(&self.request).await?;
        if let Some(token) = response.header("caravan-token") {
            self.token = Some(token.to_owned());
        }
        let answer = Answer {
            status: response.status,
            body: response.body.to_vec(),
            replayed: response.header("idempotent-replay") == Some("true"),
        };
        if response.header("connection") == Some("close") {
            *connection = None;
        }
        Ok(answer)
    }
}

fn judge(answer: Answer) -> Reply {
    let Answer { status, .. } = answer;
    match status {
        200..=299 => Reply::Answered(answer),
        // The body did not arrive, or the server does not know: both may have been done.
        408 | 500..=599 => Reply::Unknown {
            why: format!("{status} {}", code(&answer)),
        },
        _ => Reply::Refused {
            status,
            code: code(&answer),
        },
    }
}

fn code(answer: &Answer) -> String {
    match serde_json::from_slice::<Problem>(&answer.body) {
        Ok(problem) => problem.code().to_owned(),
        Err(_) => "without a problem document".to_owned(),
    }
}

impl Answer {
    pub fn parse<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        serde_json::from_slice(&self.body).with_context(|| {
            let text = String::from_utf8_lossy(&self.body);
            let shown: String = text.chars().take(300).collect();
            format!(
                "a {} answer is not of the contract's form: {shown}",
                self.status
            )
        })
    }
}

impl Reply {
    /// For steps without which there is nothing to judge.
    pub fn done(self, what: &str) -> anyhow::Result<Answer> {
        match self {
            Reply::Answered(answer) => Ok(answer),
            Reply::Refused { status, code } => bail!("{what} was refused: {status} {code}"),
            Reply::Unknown { why } => bail!("{what} was not answered: {why}"),
        }
    }
}
