//! One order of one user, and what becomes of it.

use serde_json::json;

use crate::PATIENT;
use crate::place::{MAY_DIE, Place, was_killed};
use crate::support::{Answer, Server};

/// Received of each product in the only zone.
pub const RECEIVED: u64 = 10;

/// Whether the order counts in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bought {
    Yes,
    No,
}

impl Bought {
    pub fn when(decided: bool) -> Bought {
        match decided {
            true => Bought::Yes,
            false => Bought::No,
        }
    }
}

/// One order of one user, with two products of its own and a cart.
pub struct Case {
    user: String,
    pub products: [String; 2],
    cart: String,
}

impl Case {
    pub fn prepared(witness: &Server, name: &str) -> Case {
        let user = format!("U-{name}");
        let products = [1, 2].map(|number| format!("/v1/products/P-{name}-{number}"));
        for product in &products {
            let page = json!({"category": "phones", "name": name, "price": "100"});
            witness.put(product, &page);
            witness.put(
                &format!("{product}/stock/moscow"),
                &json!({"received": RECEIVED}),
            );
        }
        let cart = witness.post("/v1/carts", &json!({"user_id": user}).to_string());
        let cart = cart.json()["cart_id"].as_str().unwrap().to_owned();
        Case {
            user,
            products,
            cart,
        }
    }

    /// The order was sent to a process that ended at the step.
    pub fn killed(place: &Place, witness: &Server, group: &str, step: &str) -> Case {
        let name = format!("{group}-{}", step.replace(':', "-"));
        let case = Case::prepared(witness, &name);
        case.dies_on(place, step, |server| case.attempt(server));
        case
    }

    pub fn dies_on(&self, place: &Place, step: &str, act: impl Fn(&Server) -> Option<Answer>) {
        let server = place.serve(&[PATIENT, ("CARAVAN_FAULT_POINT", step), MAY_DIE]);
        let answer = act(&server);
        assert!(answer.is_none(), "{step}: {}", answer.unwrap().text);
        was_killed(server, step);
    }

    pub fn attempt(&self, server: &Server) -> Option<Answer> {
        let line = |product: &String, quantity: u32| {
            let id = product.rsplit('/').next().unwrap();
            json!({"product_id": id, "category": "phones", "quantity": quantity, "price": "100"})
        };
        let lines = [line(&self.products[0], 2), line(&self.products[1], 1)];
        let body = json!({"user_id": self.user, "geo_zone": "moscow", "address": "Tverskaya 1",
            "payment_method": "card", "lines": lines, "cart_id": self.cart});
        let key = [("Idempotency-Key", "key")];
        server
            .attempt("POST", "/v1/orders", &key, &body.to_string())
            .ok()
    }

    pub fn order(&self, server: &Server) -> Answer {
        self.attempt(server).expect("this one stays alive")
    }

    /// Once or not at all, on both engines, and for every reader.
    pub fn judge(&self, place: &Place, witness: &Server, bought: Bought) {
        let times = u64::from(bought == Bought::Yes);
        let sold = [2 * times, times];
        for (product, sold) in self.products.iter().zip(sold) {
            assert_eq!(
                stock(witness, product),
                [RECEIVED - sold, 0, sold],
                "{}",
                self.user
            );
        }
        let orders = witness
            .get(&format!("/v1/users/{}/orders", self.user))
            .json();
        let orders = orders["orders"].as_array().unwrap();
        let created = orders.iter().filter(|order| order["status"] == "created");
        assert_eq!(created.count() as u64, times, "{orders:?}");
        assert!(orders.len() <= 1, "{orders:?}");
        let rows = place.rows_of(&format!("orders_by_user WHERE user_id = '{}'", self.user));
        assert_eq!(rows, 1, "{}: by a bare connection", self.user);
        let repeat = self.order(witness);
        let expected = if bought == Bought::Yes { 200 } else { 409 };
        assert_eq!(repeat.status, expected, "{}: {}", self.user, repeat.text);
        for (product, sold) in self.products.iter().zip(sold) {
            assert_eq!(
                stock(witness, product),
                [RECEIVED - sold, 0, sold],
                "{}",
                self.user
            );
        }
        let cart = witness.get(&format!("/v1/carts/{}", self.cart)).json();
        let status = if bought == Bought::Yes {
            "ordered"
        } else {
            "active"
        };
        assert_eq!(cart["status"], status, "{}", self.user);
    }
}

/// Available, reserved and sold; together they are what was received.
pub fn stock(server: &Server, product: &str) -> [u64; 3] {
    let zones = server.get(&format!("{product}/stock")).json();
    let count = |name: &str| zones["zones"][0][name].as_u64().unwrap();
    let counts = ["available", "reserved", "sold"].map(count);
    assert_eq!(counts.iter().sum::<u64>(), count("received"), "{zones}");
    counts
}
