//! Three servers: the contract, and what a server that was away knows afterwards.
//!
//! One test, because three servers are as many as a small machine bears. Its parts take turns by the day, or it is the
//! one that `CARAVAN_THREE_SERVERS` names.

#![allow(clippy::unwrap_used)]

mod shop;

use std::ops::Range;
use std::time::{Duration, Instant};

use engine_api::{
    Change, Engine, Freshness, PartKey, PartsChange, ReadContext, Remedy, Scan, Timestamp,
};
use engine_cassandra::{CassandraConfig, Keyspace, Warning, schema};
use layout::{Collection, Field, Fields, Scope, Value};
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use shop::subject::keeps_the_contract;
use shop::{Shopkeeper, key, order};
use testbed::{CassandraCluster, ExclusiveCassandraCluster, Nodes, required_or_skip};

/// The server that goes away; the other two stay until they are stopped.
const AWAY: usize = 2;
const STAYING: [usize; 2] = [0, 1];
/// The server that has what no other has.
const ALONE: usize = 0;
const ORDERS: usize = 20;
const CATCH_UP_MAX: Duration = Duration::from_secs(120);
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// Tables of orders, and the columns that say whether two copies are the same.
const TABLES: [(&str, &str); 4] = [
    ("orders_by_id", "order_id, status, revision, turn, lines"),
    (
        "order_history",
        "user_id, created_at, order_id, status, revision, lines",
    ),
    (
        "orders_by_period",
        "created_at_day, created_at, order_id, revision",
    ),
    ("calendar", "table_name, period"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_keep_the_contract_and_a_lost_one_catches_up() {
    let cluster = CassandraCluster::exclusive(Nodes::Three);
    let Some(cluster) = required_or_skip(cluster, "Cassandra") else {
        return;
    };
    let layout = shop::layout("adr-010-1");
    let config = |prefix: &str| {
        let name = cluster.keyspace(prefix);
        shop::config_of(&layout, "cassandra", cluster.contact_points(), name)
    };
    for part in parts_of_today() {
        match part {
            Part::Contract => {
                let points = cluster.contact_points();
                let small = shop::config(points, cluster.keyspace("conformance"));
                drop(keeps_the_contract(small).await);
            }
            Part::Hints => hints_bring_what_was_missed(&cluster, config("hints")).await,
            Part::OneCopy => {
                let layout = shop::layout("cassandra-orders");
                let (points, name) = (cluster.contact_points(), cluster.keyspace("one_copy"));
                let carts = shop::config_of(&layout, "carts", points, name);
                what_one_server_alone_has_is_carried(&cluster, carts).await;
            }
            Part::Repair => without_hints_reads_and_repair_do(&cluster, config("repair")).await,
        }
        println!("three servers: {part:?} holds");
    }
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Contract,
    Hints,
    /// This one and the last switch hints off.
    OneCopy,
    Repair,
}

/// One each day, all of them with `cargo xtask test --all`: together they take ten minutes.
fn parts_of_today() -> Vec<Part> {
    let all = [Part::Contract, Part::Hints, Part::OneCopy, Part::Repair];
    if let Ok(named) = std::env::var("CARAVAN_THREE_SERVERS") {
        let part = all.iter().find(|part| format!("{part:?}") == named);
        return vec![*part.unwrap_or_else(|| panic!("no part {named} among {all:?}"))];
    }
    if std::env::var_os("CARAVAN_TESTBED_ALL").is_some() {
        return all.to_vec();
    }
    let since_epoch = std::time::UNIX_EPOCH.elapsed().unwrap();
    let day = since_epoch.as_secs() / (24 * 60 * 60);
    vec![all[usize::try_from(day).unwrap() % all.len()]]
}

async fn hints_bring_what_was_missed(cluster: &ExclusiveCassandraCluster, config: CassandraConfig) {
    let keyspace = config.keyspace.clone();
    let engine = shop::open(config).await;
    let expected = outage(cluster, &Shopkeeper::new(&engine), &keyspace).await;
    let start = Instant::now();
    loop {
        hints_arrive(cluster).await;
        let found = alone(cluster, &keyspace).await;
        // A hint that still lies in a buffer is not among those that are listed.
        if found == expected || start.elapsed() >= CATCH_UP_MAX {
            return assert_eq!(found, expected);
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// Carts are written at ONE: a change may stand on one server, and be acknowledged (W25).
async fn what_one_server_alone_has_is_carried(
    cluster: &ExclusiveCassandraCluster,
    config: CassandraConfig,
) {
    let table = format!("{}.carts_by_id", config.keyspace.name);
    let engine = shop::open(config).await;
    let keeper = Shopkeeper::new(&engine);
    let line = (PartKey::line("lamp"), shop::item(2));
    let cart = shop::cart("cart-1", (Field::UserId, "ann"), vec![line]);
    let key = cart.key().clone();
    keeper.persist(cart).await;
    nodetool(cluster, ALONE, "disablehandoff");
    let others = (0..cluster.contact_points().len()).filter(|server| *server != ALONE);
    for server in others.clone() {
        cluster.kill9(server).unwrap();
    }
    another_line_on(cluster, &table).await;
    for server in others {
        cluster.restart(server).unwrap();
    }
    all_up(cluster).await;

    let of_every_copy = || ReadContext {
        freshness: Freshness::OfEveryCopy,
        ..keeper.reading()
    };
    let desk = PartKey::line("desk");
    let image = eventually(async || engine.get(&key, of_every_copy()).await).await;
    assert!(image.unwrap().parts.contains_key(&desk));
    let scan = Scan {
        collection: Collection::Carts,
        scope: Scope::All,
        after: None,
        until: None,
        limit: 10,
    };
    let page = eventually(async || engine.scan(&scan).await).await;
    assert!(page.images[0].parts.contains_key(&desk));

    // Those who buy go on without the one server; who carries the cart away does not go without its line.
    cluster.kill9(ALONE).unwrap();
    let image = eventually(async || engine.get(&key, keeper.reading()).await).await;
    assert!(!image.unwrap().parts.contains_key(&desk));
    let refused = engine.get(&key, of_every_copy()).await.unwrap_err();
    assert_eq!(refused.remedy(), Remedy::Retry, "{refused}");
    cluster.restart(ALONE).unwrap();
    all_up(cluster).await;
}

/// A line that a shopper added, as the one server has it that took it.
async fn another_line_on(cluster: &ExclusiveCassandraCluster, table: &str) {
    let session = shop::bare_driver_of_one(cluster.contact_points()[ALONE]).await;
    let of_lamp = async |column: &str| {
        let all = format!("SELECT name, {column} FROM {table} WHERE cart_id = 'cart-1'");
        let rows = eventually(async || shop::try_rows(&session, &all, Consistency::One).await);
        let rows = rows.await;
        let of_lamp = rows.iter().find_map(|row| row.strip_prefix("lamp | "));
        of_lamp.unwrap().to_owned()
    };
    let (origin, revision) = (
        of_lamp("CAST(origin AS int)").await,
        of_lamp("part_revision").await,
    );
    let content = of_lamp("content").await;
    let insert = format!(
        "INSERT INTO {table} (cart_id, origin, kind, name, subname, part_revision, part_live, content) \
         VALUES ('cart-1', {origin}, '{}', 'desk', '', {revision}, true, '{content}')",
        of_lamp("kind").await,
    );
    let mut insert = Statement::new(insert);
    insert.set_consistency(Consistency::One);
    session.query_unpaged(insert, ()).await.unwrap();
}

/// Asks until the servers have found each other again.
async fn eventually<T, E: std::fmt::Display>(mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    let start = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(start.elapsed() < CATCH_UP_MAX, "{error}"),
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

async fn without_hints_reads_and_repair_do(
    cluster: &ExclusiveCassandraCluster,
    mut config: CassandraConfig,
) {
    for server in STAYING {
        nodetool(cluster, server, "disablehandoff");
    }
    config.keyspace.settings.sampled_repair_percent = Some(100);
    let keyspace = config.keyspace.clone();
    let engine = shop::open(config).await;
    let is_about_hints = |warning: &Warning| matches!(warning, Warning::HintsOff { .. });
    assert!(engine.warnings().iter().any(is_about_hints));
    let keeper = Shopkeeper::new(&engine);
    let expected = outage(cluster, &keeper, &keyspace).await;
    let behind = alone(cluster, &keyspace).await;
    assert_ne!(behind, expected, "without hints something must be missing");

    // The first half was paid meanwhile: read often enough, it comes by itself.
    reads_reach_all(&keeper, 0..ORDERS / 2).await;
    let is_paid = |row: &&String| row.starts_with("orders_by_id") && row.contains("paid");
    let paid = |rows: &[String]| rows.iter().filter(is_paid).count();
    assert_eq!(
        (paid(&behind), paid(&alone(cluster, &keyspace).await)),
        (0, ORDERS / 2)
    );

    for server in 0..cluster.contact_points().len() {
        let repair = cluster.nodetool(server, &schema::repair_arguments(&keyspace));
        repair.expect("all servers are up");
    }
    assert_eq!(alone(cluster, &keyspace).await, expected);
}

/// Writes orders, more of them while one server is gone, and answers what the
/// others hold when it is back.
async fn outage(
    cluster: &ExclusiveCassandraCluster,
    keeper: &Shopkeeper<'_>,
    keyspace: &Keyspace,
) -> Vec<String> {
    for number in 0..ORDERS / 2 {
        keeper.persist(numbered_order(number)).await;
    }
    cluster.kill9(AWAY).unwrap();
    for number in 0..ORDERS {
        if number < ORDERS / 2 {
            pay(keeper, number).await;
        } else {
            keeper.persist(numbered_order(number)).await;
        }
    }
    let expected = contents(cluster, keyspace, STAYING[0], Consistency::Quorum).await;
    cluster.restart(AWAY).unwrap();
    // It will be asked alone, and should soon notice that nobody else answers.
    for kind in ["read", "range"] {
        nodetool(cluster, AWAY, &format!("settimeout {kind} 3000"));
    }
    all_up(cluster).await;
    expected
}

fn numbered_order(number: usize) -> Change {
    let at = 1_709_164_800_000_000 + i64::try_from(number).unwrap() * 3_600_000_000;
    order(
        &format!("order-{number:02}"),
        "ann",
        Timestamp::from_unix_micros(at),
    )
}

async fn pay(keeper: &Shopkeeper<'_>, number: usize) {
    let key = key(Collection::Orders, &format!("order-{number:02}"));
    let order = loop {
        match keeper.engine.get(&key, keeper.reading()).await {
            Ok(order) => break order.expect("the order is there"),
            Err(_) => tokio::time::sleep(BETWEEN_LOOKS).await,
        }
    };
    let header: Fields = order.header.content.live().unwrap().clone();
    let change = Change::ChangeIf {
        key,
        expected: order.header.revision,
        header: header.with(Field::Status, Value::text("paid")),
        parts: PartsChange::Keep,
    };
    keeper.persist(change).await;
}

/// What the server that was away answers by itself, at ONE, while the others stand still.
async fn alone(cluster: &ExclusiveCassandraCluster, keyspace: &Keyspace) -> Vec<String> {
    for server in STAYING {
        cluster.pause(server).unwrap();
    }
    let found = contents(cluster, keyspace, AWAY, Consistency::One).await;
    for server in STAYING {
        cluster.resume(server).unwrap();
    }
    all_up(cluster).await;
    found
}

async fn contents(
    cluster: &ExclusiveCassandraCluster,
    keyspace: &Keyspace,
    server: usize,
    level: Consistency,
) -> Vec<String> {
    let session = shop::bare_driver_of_one(cluster.contact_points()[server]).await;
    let mut found = Vec::new();
    for (table, columns) in TABLES {
        let statement = format!("SELECT {columns} FROM {}.{table}", keyspace.name);
        let start = Instant::now();
        let rows = loop {
            // A server asks others that it does not yet know to be gone, and waits in vain.
            match shop::try_rows(&session, &statement, level).await {
                Ok(rows) => break rows,
                Err(error) => assert!(start.elapsed() < CATCH_UP_MAX, "{error}"),
            }
        };
        found.extend(rows.into_iter().map(|row| format!("{table} | {row}")));
    }
    found.sort();
    found
}

/// Waits until no server keeps a hint for another.
async fn hints_arrive(cluster: &ExclusiveCassandraCluster) {
    let start = Instant::now();
    for server in STAYING {
        loop {
            let pending = nodetool(cluster, server, "listpendinghints");
            if pending.contains("No pending hints") || pending.contains("does not have any pending")
            {
                break;
            }
            assert!(start.elapsed() < CATCH_UP_MAX, "hints stay: {pending}");
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }
}

/// Waits until every server knows that all are up and normal.
async fn all_up(cluster: &ExclusiveCassandraCluster) {
    let start = Instant::now();
    for server in 0..cluster.contact_points().len() {
        loop {
            let status = nodetool(cluster, server, "status");
            if status.lines().filter(|line| line.starts_with("UN")).count() == 3 {
                break;
            }
            assert!(start.elapsed() < CATCH_UP_MAX, "not all are up: {status}");
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }
}

/// Each of these orders is read until its read was repeated at ALL.
async fn reads_reach_all(keeper: &Shopkeeper<'_>, numbers: Range<usize>) {
    let start = Instant::now();
    let counts = || keeper.engine.sampled_reads();
    for number in numbers {
        let key = key(Collection::Orders, &format!("order-{number:02}"));
        let before = counts();
        while counts().repeated == before.repeated {
            assert!(start.elapsed() < CATCH_UP_MAX, "{:?}", counts());
            let failed = counts().failed;
            // A read that fails is not repeated: the driver has not found the servers yet.
            if keeper.engine.get(&key, keeper.reading()).await.is_ok() {
                while counts().repeated == before.repeated && counts().failed == failed {
                    tokio::time::sleep(BETWEEN_LOOKS / 50).await;
                }
            }
        }
    }
}

fn nodetool(cluster: &ExclusiveCassandraCluster, server: usize, command: &str) -> String {
    let arguments: Vec<String> = command.split(' ').map(str::to_owned).collect();
    cluster
        .nodetool(server, &arguments)
        .expect("the server is up")
}
