//! What a driver that knows nothing of us finds in the tables.

#![allow(clippy::unwrap_used)]

mod shop;

use engine_api::{Change, PartChange, PartKey, PartsChange, Timestamp, expiry_fields};
use engine_cassandra::CassandraEngine;
use layout::{Collection, Field};
use scylla::client::session::Session;
use shop::{Shopkeeper, cart, cart_header, item, key, order, patch};

struct Scene {
    _cluster: testbed::CassandraCluster,
    engine: CassandraEngine,
    session: Session,
    keyspace: String,
}

impl Scene {
    async fn open() -> Option<Scene> {
        let cluster =
            testbed::required_or_skip(testbed::cassandra(testbed::Nodes::One), "Cassandra")?;
        let config = shop::config(cluster.contact_points(), cluster.keyspace("copies"));
        let session = shop::bare_driver(cluster.contact_points()).await;
        let keyspace = config.keyspace.name.clone();
        let engine = shop::open(config).await;
        Some(Scene {
            _cluster: cluster,
            engine,
            session,
            keyspace,
        })
    }

    async fn rows(&self, columns: &str, table: &str) -> Vec<String> {
        let statement = format!("SELECT {columns} FROM {}.{table}", self.keyspace);
        shop::rows(&self.session, &statement).await
    }
}

#[tokio::test]
async fn an_order_stands_in_readable_columns_and_its_status_follows() {
    let Some(scene) = Scene::open().await else {
        return;
    };
    let keeper = Shopkeeper::new(&scene.engine);
    let at = Timestamp::from_unix_micros(1_709_164_800_123_456);
    let create = order("o1", "ann", at);
    let Change::CreateIfAbsent { key, header, .. } = create.clone() else {
        unreachable!("an order is created")
    };
    let revision = keeper.done(create).await;
    let columns = "user_id, created_at_month, created_at, order_id, status, total, lines";
    let line = "[(product_id lamp, category light, name Lamp, quantity 2, price 1990e-2)]";
    let row = |status: &str| {
        format!("ann | 2024-02 | 1709164800123456 | o1 | {status} | 3980e-2 | {line}")
    };
    assert_eq!(scene.rows(columns, "order_history").await, [row("created")]);
    assert_eq!(
        scene
            .rows("order_id, user_id, lines, other_lines", "orders_by_id")
            .await,
        [format!("o1 | ann | {line} | -")]
    );
    let paid = Change::ChangeIf {
        key,
        expected: revision,
        header: header.with(Field::Status, layout::Value::text("paid")),
        parts: PartsChange::Keep,
    };
    keeper.done(paid).await;
    assert_eq!(scene.rows(columns, "order_history").await, [row("paid")]);
    let days = "created_at_day, created_at, order_id";
    assert_eq!(
        scene.rows(days, "orders_by_period").await,
        ["2024-02-29 | 1709164800123456 | o1"]
    );
}

#[tokio::test]
async fn the_items_of_a_users_cart_stand_in_a_map_and_move_with_its_status() {
    let Some(scene) = Scene::open().await else {
        return;
    };
    let keeper = Shopkeeper::new(&scene.engine);
    let owner = (Field::UserId, "ann");
    let c1 = key(Collection::Carts, "c1");
    let lamp = || PartKey::line("lamp");
    let created = keeper
        .done(cart("c1", owner, vec![(lamp(), item(1))]))
        .await;
    let rug = vec![(PartKey::line("rug"), PartChange::Set(item(2)))];
    keeper.done(patch(&c1, rug)).await;
    let merged = vec![(PartKey::contribution("rug", "g1"), PartChange::Set(item(5)))];
    keeper.done(patch(&c1, merged)).await;
    keeper
        .done(patch(&c1, vec![(lamp(), PartChange::Set(item(3)))]))
        .await;
    let columns = "status, cart_id, items, merged_items";
    let of = |quantity: i64| format!("(name Lamp, quantity {quantity}, price 1990e-2)");
    assert_eq!(
        scene.rows(columns, "carts_by_user").await,
        [format!(
            "active | c1 | {{lamp: {}, rug: {}}} | {{(rug, g1): {}}}",
            of(3),
            of(2),
            of(5)
        )]
    );
    keeper
        .done(patch(&c1, vec![(lamp(), PartChange::Remove)]))
        .await;
    let ordered = Change::ChangeIf {
        key: c1,
        expected: created,
        header: cart_header("c1", owner, "ordered"),
        parts: PartsChange::Keep,
    };
    keeper.done(ordered).await;
    assert_eq!(
        scene.rows(columns, "carts_by_user").await,
        [format!(
            "ordered | c1 | {{rug: {}}} | {{(rug, g1): {}}}",
            of(2),
            of(5)
        )]
    );
}

#[tokio::test]
async fn the_items_of_a_guests_cart_stand_in_rows_that_end_after_the_cart() {
    let Some(scene) = Scene::open().await else {
        return;
    };
    let keeper = Shopkeeper::new(&scene.engine);
    const DAY_S: i64 = 86_400;
    let in_days =
        |days: i64| expiry_fields(keeper.now().checked_add_seconds(days * DAY_S).unwrap());
    let owner = (Field::SessionId, "s1");
    let g1 = key(Collection::Carts, "g1");
    let parts = vec![
        (PartKey::line("lamp"), item(1)),
        (PartKey::expiry(), in_days(7)),
    ];
    let created = keeper.done(cart("g1", owner, parts)).await;
    let rug = vec![(PartKey::line("rug"), PartChange::Set(item(2)))];
    keeper.done(patch(&g1, rug)).await;
    let columns = "session_id, status, cart_id, kind, product_id, quantity";
    let rows = [
        "s1 | active | g1 |  |  | -",
        "s1 | active | g1 | line | lamp | 1",
        "s1 | active | g1 | line | rug | 2",
    ];
    assert_eq!(scene.rows(columns, "carts_by_session").await, rows);

    // Seven days to live, windows of seven days: every row outlives the cart, by two windows at most.
    let ttls = async || -> Vec<i64> {
        let header = scene
            .rows("ttl(revision), ttl(quantity)", "carts_by_session")
            .await;
        let number = |text: &str| text.parse::<i64>().ok();
        let ttl = |row: &String| row.split(" | ").find_map(number).unwrap();
        header.iter().map(ttl).collect()
    };
    let before = ttls().await;
    assert!(
        before
            .iter()
            .all(|ttl| (7 * DAY_S..=21 * DAY_S).contains(ttl)),
        "{before:?}"
    );
    // Put off by a window, the rows are written anew, all of them.
    let touch = vec![(PartKey::expiry(), PartChange::Set(in_days(14)))];
    keeper.done(patch(&g1, touch)).await;
    let after = ttls().await;
    assert!(
        after
            .iter()
            .zip(&before)
            .all(|(after, before)| *after > before + 6 * DAY_S),
        "{before:?} {after:?}"
    );

    let abandoned = Change::ChangeIf {
        key: g1,
        expected: created,
        header: cart_header("g1", owner, "abandoned"),
        parts: PartsChange::Replace(vec![]),
    };
    keeper.done(abandoned).await;
    assert_eq!(
        scene.rows(columns, "carts_by_session").await,
        ["s1 | abandoned | g1 |  |  | -"]
    );
}
