//! The contract of the engine boundary, on a real server of one node.

mod shop;

use engine_api::conformance::{Subject, capability_table};
use shop::subject::keeps_the_contract;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_keeps_every_line_that_it_declares() {
    let cluster = testbed::cassandra(testbed::Nodes::One);
    let Some(cluster) = testbed::required_or_skip(cluster, "Cassandra") else {
        return;
    };
    let config = shop::config(cluster.contact_points(), cluster.keyspace("conformance"));
    let subject = keeps_the_contract(config).await;
    let engine = subject.engine().await;
    insta::assert_snapshot!("capabilities", capability_table(&[engine.capabilities()]));
}
