//! An engine for the conformance suite.

use std::sync::Arc;

use async_trait::async_trait;
use engine_api::Engine;
use engine_api::conformance::{Subject, run};
use engine_cassandra::CassandraConfig;
use layout::Collection;
use tokio::sync::Mutex;

/// One keyspace and one engine for the whole run: each engine that is opened
/// makes a journal lane of its own, and every reader visits them all.
pub struct OneKeyspace {
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
        let engine: Arc<dyn Engine> = Arc::new(super::open(self.config.clone()).await);
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
pub async fn keeps_the_contract(config: CassandraConfig) -> OneKeyspace {
    let subject = OneKeyspace {
        config,
        opened: Mutex::default(),
    };
    let report = run(&subject).await;
    println!("{report}");
    report.assert_passed();
    subject
}
