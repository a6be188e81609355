//! What the shoppers sent and what they were told, on disk before the next request is sent.
//!
//! A file per shopper, a line per event. The verdict is taken from the files alone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};

const FOLDER: &str = "ledger";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The only line of this cart is to have this quantity; each is one more than the last.
    CartSent {
        cart: String,
        quantity: u32,
    },
    CartAcknowledged {
        cart: String,
        quantity: u32,
    },
    OrderSent {
        key: String,
        user: String,
        quantity: u32,
    },
    OrderAcknowledged {
        key: String,
        order: String,
    },
    /// A shopper was shown less than it had been told before.
    ShownOlder {
        cart: String,
        told: u32,
        shown: u32,
    },
}

/// One shopper's pen.
#[derive(Debug)]
pub struct Pen(File);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub carts: BTreeMap<String, CartTold>,
    /// By their idempotency keys.
    pub orders: BTreeMap<String, OrderTold>,
    /// Cart changes that were acknowledged.
    pub cart_changes: u64,
    pub shown_older: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CartTold {
    pub sent: u32,
    pub acknowledged: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderTold {
    pub user: String,
    pub quantity: u32,
    /// `None`: the shop has not answered.
    pub order: Option<String>,
}

impl Pen {
    pub fn of_shopper(folder: &Path, number: u32) -> Result<Pen> {
        let folder = folder.join(FOLDER);
        let path = folder.join(format!("{number}.jsonl"));
        let made = fs::create_dir_all(&folder).and_then(|()| File::create_new(&path));
        Ok(Pen(made.with_context(|| unwritable(&path))?))
    }

    /// Before something is sent: it need not outlive this process.
    pub fn note(&mut self, event: &Event) -> Result<()> {
        let mut line = serde_json::to_string(event)?;
        line.push('\n');
        Ok(self.0.write_all(line.as_bytes())?)
    }

    /// After an answer: on disk before anything else is done.
    pub fn note_synced(&mut self, event: &Event) -> Result<()> {
        self.note(event)?;
        Ok(self.0.sync_data()?)
    }
}

impl Ledger {
    /// Everything that was written, of all shoppers.
    pub fn read(folder: &Path) -> Result<Ledger> {
        let folder = folder.join(FOLDER);
        let mut ledger = Ledger::default();
        for entry in fs::read_dir(&folder).with_context(|| unwritable(&folder))? {
            let path = entry?.path();
            let text = fs::read_to_string(&path)?;
            for line in text.lines() {
                let event = serde_json::from_str(line)
                    .map_err(|error| anyhow!("{} is damaged: {error}", path.display()))?;
                ledger.take(event);
            }
        }
        Ok(ledger)
    }

    pub fn take(&mut self, event: Event) {
        match event {
            Event::CartSent { cart, quantity } => {
                let told = self.carts.entry(cart).or_default();
                told.sent = told.sent.max(quantity);
            }
            Event::CartAcknowledged { cart, quantity } => {
                let told = self.carts.entry(cart).or_default();
                told.acknowledged = told.acknowledged.max(quantity);
                self.cart_changes += 1;
            }
            Event::OrderSent {
                key,
                user,
                quantity,
            } => {
                self.orders.entry(key).or_insert(OrderTold {
                    user,
                    quantity,
                    order: None,
                });
            }
            Event::OrderAcknowledged { key, order } => {
                if let Some(told) = self.orders.get_mut(&key) {
                    told.order = Some(order);
                }
            }
            Event::ShownOlder { cart, told, shown } => self.shown_older.push(format!(
                "cart {cart} showed {shown} after {told} was acknowledged"
            )),
        }
    }

    pub fn orders_acknowledged(&self) -> usize {
        let acknowledged = |told: &&OrderTold| told.order.is_some();
        self.orders.values().filter(acknowledged).count()
    }
}

fn unwritable(path: &Path) -> String {
    format!(
        "the ledger {} cannot be kept: free some room",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_read_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut pen = Pen::of_shopper(folder.path(), 1).unwrap();
        let cart = || "c-1".to_owned();
        pen.note(&Event::CartSent {
            cart: cart(),
            quantity: 1,
        })
        .unwrap();
        let acknowledged = Event::CartAcknowledged {
            cart: cart(),
            quantity: 1,
        };
        pen.note_synced(&acknowledged).unwrap();
        pen.note(&Event::CartSent {
            cart: cart(),
            quantity: 2,
        })
        .unwrap();
        let sent = Event::OrderSent {
            key: "k".to_owned(),
            user: "u".to_owned(),
            quantity: 3,
        };
        pen.note(&sent).unwrap();
        let ledger = Ledger::read(folder.path()).unwrap();
        let told = CartTold {
            sent: 2,
            acknowledged: 1,
        };
        assert_eq!(ledger.carts, BTreeMap::from([(cart(), told)]));
        assert_eq!((ledger.cart_changes, ledger.orders_acknowledged()), (1, 0));
        assert_eq!(ledger.orders["k"].quantity, 3);
    }
}
