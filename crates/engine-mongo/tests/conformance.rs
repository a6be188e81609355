//! The contract of engines, on a real replica set of three whose primary is
//! killed with -9 where the suite says crash. The survivors must know everything.

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
        let config = MongoConfig {
            // An election on a busy machine takes a while.
            selection_ms_max: 30_000,
            answer_ms_max: 30_000,
            ..MongoConfig::new(self.set.uri(), "conformance", tables::all())
        };
        let engine = Arc::new(MongoEngine::open(config).await.expect("the server is up"));
        *self
            .last
            .lock()
            .expect("nothing panics while it holds the lock") = Some(engine.clone());
        engine
    }

    async fn crash_and_reopen(&self, engine: Arc<dyn Engine>) -> Option<Arc<dyn Engine>> {
        drop(engine);
        let primary = self.set.primary().expect("a whole set has a primary");
        self.set.kill9(primary).expect("the server can be killed");
        let engine = self.engine().await;
        let restarting = || self.set.restart(primary);
        tokio::task::block_in_place(restarting).expect("the server comes back");
        Some(engine)
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
    let Some(set) = required_or_skip(MongoSet::exclusive(Members::Three), "MongoDB") else {
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
