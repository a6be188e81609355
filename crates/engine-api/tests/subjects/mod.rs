//! Subjects for the conformance suite: the memory engine, whole or with one
//! promise broken.

// Each test file uses its own part of this module.
#![allow(dead_code)]

mod faulty;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use engine_api::conformance::Subject;
use engine_api::layout::Collection;
use engine_api::{ControlStore, Durability, Engine};
pub use faulty::Fault;
use faulty::FaultyEngine;

/// Whether each case gets an engine of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    PerCase,
    Shared,
}

#[derive(Debug)]
pub struct TestSubject {
    fault: Fault,
    namespace: Namespace,
    durability: Durability,
    opened: Mutex<Option<Arc<FaultyEngine>>>,
}

impl TestSubject {
    pub fn new(fault: Fault, namespace: Namespace) -> TestSubject {
        TestSubject {
            fault,
            namespace,
            durability: Durability::Process,
            opened: Mutex::new(None),
        }
    }

    pub fn declaring(self, durability: Durability) -> TestSubject {
        TestSubject { durability, ..self }
    }

    fn open(&self) -> Arc<FaultyEngine> {
        Arc::new(FaultyEngine::new(self.fault, self.durability))
    }
}

#[async_trait]
impl Subject for TestSubject {
    async fn engine(&self) -> Arc<dyn Engine> {
        let mut opened = self
            .opened
            .lock()
            .expect("no test panics while it holds the lock");
        let engine = match (self.namespace, opened.take()) {
            (Namespace::Shared, Some(engine)) => engine,
            (Namespace::Shared | Namespace::PerCase, _) => self.open(),
        };
        *opened = Some(Arc::clone(&engine));
        engine
    }

    async fn crash_and_reopen(&self, engine: Arc<dyn Engine>) -> Option<Arc<dyn Engine>> {
        match (self.durability, self.fault) {
            (Durability::Process, _) => None,
            (_, Fault::ForgetsInACrash) => Some(self.engine().await),
            _ => Some(engine),
        }
    }

    fn collections(&self) -> Vec<Collection> {
        Collection::ALL.to_vec()
    }

    fn control(&self, _: &Arc<dyn Engine>) -> Option<Arc<dyn ControlStore>> {
        let opened = self
            .opened
            .lock()
            .expect("no test panics while it holds the lock");
        Some(opened.as_ref()?.control())
    }
}
