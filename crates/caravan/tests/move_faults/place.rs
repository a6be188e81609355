//! Two processes over a pair of servers, the command line beside them, and moves that are
//! brought to their end whatever happens on the way.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use judge::server::ServerProcess;
use judge::shop::disturbed::Fleet;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cell::{Cell, End};
use crate::moving::Moving;
use crate::pair::Pair;
use crate::striking::Strikes;
use crate::support;
use crate::table::Table;

/// Which process holds every move of a cell, until it dies.
pub const MOVER: usize = 0;
pub const ROUTER: usize = 1;
const PROCESSES: usize = 2;

/// How long one move may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(360);
/// How often a cell is tried: the process with the fault point may lose the move before it comes there.
const ATTEMPTS_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);

const SETTINGS: [&str; 4] = [
    "shop.sweep_after_s=10",
    "router.lease_ms=5000",
    "router.lease_renew_ms=300",
    "router.lease_look_ms=20",
];

pub struct Place {
    pub pair: Pair,
    pub random: StdRng,
    pub members: Vec<Member>,
    cells: Vec<Cell>,
    /// On which shard each collection's keys are.
    owners: Vec<usize>,
    table: Table,
    folder: tempfile::TempDir,
    began: Instant,
}

/// One process of the shop.
pub struct Member {
    address: SocketAddr,
    /// `None`: it is dead.
    pub process: Option<ServerProcess>,
}

/// What the system says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Runs,
    StandsStill,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Struck,
    /// Another process took the move over before the step.
    Missed,
}

impl Place {
    pub fn start(pair: Pair, cells: Vec<Cell>, seed: u64, table: Table) -> Place {
        let owners = vec![0; pair.collections.len()];
        let mut place = Place {
            pair,
            random: StdRng::seed_from_u64(seed),
            members: Vec::new(),
            cells,
            owners,
            table,
            folder: tempfile::tempdir().unwrap(),
            began: Instant::now(),
        };
        for number in 0..PROCESSES {
            let any = "127.0.0.1:0".parse().unwrap();
            let process = ServerProcess::start(place.serving(number, any, None)).unwrap();
            place.members.push(Member {
                address: process.address(),
                process: Some(process),
            });
        }
        place
    }

    fn serving(&self, number: usize, listen: SocketAddr, fault: Option<&str>) -> Command {
        let mut command = support::command(self.folder.path());
        command.env(support::UNHURRIED.0, support::UNHURRIED.1);
        if let Some(point) = fault {
            command.env("CARAVAN_FAULT_POINT", point);
            command.env("CARAVAN_FAULT_ALLOWED", "this-process-may-die");
        }
        command.args(["serve", "--listen", &listen.to_string()]);
        command.args(["--set", &format!("process=member-{number}")]);
        for setting in SETTINGS {
            command.args(["--set", setting]);
        }
        let take_over_ms = self.pair.take_over_ms;
        command.args(["--set", &format!("moves.take_over_ms={take_over_ms}")]);
        command.args(self.pair.arguments());
        command
    }

    pub fn say(&self, what: &str) {
        println!("{:6.1} s: {what}", self.began.elapsed().as_secs_f64());
    }

    pub fn start_one(&mut self, number: usize, fault: Option<&str>) -> anyhow::Result<()> {
        let command = self.serving(number, self.members[number].address, fault);
        let process = ServerProcess::start(command).with_context(|| format!("process {number}"))?;
        self.members[number].process = Some(process);
        Ok(())
    }

    fn end_one(&mut self, number: usize) -> anyhow::Result<()> {
        self.signal(number, Signal::TERM)?;
        let process = self.members[number].process.take();
        process.context("it serves")?.wait()
    }

    pub fn signal(&self, number: usize, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(self.pid(number)?, signal)?)
    }

    fn pid(&self, number: usize) -> anyhow::Result<Pid> {
        let process = self.members[number].process.as_ref();
        let process = process.with_context(|| format!("process {number} does not run"))?;
        Pid::from_raw(i32::try_from(process.id())?).context("a process has a number")
    }

    pub fn condition(&self, number: usize) -> anyhow::Result<Condition> {
        let pid = self.pid(number)?.as_raw_nonzero();
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let rest = text.rsplit_once(") ").context("a name in brackets")?.1;
        Ok(match rest.chars().next() {
            Some('T' | 't') => Condition::StandsStill,
            // Nobody has asked for its exit code yet.
            Some('Z' | 'X') => Condition::Dead,
            _ => Condition::Runs,
        })
    }

    fn caravan(&self, arguments: &[impl AsRef<str>]) -> anyhow::Result<Output> {
        let mut command = support::command(self.folder.path());
        command.args(arguments.iter().map(AsRef::as_ref));
        Ok(command.args(self.pair.arguments()).output()?)
    }

    fn succeeds(&self, arguments: &[impl AsRef<str>]) -> anyhow::Result<String> {
        let output = self.caravan(arguments)?;
        let told = String::from_utf8_lossy(&output.stderr);
        let asked: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        ensure!(output.status.success(), "{}: {told}", asked.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }

    fn status(&self, name: &str) -> anyhow::Result<Value> {
        let text = self.succeeds(&["move", "status", "--json", "--name", name])?;
        Ok(serde_json::from_str(&text)?)
    }

    fn run_cell(&mut self, number: usize, cell: Cell) -> anyhow::Result<()> {
        for attempt in 1..=ATTEMPTS_MAX {
            let name = format!("cell-{number}-{attempt}");
            if self.attempt(number, cell, name)? == Attempt::Struck {
                return Ok(());
            }
            self.say("on a busy machine the other process took it before: once more");
        }
        bail!("nobody was killed in {ATTEMPTS_MAX} moves")
    }

    /// A move, from its start to its end.
    fn attempt(&mut self, number: usize, cell: Cell, name: String) -> anyhow::Result<Attempt> {
        let began = Instant::now();
        let collection = number % self.owners.len();
        let fault = cell.fault_point();
        self.say(&format!(
            "{cell}: {}",
            fault.as_deref().unwrap_or("a few kills")
        ));
        self.end_one(MOVER)?;
        self.start_one(MOVER, fault.as_deref())?;
        let mut moving = self.begin(name, collection, cell.end(number))?;
        let mut strikes = Strikes::of(cell, self);
        loop {
            strikes.look(self, &moving)?;
            if self.advance(&mut moving)? {
                break;
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{cell}: {} does not come to its end: {:#}",
                moving.name,
                self.status(&moving.name)?
            );
            thread::sleep(PAUSE);
        }
        self.certificates_hold(&moving)?;
        if moving.end == End::Completed {
            self.owners[collection] = 1 - moving.from;
        }
        let Some(struck) = strikes.told() else {
            let (phase, term) = (&moving.phase, moving.term);
            ensure!(term > 1, "it is {phase}, and its fault point was never met");
            return Ok(Attempt::Missed);
        };
        let moved = format!(
            "{} {} to {}, {}",
            self.pair.collections[collection],
            self.pair.shards[moving.from],
            self.pair.shards[1 - moving.from],
            moving.end.phase()
        );
        self.table.row([
            self.pair.name,
            cell.step_name(),
            &struck,
            &moved,
            &moving.story(),
            &moving.freezes(),
            &format!("{:.0} s", began.elapsed().as_secs_f64()),
        ]);
        Ok(Attempt::Struck)
    }

    /// Starts it so that the process with the fault point takes it: the other stands still until then.
    fn begin(&mut self, name: String, collection: usize, end: End) -> anyhow::Result<Moving> {
        let from = self.owners[collection];
        self.signal(ROUTER, Signal::STOP)?;
        self.succeeds(
            &self
                .pair
                .starting(&name, self.pair.collections[collection], from),
        )?;
        let began = Instant::now();
        while self.status(&name)?["held"] != true {
            ensure!(began.elapsed() < PATIENCE, "nobody takes {name}");
            thread::sleep(PAUSE);
        }
        self.signal(ROUTER, Signal::CONT)?;
        Ok(Moving::started(name, from, end))
    }

    /// Looks where it stands and gives the next command. Whether it has ended.
    fn advance(&self, moving: &mut Moving) -> anyhow::Result<bool> {
        let status = self.status(&moving.name)?;
        moving.note(&status)?;
        if status["ended"] == true {
            let (phase, wanted) = (&moving.phase, moving.end.phase());
            ensure!(
                phase == wanted,
                "it has ended {phase}, not {wanted}: {status:#}"
            );
            return Ok(true);
        }
        if status["wish"].is_null() {
            match moving.phase.as_str() {
                "ready" => moving.cutovers += self.asks("cutover", moving)?,
                "settling" => moving.endings += self.asks(moving.end.wish(), moving)?,
                _ => {}
            }
        }
        Ok(false)
    }

    /// Refused if it does not stand there any more since we looked: then it is asked again.
    fn asks(&self, wish: &str, moving: &Moving) -> anyhow::Result<u32> {
        let asked = self.caravan(&["move", wish, "--name", &moving.name])?;
        let told = String::from_utf8_lossy(&asked.stderr);
        self.say(&format!("{}: {wish} {told}", moving.name));
        match asked.status.code() {
            Some(0) => Ok(1),
            Some(2) => Ok(0),
            code => bail!("move {wish} ended with {code:?}: {told}"),
        }
    }

    fn certificates_hold(&self, moving: &Moving) -> anyhow::Result<()> {
        let verify = ["move", "certificate", "--verify", "--name", &moving.name];
        self.succeeds(&verify)?;
        if moving.end == End::RolledBack {
            self.succeeds(&[&verify[..], &["--rollback"]].concat())?;
        }
        Ok(())
    }
}

impl Fleet for Place {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.address).collect()
    }

    /// One move after the other, as long as that takes.
    fn disturb(&mut self, _until: Instant) -> anyhow::Result<()> {
        for (number, cell) in self.cells.clone().into_iter().enumerate() {
            let ran = self.run_cell(number, cell);
            ran.with_context(|| format!("cell {number}, {cell}"))?;
        }
        Ok(())
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        for member in &mut self.members {
            member.process = None;
        }
        (0..PROCESSES).try_for_each(|number| self.start_one(number, None))
    }
}
