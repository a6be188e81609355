//! The contract of the engine boundary, on real servers.

mod shop;

use std::sync::Arc;

use async_trait::async_trait;
use engine_api::Engine;
use engine_api::conformance::{Subject, capability_table, run};
use engine_cassandra::CassandraConfig;
use layout::Collection;
use tokio::sync::Mutex;

/// One keyspace and one engine for the whole run: each engine that is opened
/// makes a journal lane of its own, and every reader visits them all.
struct OneKeyspace {
    config: CassandraConfig,
    opened: Mutex<Option<Arc<dyn Engine>>>,
}

#[async_trait]
impl Subject for OneKeyspace {
    async fn engine(&self) -> Arc<dyn Engine> {
        let mut opened = self.opened.lock().await;
        if let Some(engine) = &*opened {
            return Arc::clone(engine);
        }
        let engine: Arc<dyn Engine> = Arc::new(shop::open(self.config.clone()).await);
        Arc::clone(opened.insert(engine))
    }

    /// The engine's process ends as in a crash: nothing of it is asked to
    /// finish. The servers live on; `crash.rs` kills them too.
    async fn crash_and_reopen(&self, engine: Arc<dyn Engine>) -> Option<Arc<dyn Engine>> {
        drop(engine);
        self.opened.lock().await.take();
        Some(self.engine().await)
    }

    fn collections(&self) -> Vec<Collection> {
        self.config
            .keyspace
            .stores
            .iter()
            .map(|kept| kept.collection())
            .collect()
    }
}

/// Runs the whole suite on every collection that the engine keeps.
async fn keeps_the_contract(config: CassandraConfig) -> OneKeyspace {
    let subject = OneKeyspace {
        config,
        opened: Mutex::default(),
    };
    let report = run(&subject).await;
    println!("{report}");
    report.assert_passed();
    subject
}

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
