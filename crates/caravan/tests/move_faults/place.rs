//! The processes over a pair of engines, and the command line beside them.

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use judge::server::ServerProcess;
use judge::shop::disturbed::Fleet;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::errands::Errands;
use crate::pair::{Ground, Pair};
use crate::support;
use crate::table::Table;

/// Which process holds every move of a cell, until it dies.
pub const MOVER: usize = 0;
pub const ROUTER: usize = 1;

const LEASES: [&str; 3] = [
    "router.lease_ms=5000",
    "router.lease_renew_ms=300",
    "router.lease_look_ms=20",
];

const MOMENT: Duration = Duration::from_millis(5);

pub struct Place {
    pub pair: Pair,
    pub random: StdRng,
    pub members: Vec<Member>,
    pub errands: Errands,
    /// On which side each collection's records are.
    pub owners: Vec<usize>,
    /// From which side the move under way goes.
    pub from: usize,
    pub table: Table,
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

impl Place {
    pub fn start(pair: Pair, errands: Errands, seed: u64, table: Table) -> Place {
        let owners = vec![0; pair.collections.len()];
        let mut place = Place {
            pair,
            random: StdRng::seed_from_u64(seed),
            members: Vec::new(),
            errands,
            owners,
            from: 0,
            table,
            folder: tempfile::tempdir().unwrap(),
            began: Instant::now(),
        };
        for number in 0..place.pair.processes() {
            let any = "127.0.0.1:0".parse().unwrap();
            let process = ServerProcess::start(place.serving(number, any, None)).unwrap();
            place.members.push(Member {
                address: process.address(),
                process: Some(process),
            });
        }
        if let Ground::Directory = place.pair.ground {
            place.succeeds(&["shard", "add"]).unwrap();
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
        let leases = match self.pair.is_alone() {
            true => &[][..],
            false => &LEASES,
        };
        for setting in ["shop.sweep_after_s=10"].iter().chain(leases) {
            command.args(["--set", setting]);
        }
        let take_over_ms = self.pair.take_over_ms;
        command.args(["--set", &format!("moves.take_over_ms={take_over_ms}")]);
        command.args(self.pair.serving(self.from));
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

    pub fn end_one(&mut self, number: usize) -> anyhow::Result<()> {
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

    /// A command that says by itself where everything is. It is ended if the one process that could answer stands still.
    pub fn caravan(&self, arguments: &[impl AsRef<str>]) -> anyhow::Result<Output> {
        let mut command = support::command(self.folder.path());
        command.args(arguments.iter().map(AsRef::as_ref));
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut asked = command.spawn()?;
        while self.pair.is_alone() && asked.try_wait()?.is_none() {
            if self.condition(MOVER)? == Condition::StandsStill {
                asked.kill()?;
                break;
            }
            thread::sleep(MOMENT);
        }
        Ok(asked.wait_with_output()?)
    }

    /// A command about the pair.
    pub fn asked(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let place = self.pair.place();
        let place: Vec<&str> = place.iter().map(String::as_str).collect();
        self.caravan(&[arguments, &place].concat())
    }

    pub fn succeeds(&self, arguments: &[&str]) -> anyhow::Result<String> {
        told(arguments, &self.asked(arguments)?)
    }

    /// `None`: the process that would tell it is dead, or stands still.
    pub fn status(&self, name: &str) -> anyhow::Result<Option<Value>> {
        let arguments = ["move", "status", "--json", "--name", name];
        let output = self.asked(&arguments)?;
        if !output.status.success() && self.is_closed()? {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&told(&arguments, &output)?)?))
    }

    /// Whether commands find nobody who could answer: a directory belongs to the process that serves it.
    pub fn is_closed(&self) -> anyhow::Result<bool> {
        Ok(self.pair.is_alone() && self.condition(MOVER)? != Condition::Runs)
    }
}

/// What it printed, if it has succeeded.
pub fn told(arguments: &[impl AsRef<str>], output: &Output) -> anyhow::Result<String> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    let asked: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    ensure!(output.status.success(), "{}: {complaint}", asked.join(" "));
    Ok(String::from_utf8(output.stdout.clone())?)
}

impl Fleet for Place {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.address).collect()
    }

    /// One move after the other, as long as that takes. Those before one that fails are judged all the same.
    fn disturb(&mut self, _until: Instant) -> anyhow::Result<()> {
        if let Err(error) = self.run_errands() {
            self.table.failed(self.pair.names[0], &format!("{error:#}"));
        }
        Ok(())
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        for member in &mut self.members {
            member.process = None;
        }
        (0..self.members.len()).try_for_each(|number| self.start_one(number, None))
    }
}
