//! A shopper's way through the shop, and what the pages say.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::{Value, json};
use support::{Answer, Served, StoriedSearch};

async fn put_phone(served: &Served, id: &str, price: &str) -> Answer {
    let body = json!({
        "category": "phones", "name": "Телефон X", "price": price, "image": "/x.png",
        "attributes": {"color": "black"},
    });
    served.put(&format!("/v1/products/{id}"), body).send().await
}

async fn deliver(served: &Served, id: &str, received: u64) -> Answer {
    let path = format!("/v1/products/{id}/stock/moscow");
    served
        .put(&path, json!({"received": received}))
        .send()
        .await
}

fn order_of(user: &str, quantity: u32, price: &str) -> Value {
    json!({
        "user_id": user, "geo_zone": "moscow", "address": "Tverskaya 1", "payment_method": "card",
        "lines": [{"product_id": "p-1", "quantity": quantity, "price": price}],
    })
}

async fn place(served: &Served, key: &str, order: Value) -> Answer {
    let asked = served.post("/v1/orders", order);
    asked.header("idempotency-key", key).send().await
}

#[tokio::test]
async fn a_product_is_made_replaced_under_a_condition_and_found_unchanged() {
    let served = Served::start().await;
    let made = put_phone(&served, "p-1", "149.90").await.expect(201);
    let tag = made.header("etag").to_owned();
    let body = made.json();
    assert_eq!(body["price"], "149.9");
    assert_eq!(body["attributes"], json!({"color": "black"}));
    assert_eq!(body["stock"], json!([]));
    put_phone(&served, "p-1", "139.90").await.expect(200);

    let stale = served
        .put(
            "/v1/products/p-1",
            json!({"category": "phones", "name": "Y", "price": "1"}),
        )
        .header("if-match", tag.clone());
    stale.send().await.problem(412, "precondition-failed");
    let elsewhere = json!({"category": "tablets", "name": "Y", "price": "1"});
    let moved = served.put("/v1/products/p-1", elsewhere).send().await;
    moved.problem(409, "category-fixed");

    let read = served
        .get("/v1/products/p-1?category=phones")
        .send()
        .await
        .expect(200);
    assert_ne!(read.header("etag"), tag);
    let again = served
        .get("/v1/products/p-1")
        .header("if-none-match", read.header("etag"));
    let unchanged = again.send().await.expect(304);
    assert!(unchanged.body.is_empty());
    assert_eq!(unchanged.header("etag"), read.header("etag"));

    let stock = deliver(&served, "p-1", 10).await.expect(200).json();
    let zone =
        json!([{"zone": "moscow", "available": 10, "reserved": 0, "sold": 0, "received": 10}]);
    assert_eq!(stock, json!({"product_id": "p-1", "zones": zone}));
}

#[tokio::test]
async fn products_are_listed_by_price_in_pages() {
    let served = Served::start().await;
    for (id, price) in [("a", "30"), ("b", "10"), ("c", "20"), ("d", "99.5")] {
        put_phone(&served, id, price).await.expect(201);
    }
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let path =
            format!("/v1/products?category=phones&min_price=10&max_price=30&limit=2{cursor}");
        let page = served.get(&path).send().await.expect(200).json();
        let products = page["products"].as_array().unwrap();
        found.extend(products.iter().map(|product| product["product_id"].clone()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found, ["b", "c", "a"]);
    let foreign = format!("/v1/products?category=tablets{cursor}");
    served
        .get(&foreign)
        .send()
        .await
        .problem(400, "unknown-cursor");
}

#[tokio::test]
async fn a_guest_fills_a_cart_signs_in_and_orders() {
    let served = Served::start().await;
    put_phone(&served, "p-1", "100").await.expect(201);
    deliver(&served, "p-1", 5).await.expect(200);

    let details =
        json!({"ip_address": "127.0.0.1", "user_agent": "story", "data": {"from": "mail"}});
    let opened = served
        .post("/v1/sessions", details)
        .send()
        .await
        .expect(201);
    let session = opened.json();
    let guest = session["session_id"].as_str().unwrap();
    assert_eq!(opened.header("location"), format!("/v1/sessions/{guest}"));
    assert_eq!(session["data"], json!({"from": "mail"}));
    served
        .ask(hyper::Method::POST, &format!("/v1/sessions/{guest}/touch"))
        .send()
        .await
        .expect(200);

    let opened = served
        .post("/v1/carts", json!({"session_id": guest}))
        .send()
        .await
        .expect(201);
    let cart = opened.json()["cart_id"].as_str().unwrap().to_owned();
    assert_eq!(opened.header("location"), format!("/v1/carts/{cart}"));
    served
        .post("/v1/carts", json!({"session_id": guest}))
        .send()
        .await
        .expect(200);
    let item = format!("/v1/carts/{cart}/items/p-1");
    let filled = served
        .put(&item, json!({"quantity": 2}))
        .send()
        .await
        .expect(200);
    let filled_cart = filled.json();
    assert_eq!(filled_cart["session_id"], *guest);
    assert!(filled_cart.get("user_id").is_none(), "{filled_cart}");
    assert_eq!(filled_cart["total"], "200");
    let unknown = format!("/v1/carts/{cart}/items/p-none");
    let refused = served.put(&unknown, json!({"quantity": 2})).send().await;
    refused.problem(422, "unknown-product");

    let login = json!({"user_id": "ann", "guest_session_id": guest});
    let token = filled.header("caravan-token").to_owned();
    let signed_in = served
        .post("/v1/login", login.clone())
        .header("caravan-token", token);
    let answer = signed_in.send().await.expect(200).json();
    assert_eq!(
        answer["merge"],
        json!({"outcome": "merged", "detail": null})
    );
    assert_eq!(answer["session"]["user_id"], "ann");
    assert_eq!(answer["cart"]["items"][0]["quantity"], 2);
    let again = served
        .post("/v1/login", login)
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(again["merge"]["outcome"], "already-merged");
    assert_eq!(again["cart"]["items"][0]["quantity"], 2);
    let sessions = served
        .get("/v1/users/ann/sessions?limit=1")
        .send()
        .await
        .expect(200)
        .json();
    assert!(sessions["next_cursor"].is_string(), "{sessions}");

    let active = served
        .get("/v1/carts/active?user_id=ann")
        .send()
        .await
        .expect(200)
        .json();
    let mut order = order_of("ann", 2, "100");
    order["cart_id"] = active["cart_id"].clone();
    let placed = place(&served, "k-1", order.clone()).await.expect(201);
    let replayed = place(&served, "k-1", order).await.expect(200);
    assert_eq!(replayed.header("idempotent-replay"), "true");
    assert_eq!(placed.json()["order_id"], replayed.json()["order_id"]);
    assert_eq!(placed.json()["total"], "200");
    served
        .get("/v1/carts/active?user_id=ann")
        .send()
        .await
        .problem(404, "no-active-cart");
    let path = format!("/v1/carts/{}", active["cart_id"].as_str().unwrap());
    let ordered = served.get(&path).send().await.expect(200).json();
    assert_eq!(ordered["status"], "ordered");
    let late = served
        .put(&format!("{path}/items/p-1"), json!({"quantity": 1}))
        .send()
        .await;
    late.problem(409, "cart-closed");

    served
        .delete(&format!("/v1/sessions/{guest}"))
        .send()
        .await
        .expect(204);
    served
        .delete(&format!("/v1/sessions/{guest}"))
        .send()
        .await
        .expect(204);
    let ended = served.get(&format!("/v1/sessions/{guest}")).send().await;
    ended.problem(410, "session-ended");
}

#[tokio::test]
async fn an_order_is_refused_with_what_the_client_needs_to_know() {
    let served = Served::start().await;
    put_phone(&served, "p-1", "100").await.expect(201);
    let nowhere = place(&served, "k-0", order_of("ann", 1, "100")).await;
    let problem = nowhere.problem(422, "no-stock-in-zone");
    assert_eq!(
        (&problem["product_id"], &problem["zone"]),
        (&json!("p-1"), &json!("moscow"))
    );
    deliver(&served, "p-1", 3).await.expect(200);
    let moved = place(&served, "k-1", order_of("ann", 1, "90")).await;
    let problem = moved.problem(409, "price-moved");
    assert_eq!(
        (&problem["seen"], &problem["now"]),
        (&json!("90"), &json!("100"))
    );
    let greedy = place(&served, "k-2", order_of("ann", 4, "100")).await;
    let problem = greedy.problem(409, "sold-out");
    assert_eq!(
        (&problem["available"], &problem["zone"]),
        (&json!(3), &json!("moscow"))
    );
    place(&served, "k-3", order_of("ann", 3, "100"))
        .await
        .expect(201);
    let other = place(&served, "k-3", order_of("ann", 2, "100")).await;
    other.problem(422, "idempotency-key-reused");
    let problem = deliver(&served, "p-1", 2)
        .await
        .problem(409, "stock-below-sold");
    assert_eq!(problem["bound"], 3);
}

#[tokio::test]
async fn an_order_moves_on_and_its_history_is_paged() {
    let served = Served::start().await;
    put_phone(&served, "p-1", "100").await.expect(201);
    deliver(&served, "p-1", 50).await.expect(200);
    let mut ids = Vec::new();
    for number in 0..5 {
        let placed = place(&served, &format!("k-{number}"), order_of("ann", 1, "100")).await;
        ids.insert(0, placed.expect(201).json()["order_id"].clone());
    }
    place(&served, "k", order_of("bob", 1, "100"))
        .await
        .expect(201);
    for (path, expected) in [("/v1/users/ann/orders", 5), ("/v1/orders", 6)] {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let asked = served.get(&format!("{path}?limit=2{cursor}"));
            let page = asked.send().await.expect(200).json();
            found.extend(
                page["orders"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|order| order["order_id"].clone()),
            );
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(found.len(), expected);
        found.retain(|id| ids.contains(id));
        assert_eq!(found, ids, "{path}");
    }
    let page = served
        .get("/v1/users/ann/orders?limit=2")
        .send()
        .await
        .json();
    let next = page["next_cursor"].as_str().unwrap();
    let foreign = format!("/v1/users/bob/orders?cursor={next}");
    served
        .get(&foreign)
        .send()
        .await
        .problem(400, "unknown-cursor");

    let path = format!("/v1/orders/{}", ids[0].as_str().unwrap());
    let read = served
        .get(&format!("{path}?user_id=ann"))
        .send()
        .await
        .expect(200);
    let to = |status: &str| served.post(&format!("{path}/status"), json!({"status": status}));
    let paid = to("paid")
        .header("if-match", read.header("etag"))
        .send()
        .await
        .expect(200);
    assert_eq!(paid.json()["status"], "paid");
    let stale = to("shipped")
        .header("if-match", read.header("etag"))
        .send()
        .await;
    stale.problem(412, "precondition-failed");
    to("paid").send().await.expect(200);
    let problem = to("returned").send().await.problem(409, "illegal-status");
    assert_eq!(
        (&problem["from"], &problem["to"]),
        (&json!("paid"), &json!("returned"))
    );
    to("cancelled").send().await.expect(200);
    let stock = served
        .get("/v1/products/p-1/stock")
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(stock["zones"][0]["available"], 45);
}

#[tokio::test]
async fn a_token_carries_what_its_client_has_seen() {
    let served = Served::start().await;
    let made = put_phone(&served, "p-1", "100").await.expect(201);
    let token = made.header("caravan-token").to_owned();
    let elsewhere = served
        .get("/v1/users/nobody/orders")
        .header("caravan-token", token.clone());
    let answer = elsewhere.send().await.expect(200);
    assert_eq!(answer.header("caravan-token"), token);
    let opened = served
        .post("/v1/carts", json!({"user_id": "u"}))
        .header("caravan-token", token.clone());
    let opened = opened.send().await.expect(201);
    assert_ne!(opened.header("caravan-token"), token);
    let revision =
        |answer: &Answer| -> u64 { answer.header("etag").trim_matches('"').parse().unwrap() };
    assert!(revision(&opened) > revision(&made));
}

#[tokio::test]
async fn the_search_reads_what_it_found_and_leaves_out_what_is_gone() {
    let found = StoriedSearch::Finds(vec!["p-2", "p-gone", "p-1"]);
    let served = Served::with(support::unhurried(), Some(found)).await;
    put_phone(&served, "p-1", "100").await.expect(201);
    put_phone(&served, "p-2", "200").await.expect(201);
    let page = served.get("/v1/products/search?q=%D1%82%D0%B5%D0%BB%D0%B5%D1%84%D0%BE%D0%BD");
    let products = page.send().await.expect(200).json()["products"].clone();
    let shown = |number: usize| (&products[number]["product_id"], &products[number]["price"]);
    assert_eq!(shown(0), (&json!("p-2"), &json!("200")));
    assert_eq!(shown(1), (&json!("p-1"), &json!("100")));
    assert_eq!(products.as_array().unwrap().len(), 2);
    // What is wrong with the text is the client's to mend.
    let wordless = served.get("/v1/products/search?q=!").send().await;
    wordless.problem(422, "invalid-field");
    let broken = Served::with(support::unhurried(), Some(StoriedSearch::Fails)).await;
    broken
        .get("/v1/products/search?q=x")
        .send()
        .await
        .problem(503, "unavailable");
}

#[tokio::test]
async fn the_pages_show_the_shop_and_ask_no_other_host() {
    let served = Served::start().await;
    served
        .post("/v1/carts", json!({"user_id": "u"}))
        .send()
        .await
        .expect(201);
    let page = served.get("/").send().await.expect(200);
    let text = page.text();
    for part in [
        "carts",
        "shard-1",
        "2048 slots, 50.0 %",
        "generation 1",
        "&lt;commit&gt;",
        "/docs",
        "/metrics",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let figures = served.get("/figures.json").send().await.expect(200).json();
    assert_eq!(figures["carts_changed"], 1);
    let docs = served.get("/docs").send().await.expect(200);
    for file in ["swagger-ui.css", "swagger-ui-bundle.js"] {
        assert!(docs.text().contains(&format!("/docs/{file}")));
        let answer = served
            .get(&format!("/docs/{file}"))
            .send()
            .await
            .expect(200);
        assert!(answer.body.len() > 10_000);
    }
    for page in [page, docs] {
        assert!(
            page.header("content-security-policy")
                .starts_with("default-src 'self'")
        );
        assert!(!page.text().contains("http://") && !page.text().contains("https://"));
    }
}

#[tokio::test]
async fn the_description_is_openapi_and_its_references_resolve() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members
                    .values()
                    .for_each(|member| references(member, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let served = Served::start().await;
    let document = served.description();
    assert_eq!(document["openapi"], "3.1.0");
    let mut found = Vec::new();
    references(document, &mut found);
    assert!(found.len() > 100);
    for reference in found {
        let place = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(place).is_some(), "{reference}");
    }
    let mut ids = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(
                ids.insert(id.to_owned()),
                "{method} {path}: {id} is there twice"
            );
        }
    }
    assert_eq!(ids.len(), 33);
}
