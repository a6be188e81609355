//! The whole contract on a real directory.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use engine_api::conformance::{self, Subject};
use engine_api::layout::Collection;
use engine_api::{ControlStore, Engine};
use engine_embedded::{EmbeddedConfig, EmbeddedEngine};

/// A directory for each case. A crash here is an engine that is opened again;
/// the one with kill -9 is a test of its own, in `kill.rs`.
#[derive(Default)]
struct Directories {
    folder: Option<tempfile::TempDir>,
    made: AtomicUsize,
    last: Mutex<Option<Arc<EmbeddedEngine>>>,
}

impl Directories {
    fn open(&self, number: usize) -> Arc<EmbeddedEngine> {
        let folder = self.folder.as_ref().expect("made with a folder");
        let path: PathBuf = folder.path().join(number.to_string());
        let layout = engine_api::layout::embedded();
        let tables = layout
            .collections
            .values()
            .flat_map(|kept| kept.live.tables.clone())
            .collect();
        let engine = EmbeddedEngine::open(EmbeddedConfig {
            path,
            tables,
            cache_bytes: 1 << 20,
        });
        let engine = Arc::new(engine.expect("the directory opens"));
        *self.last.lock().unwrap() = Some(engine.clone());
        engine
    }
}

#[async_trait]
impl Subject for Directories {
    async fn engine(&self) -> Arc<dyn Engine> {
        self.open(self.made.fetch_add(1, Ordering::SeqCst) + 1)
    }

    async fn crash_and_reopen(&self, engine: Arc<dyn Engine>) -> Option<Arc<dyn Engine>> {
        drop(engine);
        self.last.lock().unwrap().take();
        Some(self.open(self.made.load(Ordering::SeqCst)))
    }

    fn collections(&self) -> Vec<Collection> {
        Collection::ALL.to_vec()
    }

    fn control(&self, _: &Arc<dyn Engine>) -> Option<Arc<dyn ControlStore>> {
        let last = self.last.lock().unwrap().clone()?;
        Some(last)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_engine_keeps_the_contract() {
    let subject = Directories {
        folder: Some(tempfile::tempdir().unwrap()),
        ..Directories::default()
    };
    let engine = subject.engine().await;
    let table = conformance::capability_table(&[engine.capabilities()]);
    insta::assert_snapshot!("capabilities", table);
    let report = conformance::run(&subject).await;
    println!("{report}");
    report.assert_passed();
}
