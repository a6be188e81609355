//! What the server does with too much, too slow and too late.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use http_api::{Drained, HttpLimits};
use serde_json::json;
use support::{Served, StoriedSearch, read_all};
use tokio::io::AsyncWriteExt;

/// A request whose body is announced and does not come.
const STALLED: &str = "POST /v1/carts HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\
                       content-type: application/json\r\ncontent-length: 15\r\n\r\n";
const REST: &[u8] = br#"{"user_id":"u"}"#;

/// Waits until so many requests are at work, as the shop's own figures say; the one
/// that asks for the figures is one of them.
async fn in_flight(served: &Served, count: u64) {
    let enough = async {
        loop {
            let figures = served.get("/figures.json").send().await.json();
            if figures["requests_in_flight"] == count + 1 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), enough)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let served = Served::limited(HttpLimits {
        body_read_ms_max: 50,
        ..support::unhurried()
    })
    .await;
    let answer = read_all(served.connect(STALLED).await).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("/problems/request-timeout"), "{answer}");
}

#[tokio::test]
async fn a_request_ends_at_its_deadline() {
    let served = Served::limited(HttpLimits {
        request_ms_max: 50,
        ..support::unhurried()
    })
    .await;
    let answer = read_all(served.connect(STALLED).await).await;
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    assert!(answer.contains("/problems/deadline-exceeded"), "{answer}");
}

#[tokio::test]
async fn too_many_at_once_are_refused_but_health_is_not() {
    let served = Served::limited(HttpLimits {
        requests_in_flight_max: 1,
        ..support::unhurried()
    })
    .await;
    let mut stalled = served.connect(STALLED).await;
    in_flight(&served, 1).await;
    let refused = served.get("/v1/carts/none").send().await;
    refused.problem(503, "overloaded");
    assert_eq!(refused.header("retry-after"), "2");
    served.get("/health/ready").send().await.expect(200);
    stalled.write_all(REST).await.unwrap();
    assert!(read_all(stalled).await.starts_with("HTTP/1.1 201"));
    served
        .get("/v1/carts/none")
        .send()
        .await
        .problem(404, "no-such-cart");
}

#[tokio::test]
async fn a_client_above_its_rate_is_refused_but_may_watch() {
    let served = Served::limited(HttpLimits {
        client_requests_per_s: 1,
        client_burst: 2,
        ..support::unhurried()
    })
    .await;
    for _ in 0..2 {
        served
            .get("/v1/carts/none")
            .send()
            .await
            .problem(404, "no-such-cart");
    }
    let refused = served.get("/v1/carts/none").send().await;
    refused.problem(429, "too-many-requests");
    assert_eq!(refused.header("retry-after"), "1");
    served.get("/metrics").send().await.expect(200);
}

#[tokio::test]
async fn draining_says_so_and_lets_requests_finish() {
    let mut served = Served::limited(HttpLimits {
        drain_notice_ms: 300,
        ..support::unhurried()
    })
    .await;
    served.get("/health/ready").send().await.expect(200);
    let mut stalled = served.connect(STALLED).await;
    in_flight(&served, 1).await;
    served.begin_shutdown();
    let not_ready = async {
        loop {
            let answer = served.get("/health/ready").send().await;
            if answer.status == 503 {
                return answer.json();
            }
        }
    };
    let ready = tokio::time::timeout(Duration::from_secs(10), not_ready)
        .await
        .unwrap();
    assert_eq!(ready["status"], "draining");
    let address = served.address;
    let closed = async {
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), closed)
        .await
        .unwrap();
    stalled.write_all(REST).await.unwrap();
    assert!(read_all(stalled).await.starts_with("HTTP/1.1 201"));
    assert_eq!(served.ended().await, Drained { cut_off: 0 });
}

#[tokio::test]
async fn draining_does_not_wait_for_ever() {
    let mut served = Served::limited(HttpLimits {
        drain_ms_max: 50,
        ..support::unhurried()
    })
    .await;
    let stalled = served.connect(STALLED).await;
    in_flight(&served, 1).await;
    served.begin_shutdown();
    assert_eq!(served.ended().await, Drained { cut_off: 1 });
    drop(stalled);
}

#[tokio::test]
async fn a_panic_costs_one_request_and_not_the_connection() {
    let served = Served::with(support::unhurried(), Some(StoriedSearch::Panics)).await;
    let answer = served.get("/v1/products/search?q=phone").send().await;
    let problem = answer.problem(500, "internal");
    assert!(!problem.to_string().contains("story"), "{problem}");
    served.get("/health/live").send().await.expect(200);
}

#[tokio::test]
async fn a_head_beyond_its_limit_is_refused() {
    let served = Served::start().await;
    let long = "x".repeat(20_000);
    let request = format!("GET / HTTP/1.1\r\nhost: shop\r\nx-long: {long}\r\n\r\n");
    let answer = read_all(served.connect(&request).await).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn requests_are_counted_by_route_method_and_status() {
    let served = Served::start().await;
    served.get("/v1/carts/none").send().await.expect(404);
    served.get("/v1/carts/nothing").send().await.expect(404);
    served
        .post("/v1/carts", json!({"user_id": "u"}))
        .send()
        .await
        .expect(201);
    let metrics = served.get("/metrics").send().await.expect(200).text();
    for line in [
        r#"caravan_http_requests_total{route="/v1/carts/{cart_id}",method="GET",status="404"} 2"#,
        r#"caravan_http_requests_total{route="/v1/carts",method="POST",status="201"} 1"#,
        r#"caravan_http_request_seconds_count{route="/v1/carts/{cart_id}",method="GET"} 2"#,
        "caravan_http_requests_in_flight 1",
        "caravan_router_map_generation 1",
        "caravan_router_held_total 0",
        r#"caravan_router_shard_requests{shard="shard-1"} 0"#,
        r#"caravan_router_shard_retries_refused_total{shard="shard-2"} 0"#,
        r#"caravan_http_refused_total{class="browsing"} 0"#,
        "caravan_http_shed_level 0.0",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line} in\n{metrics}"
        );
    }
}
