//! What the writer said was acknowledged, kept on disk by the judge.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    Order { number: u64 },
    Session { number: u64 },
    Cart { cart: u64, quantity: u64 },
    Failed { error: String },
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Order { number } => write!(f, "order {number}"),
            Line::Session { number } => write!(f, "session {number}"),
            Line::Cart { cart, quantity } => write!(f, "cart {cart} {quantity}"),
            Line::Failed { error } => write!(f, "failed {error}"),
        }
    }
}

impl Line {
    pub fn parse(text: &str) -> Option<Line> {
        let (kind, rest) = text.split_once(' ')?;
        Some(match kind {
            "order" => Line::Order {
                number: rest.parse().ok()?,
            },
            "session" => Line::Session {
                number: rest.parse().ok()?,
            },
            "cart" => {
                let (cart, quantity) = rest.split_once(' ')?;
                Line::Cart {
                    cart: cart.parse().ok()?,
                    quantity: quantity.parse().ok()?,
                }
            }
            "failed" => Line::Failed {
                error: rest.to_owned(),
            },
            _ => return None,
        })
    }
}

/// Lines on disk before they are believed.
pub struct Ledger {
    file: File,
    pub lines: Vec<Line>,
}

impl Ledger {
    pub fn create(path: &Path) -> Ledger {
        Ledger {
            file: File::create(path).expect("the ledger can be made"),
            lines: Vec::new(),
        }
    }

    /// Takes what the writer said; a line cut short by the kill was not said.
    pub fn take(&mut self, said: &str) {
        self.file
            .write_all(said.as_bytes())
            .expect("the ledger can be written");
        self.file.sync_all().expect("the ledger can be synced");
        let whole = said.rfind('\n').map_or("", |end| &said[..end]);
        for text in whole.lines() {
            self.lines
                .push(Line::parse(text).unwrap_or_else(|| panic!("the writer said {text:?}")));
        }
    }
}
