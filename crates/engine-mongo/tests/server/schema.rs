use std::path::Path;

use engine_api::layout::Layout;
use engine_mongo::commands;

use super::*;

/// A layout file that ships.
fn layout(name: &str) -> Layout {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
    let file = format!("{name}.toml");
    let text = std::fs::read_to_string(folder.join(&file)).unwrap();
    Layout::parse(&text, &file).unwrap()
}

fn script(name: &str) -> String {
    let commands = commands(&layout(name), "mongo", "shop").unwrap();
    let lines: Vec<String> = commands.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn the_sharded_layout_as_commands() {
    insta::assert_snapshot!(script("mongo-sharded"));
}

#[test]
fn the_mongo_half_of_the_hybrid_layout_as_commands() {
    insta::assert_snapshot!(script("hybrid"));
}

#[tokio::test]
async fn a_replica_set_gets_every_collection_and_index_of_the_layout() {
    let Some(set) = set() else { return };
    let database = set.database("layout");
    let layout = layout("mongo-sharded");
    let config = MongoConfig::of_layout(&layout, "mongo", set.uri(), &database);
    let engine = MongoEngine::open(config).await.unwrap();
    assert_eq!(engine.capabilities().collections, Collection::ALL);

    let client = Client::with_uri_str(set.uri()).await.unwrap();
    for command in commands(&layout, "mongo", &database).unwrap() {
        let Ok(name) = command.command.get_str("createIndexes") else {
            continue;
        };
        let there = client
            .database(&database)
            .collection::<Document>(name)
            .list_index_names()
            .await
            .unwrap();
        for index in command.command.get_array("indexes").unwrap() {
            let wanted = index.as_document().unwrap().get_str("name").unwrap();
            assert!(there.iter().any(|name| name == wanted), "{name}: {wanted}");
        }
    }
}
