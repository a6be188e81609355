//! Three processes over real servers, under mixed load, while processes are killed, stopped and restarted and
//! servers killed, paused and restarted, at random. Judged over HTTP by a ledger that is not the shop's.
//!
//! A short run on one layout, another every day, or the one that `CARAVAN_DISTURBED` names. With
//! `CARAVAN_TESTBED_ALL` set: five minutes on each.

#![allow(clippy::unwrap_used)]

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use judge::server::ServerProcess;
use judge::shop::disturbed::{self, Fleet, Plan};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use testbed::{
    CassandraCluster, ExclusiveCassandraCluster, ExclusiveMongoSet, Members, MongoSet, Nodes,
    Unavailable, required_or_skip,
};

const PROCESSES: usize = 3;
const LAYOUTS: [&str; 3] = ["cassandra-orders", "hybrid", "mongo-sharded"];
const SECONDS_A_DAY: u64 = 24 * 60 * 60;

/// How hard a run is.
struct Measure {
    load: Duration,
    /// How long a process stands still: longer than its lease.
    stopped: Duration,
    lease: &'static [&'static str],
}

const SHORT: Measure = Measure {
    load: Duration::from_secs(40),
    stopped: Duration::from_secs(8),
    lease: &["router.lease_ms=5000", "router.lease_renew_ms=700"],
};

/// Leases as they are by default: half a minute.
const WHOLE: Measure = Measure {
    load: Duration::from_secs(300),
    stopped: Duration::from_secs(31),
    lease: &[],
};

#[test]
fn nothing_acknowledged_is_lost_while_processes_and_servers_come_and_go() {
    let named = std::env::var("CARAVAN_DISTURBED").ok();
    let layouts: Vec<&str> = match &named {
        Some(named) => vec![named],
        None if is_whole() => LAYOUTS.to_vec(),
        None => {
            let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let day = usize::try_from(today.as_secs() / SECONDS_A_DAY).unwrap();
            vec![LAYOUTS[day % LAYOUTS.len()]]
        }
    };
    for layout in layouts {
        run(layout, if is_whole() { &WHOLE } else { &SHORT });
    }
}

fn is_whole() -> bool {
    std::env::var_os("CARAVAN_TESTBED_ALL").is_some()
}

fn run(layout: &str, measure: &Measure) {
    let seed = judge::together::run_number();
    let Some(place) = Place::start(layout, measure, seed) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    println!("{layout}, seed {seed}");
    let plan = Plan {
        load: measure.load,
        shoppers: 12,
        rest: Duration::ZERO,
        seed,
        ledger: folder.path().join("ledger"),
        patience: Duration::from_secs(4),
        settle: Duration::from_secs(120),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let verdict = runtime.block_on(disturbed::run(place, &plan)).unwrap();
    if !verdict.holds() {
        let kept = folder.keep();
        panic!("{layout}, ledger in {}: {verdict}", kept.display());
    }
}

/// A server that can be broken.
enum Server {
    Mongo(ExclusiveMongoSet),
    Cassandra(ExclusiveCassandraCluster),
}

/// One process of the shop.
struct Member {
    address: SocketAddr,
    state: State,
}

enum State {
    Serves(ServerProcess),
    /// Stands still until then.
    Stopped(ServerProcess, Instant),
    Dead,
}

struct Place {
    servers: Vec<Server>,
    arguments: Vec<String>,
    members: Vec<Member>,
    folder: tempfile::TempDir,
    stopped: Duration,
    random: StdRng,
    began: Instant,
}

impl Place {
    fn start(layout: &str, measure: &Measure, seed: u64) -> Option<Place> {
        let mut servers = Vec::new();
        let mut arguments = Vec::new();
        let mut shard = |name: &str, address: String| {
            arguments.push("--address".to_owned());
            arguments.push(format!("{name}={address}"));
        };
        let sets: &[&str] = match layout {
            "mongo-sharded" => &["shard-1", "shard-2"],
            _ => &["mongo"],
        };
        for set in sets {
            let mongo = required_or_skip(MongoSet::exclusive(Members::One), "MongoDB")?;
            shard(set, mongo.uri());
            servers.push(Server::Mongo(mongo));
        }
        let keyspaces: &[&str] = match layout {
            "cassandra-orders" => &["orders", "carts"],
            "hybrid" => &["cassandra"],
            _ => &[],
        };
        if !keyspaces.is_empty() {
            let one = required_or_skip(CassandraCluster::exclusive(Nodes::One), "Cassandra")?;
            for keyspace in keyspaces {
                let point = one.contact_points()[0];
                shard(keyspace, format!("{point}/?replication=datacenter1:1"));
            }
            servers.push(Server::Cassandra(one));
        }
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
        let file = file.join(format!("{layout}.toml"));
        arguments.extend(["--layout".to_owned(), file.to_str().unwrap().to_owned()]);
        // What a crash leaves is settled, and finished orders go to the history, while the run lasts.
        let settings = ["shop.sweep_after_s=10", "shop.archive_after_ms=2000"];
        for setting in settings.iter().chain(measure.lease) {
            arguments.extend(["--set".to_owned(), (*setting).to_owned()]);
        }
        let mut place = Place {
            servers,
            arguments,
            members: Vec::new(),
            folder: tempfile::tempdir().unwrap(),
            stopped: measure.stopped,
            random: StdRng::seed_from_u64(seed),
            began: Instant::now(),
        };
        for number in 0..PROCESSES {
            let any = "127.0.0.1:0".parse().unwrap();
            let process = ServerProcess::start(place.command(number, any)).unwrap();
            place.members.push(Member {
                address: process.address(),
                state: State::Serves(process),
            });
        }
        Some(place)
    }

    fn command(&self, number: usize, listen: SocketAddr) -> Command {
        let mut command = support::command(self.folder.path());
        command.env(support::UNHURRIED.0, support::UNHURRIED.1);
        command.args(["serve", "--listen", &listen.to_string()]);
        command.args(["--set", &format!("process=member-{number}")]);
        command.args(&self.arguments);
        command
    }

    fn say(&self, what: &str) {
        println!("{:6.1} s: {what}", self.began.elapsed().as_secs_f64());
    }

    /// A process may fail to start while a server is down; the next look tries again.
    fn revive(&mut self, number: usize) {
        let listen = self.members[number].address;
        match ServerProcess::start(self.command(number, listen)) {
            Ok(process) => {
                self.members[number].state = State::Serves(process);
                self.say(&format!("process {number} serves again"));
            }
            Err(error) => self.say(&format!("process {number} does not start: {error:#}")),
        }
    }

    /// Wakes those that have slept enough and starts those that are dead.
    fn tend(&mut self) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            let state = std::mem::replace(&mut self.members[number].state, State::Dead);
            match state {
                State::Serves(_) => self.members[number].state = state,
                State::Stopped(process, until) if Instant::now() < until => {
                    self.members[number].state = State::Stopped(process, until);
                }
                State::Stopped(process, _) => {
                    signal(&process, Signal::CONT)?;
                    self.members[number].state = State::Serves(process);
                    self.say(&format!("process {number} goes on"));
                }
                State::Dead => self.revive(number),
            }
        }
        Ok(())
    }

    fn break_process(&mut self) -> anyhow::Result<()> {
        let serving = |member: &Member| matches!(member.state, State::Serves(_));
        let able: Vec<usize> = (0..self.members.len())
            .filter(|number| serving(&self.members[*number]))
            .collect();
        // Somebody has to be left who can acknowledge anything.
        if able.len() < 2 {
            return Ok(());
        }
        let number = able[self.random.random_range(0..able.len())];
        let member = &mut self.members[number];
        let State::Serves(process) = std::mem::replace(&mut member.state, State::Dead) else {
            return Ok(());
        };
        let how = match self.random.random_range(0..10) {
            0..5 => {
                process.kill()?;
                "is killed"
            }
            5..8 => {
                signal(&process, Signal::STOP)?;
                member.state = State::Stopped(process, Instant::now() + self.stopped);
                "is stopped"
            }
            _ => {
                signal(&process, Signal::TERM)?;
                process.wait()?;
                "is asked to end, and ends"
            }
        };
        self.say(&format!("process {number} {how}"));
        Ok(())
    }

    fn break_server(&mut self) -> anyhow::Result<()> {
        let number = self.random.random_range(0..self.servers.len());
        let kills = self.random.random_range(0..3) > 0;
        let rest = Duration::from_millis(self.random.random_range(200..3000));
        let server = &self.servers[number];
        if kills {
            self.say(&format!("{} {number} is killed", server.name()));
            server.kill()?;
            thread::sleep(rest);
            server.restart()?;
        } else {
            self.say(&format!("{} {number} is paused", server.name()));
            server.pause()?;
            thread::sleep(rest);
            server.resume()?;
        }
        self.say(&format!("{} {number} is back", server.name()));
        Ok(())
    }
}

impl Fleet for Place {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.address).collect()
    }

    fn disturb(&mut self, until: Instant) -> anyhow::Result<()> {
        while Instant::now() < until {
            thread::sleep(Duration::from_millis(self.random.random_range(500..3000)));
            if self.random.random_range(0..3) == 0 {
                self.break_server()?;
            } else {
                self.break_process()?;
                thread::sleep(Duration::from_millis(self.random.random_range(0..2000)));
            }
            self.tend()?;
        }
        Ok(())
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            self.members[number].state = State::Dead;
        }
        for number in 0..self.members.len() {
            let listen = self.members[number].address;
            let process = ServerProcess::start(self.command(number, listen));
            let process = process.with_context(|| format!("process {number} at the end"))?;
            self.members[number].state = State::Serves(process);
        }
        Ok(())
    }
}

impl Server {
    fn name(&self) -> &'static str {
        match self {
            Server::Mongo(_) => "MongoDB",
            Server::Cassandra(_) => "Cassandra",
        }
    }

    fn kill(&self) -> Result<(), Unavailable> {
        match self {
            Server::Mongo(set) => set.kill9(0),
            Server::Cassandra(cluster) => cluster.kill9(0),
        }
    }

    fn restart(&self) -> Result<(), Unavailable> {
        match self {
            Server::Mongo(set) => set.restart(0),
            Server::Cassandra(cluster) => cluster.restart(0),
        }
    }

    fn pause(&self) -> Result<(), Unavailable> {
        match self {
            Server::Mongo(set) => set.pause(0),
            Server::Cassandra(cluster) => cluster.pause(0),
        }
    }

    fn resume(&self) -> Result<(), Unavailable> {
        match self {
            Server::Mongo(set) => set.resume(0),
            Server::Cassandra(cluster) => cluster.resume(0),
        }
    }
}

fn signal(process: &ServerProcess, signal: Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(process.id())?;
    let pid = Pid::from_raw(pid).context("a process has a number above zero")?;
    Ok(kill_process(pid, signal)?)
}
