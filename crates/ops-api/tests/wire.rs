//! A real listener and a real client: what is asked arrives, what is refused is told.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use ops_api::{
    Asked, Client, ClientError, Desk, Kind, Operator, ProcessId, Refusal, Request, serve,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Tells what it was asked, and refuses to be told of `nobody`.
struct Echo;

#[async_trait]
impl Desk for Echo {
    async fn carry_out(&self, request: Request, operator: &Operator) -> Result<Value, Refusal> {
        match &request {
            Request::Status { name } if name == "nobody" => Err(Refusal::new(
                Kind::NotFound,
                "there is no move nobody: start it first",
            )),
            _ => Ok(json!({"asked": format!("{request:?}"), "by": operator.as_str()})),
        }
    }
}

struct Served {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Served {
    async fn start() -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let own = ProcessId("a1".to_owned());
        tokio::spawn(serve(listener, Arc::new(Echo), own, async move {
            let _ = stopped.await;
        }));
        let _stop = stop;
        Served { address, _stop }
    }

    async fn asks(&self, process: &str, request: Request) -> Result<Value, ClientError> {
        let process = ProcessId(process.to_owned());
        let client = Client::new(self.address, process, Operator::new("ann@host/7"));
        let asked = tokio::task::spawn_blocking(move || client.ask(&request));
        asked.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_arrives_with_who_asks_and_a_refusal_comes_back_in_words() {
    let served = Served::start().await;
    let asked = Asked::Throttle {
        records_per_s: Some(7),
        bytes_per_s: None,
        p99_ms_max: Some(20),
        reason: None,
    };
    let request = Request::Ask {
        name: "carts-1".to_owned(),
        asked,
    };
    let told = format!("{request:?}");
    let answer = served.asks("a1", request).await.unwrap();
    assert_eq!(answer, json!({"asked": told, "by": "ann@host/7"}));

    let name = "nobody".to_owned();
    let refused = served
        .asks("a1", Request::Status { name })
        .await
        .unwrap_err();
    let ClientError::Refused(refusal) = &refused else {
        panic!("{refused:?}")
    };
    assert_eq!(refusal.kind, Kind::NotFound);
    assert_eq!(
        refused.to_string(),
        "there is no move nobody: start it first"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_somebody_else_has_now_is_gone() {
    let served = Served::start().await;
    let other = served.asks("b2", Request::AddShard).await.unwrap_err();
    assert!(matches!(other, ClientError::Gone { .. }), "{other:?}");

    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let gone = Served {
        address,
        _stop: oneshot::channel().0,
    };
    let gone = gone.asks("a1", Request::List).await.unwrap_err();
    assert!(matches!(gone, ClientError::Gone { .. }), "{gone:?}");
}
