//! Acknowledged writes and a server that is killed: E24, on a server of the test's own.

mod shop;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use engine_api::{
    Authority, Change, Engine, Freshness, Generation, Guard, JournalEvent, Outcome, PartChange,
    PartKey, ReadContext, RealWorld, RecordId, RecordKey, Remedy, Revision, World, WriteContext,
    Writer,
};
use engine_cassandra::{CassandraConfig, CassandraEngine};
use layout::{Collection, Field, Fields, Value};

const WRITERS: u8 = 8;
/// The server is killed when this many writes were acknowledged.
const ACKNOWLEDGED_BEFORE_KILL: usize = 200;
/// Lines of one cart: more than a writer sets until the server is gone.
const WRITES_MAX: usize = 1_000;
/// Pages after which the journal must have shown everything.
const PAGES_MAX: usize = 200;
const BETWEEN_PAGES: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_there_after_the_server_was_killed() {
    let cluster = testbed::CassandraCluster::exclusive(testbed::Nodes::One);
    let Some(cluster) = testbed::required_or_skip(cluster, "Cassandra") else {
        return;
    };
    let config = CassandraConfig {
        request_timeout_ms: 2_000,
        unsettled_patience_ms: 2_500,
        ..shop::config(cluster.contact_points(), cluster.keyspace("crash"))
    };
    let engine = Arc::new(shop::open(config.clone()).await);
    let start = engine.journal_end().await.unwrap();
    let (acknowledge, mut acknowledged) = tokio::sync::mpsc::unbounded_channel();
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            tokio::spawn(write_until_refused(
                Arc::clone(&engine),
                number,
                acknowledge.clone(),
            ))
        })
        .collect();
    drop(acknowledge);
    let mut written = Vec::new();
    while let Some(write) = acknowledged.recv().await {
        written.push(write);
        if written.len() == ACKNOWLEDGED_BEFORE_KILL {
            cluster.kill9(0).unwrap();
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(
        written.len() >= ACKNOWLEDGED_BEFORE_KILL,
        "the writers stopped by themselves"
    );
    drop(engine);
    cluster.restart(0).unwrap();

    let engine = shop::open(config).await;
    let context = ReadContext {
        now: RealWorld::new().now(),
        freshness: Freshness::Latest,
    };
    for (key, part, revision) in &written {
        let record = engine
            .get(key, context)
            .await
            .unwrap()
            .expect("an acknowledged record is gone");
        assert!(record.live_at(context.now).is_some());
        assert_eq!(
            record.parts[part].revision, *revision,
            "{part} of {key} was acknowledged and is gone"
        );
    }
    let mut missing: HashSet<(RecordKey, Revision)> = written
        .into_iter()
        .map(|(key, _, revision)| (key, revision))
        .collect();
    let mut from = start;
    // What the dead engine left unsettled stops a reader until its patience ends.
    for _ in 0..PAGES_MAX {
        let page = engine.journal_read(&from, 500).await.unwrap();
        for entry in page.entries {
            if let JournalEvent::Changed { key, revision, .. } = entry.event {
                missing.remove(&(key, revision));
            }
        }
        if missing.is_empty() {
            return;
        }
        from = page.next;
        tokio::time::sleep(BETWEEN_PAGES).await;
    }
    panic!("acknowledged and not in the journal: {missing:?}");
}

type Written = (RecordKey, PartKey, Revision);

/// One cart, a new line at a time, until the server no longer answers.
async fn write_until_refused(
    engine: Arc<CassandraEngine>,
    number: u8,
    acknowledge: tokio::sync::mpsc::UnboundedSender<Written>,
) {
    let (world, writer) = (RealWorld::new(), Writer::numbered(number));
    let id = RecordId::new(format!("cart-{number}")).expect("a short id");
    let key = RecordKey::by_id(Collection::Carts, id);
    let mut revision = Revision::at(world.now(), writer);
    let context = |revision| WriteContext {
        authority: Authority::Router {
            generation: Generation(1),
        },
        now: world.now(),
        revision,
    };
    let header = Fields::new()
        .with(Field::CartId, Value::text(key.id.as_str()))
        .with(Field::Status, Value::text("active"))
        .with(Field::CreatedAt, Value::Timestamp(world.now()))
        .with(Field::Ordinal, Value::Int(1));
    let create = Change::CreateIfAbsent {
        key: key.clone(),
        header,
        parts: vec![],
    };
    assert_eq!(
        engine.apply(create, context(revision)).await,
        Ok(Outcome::Done { revision })
    );
    for count in 0..WRITES_MAX {
        revision = Revision::above(revision, writer);
        let part = PartKey::line(&format!("product-{count}"));
        let fields = Fields::new().with(
            Field::Quantity,
            Value::Int(i64::try_from(count).expect("a small number")),
        );
        let parts = vec![(part.clone(), PartChange::Set(fields))];
        let patch = Change::Patch {
            key: key.clone(),
            guard: Guard::default(),
            parts,
        };
        match engine.apply(patch, context(revision)).await {
            Ok(Outcome::Done { revision }) => {
                acknowledge
                    .send((key.clone(), part, revision))
                    .expect("the test listens to the end");
            }
            Ok(outcome) => panic!("a new line of an own cart was answered {outcome:?}"),
            Err(error) => {
                assert_ne!(error.remedy(), Remedy::GiveUp, "{error}");
                return;
            }
        }
    }
}
