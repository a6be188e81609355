//! Builds with cargo and names the executables that came out.
//!
//! Checks run the executable itself instead of `cargo run`: the build and the check are then told apart (a
//! mutation that does not compile proves nothing), a check that hangs can be ended, and the features of a
//! build over the whole workspace are kept instead of being resolved again for one package.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context;
use serde::Deserialize;

#[derive(Debug, Clone)]
pub struct Executable {
    pub name: String,
    pub path: PathBuf,
    pub package_root: PathBuf,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Binary,
    Test,
}

impl Executable {
    /// Starts where cargo would start it: tests find their files from the root of their package.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        if self.kind == Kind::Test {
            command.current_dir(&self.package_root);
            command.env("CARGO_MANIFEST_DIR", &self.package_root);
        }
        command
    }
}

/// `None` when the code does not compile; cargo has said why on its standard error.
pub fn build(command: &mut Command) -> anyhow::Result<Option<Vec<Executable>>> {
    let output = command
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .context("cargo does not start; is it installed?")?;
    if !output.status.success() {
        return Ok(None);
    }
    let mut executables = Vec::new();
    for line in output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| line.starts_with(b"{"))
    {
        let message: Message = serde_json::from_slice(line)
            .context("cargo reports its build in a form that is not understood")?;
        executables.extend(message.into_executable());
    }
    Ok(Some(executables))
}

pub fn binary<'a>(executables: &'a [Executable], name: &str) -> anyhow::Result<&'a Executable> {
    executables
        .iter()
        .find(|executable| executable.kind == Kind::Binary && executable.name == name)
        .with_context(|| {
            format!("the build made no binary `{name}`; give that crate a src/main.rs")
        })
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Message {
    fn into_executable(self) -> Option<Executable> {
        if self.reason != "compiler-artifact" {
            return None;
        }
        let kind = if self.profile?.test {
            Kind::Test
        } else {
            Kind::Binary
        };
        Some(Executable {
            name: self.target?.name,
            path: self.executable?,
            package_root: self.manifest_path?.parent()?.to_path_buf(),
            kind,
        })
    }
}
