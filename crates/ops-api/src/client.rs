//! Asks a process that serves, from another one. Blocks: who asks has nothing else to do.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::Request as HttpRequest;

use crate::guard::{OPERATOR_HEADER, Operator, PROCESS_HEADER, ProcessId};
use crate::refusal::{Kind, Refusal};
use crate::request::{Method, Request};

/// A plan looks at two shards that may be slow to answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// On the loopback somebody listens, or nobody does.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest answer: five hundred moves with their keys.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Debug)]
pub struct Client {
    agent: Agent,
    address: SocketAddr,
    process: ProcessId,
    operator: Operator,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The process that had the address does not serve there any more.
    #[error("nobody answers at {address} ({reason})")]
    Gone { address: SocketAddr, reason: String },
    /// Whether it was done is not known.
    #[error("the answer of {address} was lost ({reason}): look what came of it")]
    Lost { address: SocketAddr, reason: String },
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Client {
    pub fn new(address: SocketAddr, process: ProcessId, operator: Operator) -> Client {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(REQUEST_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .proxy(None)
            .build();
        Client {
            agent: agent.into(),
            address,
            process,
            operator,
        }
    }

    pub fn ask(&self, request: &Request) -> Result<Value, ClientError> {
        let wire = request.to_wire();
        let address = self.address;
        let sending = HttpRequest::builder()
            .method(match wire.method {
                Method::Get => "GET",
                Method::Post => "POST",
            })
            .uri(format!("http://{address}{}", wire.path))
            .header(PROCESS_HEADER, &self.process.0)
            .header(OPERATOR_HEADER, self.operator.as_str());
        let answered = match &wire.body {
            Some(body) => {
                let sending = sending.header("content-type", "application/json");
                let request = sending.body(body.to_string());
                self.agent
                    .run(request.map_err(|error| self.lost(&error.into()))?)
            }
            None => {
                let request = sending.body(());
                self.agent
                    .run(request.map_err(|error| self.lost(&error.into()))?)
            }
        };
        let mut answer = answered.map_err(|error| self.failed(&error))?;
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let bytes = body.read_to_vec().map_err(|error| self.lost(&error))?;
        if status == 200 {
            return serde_json::from_slice(&bytes).map_err(|error| ClientError::Lost {
                address,
                reason: error.to_string(),
            });
        }
        Err(match Refusal::of_json(&bytes) {
            Some(refusal) if refusal.kind == Kind::Misdirected => ClientError::Gone {
                address,
                reason: refusal.detail,
            },
            Some(refusal) => refusal.into(),
            // Whoever has the port now speaks of other things.
            None => ClientError::Gone {
                address,
                reason: format!("status {status} from somebody else"),
            },
        })
    }

    fn failed(&self, error: &ureq::Error) -> ClientError {
        let refused = matches!(
            error,
            ureq::Error::ConnectionFailed | ureq::Error::HostNotFound
        ) || matches!(error, ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused);
        match refused {
            true => ClientError::Gone {
                address: self.address,
                reason: error.to_string(),
            },
            false => self.lost(error),
        }
    }

    fn lost(&self, error: &ureq::Error) -> ClientError {
        ClientError::Lost {
            address: self.address,
            reason: error.to_string(),
        }
    }
}
