//! What happened, a line for each direction and collection, as Markdown.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const HEAD: &str = "| direction | collection | there | back | there again | copied | acknowledged | breaches |\n\
                    | --- | --- | --- | --- | --- | --- | --- | --- |\n";

/// Written after every row: a run that fails leaves what it has seen.
#[derive(Clone)]
pub struct Table {
    file: PathBuf,
    text: Arc<Mutex<String>>,
}

impl Table {
    pub fn create(name: &str) -> Table {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        Table {
            file: target.join(format!("{name}.md")),
            text: Arc::new(Mutex::new(HEAD.to_owned())),
        }
    }

    pub fn row(&self, cells: [&str; 8]) {
        let line = format!("| {} |\n", cells.join(" | "));
        print!("{line}");
        let mut text = self.text.lock().unwrap();
        text.push_str(&line);
        fs::write(&self.file, text.as_str()).unwrap();
    }

    pub fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }
}
