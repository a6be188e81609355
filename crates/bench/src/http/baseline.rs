//! `bench baseline`: the ceilings of HTTP, served by a process of its own as the shop is.
//!
//! GET answers a constant of 300 bytes; POST reads and parses an order and does nothing with it. Hyper alone,
//! without routes, headers of its own or logging.

use std::convert::Infallible;

use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use tokio::net::TcpListener;

const BODY_BYTES: usize = 300;

/// What a shop has to understand of an order before it can begin.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "parsing is the work; nothing is done with it")]
struct OrderBody {
    user_id: String,
    lines: Vec<LineBody>,
    geo_zone: String,
    address: String,
    payment_method: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "parsing is the work; nothing is done with it")]
struct LineBody {
    product_id: String,
    quantity: u32,
    price: rust_decimal::Decimal,
    category: String,
}

/// Prints its address and serves until it is killed.
pub fn serve() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("no port is free")?;
        println!("baseline on http://{}", listener.local_addr()?);
        let page = page();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let page = page.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(request, page.clone()));
                let served = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service);
                if let Err(error) = served.await {
                    eprintln!("a connection failed: {error}");
                }
            });
        }
    })
}

fn page() -> Bytes {
    let mut page = br#"{"cart_id":"c-0","items":[],"note":""#.to_vec();
    page.resize(BODY_BYTES - 2, b'x');
    page.extend_from_slice(b"\"}");
    Bytes::from(page)
}

async fn answer(
    request: Request<Incoming>,
    page: Bytes,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let status = if request.method() == Method::POST {
        match request
            .into_body()
            .collect()
            .await
            .map(|body| body.to_bytes())
        {
            Ok(body) if serde_json::from_slice::<OrderBody>(&body).is_ok() => StatusCode::CREATED,
            _ => StatusCode::BAD_REQUEST,
        }
    } else {
        StatusCode::OK
    };
    let mut response = Response::new(Full::new(page));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_json_of_the_size_it_says() {
        let page = page();
        assert_eq!(page.len(), BODY_BYTES);
        assert!(serde_json::from_slice::<serde_json::Value>(&page).is_ok());
    }
}
