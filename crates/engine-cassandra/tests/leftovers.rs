//! What a writer that died half-way leaves in the tables, and what readers make of it.

mod shop;

use engine_api::{
    Authority, Change, Engine, Freshness, Generation, JournalEvent, Outcome, Query, ReadContext,
    RealWorld, RecordId, RecordKey, Revision, World, WriteContext, Writer,
};
use engine_cassandra::{CassandraConfig, CassandraEngine, Warning};
use layout::{AccessPath, Collection, Field, Fields, Value};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

/// Pages after which a reader must have lost its patience.
const PAGES_MAX: usize = 200;
const BETWEEN_PAGES: std::time::Duration = std::time::Duration::from_millis(50);

struct Scene {
    _cluster: testbed::CassandraCluster,
    config: CassandraConfig,
    engine: CassandraEngine,
    /// Writes what an engine would not.
    session: Session,
}

impl Scene {
    async fn open(prefix: &str) -> Option<Scene> {
        let cluster =
            testbed::required_or_skip(testbed::cassandra(testbed::Nodes::One), "Cassandra")?;
        let config = CassandraConfig {
            request_timeout_ms: 1_900,
            unsettled_patience_ms: 2_000,
            ..shop::config(cluster.contact_points(), cluster.keyspace(prefix))
        };
        let engine = shop::open(config.clone()).await;
        let session = SessionBuilder::new()
            .known_nodes_addr(cluster.contact_points())
            .build()
            .await;
        let session = session.expect("the engine reached the same server");
        Some(Scene {
            _cluster: cluster,
            config,
            engine,
            session,
        })
    }

    async fn run(&self, statement: &str) {
        let statement = statement.replace("KS", &self.config.keyspace.name);
        self.session
            .query_unpaged(statement, ())
            .await
            .expect("the statement fits the schema");
    }

    /// Numbers of a lane with their states, as another process would leave them.
    async fn write_lane(&self, lane: &str, entries: &[(u64, &str)]) {
        self.run(&format!(
            "INSERT INTO KS.journal_lanes (anchor, lane, segment) VALUES ('lanes', '{lane}', 0) USING TIMESTAMP 1"
        ))
        .await;
        for (number, state) in entries {
            let step = if *state == "begun" { 1 } else { 2 };
            self.run(&format!(
                "INSERT INTO KS.journal (lane, segment, number, state, collection, id, shard_key, \
                 kind, revision, written_at) VALUES ('{lane}', 0, {number}, '{state}', 'carts', \
                 '{lane}-{number}', 0x04646561640000, 'written', 128, 0) USING TIMESTAMP {step}"
            ))
            .await;
        }
    }

    async fn count(&self, table: &str) -> i64 {
        let statement = format!("SELECT count(*) FROM {}.{table}", self.config.keyspace.name);
        let answer = self
            .session
            .query_unpaged(statement, ())
            .await
            .expect("a count is answered");
        answer
            .into_rows_result()
            .expect("a count is a row")
            .single_row::<(i64,)>()
            .expect("a count is a number")
            .0
    }
}

fn reading() -> ReadContext {
    ReadContext {
        now: RealWorld::new().now(),
        freshness: Freshness::Latest,
    }
}

fn cart(name: &str) -> RecordKey {
    RecordKey::by_id(Collection::Carts, RecordId::new(name).expect("a short id"))
}

async fn create(engine: &CassandraEngine, key: &RecordKey, user: &str) -> Revision {
    let now = RealWorld::new().now();
    let revision = Revision::at(now, Writer::numbered(0));
    let header = Fields::new()
        .with(Field::CartId, Value::text(key.id.as_str()))
        .with(Field::UserId, Value::text(user))
        .with(Field::Status, Value::text("active"))
        .with(Field::CreatedAt, Value::Timestamp(now))
        .with(Field::Ordinal, Value::Int(1));
    let context = WriteContext {
        authority: Authority::Router {
            generation: Generation(1),
        },
        now,
        revision,
    };
    let create = Change::CreateIfAbsent {
        key: key.clone(),
        header,
        parts: vec![],
    };
    assert_eq!(
        engine.apply(create, context).await,
        Ok(Outcome::Done { revision })
    );
    revision
}

async fn active_carts(engine: &CassandraEngine, user: &str) -> Vec<String> {
    let query = Query::first(AccessPath::ActiveCartByUser, vec![Value::text(user)], 10);
    let page = engine
        .query(&query, reading())
        .await
        .expect("the server answers");
    page.records
        .into_iter()
        .map(|record| record.key.id.to_string())
        .collect()
}

#[tokio::test]
async fn outgrown_rows_are_not_answered_and_are_deleted_but_younger_ones_are_left() {
    let Some(scene) = Scene::open("rows").await else {
        return;
    };
    let key = cart("c1");
    let revision = create(&scene.engine, &key, "ann").await.to_i64();
    for (user, stamp) in [("bob", revision - 1), ("eve", revision + 1)] {
        let row = format!("('{user}', 'active', 'c1', {stamp}) USING TIMESTAMP {stamp}");
        scene
            .run(&format!(
                "INSERT INTO KS.carts_by_user (user_id, status, cart_id, revision) VALUES {row}"
            ))
            .await;
        assert_eq!(
            active_carts(&scene.engine, user).await,
            Vec::<String>::new()
        );
    }
    assert_eq!(active_carts(&scene.engine, "ann").await, ["c1"]);
    // Eve's row may belong to a change that is being decided this very moment.
    assert_eq!(scene.count("carts_by_user").await, 2);
}

#[tokio::test]
async fn a_dead_lane_is_read_past_its_gap_and_its_begun_entry_is_handed_on() {
    let Some(scene) = Scene::open("lanes").await else {
        return;
    };
    let start = scene
        .engine
        .journal_end()
        .await
        .expect("the server answers");
    let other = shop::open(scene.config.clone()).await;
    create(&other, &cart("alive"), "ann").await;
    let entry =
        "(lane, segment, number, state, collection, id, shard_key, kind, revision, written_at)";
    let dead = "'dead', 0, 2, 'begun', 'carts', 'dead', 0x0464656164 0000, 'written', 128, 0"
        .replace(' ', "");
    scene.run("INSERT INTO KS.journal_lanes (anchor, lane, segment) VALUES ('lanes', 'dead', 0) USING TIMESTAMP 1").await;
    scene
        .run(&format!(
            "INSERT INTO KS.journal {entry} VALUES ({dead}) USING TIMESTAMP 1"
        ))
        .await;
    let (mut from, mut seen) = (start, Vec::new());
    for _ in 0..PAGES_MAX {
        let page = scene
            .engine
            .journal_read(&from, 10)
            .await
            .expect("the server answers");
        seen.extend(
            page.entries
                .into_iter()
                .filter_map(|entry| match entry.event {
                    JournalEvent::Changed { key, .. } => Some(key.id.to_string()),
                    JournalEvent::Fenced { .. } => None,
                }),
        );
        if seen.len() == 2 {
            break;
        }
        from = page.next;
        tokio::time::sleep(BETWEEN_PAGES).await;
    }
    assert_eq!(seen, ["alive", "dead"]);
}

/// Numbers are dense: what stands behind a missing one may be younger than what is
/// still on its way, and what is begun may not have happened yet (W23).
#[tokio::test]
async fn a_number_that_is_missing_or_only_begun_stops_the_reader_until_it_is_there() {
    let Some(scene) = Scene::open("gaps").await else {
        return;
    };
    let start = scene
        .engine
        .journal_end()
        .await
        .expect("the server answers");
    scene.write_lane("gap", &[(2, "applied")]).await;
    scene
        .write_lane("open", &[(1, "begun"), (2, "applied")])
        .await;
    let page = scene.engine.journal_read(&start, 10).await;
    let page = page.expect("the server answers");
    assert_eq!(page.entries, vec![]);

    scene
        .write_lane("gap", &[(1, "applied"), (2, "applied")])
        .await;
    scene.write_lane("open", &[(1, "applied")]).await;
    let page = scene.engine.journal_read(&page.next, 10).await;
    let page = page.expect("the server answers");
    let mut seen: Vec<String> = page
        .entries
        .into_iter()
        .filter_map(|entry| match entry.event {
            JournalEvent::Changed { key, .. } => Some(key.id.to_string()),
            JournalEvent::Fenced { .. } => None,
        })
        .collect();
    seen.sort();
    assert_eq!(seen, ["gap-1", "gap-2", "open-1", "open-2"]);
}

#[tokio::test]
async fn the_servers_settings_are_judged_at_the_start() {
    let Some(scene) = Scene::open("settings").await else {
        return;
    };
    assert_eq!(scene.engine.warnings(), [Warning::FewCopies { copies: 1 }]);
}
