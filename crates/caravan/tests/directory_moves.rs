//! Keys are moved inside a data directory by the process that serves it, told so by the real command line, while shoppers
//! buy; judged over HTTP by a ledger that is not the shop's. And what the command line says when nobody serves.

#![allow(clippy::unwrap_used)]

mod support;

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use judge::server::ServerProcess;
use judge::shop::disturbed::{self, Fleet, Plan};
use rustix::process::Signal;
use serde_json::Value;
use support::{Server, is_one_sentence, is_refused, succeeds};

/// How long one step of a move may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);

const HALF: &str = "0-2047";

#[test]
fn keys_go_to_a_new_shard_and_back_and_there_again_while_shoppers_buy() {
    let place = Place::start();
    let folder = tempfile::tempdir().unwrap();
    let seed = judge::together::run_number();
    println!("seed {seed}");
    let plan = Plan {
        load: Duration::from_secs(1),
        shoppers: 6,
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

/// One process on a directory of one shard.
struct Place {
    folder: tempfile::TempDir,
    address: SocketAddr,
    process: Option<ServerProcess>,
    began: Instant,
}

impl Place {
    fn start() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let process = ServerProcess::start(serving(&folder, any)).unwrap();
        Place {
            address: process.address(),
            process: Some(process),
            folder,
            began: Instant::now(),
        }
    }

    fn say(&self, what: &str) {
        println!("{:6.1} s: {what}", self.began.elapsed().as_secs_f64());
    }

    fn caravan(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = support::command(self.folder.path());
        Ok(command.args(arguments).output()?)
    }

    fn succeeds(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.caravan(arguments)?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {complaint}");
        Ok(String::from_utf8(output.stdout)?)
    }

    fn is_refused(&self, arguments: &[&str], what: &str, remedy: &str) -> anyhow::Result<()> {
        is_one_sentence(&self.caravan(arguments)?, what, remedy);
        Ok(())
    }

    fn status(&self, name: &str) -> anyhow::Result<Value> {
        let text = self.succeeds(&["move", "status", "--json", "--name", name])?;
        Ok(serde_json::from_str(&text)?)
    }

    fn wait_until(&self, name: &str, reached: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let began = Instant::now();
        loop {
            let status = self.status(name)?;
            if reached(&status) {
                return Ok(status);
            }
            ensure!(began.elapsed() < PATIENCE, "{name} stands: {status:#}");
            thread::sleep(PAUSE);
        }
    }

    /// Asks as soon as it stands at `from`, again if it was given up, until it has come to `to`.
    fn bring(&self, name: &str, wish: &str, from: &str, to: &str) -> anyhow::Result<()> {
        let reached = self.wait_until(name, |status| {
            if status["phase"] == from && status["wish"].is_null() {
                // Refused if it is not ready any more since we looked.
                // Nobody waits for a grace here.
                let grace = ["--grace", "0s"].into_iter().filter(|_| wish == "complete");
                let asked = ["move", wish, "--name", name];
                let asked = self.caravan(&asked.into_iter().chain(grace).collect::<Vec<_>>());
                assert!(asked.is_ok(), "{asked:?}");
            }
            status["phase"] == to
        })?;
        self.say(&format!("{name}: {to}, {}", reached["shown"]));
        Ok(())
    }

    fn metrics(&self) -> anyhow::Result<String> {
        let answer = ureq::get(format!("http://{}/metrics", self.address)).call();
        Ok(answer?.body_mut().read_to_string()?)
    }

    /// As a power cut would, and up again on what is there.
    fn kill_and_start(&mut self) -> anyhow::Result<()> {
        self.process.take().context("it serves")?.kill()?;
        let gone = "is gone";
        self.is_refused(
            &["move", "pause", "--name", "carts-2"],
            gone,
            "caravan serve",
        )?;
        self.process = Some(ServerProcess::start(serving(&self.folder, self.address))?);
        self.say("killed, and serves again");
        Ok(())
    }

    fn adds_a_shard(&self) -> anyhow::Result<()> {
        self.is_refused(
            &moving("plan", "carts-1", "carts"),
            "shard shard-2 is not configured",
            "configure it",
        )?;
        let added = self.succeeds(&["shard", "add"])?;
        ensure!(added.contains("shard-2 is there"), "{added}");
        let listed = self.succeeds(&["shard", "list"])?;
        let empty = |line: &str| line.starts_with("shard-2") && line.ends_with("none yet");
        ensure!(listed.lines().any(empty), "{listed}");
        let planned = self.succeeds(&moving("plan", "carts-1", "carts"))?;
        ensure!(planned.contains("nothing stands in its way"), "{planned}");
        Ok(())
    }

    fn there_and_back(&self) -> anyhow::Result<()> {
        self.succeeds(&moving("start", "carts-1", "carts"))?;
        let watched = self.succeeds(&["move", "watch", "--name", "carts-1", "--until", "ready"])?;
        let last = watched.lines().last().context("it says something")?;
        ensure!(last.starts_with("carts-1: ready"), "{watched}");
        ensure!(
            last.contains("left: waits for caravan move cutover"),
            "{watched}"
        );
        let early = ["move", "complete", "--name", "carts-1"];
        self.is_refused(&early, "has not cut over yet", "abort it")?;
        let cutover = ["move", "cutover", "--name", "carts-1", "--freeze-ms-max"];
        let at_once = [&cutover[..], &["0"]].concat();
        self.is_refused(&at_once, "a freeze of 0 ms", "choose 1 to")?;
        let later = [&cutover[..], &["500", "--when-ready"]].concat();
        self.is_refused(&later, "asked for now", "cut over by hand")?;
        self.bring("carts-1", "cutover", "ready", "settling")?;
        self.succeeds(&["move", "certificate", "--verify", "--name", "carts-1"])?;
        let written = r#"caravan_engine_commits_total{shard="shard-2"}"#;
        let metrics = self.metrics()?;
        ensure!(metrics.contains(written), "{metrics}");
        self.bring("carts-1", "rollback", "settling", "rolled back")?;
        let back = [
            "move",
            "certificate",
            "--verify",
            "--rollback",
            "--name",
            "carts-1",
        ];
        self.succeeds(&back)?;
        let lines = self.succeeds(&["move", "watch", "--json", "--name", "carts-1"])?;
        let line: Value = serde_json::from_str(lines.trim())?;
        ensure!(
            line["phase"] == "rolled back" && line["expected"] == "nothing",
            "{lines}"
        );
        let otherwise = ["move", "watch", "--name", "carts-1", "--until", "settling"];
        ensure!(
            self.caravan(&otherwise)?.status.code() == Some(1),
            "it ended otherwise"
        );
        Ok(())
    }

    fn there_for_good(&mut self) -> anyhow::Result<()> {
        let slowly = [
            &moving("start", "carts-2", "carts")[..],
            &["--records-per-s", "2"],
        ]
        .concat();
        self.succeeds(&slowly)?;
        let copies = |status: &Value| status["phase"] == "backfilling";
        self.wait_until("carts-2", copies)?;
        self.kill_and_start()?;
        let taken_over = |status: &Value| status["term"] == 2 && status["held"] == true;
        self.wait_until("carts-2", taken_over)?;
        let listed = self.succeeds(&["shard", "list", "--json"])?;
        ensure!(
            listed.contains("shard-2"),
            "it has no keys, and is there: {listed}"
        );
        self.succeeds(&["move", "throttle", "--name", "carts-2"])?;
        let by_itself = [
            &moving("start", "orders-1", "orders")[..],
            &["--when-ready"],
        ]
        .concat();
        self.succeeds(&by_itself)?;
        self.bring("carts-2", "cutover", "ready", "settling")?;
        // Once by itself; if that was given up, by hand.
        self.wait_until("orders-1", |status| status["cutover_time"].is_null())?;
        self.bring("orders-1", "cutover", "ready", "settling")?;
        self.kill_and_start()?;
        for name in ["carts-2", "orders-1"] {
            self.bring(name, "complete", "settling", "cleaned up")?;
            let status = self.wait_until(name, |status| status["ended"] == true)?;
            let removed = status["shown"]["records_removed"].as_u64();
            ensure!(removed > Some(0), "nothing was removed: {status:#}");
            self.succeeds(&["move", "certificate", "--verify", "--name", name])?;
        }
        Ok(())
    }

    fn everything_was_written_down(&self) -> anyhow::Result<()> {
        let text = self.succeeds(&["move", "audit", "--json"])?;
        let entries: Vec<Value> = serde_json::from_str(&text)?;
        let outcome = |what: &str| {
            let mut all = entries.iter();
            all.find(|entry| entry["what"] == what)
                .map_or(&Value::Null, |entry| &entry["outcome"])
        };
        let unthrottled = "throttle carts-2: as fast as both sides allow";
        for what in ["add a shard", "rollback carts-1", unthrottled] {
            ensure!(outcome(what) == "done", "{what}: {text}");
        }
        let refused = outcome("complete carts-1").as_str().unwrap_or_default();
        ensure!(refused.contains("has not cut over yet"), "{text}");
        let who = entries[0]["who"].as_str().context("somebody asked")?;
        ensure!(who.contains('@') && who.contains('/'), "{who}");
        let shown = self.succeeds(&["move", "audit"])?;
        ensure!(
            shown.contains("start orders-1: orders from shard-1 to shard-2"),
            "{shown}"
        );
        Ok(())
    }
}

impl Fleet for Place {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.address]
    }

    /// Moves keys, as long as that takes.
    fn disturb(&mut self, _until: Instant) -> anyhow::Result<()> {
        self.adds_a_shard()?;
        self.there_and_back()?;
        self.there_for_good()?;
        self.everything_was_written_down()
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        self.process = None;
        self.process = Some(ServerProcess::start(serving(&self.folder, self.address))?);
        Ok(())
    }
}

fn serving(folder: &tempfile::TempDir, listen: SocketAddr) -> Command {
    let mut command = support::command(folder.path());
    command.env(support::UNHURRIED.0, support::UNHURRIED.1);
    command.args(["serve", "--listen", &listen.to_string()]);
    command.args(["--set", "shop.sweep_after_s=10"]);
    command
}

/// Generous with the freeze: what is judged here is the outcome, on whatever machine.
fn moving<'a>(what: &'a str, name: &'a str, collection: &'a str) -> [&'a str; 14] {
    [
        "move",
        what,
        "--name",
        name,
        "--collection",
        collection,
        "--slots",
        HALF,
        "--from",
        "shard-1",
        "--to",
        "shard-2",
        "--freeze-ms-max",
        "4000",
    ]
}

#[test]
fn who_watches_a_copy_is_told_how_much_of_it_is_done_and_when_it_will_be() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let server = Server::start(at, &[]);
    // As many as an estimate from some of the slots needs to be one.
    for number in 0..2_000 {
        let cart = format!(r#"{{"user_id":"user-{number}"}}"#);
        assert_eq!(server.post("/v1/carts", &cart).status, 201);
    }
    succeeds(at, &["shard", "add"]);
    let slowly = ["--records-per-s", "100"];
    let start = moving("start", "carts-1", "carts");
    succeeds(at, &[&start[..], &slowly].concat());
    let watch = ["move", "watch", "--json", "--until", "ready"];
    let lines = succeeds(at, &[&watch[..], &["--name", "carts-1"]].concat());
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["to_copy"]["known_by"], "estimate", "{lines:#?}");
    let copying = lines.iter().filter(|line| line["phase"] == "backfilling");
    let told: Vec<(u64, &str)> = copying
        .map(|line| {
            let percent = line["copied_percent"].as_u64().unwrap();
            (percent, line["expected"].as_str().unwrap())
        })
        .collect();
    let percents = told.iter().map(|(percent, _)| percent);
    assert!(percents.is_sorted_by(|one, other| one <= other && *other <= &100));
    let in_seconds = |(_, expected): &(u64, &str)| expected.starts_with("copied in about");
    assert!(told.iter().any(in_seconds), "{told:?}");
    assert!(lines.last().unwrap()["copied_percent"].is_null());
    server.stop();
}

#[test]
fn a_directory_is_changed_by_who_serves_it_and_looked_at_by_anybody() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = at.join("caravan-data").join("ops.address");
    let start = moving("start", "carts-1", "carts");
    is_refused(at, &start, "is no data directory", "caravan serve --sample");
    assert!(!at.join("caravan-data").exists());

    let server = Server::start(at, &[]);
    assert!(file.exists());
    let added = succeeds(at, &["shard", "add", "--json"]);
    assert!(added.contains(r#""shard": "shard-2""#), "{added}");
    is_refused(at, &["serve", "--shards", "1"], "in use", "stop it");
    server.stop();
    assert!(!file.exists(), "who ends in peace takes its address back");

    // Nobody serves: the command opens the directory itself.
    is_refused(at, &start, "nobody serves", "start caravan serve --data");
    is_refused(
        at,
        &["shard", "add"],
        "nobody serves",
        "start caravan serve",
    );
    assert_eq!(succeeds(at, &["move", "list", "--json"]).trim(), "[]");
    let planned = succeeds(at, &moving("plan", "carts-1", "carts"));
    assert!(planned.contains("nothing stands in its way"), "{planned}");
    let listed = succeeds(at, &["shard", "list"]);
    assert!(listed.contains("shard-2  -           none yet"), "{listed}");
    let audit = succeeds(at, &["move", "audit"]);
    assert!(audit.contains("add a shard"), "{audit}");
    is_refused(
        at,
        &["serve", "--shards", "1"],
        "has 2 shard(s), not 1",
        "leave --shards out",
    );

    let server = Server::start(at, &[]);
    server.signal(Signal::KILL);
    let _ = server.ended();
    assert!(file.exists(), "who is killed leaves its address behind");
    is_refused(at, &start, "did and is gone", "start caravan serve --data");
    assert_eq!(succeeds(at, &["move", "list", "--json"]).trim(), "[]");
    std::fs::write(&file, "nonsense").unwrap();
    is_refused(at, &["move", "list"], "is no address", "remove it");
}

#[test]
fn operators_are_heard_on_this_machine_only_and_pages_of_browsers_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for address in ["0.0.0.0:0", "192.0.2.1:9000"] {
        let set = format!("ops.listen={address}");
        is_refused(at, &["serve", "--set", &set], address, "127.0.0.1:0");
    }
    let _server = Server::start(at, &[]);
    let file = std::fs::read_to_string(at.join("caravan-data/ops.address")).unwrap();
    let told: Value = serde_json::from_str(&file).unwrap();
    let url = format!("http://{}/shards", told["address"].as_str().unwrap());
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .into();
    let mut listed = agent.get(&url).call().unwrap();
    assert_eq!(listed.status().as_u16(), 200);
    let listed: Value = serde_json::from_str(&listed.body_mut().read_to_string().unwrap()).unwrap();
    assert_eq!(listed[0]["keys"]["carts"][0], "slots 0-4095");
    let page = agent.post(&url).header("origin", "http://shop.example");
    let mut refused = page.send_empty().unwrap();
    assert_eq!(refused.status().as_u16(), 403);
    let kind = refused.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(kind, "application/problem+json");
    let problem = refused.body_mut().read_to_string().unwrap();
    let problem: Value = serde_json::from_str(&problem).unwrap();
    assert_eq!(problem["type"], "/problems/forbidden");
    let listed = succeeds(at, &["shard", "list", "--json"]);
    assert!(!listed.contains("shard-2"), "nothing was added: {listed}");
}
