//! The statements of a call, sent again by the bare driver.

#![allow(clippy::unwrap_used)]

mod shop;

use engine_api::{Engine, Timestamp};
use engine_cassandra::CassandraEngine;
use layout::Collection;
use shop::{Shopkeeper, key, order};

#[tokio::test]
async fn what_was_recorded_makes_another_order_like_the_first() {
    let cluster = testbed::cassandra(testbed::Nodes::One);
    let Some(cluster) = testbed::required_or_skip(cluster, "Cassandra") else {
        return;
    };
    let config = shop::config(cluster.contact_points(), cluster.keyspace("recording"));
    let engine = CassandraEngine::open_recording(config).await.unwrap();
    let keeper = Shopkeeper::new(&engine);
    let at = Timestamp::from_unix_micros(1_709_164_800_000_000);
    keeper.done(order("first", "ann", at)).await;
    engine.take_recording().unwrap();
    keeper.done(order("second", "ann", at)).await;
    let recording = engine.take_recording().unwrap();
    // Read, begin, derived rows, decide, settle.
    assert_eq!(recording.requests(), 5);
    recording.replay(&[("second", "third")]).await.unwrap();
    let read = async |id: &str| {
        let key = key(Collection::Orders, id);
        engine.get(&key, keeper.reading()).await.unwrap().unwrap()
    };
    let (second, third) = (read("second").await, read("third").await);
    assert_eq!(second.header.revision, third.header.revision);
    assert_eq!(third.key.id.as_str(), "third");
}
