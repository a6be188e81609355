//! Derived rows that do not follow their records: found from both sides, and mended (E25, W9).

mod shop;

use engine_api::{
    Authority, Change, Engine, Generation, Outcome, Patience, Query, RealWorld, Revision, RowFault,
    Stray, StrayEnd, StraySearch, Timestamp, World, WriteContext, Writer,
};
use engine_cassandra::CassandraEngine;
use layout::{AccessPath, Collection, Field, Scope, Value};
use scylla::client::session::Session;
use shop::Shopkeeper;

/// Long enough ago that nobody waits for a decision of then.
const LONG_AGO_S: i64 = 3_600;

struct Scene {
    _cluster: testbed::CassandraCluster,
    keyspace: String,
    engine: CassandraEngine,
    session: Session,
}

impl Scene {
    async fn open(prefix: &str) -> Option<Scene> {
        let cluster =
            testbed::required_or_skip(testbed::cassandra(testbed::Nodes::One), "Cassandra")?;
        let keyspace = cluster.keyspace(prefix);
        let engine = shop::open(shop::config(cluster.contact_points(), keyspace.clone())).await;
        let session = shop::bare_driver(cluster.contact_points()).await;
        Some(Scene {
            _cluster: cluster,
            keyspace,
            engine,
            session,
        })
    }

    async fn run(&self, statement: &str) {
        let statement = statement.replace("KS", &self.keyspace);
        let done = self.session.query_unpaged(statement, ()).await;
        done.expect("the statement fits the schema");
    }

    async fn rows(&self, table: &str) -> usize {
        let statement = format!("SELECT * FROM {}.{table}", self.keyspace);
        shop::rows(&self.session, &statement).await.len()
    }

    /// All of them, with pages as small as they can be.
    async fn strays(&self, collection: Collection) -> Vec<Stray> {
        let (mut strays, mut after) = (Vec::new(), None);
        loop {
            let search = StraySearch {
                collection,
                scope: Scope::All,
                after,
                limit: 1,
                patience: Patience::WithChanges,
                now: RealWorld::new().now(),
            };
            let page = self.engine.find_strays(&search).await;
            let page = page.expect("the server answers");
            strays.extend(page.strays);
            match page.next {
                Some(next) => after = Some(next),
                None => return strays,
            }
        }
    }

    async fn mend(&self, stray: &Stray) -> StrayEnd {
        let mended = self.engine.mend_stray(stray, RealWorld::new().now()).await;
        mended.expect("the server answers")
    }

    async fn put_row(&self, user: &str, status: &str, cart: &str, stamp: i64) {
        let row = format!("('{user}', '{status}', '{cart}', {stamp}) USING TIMESTAMP {stamp}");
        let into = "INSERT INTO KS.carts_by_user (user_id, status, cart_id, revision)";
        self.run(&format!("{into} VALUES {row}")).await;
    }
}

fn named(strays: &[Stray]) -> Vec<(&str, &str, RowFault)> {
    let mut named: Vec<_> = strays
        .iter()
        .map(|stray| (stray.table.as_str(), stray.id.as_str(), stray.fault))
        .collect();
    named.sort_by_key(|(table, id, _)| (table.to_owned(), id.to_owned()));
    named
}

fn long_ago() -> Revision {
    let then = RealWorld::new().now().checked_add_seconds(-LONG_AGO_S);
    Revision::at(then.expect("it was after 1970"), Writer::numbered(0))
}

#[tokio::test]
async fn a_row_that_is_missing_is_written_again_and_listed() {
    let Some(scene) = Scene::open("missing").await else {
        return;
    };
    let keeper = Shopkeeper::new(&scene.engine);
    for number in 0..3 {
        let id = format!("o-{number}");
        keeper.done(shop::order(&id, "ann", keeper.now())).await;
    }
    assert_eq!(scene.strays(Collection::Orders).await, []);
    // Deleted now, far above the revision they were written at, and their month with them.
    for table in ["order_history", "orders_by_period", "calendar"] {
        scene.run(&format!("TRUNCATE KS.{table}")).await;
    }
    let query = Query::first(AccessPath::OrdersByUser, vec![Value::text("ann")], 10);
    let strays = scene.strays(Collection::Orders).await;
    let missing = |table, id| (table, id, RowFault::Missing);
    let expected = ["o-0", "o-1", "o-2"].map(|id| missing("order_history", id));
    let periods = ["o-0", "o-1", "o-2"].map(|id| missing("orders_by_period", id));
    assert_eq!(named(&strays), [expected, periods].concat());
    let other = shop::open(shop::config(
        scene._cluster.contact_points(),
        scene.keyspace.clone(),
    ))
    .await;
    let listed = async || Shopkeeper::new(&other).page(&query).await.records.len();
    assert_eq!(listed().await, 0);
    for stray in &strays {
        assert_eq!(scene.mend(stray).await, StrayEnd::Mended);
        assert_eq!(scene.mend(stray).await, StrayEnd::Follows);
    }
    assert_eq!(listed().await, 3);
    assert_eq!(scene.strays(Collection::Orders).await, []);
}

/// A deletion with the clock's timestamp hides whatever is written at the old revision.
#[tokio::test]
async fn a_row_that_was_deleted_by_hand_is_written_above_the_deletion() {
    let Some(scene) = Scene::open("deleted").await else {
        return;
    };
    let keeper = Shopkeeper::new(&scene.engine);
    keeper
        .done(shop::cart("c1", (Field::UserId, "ann"), vec![]))
        .await;
    let row = "user_id = 'ann' AND status = 'active' AND cart_id = 'c1'";
    scene
        .run(&format!("DELETE FROM KS.carts_by_user WHERE {row}"))
        .await;
    let strays = scene.strays(Collection::Carts).await;
    assert_eq!(named(&strays), [("carts_by_user", "c1", RowFault::Missing)]);
    assert_eq!(scene.mend(&strays[0]).await, StrayEnd::Mended);
    let query = Query::first(AccessPath::ActiveCartByUser, vec![Value::text("ann")], 10);
    assert_eq!(keeper.page(&query).await.records.len(), 1);
}

#[tokio::test]
async fn rows_that_no_record_has_go_and_those_of_a_change_under_way_stay() {
    let Some(scene) = Scene::open("outgrown").await else {
        return;
    };
    let old = long_ago();
    assert!(create_at("c1", old, &scene.engine).await.is_done());
    scene
        .put_row("ann", "ordered", "c1", old.to_i64() - 1)
        .await;
    scene.put_row("bob", "active", "ghost", old.to_i64()).await;
    // Of a change that is decided this very moment, of a creation, and one that the
    // change which outgrew it is about to delete.
    let keeper = Shopkeeper::new(&scene.engine);
    let young = keeper.done(shop::cart("c2", (Field::UserId, "ann"), vec![]));
    let young = young.await.to_i64();
    scene.put_row("ann", "abandoned", "c1", young).await;
    scene.put_row("eve", "active", "new", young).await;
    scene.put_row("ann", "ordered", "c2", young - 1).await;
    let strays = scene.strays(Collection::Carts).await;
    let outgrown = |id| ("carts_by_user", id, RowFault::Outgrown);
    assert_eq!(named(&strays), [outgrown("c1"), outgrown("ghost")]);
    for stray in &strays {
        assert_eq!(scene.mend(stray).await, StrayEnd::Mended);
    }
    assert_eq!(scene.strays(Collection::Carts).await, []);
    assert_eq!(scene.rows("carts_by_user").await, 5);
}

/// The creation that nobody waited for any more lands between the look and the mending.
#[tokio::test]
async fn a_row_that_its_record_has_got_meanwhile_stays() {
    let Some(scene) = Scene::open("late").await else {
        return;
    };
    let revision = long_ago();
    scene
        .put_row("ann", "active", "late", revision.to_i64())
        .await;
    let strays = scene.strays(Collection::Carts).await;
    assert_eq!(
        named(&strays),
        [("carts_by_user", "late", RowFault::Outgrown)]
    );
    let created = create_at("late", revision, &scene.engine).await;
    assert_eq!(created, Outcome::Done { revision });
    assert_eq!(scene.mend(&strays[0]).await, StrayEnd::Follows);
    assert_eq!(scene.rows("carts_by_user").await, 1);
    assert_eq!(scene.strays(Collection::Carts).await, []);
}

async fn create_at(id: &str, revision: Revision, engine: &CassandraEngine) -> Outcome {
    let now: Timestamp = RealWorld::new().now();
    let context = WriteContext {
        authority: Authority::Router {
            generation: Generation(1),
        },
        now,
        revision,
    };
    let create: Change = shop::cart(id, (Field::UserId, "ann"), vec![]);
    engine
        .apply(create, context)
        .await
        .expect("the server answers")
}
