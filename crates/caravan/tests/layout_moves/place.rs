//! Two processes over real servers, which serve one layout toward the next.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use judge::server::ServerProcess;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testbed::{CassandraCluster, Members, MongoSet, Nodes, required_or_skip};

use crate::support;

/// How long one step of a move may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(250);
const FREEZE_MS_MAX: &str = "5000";

const SETTINGS: [&str; 6] = [
    "shop.sweep_after_s=10",
    "shop.archive_after_ms=2000",
    "router.lease_ms=5000",
    "router.lease_renew_ms=300",
    "router.lease_look_ms=20",
    "router.hold_ms_max=6000",
];

/// What a shard of a layout is on.
#[derive(Clone, Copy)]
enum On {
    FirstSet,
    SecondSet,
    Cassandra,
}

/// Everything in a data directory, which lets one process in.
pub const EMBEDDED: &str = "embedded";

/// The shards of each layout's file.
const SHARDS: [(&str, &[(&str, On)]); 5] = [
    (
        "mongo-sharded",
        &[("shard-1", On::FirstSet), ("shard-2", On::SecondSet)],
    ),
    (
        "cassandra-orders",
        &[
            ("orders", On::Cassandra),
            ("carts", On::Cassandra),
            ("mongo", On::SecondSet),
        ],
    ),
    (
        "hybrid",
        &[("cassandra", On::Cassandra), ("mongo", On::FirstSet)],
    ),
    (
        "adr-010-1",
        &[("cassandra", On::Cassandra), ("mongo", On::SecondSet)],
    ),
    (EMBEDDED, &[]),
];

/// A layout with databases of its own, and where its shards are.
struct Stage {
    name: &'static str,
    /// The file, or the word for the data directory.
    file: String,
    addresses: Vec<String>,
}

impl Stage {
    fn is_directory(&self) -> bool {
        self.name == EMBEDDED
    }
}

/// Whether a process is told where the map is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Control {
    Told,
    Forgotten,
}

pub struct Place {
    _sets: [MongoSet; 2],
    _cassandra: CassandraCluster,
    folder: tempfile::TempDir,
    /// The map stands with the first.
    stages: Vec<Stage>,
    at: usize,
    members: Vec<(SocketAddr, Option<ServerProcess>)>,
    began: Instant,
}

impl Place {
    pub fn start(layouts: &[&'static str], processes: usize) -> Option<Place> {
        let label = "second".parse().unwrap();
        let first = required_or_skip(testbed::mongo(Members::One), "MongoDB")?;
        let second = required_or_skip(testbed::mongo_labelled(Members::One, &label), "MongoDB")?;
        let cassandra = required_or_skip(testbed::cassandra(Nodes::One), "Cassandra")?;
        let folder = tempfile::tempdir().unwrap();
        let run = cassandra.keyspace("l");
        let points: Vec<String> = cassandra
            .contact_points()
            .iter()
            .map(ToString::to_string)
            .collect();
        let cluster = format!("{}/?replication=datacenter1:1", points.join(","));
        let stage = |(number, name): (usize, &&'static str)| {
            let (name, shards) = SHARDS.iter().find(|(known, _)| known == name).unwrap();
            let address = |(shard, on): &(&str, On)| {
                let uri = match on {
                    On::FirstSet => first.uri(),
                    On::SecondSet => second.uri(),
                    On::Cassandra => cluster.clone(),
                };
                ["--address".to_owned(), format!("{name}-{shard}={uri}")]
            };
            Stage {
                name,
                file: match *name {
                    EMBEDDED => EMBEDDED.to_owned(),
                    name => own_layout(folder.path(), name, &format!("{run}_{number}")),
                },
                addresses: shards.iter().flat_map(address).collect(),
            }
        };
        let stages = layouts.iter().enumerate().map(stage).collect();
        let mut place = Place {
            _sets: [first, second],
            _cassandra: cassandra,
            folder,
            stages,
            at: 0,
            members: Vec::new(),
            began: Instant::now(),
        };
        for number in 0..processes {
            let any = "127.0.0.1:0".parse().unwrap();
            let process = ServerProcess::start(place.command(number, any)).unwrap();
            place.members.push((process.address(), Some(process)));
        }
        Some(place)
    }

    pub fn members(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|(address, _)| *address).collect()
    }

    /// The layout that everything is moved to.
    pub fn to(&self) -> &'static str {
        self.stages[self.at + 1].name
    }

    fn file_to(&self) -> &str {
        &self.stages[self.at + 1].file
    }

    /// Goes on to the next layout; whether there is one after it.
    pub fn leave(&mut self) -> bool {
        self.at += 1;
        self.at + 1 < self.stages.len()
    }

    /// Whether the data directory is what everything is moved to.
    pub fn enters_directory(&self) -> bool {
        self.stages[self.at + 1].is_directory()
    }

    fn data(&self) -> [String; 2] {
        let data = self.folder.path().join("data");
        ["--data".to_owned(), data.to_str().unwrap().to_owned()]
    }

    /// The layout that is served, where its map is, and all addresses that both need.
    fn standing(&self) -> Vec<String> {
        let mut arguments = match self.stages[self.at].is_directory() {
            true => self.data().to_vec(),
            false => vec!["--layout".to_owned(), self.stages[self.at].file.clone()],
        };
        if self.at > 0 {
            arguments.extend(["--control".to_owned(), self.stages[0].file.clone()]);
        }
        let mut needed = vec![0, self.at, self.at + 1];
        needed.dedup();
        let needed = needed.iter().filter_map(|stage| self.stages.get(*stage));
        arguments.extend(needed.flat_map(|stage| stage.addresses.clone()));
        arguments
    }

    fn command(&self, number: usize, listen: SocketAddr) -> Command {
        let mut command = support::command(self.folder.path());
        command.env(support::UNHURRIED.0, support::UNHURRIED.1);
        command.args(["serve", "--listen", &listen.to_string()]);
        command.args(["--set", &format!("process=member-{number}")]);
        for setting in SETTINGS {
            command.args(["--set", setting]);
        }
        command.args(self.standing());
        if self.at + 1 < self.stages.len() {
            command.args(self.toward());
        }
        command
    }

    fn toward(&self) -> Vec<String> {
        let mut toward = vec!["--toward".to_owned(), self.file_to().to_owned()];
        if self.enters_directory() {
            toward.extend(self.data());
        }
        toward
    }

    pub fn say(&self, what: &str) {
        println!("{:6.1} s: {what}", self.began.elapsed().as_secs_f64());
    }

    /// What the command line answers, whatever it is.
    pub fn caravan(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = support::command(self.folder.path());
        Ok(command.args(arguments).args(self.standing()).output()?)
    }

    pub fn succeeds(&self, arguments: &[&str]) -> anyhow::Result<String> {
        told_by(&arguments.join(" "), &self.caravan(arguments)?)
    }

    fn status(&self, name: &str) -> anyhow::Result<Value> {
        let text = self.succeeds(&["move", "status", "--json", "--name", name])?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Asks as soon as it stands at `from`, again if it was given up, until it has come to `to`.
    pub fn bring(&self, name: &str, wish: &str, from: &str, to: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let status = self.status(name)?;
            if status["phase"] == to {
                self.say(&format!("{name}: {to}, {}", status["shown"]));
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "{name} is not {to}: {status:#}");
            if status["phase"] == from && status["wish"].is_null() {
                if let Some(why) = status["given_up"]["why"].as_str() {
                    self.say(&format!("{name}: was given up before: {why}"));
                }
                // Refused if it is not ready any more since we looked.
                // Nobody waits for a grace here.
                let grace = ["--grace", "0s"].into_iter().filter(|_| wish == "complete");
                let asked = ["move", wish, "--name", name];
                let asked = self.caravan(&asked.into_iter().chain(grace).collect::<Vec<_>>())?;
                let told = String::from_utf8_lossy(&asked.stderr);
                self.say(&format!("{name}: {wish} {told}"));
            }
            thread::sleep(PAUSE);
        }
    }

    pub fn start_next(&self, collection: Option<&str>) -> anyhow::Result<String> {
        let mut more = vec!["--freeze-ms-max", FREEZE_MS_MAX];
        more.extend(
            collection
                .iter()
                .flat_map(|collection| ["--collection", collection]),
        );
        told_by("start", &self.layout("start", &more)?)
    }

    /// `caravan move layout`, which has to know both.
    pub fn layout(&self, verb: &str, more: &[&str]) -> anyhow::Result<Output> {
        let mut command = support::command(self.folder.path());
        command.args(["move", "layout", verb]).args(more);
        Ok(command.args(self.standing()).args(self.toward()).output()?)
    }

    pub fn plan(&self) -> anyhow::Result<Value> {
        let text = told_by("plan", &self.layout("plan", &["--json"])?)?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Where the layout has a history: until that has some of the orders.
    pub fn await_archived(&self, least: u64) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let Some(archived) = self.archived()? else {
                return Ok(());
            };
            if archived >= least {
                self.say(&format!("{archived} orders are in the history"));
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{archived} orders were archived"
            );
            thread::sleep(PAUSE);
        }
    }

    /// As the processes count; `None` if the layout that is served has no history.
    fn archived(&self) -> anyhow::Result<Option<u64>> {
        // Nobody leaves the directory here.
        let text = std::fs::read_to_string(&self.stages[self.at].file)?;
        if !text.contains("[collections.orders.history]") {
            return Ok(None);
        }
        let mut sum = 0;
        for (address, _) in &self.members {
            let metrics = get(*address, "/metrics")?;
            let counts = metrics
                .lines()
                .filter(|line| line.starts_with("caravan_history_archived_total"))
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            sum += counts.sum::<u64>();
        }
        Ok(Some(sum))
    }

    /// The new layout by itself: what is refused at once.
    pub fn serve_alone(&self, control: Control) -> anyhow::Result<Output> {
        let mut command = support::command(self.folder.path());
        let next = &self.stages[self.at + 1];
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        match next.is_directory() {
            true => command.args(self.data()),
            false => command.args(["--layout", &next.file]),
        };
        command.args(&next.addresses);
        if control == Control::Told {
            let first = &self.stages[0];
            command
                .args(["--control", &first.file])
                .args(&first.addresses);
        }
        Ok(command.output()?)
    }

    /// Each process in peace, one after the other, with the layout that is served now.
    pub fn serve_anew(&mut self) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            self.end_one(number)?;
            self.start_one(number)?;
        }
        Ok(())
    }

    pub fn restart(&mut self) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            self.members[number].1 = None;
        }
        (0..self.members.len()).try_for_each(|number| self.start_one(number))
    }

    fn end_one(&mut self, number: usize) -> anyhow::Result<()> {
        let process = self.members[number].1.take().context("it serves")?;
        let pid = Pid::from_raw(i32::try_from(process.id())?).context("a process has a number")?;
        kill_process(pid, Signal::TERM)?;
        process.wait()
    }

    fn start_one(&mut self, number: usize) -> anyhow::Result<()> {
        let process = ServerProcess::start(self.command(number, self.members[number].0))?;
        self.members[number].1 = Some(process);
        self.say(&format!(
            "process {number} serves {}",
            self.stages[self.at].name
        ));
        Ok(())
    }
}

/// A failure with one sentence, behind what the servers are warned of.
pub fn ends_with(output: &Output, what: &str, remedy: &str) -> anyhow::Result<()> {
    let told = String::from_utf8_lossy(&output.stderr);
    let last = told.lines().last().unwrap_or_default();
    ensure!(!output.status.success(), "{told}");
    ensure!(last.contains(what) && last.contains(remedy), "{told}");
    Ok(())
}

fn told_by(what: &str, output: &Output) -> anyhow::Result<String> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{what}: {complaint}");
    Ok(String::from_utf8(output.stdout.clone())?)
}

fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: caravan\r\nConnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// A shipped layout with keyspaces of its own.
fn own_layout(folder: &Path, name: &str, run: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
    let text = std::fs::read_to_string(root.join(format!("{name}.toml"))).unwrap();
    let mut own = String::new();
    for line in text.lines() {
        match line.strip_prefix("keyspace = ") {
            Some(space) => {
                let space = space.trim_matches('"');
                writeln!(own, "keyspace = \"{run}_{space}\"").unwrap();
            }
            None => writeln!(own, "{line}").unwrap(),
        }
    }
    let file = folder.join(format!("{name}.toml"));
    std::fs::write(&file, own).unwrap();
    file.to_str().unwrap().to_owned()
}
