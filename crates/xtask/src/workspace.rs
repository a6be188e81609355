//! Where the workspace and its build products are, and how cargo is called in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

#[derive(Debug, Clone)]
pub struct Workspace {
    pub root: PathBuf,
    pub target: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    target_directory: PathBuf,
}

impl Workspace {
    /// The workspace that this program was built from.
    pub fn locate() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .context("xtask does not lie in crates/ of a workspace; put it back there")?
            .to_path_buf();
        let output = cargo_in(&root)
            .args([
                "metadata",
                "--no-deps",
                "--offline",
                "--format-version",
                "1",
            ])
            .output()
            .context("cargo does not start; is it installed?")?;
        if !output.status.success() {
            bail!(
                "cargo metadata fails: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let metadata: Metadata = serde_json::from_slice(&output.stdout)
            .context("cargo metadata answers in a form that is not understood")?;
        Ok(Self {
            root,
            target: metadata.target_directory,
        })
    }

    pub fn cargo(&self) -> Command {
        cargo_in(&self.root)
    }
}

/// `cargo run`, under which this program lives, sets variables about the xtask package. Build scripts of
/// dependencies watch some of them, so that leaving them in would build those dependencies a second time.
const PACKAGE_VARIABLES: [&str; 4] = [
    "CARGO_PKG_",
    "CARGO_MANIFEST_",
    "CARGO_BIN_NAME",
    "CARGO_CRATE_NAME",
];

pub fn cargo_in(directory: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(directory);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if PACKAGE_VARIABLES
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            command.env_remove(&*name);
        }
    }
    command
}
