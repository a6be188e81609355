//! What happened, cell by cell, as Markdown.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const HEAD: &str = "| engines | step | victim | move | what happened | freeze | takes |\n\
                    | --- | --- | --- | --- | --- | --- | --- |\n";

/// Written after every row: a run that fails leaves what it has seen.
#[derive(Clone)]
pub struct Table {
    file: PathBuf,
    text: Arc<Mutex<String>>,
    failures: Arc<AtomicU32>,
}

impl Table {
    pub fn create() -> Table {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        Table {
            file: target.join("move-faults.md"),
            text: Arc::new(Mutex::new(HEAD.to_owned())),
            failures: Arc::default(),
        }
    }

    pub fn row(&self, cells: [&str; 7]) {
        self.add(&format!(
            "| {} |\n",
            cells.map(|cell| cell.replace('|', "/")).join(" | ")
        ));
    }

    /// The judge has looked at everything, and found nothing.
    pub fn judged(&self, pair: &str, seed: u64, acknowledged: u64) {
        let verdict = format!("{acknowledged} acknowledged, nothing lost, doubled or wrong");
        self.row([
            pair,
            "judged",
            "",
            "",
            &verdict,
            "",
            &format!("seed {seed}"),
        ]);
    }

    /// The run goes on with another shop.
    pub fn failed(&self, pair: &str, why: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.row([pair, "FAILED", "", "", &why.replace('\n', " "), "", ""]);
    }

    pub fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    pub fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    fn add(&self, line: &str) {
        print!("{line}");
        let mut text = self.text.lock().unwrap();
        text.push_str(line);
        fs::write(&self.file, text.as_str()).unwrap();
    }
}
