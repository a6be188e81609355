//! Directories that have, or had, a part in moves between layouts.

use engine_api::{
    Authority, Change, Engine, Generation, RecordId, RecordKey, Revision, Timestamp, WriteContext,
};
use layout::{Field, Fields};

use super::*;

fn moment() -> Timestamp {
    Timestamp::from_unix_micros(1_700_000_000_000_000)
}

fn cart() -> Change {
    let id = RecordId::new("cart-1").unwrap();
    Change::CreateIfAbsent {
        key: RecordKey::by_id(Collection::Carts, id),
        header: Fields::new()
            .with(Field::CartId, layout::Value::text("cart-1"))
            .with(Field::Status, layout::Value::text("active"))
            .with(Field::CreatedAt, layout::Value::Timestamp(moment()))
            .with(Field::Ordinal, layout::Value::Int(1)),
        parts: Vec::new(),
    }
}

/// Records without a map were moved here under a map that stands elsewhere.
#[tokio::test]
async fn a_first_map_over_records_of_another_shop_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = open_shard(folder.path(), &shard_name(1)).unwrap();
    let now = moment();
    let context = WriteContext {
        authority: Authority::Router {
            generation: Generation(1),
        },
        now,
        revision: Revision::at(now, WRITER),
    };
    assert!(first.apply(cart(), context).await.unwrap().is_done());
    drop(first);
    let opened = Shards::open_or_make(folder.path(), None, Limits::default()).await;
    let refusal = opened.unwrap_err().to_string();
    assert!(refusal.contains("shard-1 has carts"), "{refusal}");
    assert!(refusal.contains("--control FILE"), "{refusal}");
    let first = open_shard(folder.path(), &shard_name(1)).unwrap();
    assert!(MapKeeper::new(first).load().await.unwrap().is_none());
}

/// What the directory still has of them is old: its map gives them to others.
#[tokio::test]
async fn a_directory_that_collections_have_left_is_not_served_alone() {
    let folder = tempfile::tempdir().unwrap();
    let first = open_shard(folder.path(), &shard_name(1)).unwrap();
    let mut map = first_map(&[shard_name(1)]);
    let carts = map.collections.get_mut(&Collection::Carts).unwrap();
    let elsewhere = ShardName::new("mongo-sharded-shard-1").unwrap();
    *carts = CollectionMap::on_one_shard("mongo-sharded", carts.shard_key.clone(), elsewhere);
    MapKeeper::new(first.clone()).publish(&map).await.unwrap();
    drop(first);
    let opened = Shards::open_or_make(folder.path(), None, Limits::default()).await;
    let refusal = opened.unwrap_err().to_string();
    assert!(
        refusal.contains("kept by layout mongo-sharded"),
        "{refusal}"
    );
    assert!(refusal.contains("--control embedded"), "{refusal}");
    // The map itself can be looked at.
    assert!(existing(folder.path()).await.is_ok());
}
