//! Every kind of wrong request, and the problem it is answered with.

#![allow(clippy::unwrap_used)]

mod support;

use hyper::Method;
use serde_json::{Value, json};
use support::Served;

/// What is sent, and what must come back.
struct Case {
    method: Method,
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: Option<&'static str>,
    status: u16,
    code: &'static str,
    /// A member of the problem, if it must have one.
    member: Option<(&'static str, &'static str)>,
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const ORDER: &[(&str, &str)] = &[
    ("content-type", "application/json"),
    ("idempotency-key", "k-1"),
];

fn case(method: Method, path: &'static str, status: u16, code: &'static str) -> Case {
    Case {
        method,
        path,
        headers: &[],
        body: None,
        status,
        code,
        member: None,
    }
}

fn get(path: &'static str, status: u16, code: &'static str) -> Case {
    case(Method::GET, path, status, code)
}

fn field(name: &'static str, case: Case) -> Case {
    Case {
        member: Some(("field", name)),
        ..case
    }
}

fn header(
    name: &'static str,
    headers: &'static [(&'static str, &'static str)],
    case: Case,
) -> Case {
    Case {
        headers,
        member: Some(("header", name)),
        ..case
    }
}

fn post(path: &'static str, body: &'static str, status: u16, code: &'static str) -> Case {
    Case {
        headers: JSON,
        body: Some(body),
        ..case(Method::POST, path, status, code)
    }
}

fn put(path: &'static str, body: &'static str, status: u16, code: &'static str) -> Case {
    Case {
        headers: JSON,
        body: Some(body),
        ..case(Method::PUT, path, status, code)
    }
}

fn order(body: &'static str, status: u16, code: &'static str) -> Case {
    Case {
        headers: ORDER,
        ..post("/v1/orders", body, status, code)
    }
}

fn paths() -> Vec<Case> {
    const LONG: &str =
        "/v1/carts/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    vec![
        get("/nothing", 404, "no-such-route"),
        get("/v1/carts/x/", 404, "no-such-route"),
        get("/docs/index.html", 404, "no-such-route"),
        get("/problems/unheard-of", 404, "no-such-route"),
        case(Method::PATCH, "/v1/orders", 405, "method-not-allowed"),
        case(Method::POST, "/health/live", 405, "method-not-allowed"),
        case(Method::DELETE, "/v1/carts/x", 405, "method-not-allowed"),
        get("/v1/carts/none", 404, "no-such-cart"),
        get("/v1/orders/none", 404, "no-such-order"),
        get("/v1/products/none", 404, "no-such-product"),
        get("/v1/products/none/stock", 404, "no-such-product"),
        get("/v1/sessions/none", 404, "no-such-session"),
        get("/v1/carts/active?user_id=nobody", 404, "no-active-cart"),
        case(
            Method::DELETE,
            "/v1/carts/none/items/p",
            404,
            "no-such-cart",
        ),
        case(
            Method::POST,
            "/v1/sessions/none/touch",
            404,
            "no-such-session",
        ),
        field("cart_id", get(LONG, 422, "invalid-field")),
        field("cart_id", get("/v1/carts/%00", 422, "invalid-field")),
        field("path", get("/v1/carts/%ff", 422, "invalid-field")),
        field("user_id", get("/v1/users/%07/orders", 422, "invalid-field")),
    ]
}

fn queries() -> Vec<Case> {
    vec![
        field("user_id", get("/v1/carts/active", 422, "invalid-field")),
        field(
            "session_id",
            get(
                "/v1/carts/active?user_id=u&session_id=s",
                422,
                "invalid-field",
            ),
        ),
        get("/v1/carts/active?user=u", 400, "malformed-query"),
        get(
            "/v1/carts/active?user_id=u&user_id=u",
            400,
            "malformed-query",
        ),
        get("/v1/carts/active?user_id=%ff", 400, "malformed-query"),
        field("category", get("/v1/products", 422, "invalid-field")),
        field(
            "min_price",
            get(
                "/v1/products?category=c&min_price=1e3",
                422,
                "invalid-field",
            ),
        ),
        field("limit", get("/v1/orders?limit=0", 422, "invalid-field")),
        field("limit", get("/v1/orders?limit=101", 422, "invalid-field")),
        field("limit", get("/v1/orders?limit=ten", 422, "invalid-field")),
        field(
            "from",
            get("/v1/orders?from=yesterday", 422, "invalid-field"),
        ),
        get("/v1/orders?cursor=AAAA", 400, "unknown-cursor"),
        get("/v1/users/u/sessions?cursor=", 400, "unknown-cursor"),
        field("q", get("/v1/products/search", 422, "invalid-field")),
        field(
            "limit",
            get("/v1/products/search?q=a&limit=51", 422, "invalid-field"),
        ),
        get("/v1/products/search?q=a", 503, "unavailable"),
    ]
}

fn headers() -> Vec<Case> {
    const CART: &str = "/v1/carts/none";
    let product = || {
        put(
            "/v1/products/p",
            r#"{"category":"c","name":"n","price":"1"}"#,
            400,
            "malformed-header",
        )
    };
    vec![
        header(
            "Caravan-Token",
            &[("caravan-token", "x")],
            get(CART, 400, "malformed-header"),
        ),
        header(
            "Caravan-Token",
            &[("caravan-token", "")],
            get(CART, 400, "malformed-header"),
        ),
        // The revision of the year 294 247.
        header(
            "Caravan-Token",
            &[("caravan-token", FURTHEST)],
            get(CART, 400, "malformed-header"),
        ),
        header(
            "Caravan-Token",
            &[("caravan-token", "a"), ("caravan-token", "b")],
            get(CART, 400, "malformed-header"),
        ),
        header(
            "If-Match",
            &[("content-type", "application/json"), ("if-match", "7")],
            product(),
        ),
        Case {
            headers: &[("content-type", "application/json"), ("if-match", "\"x\"")],
            ..put(
                "/v1/products/p",
                r#"{"category":"c","name":"n","price":"1"}"#,
                412,
                "precondition-failed",
            )
        },
        Case {
            headers: JSON,
            ..order(GOOD_ORDER, 400, "missing-idempotency-key")
        },
        header(
            "Idempotency-Key",
            &[
                ("content-type", "application/json"),
                ("idempotency-key", ""),
            ],
            order(GOOD_ORDER, 400, "malformed-header"),
        ),
        header(
            "Idempotency-Key",
            &[
                ("content-type", "application/json"),
                ("idempotency-key", "ключ"),
            ],
            order(GOOD_ORDER, 400, "malformed-header"),
        ),
    ]
}

/// The token of the last revision that 64 bits can hold.
const FURTHEST: &str = "t1y2p0ij32e8e764";

const GOOD_ORDER: &str = r#"{"user_id":"u","lines":[{"product_id":"p","quantity":1,"price":"1"}],"geo_zone":"z","address":"a","payment_method":"card"}"#;

fn bodies() -> Vec<Case> {
    vec![
        post("/v1/carts", "", 400, "malformed-json"),
        post("/v1/carts", "{\"user_id\":", 400, "malformed-json"),
        post("/v1/carts", "{user_id:1}", 400, "malformed-json"),
        field("user_id", post("/v1/carts", "{}", 422, "invalid-field")),
        field(
            "user_id",
            post("/v1/carts", r#"{"user_id":null}"#, 422, "invalid-field"),
        ),
        field(
            "session_id",
            post(
                "/v1/carts",
                r#"{"user_id":"u","session_id":"s"}"#,
                422,
                "invalid-field",
            ),
        ),
        field("body", post("/v1/carts", r#"["u"]"#, 422, "invalid-field")),
        field(
            "user",
            post("/v1/carts", r#"{"user":"u"}"#, 422, "invalid-field"),
        ),
        field(
            "user_id",
            post("/v1/carts", r#"{"user_id":7}"#, 422, "invalid-field"),
        ),
        post(
            "/v1/carts",
            r#"{"session_id":"none"}"#,
            404,
            "no-such-session",
        ),
        field(
            "quantity",
            put(
                "/v1/carts/c/items/p",
                r#"{"quantity":0}"#,
                422,
                "invalid-field",
            ),
        ),
        field(
            "quantity",
            put(
                "/v1/carts/c/items/p",
                r#"{"quantity":1.5}"#,
                422,
                "invalid-field",
            ),
        ),
        field(
            "quantity",
            put("/v1/carts/c/items/p", r#"{}"#, 422, "invalid-field"),
        ),
        field(
            "status",
            post(
                "/v1/carts/c/close",
                r#"{"status":"active"}"#,
                422,
                "invalid-field",
            ),
        ),
        field(
            "ip_address",
            post(
                "/v1/sessions",
                r#"{"ip_address":"here"}"#,
                422,
                "invalid-field",
            ),
        ),
        field(
            "data.a",
            post("/v1/sessions", r#"{"data":{"a":1}}"#, 422, "invalid-field"),
        ),
        field("user_id", post("/v1/login", "{}", 422, "invalid-field")),
        field(
            "price",
            put(
                "/v1/products/p",
                r#"{"category":"c","name":"n","price":1}"#,
                422,
                "invalid-field",
            ),
        ),
        field(
            "price",
            put(
                "/v1/products/p",
                r#"{"category":"c","name":"n","price":"-1"}"#,
                422,
                "invalid-field",
            ),
        ),
        field(
            "received",
            put(
                "/v1/products/p/stock/z",
                r#"{"received":-1}"#,
                422,
                "invalid-field",
            ),
        ),
        field(
            "received",
            put(
                "/v1/products/p/stock/z",
                r#"{"received":1000000000001}"#,
                422,
                "invalid-field",
            ),
        ),
        put(
            "/v1/products/p/stock/z",
            r#"{"received":1}"#,
            404,
            "no-such-product",
        ),
        field(
            "status",
            post(
                "/v1/orders/o/status",
                r#"{"status":"created"}"#,
                422,
                "invalid-field",
            ),
        ),
        post(
            "/v1/orders/o/status",
            r#"{"status":"paid"}"#,
            404,
            "no-such-order",
        ),
        field(
            "lines[0].price",
            order(
                r#"{"user_id":"u","lines":[{"product_id":"p","quantity":1}],"geo_zone":"z","address":"a","payment_method":"card"}"#,
                422,
                "invalid-field",
            ),
        ),
        field(
            "lines",
            order(
                r#"{"user_id":"u","lines":[],"geo_zone":"z","address":"a","payment_method":"card"}"#,
                422,
                "invalid-field",
            ),
        ),
        order(GOOD_ORDER, 422, "unknown-product"),
        Case {
            headers: &[],
            ..post("/v1/carts", "{}", 415, "unsupported-media-type")
        },
        Case {
            headers: &[("content-type", "text/plain")],
            ..post("/v1/carts", "{}", 415, "unsupported-media-type")
        },
    ]
}

async fn check_all(cases: Vec<Case>) {
    let served = Served::start().await;
    for case in cases {
        let shown = format!(
            "{} {} {:?} {:?}",
            case.method, case.path, case.headers, case.body
        );
        println!("{shown}");
        let mut asked = served.ask(case.method, case.path);
        for (name, value) in case.headers {
            asked = asked.header(name, *value);
        }
        if let Some(body) = case.body {
            asked = asked.bytes(body.as_bytes().to_vec());
        }
        let problem = asked.send().await.problem(case.status, case.code);
        if let Some((member, value)) = case.member {
            assert_eq!(problem[member], value, "{shown}: {problem}");
        }
    }
}

#[tokio::test]
async fn wrong_paths_are_answered_with_problems() {
    check_all(paths()).await;
}

#[tokio::test]
async fn wrong_queries_are_answered_with_problems() {
    check_all(queries()).await;
}

#[tokio::test]
async fn wrong_headers_are_answered_with_problems() {
    check_all(headers()).await;
}

#[tokio::test]
async fn wrong_bodies_are_answered_with_problems() {
    check_all(bodies()).await;
}

#[tokio::test]
async fn a_wrong_number_is_told_what_to_choose() {
    const QUANTITIES: &str = "choose a whole number from 1 to 10000, not ";
    const PIECES: &str = "choose a whole number from 0 to 1000000000000, not ";
    const AMOUNTS: &str = "expected an amount as text, such as \"19.90\"";
    async fn check(asked: support::Asked<'_>, field: &str, said: &str) {
        let problem = asked.send().await.problem(422, "invalid-field");
        assert_eq!(problem["field"], field, "{problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains(said),
            "{problem}"
        );
    }
    let served = Served::start().await;
    for (given, shown) in [
        (json!(0), "0"),
        (json!(-1), "-1"),
        (json!(1.5), "1.5"),
        (json!("two"), "text"),
        (json!(null), "null"),
        (json!(10_001), "10001"),
        (json!(99_999_999_999_u64), "99999999999"),
    ] {
        let said = format!("{QUANTITIES}{shown}");
        let item = served.put("/v1/carts/c/items/p", json!({ "quantity": given }));
        check(item, "quantity", &said).await;
        let mut order: Value = serde_json::from_str(GOOD_ORDER).unwrap();
        order["lines"][0]["quantity"] = given;
        let order = served.post("/v1/orders", order);
        let order = order.header("idempotency-key", "k-1");
        check(order, "lines[0].quantity", &said).await;
    }
    for (given, shown) in [
        (json!(-1), "-1"),
        (json!(0.5), "0.5"),
        (json!("many"), "text"),
        (json!(1_000_000_000_001_u64), "1000000000001"),
    ] {
        let delivery = served.put("/v1/products/p/stock/z", json!({ "received": given }));
        check(delivery, "received", &format!("{PIECES}{shown}")).await;
    }
    for given in [json!(1), json!(-1), json!(19.9), json!(null)] {
        let product = json!({ "category": "c", "name": "n", "price": given });
        check(served.put("/v1/products/p", product), "price", AMOUNTS).await;
    }
}

#[tokio::test]
async fn a_syntax_error_says_line_and_column() {
    let served = Served::start().await;
    let body = b"{\n  \"user_id\": u\n}".to_vec();
    let asked = served.post("/v1/carts", Value::Null).bytes(body);
    let problem = asked.send().await.problem(400, "malformed-json");
    assert_eq!(
        (&problem["line"], &problem["column"]),
        (&json!(2), &json!(14))
    );
}

#[tokio::test]
async fn the_allowed_methods_are_listed() {
    let served = Served::start().await;
    let answer = served.ask(Method::PATCH, "/v1/orders").send().await;
    let mut allowed: Vec<&str> = answer.header("allow").split(',').collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_whether_it_says_its_length_or_not() {
    let served = Served::start().await;
    let body = vec![b' '; http_api::BODY_BYTES_MAX + 1];
    let asked = served.post("/v1/carts", Value::Null).bytes(body.clone());
    let problem = asked.send().await.problem(413, "body-too-large");
    assert_eq!(problem["limit"], http_api::BODY_BYTES_MAX);

    let head = "POST /v1/carts HTTP/1.1\r\nhost: shop\r\ncontent-type: application/json\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let chunk = format!(
        "{:x}\r\n{}\r\n",
        body.len(),
        String::from_utf8(body).unwrap()
    );
    let stream = served.connect(&format!("{head}{chunk}0\r\n\r\n")).await;
    let mut buffer = [0; 64];
    let read = tokio::io::AsyncReadExt::read(&mut { stream }, &mut buffer)
        .await
        .unwrap();
    let answer = String::from_utf8_lossy(&buffer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn a_request_keeps_the_name_its_client_gave_it() {
    let served = Served::start().await;
    let named = served
        .get("/v1/carts/none")
        .header("x-request-id", "my-request");
    let problem = named.send().await.problem(404, "no-such-cart");
    assert_eq!(problem["instance"], "my-request");
    let unfit = served
        .get("/v1/carts/none")
        .header("x-request-id", "two words");
    let answer = unfit.send().await;
    assert_ne!(answer.header("x-request-id"), "two words");
}

#[tokio::test]
async fn every_problem_is_explained() {
    let served = Served::start().await;
    let all = served.get("/problems").send().await.expect(200).text();
    for code in http_api::Code::ALL {
        assert!(all.contains(code.name()), "{code:?}");
        let page = served.get(&format!("/problems/{}", code.name()));
        assert!(page.send().await.expect(200).text().contains(code.title()));
    }
}
