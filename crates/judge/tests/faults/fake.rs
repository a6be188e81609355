//! The fake shop as a server: a thread of its own, HTTP by hand, killed with requests under way.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use judge::server::Host;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::state::{Answer, Fault, Request, Shop};

/// Between doing and answering: a kill in it leaves what was done unanswered.
const ANSWER_TAKES: Duration = Duration::from_millis(1);

pub struct FakeShop {
    shop: Arc<Mutex<Shop>>,
    running: Option<Runtime>,
}

impl FakeShop {
    pub fn new(fault: Option<Fault>) -> FakeShop {
        FakeShop {
            shop: Arc::new(Mutex::new(Shop::new(fault))),
            running: None,
        }
    }
}

impl Host for FakeShop {
    fn start(&mut self) -> anyhow::Result<SocketAddr> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shop = self.shop.clone();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shop.clone()));
            }
        });
        self.running = Some(runtime);
        Ok(address)
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        let runtime = self.running.take().context("there is no server to kill")?;
        runtime.shutdown_background();
        // Handlers run to their next await; after this nobody changes the shop.
        std::thread::sleep(Duration::from_millis(20));
        self.shop.lock().unwrap().killed();
        Ok(())
    }
}

async fn serve(mut stream: TcpStream, shop: Arc<Mutex<Shop>>) {
    let mut bytes = Vec::new();
    loop {
        let Some(request) = read_request(&mut stream, &mut bytes).await else {
            return;
        };
        let answer = shop.lock().unwrap().answer(&request);
        tokio::time::sleep(ANSWER_TAKES).await;
        if stream.write_all(&encode(&answer)).await.is_err() {
            return;
        }
    }
}

/// None when the client has gone.
async fn read_request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Request> {
    let head_end = loop {
        if let Some(start) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break start + 4;
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).ok()?;
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then(|| value.to_owned())
        })
    };
    let length: usize = header("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < head_end + length {
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = match length {
        0 => Value::Null,
        _ => serde_json::from_slice(&bytes[head_end..head_end + length]).unwrap(),
    };
    bytes.drain(..head_end + length);
    let mut words = head.split(' ');
    Some(Request {
        method: words.next()?.to_owned(),
        path: words.next()?.to_owned(),
        key: header("idempotency-key"),
        body,
    })
}

fn encode(answer: &Answer) -> Vec<u8> {
    let body = match answer.status {
        204 => Vec::new(),
        _ => serde_json::to_vec(&answer.body).unwrap(),
    };
    let replay = if answer.replayed {
        "Idempotent-Replay: true\r\n"
    } else {
        ""
    };
    let mut bytes = format!(
        "HTTP/1.1 {} Fake\r\n{replay}content-length: {}\r\n\r\n",
        answer.status,
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(&body);
    bytes
}
