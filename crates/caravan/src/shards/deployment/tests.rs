//! What shards are called where two layouts and a roster name them.

use std::path::PathBuf;

use router::CollectionMap;
use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer as Value};

use super::*;
use crate::config::Addresses;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../layouts/{name}.toml"))
}

/// Also after it was removed: a process may still have it open under that name.
#[test]
fn a_shard_whose_name_an_added_one_has_is_called_by_its_layout() {
    let name = |name: &str| ShardName::new(name).unwrap();
    let added = Listed {
        layout: "mongo-sharded".to_owned(),
        engine: "mongo".to_owned(),
        address: "mongodb://db9".to_owned(),
    };
    let config = Config {
        toward: Some(shipped("cassandra-orders")),
        ..Config::default()
    };
    let called = |roster: &Roster, shard: &str| {
        let plans = plans(
            &config,
            &shipped("mongo-sharded"),
            &Named::default(),
            roster,
        )
        .unwrap();
        plans[1].called(&name(shard)).to_string()
    };
    let empty = Roster::default();
    assert_eq!(called(&empty, "orders"), "orders");
    let with = empty.with(&name("orders"), &added).unwrap();
    let without = with.without(&name("orders")).unwrap();
    for roster in [&with, &without] {
        assert_eq!(called(roster, "orders"), "cassandra-orders-orders");
        assert_eq!(called(roster, "carts"), "carts");
    }
}

/// Two processes with two directories never mean two places by one name (W44).
#[test]
fn a_folder_is_called_by_its_directory_where_the_map_is_on_servers() {
    let folder = tempfile::tempdir().unwrap();
    let mark = Mark::read_or_make(folder.path(), &RealWorld::new()).unwrap();
    let roster = Roster::default();
    let called = |config: &Config| {
        let plans = plans(config, config.here(), &Named::default(), &roster).unwrap();
        let names = |plan: &Plan| -> Vec<String> {
            let called = plan.shards.keys().map(|name| plan.called(name));
            called.map(|name| name.to_string()).collect()
        };
        plans.iter().flat_map(names).collect::<Vec<String>>()
    };
    let toward = Config {
        data: folder.path().to_owned(),
        layout: Some(shipped("mongo-sharded")),
        toward: Some("embedded".into()),
        ..Config::default()
    };
    let marked = format!("shard-1-{mark}");
    assert_eq!(called(&toward), ["shard-1", "shard-2", &marked]);
    // The directory has been moved to, and the map stays on the servers.
    let arrived = Config {
        layout: None,
        toward: None,
        control: Some(shipped("mongo-sharded")),
        ..toward.clone()
    };
    assert_eq!(called(&arrived), [marked]);
    // The map is in the directory: its lock lets one process in.
    let away = Config {
        layout: None,
        toward: Some(shipped("mongo-sharded")),
        ..toward.clone()
    };
    let plain = ["shard-1", "mongo-sharded-shard-1", "shard-2"];
    assert_eq!(called(&away), plain);
}

/// Collections that went to a layout go back from it, by a process that serves that one first; while that settles the
/// map names none of its shards.
#[test]
fn a_shard_keeps_its_name_on_the_way_back_whichever_layout_is_served() {
    let name = |name: &str| ShardName::new(name).unwrap();
    let on = |layout: &str, shard: &str| {
        CollectionMap::on_one_shard(layout, vec![layout::Field::UserId], name(shard))
    };
    let mut named = Named::default();
    for placement in [
        on("embedded", "shard-1"),
        on("mongo-sharded", "mongo-sharded-shard-1"),
    ] {
        named.add(&placement, placement.shards());
    }
    let folder = tempfile::tempdir().unwrap();
    let there = Config {
        data: folder.path().to_owned(),
        toward: Some(shipped("mongo-sharded")),
        ..Config::default()
    };
    let back = Config {
        layout: Some(shipped("mongo-sharded")),
        toward: Some("embedded".into()),
        control: Some("embedded".into()),
        ..there.clone()
    };
    // As long as the map has the one, the other is not called the same.
    let mut without = Named::default();
    let standing = on("embedded", "shard-1");
    without.add(&standing, standing.shards());
    for (config, named) in [(&there, &named), (&back, &named), (&back, &without)] {
        let plans = plans(config, config.here(), named, &Roster::default()).unwrap();
        let called = |layout: &str| {
            let plan = plans.iter().find(|plan| plan.layout.name == layout);
            plan.unwrap().called(&name("shard-1")).to_string()
        };
        assert_eq!(called("embedded"), "shard-1");
        assert_eq!(called("mongo-sharded"), "mongo-sharded-shard-1");
    }
}

/// An address is told by the name that cannot mean the other layout's shard.
#[test]
fn an_address_of_a_shard_that_both_layouts_have_is_told_with_its_layout() {
    let told = |told: &'static str| {
        let config = Config {
            toward: Some(shipped("mongo-sharded")),
            addresses: Addresses::deserialize(Value::<Error>::new(told)).unwrap(),
            ..Config::default()
        };
        let plans = plans(
            &config,
            config.here(),
            &Named::default(),
            &Roster::default(),
        )
        .unwrap();
        plans[1].address(&ShardName::new("shard-1").unwrap())
    };
    let found = told("mongo-sharded-shard-1=mongodb://db1");
    assert_eq!(found.as_deref(), Some("mongodb://db1"));
    assert_eq!(told("shard-1=mongodb://db1"), None);
}
