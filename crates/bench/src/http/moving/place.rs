//! A serving process and the command line beside it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use judge::server::{ServerProcess, serve_command};
use serde_json::Value;
use testbed::{Members, MongoSet};

use super::super::wait_until_ready;

const LAYOUT: &str = include_str!("../../../../../layouts/mongo-sharded.toml");
/// One step of a move that takes longer is stuck.
const PATIENCE: Duration = Duration::from_secs(600);
/// Every look is a process of its own, beside the shop that is measured.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Place {
    binary: PathBuf,
    server: ServerProcess,
    /// What leads the command line here.
    arguments: Vec<String>,
    moved: Moved,
    _sets: Vec<MongoSet>,
}

/// Which carts go where.
#[derive(Debug)]
enum Moved {
    /// All of them, to a shard that is added for it.
    All,
    /// Those of the first shard, to the second, which has as many.
    Half,
}

impl Place {
    pub fn embedded(binary: &Path, data: &Path) -> anyhow::Result<Place> {
        let server = ServerProcess::start(serve_command(binary, data))?;
        wait_until_ready(server.address())?;
        Ok(Place {
            binary: binary.to_owned(),
            server,
            arguments: vec!["--data".to_owned(), data.display().to_string()],
            moved: Moved::All,
            _sets: Vec::new(),
        })
    }

    /// The layout `mongo-sharded` on two replica sets.
    pub fn mongo(binary: &Path, folder: &Path) -> anyhow::Result<Place> {
        let label = "second".parse().map_err(|error| anyhow!("{error}"))?;
        let first = testbed::mongo(Members::One).map_err(|error| anyhow!("{error}"))?;
        let second = testbed::mongo_labelled(Members::One, &label);
        let second = second.map_err(|error| anyhow!("{error}"))?;
        let database = first.database("bench-moves");
        let mut own = String::new();
        for line in LAYOUT.lines() {
            match line.strip_prefix("keyspace = ") {
                Some(_) => writeln!(own, "keyspace = \"{database}\"")?,
                None => writeln!(own, "{line}")?,
            }
        }
        let file = folder.join("mongo-sharded.toml");
        std::fs::write(&file, own)?;
        let arguments = vec![
            "--layout".to_owned(),
            file.display().to_string(),
            "--address".to_owned(),
            format!("shard-1={}", first.uri()),
            "--address".to_owned(),
            format!("shard-2={}", second.uri()),
        ];
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        command.args(["--set", "process=bench"]).args(&arguments);
        let server = ServerProcess::start(command)?;
        wait_until_ready(server.address())?;
        Ok(Place {
            binary: binary.to_owned(),
            server,
            arguments,
            moved: Moved::Half,
            _sets: vec![first, second],
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// A shard that nothing was copied to yet, where shards can be added.
    pub fn new_shard(&self) -> anyhow::Result<String> {
        match self.moved {
            Moved::Half => Ok("shard-2".to_owned()),
            Moved::All => {
                let added: Value =
                    serde_json::from_str(&self.caravan(&["shard", "add", "--json"])?)?;
                let name = added["shard"].as_str();
                Ok(name
                    .with_context(|| format!("a shard has a name: {added}"))?
                    .to_owned())
            }
        }
    }

    pub fn start(&self, name: &str, target: &str, throttle: &[&str]) -> anyhow::Result<()> {
        let carts = ["move", "start", "--name", name, "--collection", "carts"];
        let way = ["--from", "shard-1", "--to", target];
        let keys: &[&str] = match self.moved {
            Moved::All => &["--all"],
            Moved::Half => &["--slots", "0-2047"],
        };
        let arguments = [&carts[..], keys, &way[..], throttle].concat();
        self.caravan(&arguments).map(drop)
    }

    pub fn status(&self, name: &str) -> anyhow::Result<Value> {
        let told = self.caravan(&["move", "status", "--json", "--name", name])?;
        Ok(serde_json::from_str(&told)?)
    }

    pub fn until(&self, name: &str, reached: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let begun = Instant::now();
        loop {
            let status = self.status(name)?;
            if reached(&status) {
                return Ok(status);
            }
            ensure!(begun.elapsed() < PATIENCE, "{name} stands: {status:#}");
            std::thread::sleep(LOOK);
        }
    }

    pub fn certificate(&self, name: &str, wish: &str) -> anyhow::Result<Value> {
        let mut arguments = vec!["move", "certificate", "--json", "--name", name];
        if wish == "rollback" {
            arguments.push("--rollback");
        }
        Ok(serde_json::from_str(&self.caravan(&arguments)?)?)
    }

    pub fn caravan(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.binary);
        let output = command.args(arguments).args(&self.arguments).output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "caravan {arguments:?}: {complaint}"
        );
        Ok(String::from_utf8(output.stdout)?)
    }
}
