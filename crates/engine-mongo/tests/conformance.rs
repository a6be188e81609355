//! The contract of engines, on a real replica set that is killed with -9 where the suite says crash.

#[path = "server/tables.rs"]
mod tables;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use engine_api::conformance::{self, Subject};
use engine_api::layout::Collection;
use engine_api::{ControlStore, Engine};
use engine_mongo::{MongoConfig, MongoEngine};
use testbed::{ExclusiveMongoSet, Members, MongoSet, required_or_skip};

/// One database for the whole run: a hundred of them have thousands of indexes,
/// and a killed server takes minutes to make those again.
struct RealServer {
    set: ExclusiveMongoSet,
    /// The engine that was opened last, which is a control store as well.
    last: Mutex<Option<Arc<MongoEngine>>>,
}

#[async_trait]
impl Subject for RealServer {
    async fn engine(&self) -> Arc<dyn Engine> {
        let config = MongoConfig::new(self.set.uri(), "conformance", tables::all());
        let engine = Arc::new(MongoEngine::open(config).await.expect("the server is up"));
        *self
            .last
            .lock()
            .expect("nothing panics while it holds the lock") = Some(engine.clone());
        engine
    }

    async fn crash_and_reopen(&self, engine: Arc<dyn Engine>) -> Option<Arc<dyn Engine>> {
        drop(engine);
        self.set.kill9(0).expect("the server can be killed");
        self.set.restart(0).expect("the server comes back");
        Some(self.engine().await)
    }

    fn control(&self, _: &Arc<dyn Engine>) -> Option<Arc<dyn ControlStore>> {
        self.last
            .lock()
            .expect("nothing panics while it holds the lock")
            .clone()
            .map(|engine| engine as Arc<dyn ControlStore>)
    }

    fn collections(&self) -> Vec<Collection> {
        Collection::ALL.to_vec()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_keeps_the_contract() {
    let Some(set) = required_or_skip(MongoSet::exclusive(Members::One), "MongoDB") else {
        return;
    };
    let subject = RealServer {
        set,
        last: Mutex::default(),
    };
    let engine = subject.engine().await;
    insta::assert_snapshot!(
        "capabilities",
        conformance::capability_table(&[engine.capabilities()])
    );
    drop(engine);
    let report = conformance::run(&subject).await;
    println!("{report}");
    report.assert_passed();
}
