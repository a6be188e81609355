//! One shopper's connection: requests in, answers out, and what no answer means.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::{Connection, write_request};
use crate::wire::{OrderWish, Problem};

/// Longer than the server may take for anything.
const ANSWER_SECONDS_MAX: u64 = 30;

#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    connection: Option<Connection>,
    /// What the last answer said; the next request shows at least as much (read your writes).
    token: Option<String>,
    request: Vec<u8>,
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
        Client {
            address,
            connection: None,
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
        let time = Duration::from_secs(ANSWER_SECONDS_MAX);
        let exchanged = tokio::time::timeout(time, self.exchange()).await;
        match exchanged.map_err(anyhow::Error::from).flatten() {
            Ok(answer) => judge(answer),
            Err(error) => {
                self.connection = None;
                Reply::Unknown {
                    why: format!("{method} {path}: {error:#}"),
                }
            }
        }
    }

    async fn exchange(&mut self) -> anyhow::Result<Answer> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => self
                .connection
                .insert(Connection::open(self.address).await?),
        };
        let response = connection.exchange(&self.request).await?;
        if let Some(token) = response.header("caravan-token") {
            self.token = Some(token.to_owned());
        }
        let answer = Answer {
            status: response.status,
            body: response.body.to_vec(),
            replayed: response.header("idempotent-replay") == Some("true"),
        };
        if response.header("connection") == Some("close") {
            self.connection = None;
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
