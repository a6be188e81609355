//! A shop in memory, as the contract has it, and the faults it can be given.

use std::collections::BTreeMap;

use rust_decimal::Decimal;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    // What a kill does.
    LosesAnOrder,
    ListsAnOrderTwice,
    LosesAnOrderInTheHistory,
    ForgetsAStatus,
    ForgetsAnItem,
    ForgetsASession,
    LeaksStock,
    // What shoppers are shown until the first kill; whoever looks afterwards finds nothing.
    ShowsAnOlderCart,
    ShowsAnOlderOrder,
    ListsTheNewestLate,
    // What happens all the time.
    ForgetsKeys,
    MergesTwice,
    SellsWhatIsNotThere,
    SaysSoldOutTooEarly,
    OpensTwoCarts,
    OverwritesTheCart,
}

pub struct Request {
    pub method: String,
    pub path: String,
    pub key: Option<String>,
    pub body: Value,
}

pub struct Answer {
    pub status: u16,
    pub body: Value,
    pub replayed: bool,
}

#[derive(Clone)]
struct Order {
    key: String,
    wish: Value,
    shown: Value,
    /// Missing where a fault took it out of the listing.
    in_history: bool,
}

#[derive(Clone)]
struct Cart {
    owner: Value,
    status: String,
    items: BTreeMap<String, u64>,
    /// Users' carts that a guest's went into.
    merged_into: Option<String>,
}

#[derive(Clone)]
struct Session {
    user: Value,
    last_active: u64,
    closed: bool,
}

#[derive(Clone, Default)]
struct Stock {
    received: u64,
    sold: u64,
}

pub struct Shop {
    fault: Option<Fault>,
    requests: u64,
    kills: u64,
    clock: u64,
    prices: BTreeMap<String, Decimal>,
    stock: BTreeMap<(String, String), Stock>,
    orders: Vec<Order>,
    carts: BTreeMap<String, Cart>,
    sessions: BTreeMap<String, Session>,
}

fn answer(status: u16, body: Value) -> Answer {
    Answer {
        status,
        body,
        replayed: false,
    }
}

fn problem(status: u16, code: &str) -> Answer {
    answer(
        status,
        json!({"type": format!("/problems/{code}"), "status": status}),
    )
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Shop {
    pub fn new(fault: Option<Fault>) -> Shop {
        Shop {
            fault,
            requests: 0,
            kills: 0,
            clock: 0,
            prices: BTreeMap::new(),
            stock: BTreeMap::new(),
            orders: Vec::new(),
            carts: BTreeMap::new(),
            sessions: BTreeMap::new(),
        }
    }

    /// The power is cut: what the fault loses is lost now.
    pub fn killed(&mut self) {
        self.kills += 1;
        let middle = self.orders.len() / 2;
        match self.fault {
            Some(Fault::LosesAnOrder) => {
                self.orders.remove(middle);
            }
            Some(Fault::ListsAnOrderTwice) => {
                let twin = self.orders[middle].clone();
                self.orders.insert(middle, twin);
            }
            Some(Fault::LosesAnOrderInTheHistory) => self.orders[middle].in_history = false,
            Some(Fault::ForgetsAStatus) => {
                // On a slow day none has gone further than paid when the power is cut.
                let paid = self.orders.iter_mut().find(|order| {
                    order.shown["status"] == "paid" || order.shown["status"] == "shipped"
                });
                paid.unwrap().shown["status"] = json!("created");
            }
            Some(Fault::ForgetsAnItem) => {
                let full = self
                    .carts
                    .values_mut()
                    .find(|cart| !cart.items.is_empty() && cart.merged_into.is_none());
                full.unwrap().items.pop_first();
            }
            Some(Fault::ForgetsASession) => {
                let live = self.sessions.iter().find(|(_, session)| !session.closed);
                let id = live.unwrap().0.clone();
                self.sessions.remove(&id);
            }
            Some(Fault::LeaksStock) => {
                let stock = self.stock.values_mut().find(|stock| stock.sold > 0);
                stock.unwrap().sold += 1;
            }
            _ => {}
        }
    }

    fn has_still(&self, fault: Fault) -> bool {
        self.fault == Some(fault) && self.kills == 0
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub fn answer(&mut self, request: &Request) -> Answer {
        self.requests += 1;
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let body = &request.body;
        match (request.method.as_str(), &parts[..]) {
            ("GET", ["health", _]) => answer(200, json!({})),
            ("PUT", ["v1", "products", id]) => {
                self.prices
                    .insert((*id).to_owned(), text(&body["price"]).parse().unwrap());
                answer(201, json!({}))
            }
            ("PUT", ["v1", "products", id, "stock", zone]) => {
                let place = ((*id).to_owned(), (*zone).to_owned());
                self.stock.entry(place).or_default().received = body["received"].as_u64().unwrap();
                self.show_stock(id)
            }
            ("GET", ["v1", "products", id, "stock"]) => self.show_stock(id),
            ("POST", ["v1", "orders"]) => self.place(request.key.as_deref().unwrap(), body),
            ("GET", ["v1", "orders"]) => self.list(query, |_| true),
            ("GET", ["v1", "users", user, "orders"]) => {
                let belongs = |order: &Order| order.in_history && order.shown["user_id"] == **user;
                let newest = self.orders.iter().rfind(|order| belongs(order));
                let late = newest.filter(|_| self.has_still(Fault::ListsTheNewestLate));
                let late = late.map(|order| order.key.clone());
                self.list(query, |order| {
                    belongs(order) && Some(&order.key) != late.as_ref()
                })
            }
            ("GET", ["v1", "orders", id]) => {
                let found = self
                    .orders
                    .iter()
                    .find(|order| order.shown["order_id"] == **id);
                found.map_or_else(
                    || problem(404, "no-such-order"),
                    |order| {
                        let mut shown = order.shown.clone();
                        if self.has_still(Fault::ShowsAnOlderOrder) {
                            shown["status"] = json!("created");
                        }
                        answer(200, shown)
                    },
                )
            }
            ("POST", ["v1", "orders", id, "status"]) => self.change_status(id, &body["status"]),
            ("POST", ["v1", "carts"]) => self.open_cart(body),
            ("GET", ["v1", "carts", id]) => {
                let mut shown = self.show_cart(200, id);
                if self.has_still(Fault::ShowsAnOlderCart)
                    && let Some(items) = shown.body["items"].as_array_mut()
                {
                    items.pop();
                }
                shown
            }
            ("PUT", ["v1", "carts", id, "items", product]) => {
                let overwrites = self.fault == Some(Fault::OverwritesTheCart);
                let Some(cart) = self.carts.get_mut(*id) else {
                    return problem(404, "no-such-cart");
                };
                // As a read-modify-write of the whole cart does when two of them race.
                if overwrites && cart.items.len() > 10 {
                    cart.items.pop_first();
                }
                cart.items
                    .insert((*product).to_owned(), body["quantity"].as_u64().unwrap());
                self.show_cart(200, id)
            }
            ("DELETE", ["v1", "carts", id, "items", product]) => {
                self.carts.get_mut(*id).unwrap().items.remove(*product);
                self.show_cart(200, id)
            }
            ("POST", ["v1", "carts", id, "close"]) => {
                self.carts.get_mut(*id).unwrap().status = text(&body["status"]);
                self.show_cart(200, id)
            }
            ("POST", ["v1", "login"]) => self.login(body),
            ("POST", ["v1", "sessions"]) => self.open_session(&body["user_id"]),
            ("GET", ["v1", "sessions", id]) => match self.sessions.get(*id) {
                None => problem(404, "no-such-session"),
                Some(session) if session.closed => problem(410, "session-ended"),
                Some(_) => answer(200, self.session(id)),
            },
            ("POST", ["v1", "sessions", id, "touch"]) => {
                let now = self.tick();
                match self.sessions.get_mut(*id) {
                    None => return problem(404, "no-such-session"),
                    Some(session) => session.last_active = now,
                }
                answer(200, self.session(id))
            }
            ("DELETE", ["v1", "sessions", id]) => {
                if let Some(session) = self.sessions.get_mut(*id) {
                    session.closed = true;
                }
                answer(204, Value::Null)
            }
            ("GET", ["v1", "users", user, "sessions"]) => {
                let of_user = self
                    .sessions
                    .iter()
                    .filter(|(_, session)| session.user == **user);
                let sessions: Vec<_> = of_user.map(|(id, _)| self.session(id)).collect();
                answer(200, json!({"sessions": sessions, "next_cursor": null}))
            }
            (method, _) => panic!("the fake shop does not know {method} {path}"),
        }
    }

    fn show_stock(&self, product: &str) -> Answer {
        let of_product = self.stock.iter().filter(|((id, _), _)| id == product);
        let zones: Vec<_> = of_product
            .map(|((_, zone), stock)| {
                json!({
                    "zone": zone,
                    "available": stock.received.saturating_sub(stock.sold),
                    "reserved": 0,
                    "sold": stock.sold,
                    "received": stock.received,
                })
            })
            .collect();
        answer(200, json!({"product_id": product, "zones": zones}))
    }

    fn place(&mut self, key: &str, wish: &Value) -> Answer {
        let same = |order: &&Order| order.key == key && order.wish["user_id"] == wish["user_id"];
        // Every third time: a shop that always forgets would be too easy to find.
        let forgets = self.fault == Some(Fault::ForgetsKeys) && self.requests.is_multiple_of(3);
        if let Some(order) = self.orders.iter().find(same)
            && !forgets
        {
            if order.wish != *wish {
                return problem(422, "idempotency-key-reused");
            }
            return Answer {
                status: 200,
                body: order.shown.clone(),
                replayed: true,
            };
        }
        let zone = text(&wish["geo_zone"]);
        let lines = wish["lines"].as_array().unwrap().clone();
        for line in &lines {
            let stock = &self.stock[&(text(&line["product_id"]), zone.clone())];
            let pieces = line["quantity"].as_u64().unwrap();
            let left = match self.fault {
                Some(Fault::SellsWhatIsNotThere) => pieces,
                Some(Fault::SaysSoldOutTooEarly) => stock.received.saturating_sub(stock.sold + 1),
                _ => stock.received - stock.sold,
            };
            if left < pieces {
                return problem(409, "sold-out");
            }
        }
        let mut total = Decimal::ZERO;
        for line in &lines {
            let product = text(&line["product_id"]);
            let pieces = line["quantity"].as_u64().unwrap();
            total += self.prices[&product] * Decimal::from(pieces);
            self.stock.get_mut(&(product, zone.clone())).unwrap().sold += pieces;
        }
        if let Some(cart) = self.carts.get_mut(&text(&wish["cart_id"])) {
            cart.status = "ordered".into();
        }
        let now = self.tick();
        let shown = json!({
            "order_id": format!("o-{now}"),
            "user_id": wish["user_id"],
            "status": "created",
            "created_at": moment(now),
            "geo_zone": wish["geo_zone"],
            "address": wish["address"],
            "lines": lines,
            "total": total.to_string(),
        });
        self.orders.push(Order {
            key: key.to_owned(),
            wish: wish.clone(),
            shown: shown.clone(),
            in_history: true,
        });
        answer(201, shown)
    }

    /// Newest first; the cursor says how many were listed.
    fn list(&self, query: &str, belongs: impl Fn(&Order) -> bool) -> Answer {
        let parameter = |name: &str| {
            let found = query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            found.and_then(|number| number.parse::<usize>().ok())
        };
        let (limit, skip) = (
            parameter("limit").unwrap_or(20),
            parameter("cursor").unwrap_or(0),
        );
        let mut orders = self
            .orders
            .iter()
            .rev()
            .filter(|order| belongs(order))
            .skip(skip);
        let page: Vec<_> = orders
            .by_ref()
            .take(limit)
            .map(|order| order.shown.clone())
            .collect();
        let next = orders.next().map(|_| (skip + limit).to_string());
        answer(200, json!({"orders": page, "next_cursor": next}))
    }

    fn change_status(&mut self, id: &str, status: &Value) -> Answer {
        let Some(order) = self
            .orders
            .iter_mut()
            .find(|order| order.shown["order_id"] == *id)
        else {
            return problem(404, "no-such-order");
        };
        order.shown["status"] = status.clone();
        let shown = order.shown.clone();
        if *status == "cancelled" || *status == "returned" {
            for line in shown["lines"].as_array().unwrap() {
                let place = (text(&line["product_id"]), text(&shown["geo_zone"]));
                self.stock.get_mut(&place).unwrap().sold -= line["quantity"].as_u64().unwrap();
            }
        }
        answer(200, shown)
    }

    fn open_cart(&mut self, owner: &Value) -> Answer {
        let active = self
            .carts
            .iter()
            .find(|(_, cart)| cart.owner == *owner && cart.status == "active")
            .map(|(id, _)| id.clone());
        if let Some(id) = active
            && self.fault != Some(Fault::OpensTwoCarts)
        {
            return self.show_cart(200, &id);
        }
        let id = format!("c-{}", self.tick());
        let cart = Cart {
            owner: owner.clone(),
            status: "active".into(),
            items: BTreeMap::new(),
            merged_into: None,
        };
        self.carts.insert(id.clone(), cart);
        self.show_cart(201, &id)
    }

    fn show_cart(&self, status: u16, id: &str) -> Answer {
        match self.carts.get(id) {
            Some(_) => answer(status, self.cart(id)),
            None => problem(404, "no-such-cart"),
        }
    }

    fn cart(&self, id: &str) -> Value {
        let cart = &self.carts[id];
        let items: Vec<_> = cart
            .items
            .iter()
            .map(|(product, quantity)| json!({"product_id": product, "quantity": quantity}))
            .collect();
        json!({"cart_id": id, "status": cart.status, "items": items})
    }

    fn login(&mut self, body: &Value) -> Answer {
        let owner = json!({"user_id": body["user_id"]});
        let guest = json!({"session_id": body["guest_session_id"]});
        let guest = self.carts.iter().find(|(_, cart)| cart.owner == guest);
        let guest = guest.map(|(id, cart)| (id.clone(), cart.clone()));
        let again = self.fault == Some(Fault::MergesTwice);
        let outcome = match &guest {
            None => "nothing-to-merge",
            Some((_, guest)) if guest.merged_into.is_some() && !again => "already-merged",
            Some(_) => "merged",
        };
        let opened = self.open_cart(&owner);
        let cart_id = text(&opened.body["cart_id"]);
        if let (Some((guest_id, guest)), "merged") = (guest, outcome) {
            let cart = self.carts.get_mut(&cart_id).unwrap();
            for (product, quantity) in guest.items {
                *cart.items.entry(product).or_default() += quantity;
            }
            let guest = self.carts.get_mut(&guest_id).unwrap();
            guest.status = "abandoned".into();
            guest.merged_into = Some(cart_id.clone());
        }
        let session = self.open_session(&body["user_id"]).body;
        let cart = self.cart(&cart_id);
        answer(
            200,
            json!({"session": session, "cart": cart, "merge": {"outcome": outcome, "detail": null}}),
        )
    }

    fn open_session(&mut self, user: &Value) -> Answer {
        let now = self.tick();
        let id = format!("s-{now}");
        let session = Session {
            user: user.clone(),
            last_active: now,
            closed: false,
        };
        self.sessions.insert(id.clone(), session);
        answer(201, self.session(&id))
    }

    fn session(&self, id: &str) -> Value {
        let session = &self.sessions[id];
        let last_active = moment(session.last_active);
        json!({"session_id": id, "user_id": session.user, "last_active": last_active})
    }
}

/// Of a fixed width, as the shop's times are.
fn moment(clock: u64) -> String {
    format!("2026-11-16T00:00:00.{clock:06}Z")
}
