//! The judge: kills, reopens, compares with its ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use engine_api::layout::{AccessPath, Field, Value};
use engine_api::{
    Engine, JournalEvent, PartKey, Position, Query, Record, RecordId, RecordKey, stock_of,
};
use engine_embedded::EmbeddedEngine;

use crate::ledger::{Ledger, Line};
use crate::shop;

pub fn kills_lose_nothing(kills: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut ledger = Ledger::create(&folder.path().join("ledger"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    for round in 1..=kills {
        let start = ledger.lines.len();
        // Every fourth round writes so much that the kill meets checkpoints.
        let load = if round % 4 == 0 { "heavy" } else { "ordinary" };
        let mut writer = start_writer(&folder.path().join("shop"), round, load, None);
        let pause = Duration::from_millis(20 + random() % 480);
        ledger.take(&listen_then_kill(&mut writer, pause));
        let engine = shop::open(&folder.path().join("shop"));
        // Each round its own lines; the last one looks at all of them.
        let from = if round == kills { 0 } else { start };
        runtime.block_on(judge(&engine, &ledger.lines[from..]));
    }
    assert!(
        ledger.lines.len() > 1000,
        "only {} writes were acknowledged",
        ledger.lines.len()
    );
    println!(
        "{kills} kills, {} writes acknowledged, none lost",
        ledger.lines.len()
    );
}

/// Where the writer meets the end of the disk. A limit on the size of files
/// stands for it: the same failure in the same calls, on any machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// There is no room for the first segment of the log.
    FromTheStart,
    /// Segments fit, tables do not.
    ForTables,
    /// In the middle of a segment, once the engine runs.
    ForTheLog,
}

impl Full {
    /// The limit, before and after the engine is opened.
    fn file_kib_max(self) -> (Option<u64>, Option<u64>) {
        match self {
            Full::FromTheStart => (Some(8 * 1024), None),
            Full::ForTables => (Some(20 * 1024), None),
            Full::ForTheLog => (None, Some(8 * 1024)),
        }
    }
}

pub fn a_full_disk_loses_nothing(full: Full, reason: &str, writes_min: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shop");
    let mut ledger = Ledger::create(&folder.path().join("ledger"));
    let mut writer = start_writer(&path, 1, "heavy", Some(full));
    let mut said = String::new();
    let output = writer.stdout.as_mut().expect("the writer has an output");
    output
        .read_to_string(&mut said)
        .expect("the writer's lines");
    let status = writer.wait().expect("the writer ends");
    ledger.take(&said);
    let failed = ledger.lines.iter().find_map(|line| match line {
        Line::Failed { error } => Some(error.clone()),
        _ => None,
    });
    let failed = failed.unwrap_or_else(|| panic!("the writer ended with {status} and no reason"));
    assert!(failed.contains("large"), "{failed}");
    assert!(failed.contains(reason), "{failed}");
    ledger
        .lines
        .retain(|line| !matches!(line, Line::Failed { .. }));
    assert!(
        ledger.lines.len() >= writes_min,
        "only {} writes before the disk was full",
        ledger.lines.len()
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(judge(&shop::open(&path), &ledger.lines));
    println!(
        "a full disk after {} writes, none lost: {failed}",
        ledger.lines.len()
    );
}

fn start_writer(path: &Path, round: u64, load: &str, full: Option<Full>) -> Child {
    let itself = std::env::current_exe().expect("this executable has a path");
    let (from_the_start, once_open) = full.map_or((None, None), Full::file_kib_max);
    let mut command = match full {
        None => Command::new(itself),
        Some(_) => {
            let mut shell = Command::new("bash");
            let limit = from_the_start.map_or("unlimited".to_owned(), |kib| kib.to_string());
            let script = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$0\" \"$@\"");
            shell.arg("-c").arg(script).arg(itself);
            shell
        }
    };
    let once_open = once_open.map_or("unlimited".to_owned(), |kib| kib.to_string());
    command
        .arg("writer")
        .arg(path)
        .arg(round.to_string())
        .arg(load)
        .arg(once_open);
    command
        .stdout(Stdio::piped())
        .spawn()
        .expect("the writer starts")
}

/// Listens from the first acknowledgement on, kills after `pause`, and hears
/// out what was said before the kill.
fn listen_then_kill(writer: &mut Child, pause: Duration) -> String {
    let mut output = writer.stdout.take().expect("the writer has an output");
    let mut first = [0; 1];
    output
        .read_exact(&mut first)
        .expect("the writer acknowledges something");
    let listener = std::thread::spawn(move || {
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).map(|_| rest)
    });
    std::thread::sleep(pause);
    writer.kill().expect("the writer is ours to kill");
    writer.wait().expect("the writer ends");
    let rest = listener
        .join()
        .expect("the listener ends")
        .expect("the pipe can be read");
    let said = [&first[..], &rest].concat();
    String::from_utf8(said).expect("the writer says text")
}

async fn judge(engine: &EmbeddedEngine, acknowledged: &[Line]) {
    let by_period = list(engine, AccessPath::OrdersByPeriod, Vec::new()).await;
    let by_period: BTreeSet<RecordId> = by_period.into_iter().map(|order| order.key.id).collect();
    let mut by_user: BTreeMap<(AccessPath, String), BTreeSet<RecordId>> = BTreeMap::new();
    let mut quantities: BTreeMap<u64, u64> = BTreeMap::new();
    for line in acknowledged {
        match line {
            Line::Order { number } => {
                let key = shop::order_key(*number);
                assert!(present(engine, &key).await, "{line}: lost");
                assert!(
                    by_period.contains(&key.id),
                    "{line}: not in orders by period"
                );
                let path = AccessPath::OrdersByUser;
                assert!(
                    of_user(engine, &mut by_user, path, *number)
                        .await
                        .contains(&key.id),
                    "{line}: not in orders by user"
                );
            }
            Line::Session { number } => {
                let key = shop::session_key(*number);
                assert!(present(engine, &key).await, "{line}: lost");
                let path = AccessPath::SessionsByUser;
                assert!(
                    of_user(engine, &mut by_user, path, *number)
                        .await
                        .contains(&key.id),
                    "{line}: not in sessions by user"
                );
            }
            Line::Cart { cart, quantity } => {
                let last = quantities.entry(*cart).or_default();
                *last = (*last).max(*quantity);
            }
            Line::Failed { error } => panic!("the writer failed: {error}"),
        }
    }
    for (cart, quantity) in quantities {
        let record = engine
            .get(&shop::cart_key(cart), shop::read_context())
            .await
            .expect("a read");
        let record = record.unwrap_or_else(|| panic!("cart {cart}: lost"));
        let line = record
            .part(&PartKey::line("product-1"))
            .expect("the line was acknowledged");
        let found = line
            .get(Field::Quantity)
            .and_then(Value::as_int)
            .expect("a quantity");
        assert!(
            found >= quantity as i64,
            "cart {cart}: {quantity} was acknowledged, {found} is there"
        );
    }
    check_stock(engine, by_period.len() as u64).await;
    check_journal(engine, &by_period).await;
}

/// Every order sold one piece: the counts must add up, acknowledged or not.
async fn check_stock(engine: &EmbeddedEngine, orders: u64) {
    let mut sold = 0;
    for product in 0..shop::PRODUCTS {
        let record = engine
            .get(&shop::product_key(product), shop::read_context())
            .await
            .expect("a read");
        let Some(record) = record else { continue };
        let Some(fields) = record.part(&shop::stock_part()) else {
            continue;
        };
        // Reading it back refuses counts whose identity does not hold.
        let counts = stock_of(fields)
            .expect("available + reserved + sold = received")
            .counts();
        assert_eq!(counts.received, shop::RECEIVED);
        sold += counts.sold;
    }
    assert_eq!(sold, orders, "pieces sold and orders placed");
}

/// Numbers without a gap from the first on, and each order's creation once.
async fn check_journal(engine: &EmbeddedEngine, orders: &BTreeSet<RecordId>) {
    let mut from = Position(0u64.to_be_bytes().to_vec());
    let mut expected = 0u64;
    let mut created = BTreeSet::new();
    loop {
        let page = engine
            .journal_read(&from, 10_000)
            .await
            .expect("the journal can be read");
        if page.entries.is_empty() {
            break;
        }
        for entry in page.entries {
            expected += 1;
            assert_eq!(
                entry.position.0,
                expected.to_be_bytes(),
                "the journal has a gap"
            );
            if let JournalEvent::Changed {
                key: RecordKey { id, .. },
                ..
            } = entry.event
                && id.as_str().starts_with("order-")
            {
                assert!(
                    created.insert(id.clone()),
                    "{id} stands in the journal twice"
                );
            }
        }
        from = page.next;
    }
    assert_eq!(&created, orders, "orders in the journal and in the tables");
}

async fn present(engine: &EmbeddedEngine, key: &RecordKey) -> bool {
    let record = engine.get(key, shop::read_context()).await.expect("a read");
    record.is_some_and(|record| record.live_at(shop::at(0)).is_some())
}

async fn of_user<'a>(
    engine: &EmbeddedEngine,
    known: &'a mut BTreeMap<(AccessPath, String), BTreeSet<RecordId>>,
    path: AccessPath,
    number: u64,
) -> &'a BTreeSet<RecordId> {
    let user = shop::user(number);
    let key = (path, user.clone());
    if !known.contains_key(&key) {
        let found = list(engine, path, vec![Value::text(user)]).await;
        known.insert(
            key.clone(),
            found.into_iter().map(|record| record.key.id).collect(),
        );
    }
    &known[&key]
}

async fn list(engine: &EmbeddedEngine, path: AccessPath, equals: Vec<Value>) -> Vec<Record> {
    let mut query = Query::first(path, equals, 1000);
    let mut records = Vec::new();
    loop {
        let page = engine
            .query(&query, shop::read_context())
            .await
            .expect("a page");
        records.extend(page.records);
        match page.next {
            Some(cursor) => query = query.after(cursor),
            None => return records,
        }
    }
}

/// Different in every run: the moments of the kills are not to be repeated.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
