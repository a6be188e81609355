//! What was intended and what was acknowledged, on disk before it is believed.
//!
//! One sequence of lines. An intent is written before its request is sent, an acknowledgement is synced before
//! it counts; being later in the same file, it has its intent before it on the disk too.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::wire::{Cart, CartStatus, Login, Order, OrderStatus, OrderWish, Owner, Session};

const GROUP_LINES_MAX: usize = 1024;

/// Names one request, in the order of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Operation(pub u64);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Entry {
    Intent {
        operation: Operation,
        wish: Wish,
    },
    Acknowledged {
        operation: Operation,
        done: Done,
    },
    /// Definitely not done.
    Refused {
        operation: Operation,
        status: u16,
        code: String,
    },
    /// The server is dead: what was not answered before never will be.
    Killed,
    /// What a cart was after a restart: from here on it stays so.
    Seen {
        cart: Cart,
    },
    /// Likewise an order.
    SeenOrder {
        order_id: String,
        status: OrderStatus,
    },
    /// The end of a judgement.
    Judged,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Wish {
    Order {
        key: String,
        order: OrderWish,
    },
    Status {
        order_id: String,
        status: OrderStatus,
    },
    OpenCart {
        owner: Owner,
    },
    PutItem {
        cart_id: String,
        product_id: String,
        quantity: u64,
    },
    RemoveItem {
        cart_id: String,
        product_id: String,
    },
    CloseCart {
        cart_id: String,
        status: CartStatus,
    },
    Login {
        user_id: String,
        guest_session_id: String,
    },
    OpenSession,
    TouchSession {
        session_id: String,
    },
    CloseSession {
        session_id: String,
    },
    /// Looks change nothing; what they show has to be what was acknowledged before.
    LookAtCart {
        cart_id: String,
    },
    LookAtOrder {
        order_id: String,
    },
    LookAtHistory {
        user_id: String,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Done {
    Order(Order),
    Cart(Cart),
    Login(Login),
    Session(Session),
    SessionClosed,
    History(Vec<Order>),
}

/// Many shoppers write to it; one thread syncs for all that wait.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    lines: mpsc::UnboundedSender<Line>,
}

#[derive(Debug)]
struct Line {
    text: Vec<u8>,
    /// Told when the line is on the disk.
    synced: Option<oneshot::Sender<()>>,
}

impl Ledger {
    /// Begins a ledger. An old one is evidence of another run and is left alone.
    pub fn create(path: &Path) -> anyhow::Result<Ledger> {
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(path)
            .with_context(|| {
                format!(
                    "the ledger {} cannot be begun; remove an old one with its data",
                    path.display()
                )
            })?;
        let (lines, received) = mpsc::unbounded_channel();
        let shown = path.display().to_string();
        std::thread::spawn(move || {
            // The sender's end is gone with the thread, and everyone who waits is told.
            if let Err(error) = write_lines(file, received) {
                eprintln!("the ledger {shown} cannot be written: {error}");
            }
        });
        Ok(Ledger {
            path: path.to_owned(),
            lines,
        })
    }

    /// Written, in order, before the caller's request is.
    pub fn write(&self, entry: &Entry) -> anyhow::Result<()> {
        self.put(entry, None)
    }

    /// Returns when the entry is on the disk.
    pub async fn write_synced(&self, entry: &Entry) -> anyhow::Result<()> {
        let (synced, waiting) = oneshot::channel();
        self.put(entry, Some(synced))?;
        waiting.await.context("the ledger has failed")
    }

    fn put(&self, entry: &Entry, synced: Option<oneshot::Sender<()>>) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(entry)?;
        text.push(b'\n');
        if self.lines.send(Line { text, synced }).is_err() {
            bail!("the ledger has failed");
        }
        Ok(())
    }

    pub fn reader(&self) -> anyhow::Result<Reader> {
        Reader::open(&self.path)
    }
}

fn write_lines(mut file: File, mut lines: mpsc::UnboundedReceiver<Line>) -> std::io::Result<()> {
    let mut group = Vec::with_capacity(GROUP_LINES_MAX);
    let mut bytes = Vec::new();
    while lines.blocking_recv_many(&mut group, GROUP_LINES_MAX) > 0 {
        bytes.clear();
        group
            .iter()
            .for_each(|line| bytes.extend_from_slice(&line.text));
        file.write_all(&bytes)?;
        if group.iter().any(|line| line.synced.is_some()) {
            file.sync_data()?;
        }
        for line in group.drain(..) {
            if let Some(synced) = line.synced {
                // A shopper that was stopped meanwhile does not wait any more.
                let _ = synced.send(());
            }
        }
    }
    Ok(())
}

/// Reads on from where it stopped.
#[derive(Debug)]
pub struct Reader {
    file: File,
    read_bytes: u64,
}

impl Reader {
    /// Of a ledger that may be complete already.
    pub fn open(path: &Path) -> anyhow::Result<Reader> {
        let file = File::open(path)
            .with_context(|| format!("the ledger {} cannot be read", path.display()))?;
        Ok(Reader {
            file,
            read_bytes: 0,
        })
    }

    /// Every entry written since the last call. Call it after a synced write, when nobody writes.
    pub fn read_on(&mut self, mut take: impl FnMut(Entry)) -> anyhow::Result<()> {
        self.file.seek(SeekFrom::Start(self.read_bytes))?;
        let mut lines = BufReader::new(&self.file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let bytes = lines.read_until(b'\n', &mut line)?;
            if bytes == 0 {
                return Ok(());
            }
            let entry = serde_json::from_slice(&line)
                .with_context(|| format!("the ledger is damaged at byte {}", self.read_bytes))?;
            take(entry);
            self.read_bytes += bytes as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_synced_is_read_back_in_order_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let ledger = Ledger::create(&path).unwrap();
        let mut reader = ledger.reader().unwrap();
        let intent = Entry::Intent {
            operation: Operation(1),
            wish: Wish::OpenSession,
        };
        ledger.write(&intent).unwrap();
        ledger.write_synced(&Entry::Killed).await.unwrap();
        let mut read = Vec::new();
        reader.read_on(|entry| read.push(entry)).unwrap();
        assert_eq!(read, [intent, Entry::Killed]);
        ledger.write_synced(&Entry::Killed).await.unwrap();
        read.clear();
        reader.read_on(|entry| read.push(entry)).unwrap();
        assert_eq!(read, [Entry::Killed]);
        assert!(Ledger::create(&path).is_err(), "an old ledger is evidence");
    }
}
