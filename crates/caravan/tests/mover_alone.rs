//! `caravan mover` beside a process that serves and leaves moves to it: while nobody works for a move nothing happens, a
//! mover that is killed is followed by another, one that is asked to stop lets go; judged over HTTP by a ledger that is not
//! the shop's.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use judge::server::ServerProcess;
use judge::shop::disturbed::{self, Fleet, Plan};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{is_refused, own_layout};
use testbed::{Members, MongoSet, required_or_skip};

const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);
/// Long enough for a process that stands by to take a move: it looks every second.
const NOBODY_COMES: Duration = Duration::from_secs(3);

const SETTINGS: [&str; 4] = [
    "shop.sweep_after_s=10",
    "router.lease_ms=5000",
    "router.lease_renew_ms=300",
    "moves.take_over_ms=3000",
];

const NAME: [&str; 2] = ["--name", "carts-1"];

#[test]
fn moves_that_a_serving_process_leaves_alone_are_done_by_movers_that_come_and_go() {
    let Some(place) = Place::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let seed = judge::together::run_number();
    println!("seed {seed}");
    let plan = Plan {
        load: Duration::from_secs(1),
        shoppers: 3,
        rest: Duration::ZERO,
        seed,
        ledger: folder.path().join("ledger"),
        patience: Duration::from_secs(8),
        settle: Duration::from_secs(120),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let verdict = runtime.block_on(disturbed::run(place, &plan)).unwrap();
    if !verdict.holds() {
        let kept = folder.keep();
        panic!("ledger in {}: {verdict}", kept.display());
    }
}

#[test]
fn a_data_directory_is_moved_by_who_serves_it() {
    let folder = tempfile::tempdir().unwrap();
    is_refused(
        folder.path(),
        &["mover"],
        "a data directory lets one process in",
        "caravan serve",
    );
    assert!(!folder.path().join("caravan-data").exists());
}

/// `mongo-sharded` over two replica sets, and one process that serves.
struct Place {
    _sets: [MongoSet; 2],
    folder: tempfile::TempDir,
    where_it_is: Vec<String>,
    address: SocketAddr,
    serves: Option<ServerProcess>,
}

impl Place {
    fn start() -> Option<Place> {
        let label = "second".parse().unwrap();
        let first = required_or_skip(testbed::mongo(Members::One), "MongoDB")?;
        let second = required_or_skip(testbed::mongo_labelled(Members::One, &label), "MongoDB")?;
        let folder = tempfile::tempdir().unwrap();
        let where_it_is = vec![
            "--layout".to_owned(),
            own_layout(folder.path(), "mongo-sharded", &first.database("alone")),
            "--address".to_owned(),
            format!("shard-1={}", first.uri()),
            "--address".to_owned(),
            format!("shard-2={}", second.uri()),
        ];
        let mut place = Place {
            _sets: [first, second],
            folder,
            where_it_is,
            address: "127.0.0.1:0".parse().unwrap(),
            serves: None,
        };
        place.serve().unwrap();
        Some(place)
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        let mut command = self.process("serve", "serves");
        command.args(["--listen", &self.address.to_string()]);
        command.args(["--set", "moves.runner=mover"]);
        let process = ServerProcess::start(command)?;
        self.address = process.address();
        self.serves = Some(process);
        Ok(())
    }

    fn process(&self, what: &str, name: &str) -> Command {
        let mut command = support::command(self.folder.path());
        command.env(support::UNHURRIED.0, support::UNHURRIED.1);
        command.args([what, "--set", &format!("process={name}")]);
        for setting in SETTINGS {
            command.args(["--set", setting]);
        }
        command.args(&self.where_it_is);
        command
    }

    /// A mover that says that it works.
    fn mover(&self, name: &str) -> anyhow::Result<Child> {
        let mut command = self.process("mover", name);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("it prints")?).read_line(&mut line)?;
        ensure!(
            line.contains(&format!("works for moves as {name}")),
            "{line}"
        );
        Ok(child)
    }

    fn asks(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = support::command(self.folder.path());
        let output = command.args(arguments).args(&self.where_it_is).output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {complaint}");
        Ok(String::from_utf8(output.stdout)?)
    }

    fn status(&self) -> anyhow::Result<Value> {
        let status = [&["move", "status", "--json"][..], &NAME].concat();
        Ok(serde_json::from_str(&self.asks(&status)?)?)
    }

    fn wait_until(&self, reached: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let status = self.status()?;
            if reached(&status) {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "it stands: {status:#}");
            thread::sleep(PAUSE);
        }
    }

    /// Again if it was given up on a busy machine.
    fn bring(&self, wish: &str, from: &str, to: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.status()?["phase"] != to {
            ensure!(began.elapsed() < PATIENCE, "{:#}", self.status()?);
            let status = self.status()?;
            if status["phase"] == from && status["wish"].is_null() {
                self.asks(&[&["move", wish][..], &NAME].concat())?;
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn story(&self) -> anyhow::Result<()> {
        let keys = ["--collection", "carts", "--slots", "0-1023"];
        let way = ["--from", "shard-1", "--to", "shard-2"];
        let freeze = ["--freeze-ms-max", "4000"];
        let start = [&["move", "start"][..], &NAME, &keys, &way, &freeze].concat();
        self.asks(&start)?;
        thread::sleep(NOBODY_COMES);
        let status = self.status()?;
        ensure!(
            status["held"] == false && status["phase"] == "planned",
            "{status:#}"
        );
        let mut first = self.mover("mover-1")?;
        self.wait_until(|status| status["phase"] == "ready" && status["term"] == 1)?;
        first.kill()?;
        first.wait()?;
        let second = self.mover("mover-2")?;
        self.wait_until(|status| status["term"] == 2)?;
        self.bring("cutover", "ready", "settling")?;
        self.asks(&[&["move", "certificate", "--verify"][..], &NAME].concat())?;
        ends_in_peace(second)?;
        let status = self.status()?;
        ensure!(
            status["held"] == false && status["phase"] == "settling",
            "{status:#}"
        );
        let third = self.mover("mover-3")?;
        self.bring("rollback", "settling", "rolled back")?;
        ends_in_peace(third)
    }
}

fn ends_in_peace(mut mover: Child) -> anyhow::Result<()> {
    let pid = Pid::from_raw(i32::try_from(mover.id())?).context("a process has a number")?;
    kill_process(pid, Signal::TERM)?;
    let status = mover.wait()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

impl Fleet for Place {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.address]
    }

    fn disturb(&mut self, _until: Instant) -> anyhow::Result<()> {
        self.story()
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        self.serves = None;
        self.serve()
    }
}
