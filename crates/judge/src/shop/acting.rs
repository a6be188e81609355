//! One request of a shopper: its intent into the ledger, the request, what came of it into the ledger.

use std::cell::Cell;

use serde_json::json;

use crate::client::{Answer, Client, Reply};
use crate::ledger::{Done, Entry, Ledger, Operation, Wish};
use crate::wire::{OrderPage, Owner};

/// One page. More than a shopper's last orders, which have to be on it.
const HISTORY_ORDERS: usize = 100;

/// Numbers the requests of all shoppers.
#[derive(Debug)]
pub struct Scribe {
    ledger: Ledger,
    next: Cell<u64>,
}

#[derive(Clone, Debug)]
pub enum Performed {
    Done(Done),
    Refused { code: String },
    Unknown,
}

impl Scribe {
    pub fn new(ledger: Ledger) -> Scribe {
        Scribe {
            ledger,
            next: Cell::new(0),
        }
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub async fn perform(&self, client: &mut Client, wish: Wish) -> anyhow::Result<Performed> {
        let operation = Operation(self.next.replace(self.next.get() + 1));
        self.ledger.write(&Entry::Intent {
            operation,
            wish: wish.clone(),
        })?;
        match send(client, &wish).await {
            Reply::Answered(answer) => {
                let done = done(&wish, &answer)?;
                let entry = Entry::Acknowledged {
                    operation,
                    done: done.clone(),
                };
                self.ledger.write_synced(&entry).await?;
                Ok(Performed::Done(done))
            }
            Reply::Refused { status, code } => {
                let entry = Entry::Refused {
                    operation,
                    status,
                    code: code.clone(),
                };
                self.ledger.write_synced(&entry).await?;
                Ok(Performed::Refused { code })
            }
            Reply::Unknown { .. } => Ok(Performed::Unknown),
        }
    }
}

async fn send(client: &mut Client, wish: &Wish) -> Reply {
    match wish {
        Wish::Order { key, order } => client.order(key, order).await,
        Wish::Status { order_id, status } => {
            let path = format!("/v1/orders/{order_id}/status");
            client.post(&path, &json!({"status": status})).await
        }
        Wish::OpenCart { owner } => {
            let body = match owner {
                Owner::UserId(id) => json!({"user_id": id}),
                Owner::SessionId(id) => json!({"session_id": id}),
            };
            client.post("/v1/carts", &body).await
        }
        Wish::PutItem {
            cart_id,
            product_id,
            quantity,
        } => {
            let path = format!("/v1/carts/{cart_id}/items/{product_id}");
            client.put(&path, &json!({"quantity": quantity})).await
        }
        Wish::RemoveItem {
            cart_id,
            product_id,
        } => {
            let path = format!("/v1/carts/{cart_id}/items/{product_id}");
            client.delete(&path).await
        }
        Wish::CloseCart { cart_id, status } => {
            let path = format!("/v1/carts/{cart_id}/close");
            client.post(&path, &json!({"status": status})).await
        }
        Wish::Login {
            user_id,
            guest_session_id,
        } => {
            let body = json!({"user_id": user_id, "guest_session_id": guest_session_id});
            client.post("/v1/login", &body).await
        }
        Wish::OpenSession => client.post("/v1/sessions", &json!({})).await,
        Wish::TouchSession { session_id } => {
            client
                .post_nothing(&format!("/v1/sessions/{session_id}/touch"))
                .await
        }
        Wish::CloseSession { session_id } => {
            client.delete(&format!("/v1/sessions/{session_id}")).await
        }
        Wish::LookAtCart { cart_id } => client.get(&format!("/v1/carts/{cart_id}")).await,
        Wish::LookAtOrder { order_id } => client.get(&format!("/v1/orders/{order_id}")).await,
        Wish::LookAtHistory { user_id } => {
            let path = format!("/v1/users/{user_id}/orders?limit={HISTORY_ORDERS}");
            client.get(&path).await
        }
    }
}

fn done(wish: &Wish, answer: &Answer) -> anyhow::Result<Done> {
    Ok(match wish {
        Wish::Order { .. } | Wish::Status { .. } | Wish::LookAtOrder { .. } => {
            Done::Order(answer.parse()?)
        }
        Wish::OpenCart { .. }
        | Wish::PutItem { .. }
        | Wish::RemoveItem { .. }
        | Wish::CloseCart { .. }
        | Wish::LookAtCart { .. } => Done::Cart(answer.parse()?),
        Wish::Login { .. } => Done::Login(answer.parse()?),
        Wish::OpenSession | Wish::TouchSession { .. } => Done::Session(answer.parse()?),
        Wish::CloseSession { .. } => Done::SessionClosed,
        Wish::LookAtHistory { .. } => Done::History(answer.parse::<OrderPage>()?.orders),
    })
}
