//! Keys are moved by the real command line while shoppers buy at two processes over real servers; judged over HTTP by a
//! ledger that is not the shop's. And what the command line refuses.

#![allow(clippy::unwrap_used)]

mod support;

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use engine_api::{Generation, Position};
use judge::server::ServerProcess;
use judge::shop::disturbed::{self, Fleet, Plan};
use layout::{Collection, Scope};
use mover::{Certificate, Content, Direction, FreezeParts, Generations, MoveName};
use router::ShardName;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{is_one_sentence, is_refused, own_layout};
use testbed::{Members, MongoSet, required_or_skip};

const PROCESSES: usize = 2;
/// How long one step of a move may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);

const SETTINGS: [&str; 3] = [
    "shop.sweep_after_s=10",
    "router.lease_ms=5000",
    "router.lease_renew_ms=300",
];

const HALF: &str = "0-1023";

#[test]
fn keys_go_there_and_back_and_there_again_while_shoppers_buy() {
    let Some(place) = Place::start(PROCESSES) else {
        return;
    };
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

#[test]
fn a_process_that_ends_lets_its_moves_go_and_the_next_goes_on() {
    let Some(mut place) = Place::start(1) else {
        return;
    };
    let named = |what| ["move", what, "--name", "carts-1"];
    // No cutover is as short as this.
    let mut hasty = carts("start", "carts-1");
    *hasty.last_mut().unwrap() = "1";
    place.succeeds(&hasty).unwrap();
    let held = |status: &Value| status["held"] == true && status["term"] == 1;
    place.wait_until("carts-1", held).unwrap();
    let throttle = [&named("throttle")[..], &["--records-per-s", "50"]].concat();
    place.succeeds(&throttle).unwrap();
    place.succeeds(&named("pause")).unwrap();
    let shown = place.succeeds(&named("status")).unwrap();
    for text in ["paused", "50 records a second", "a process, under term 1"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    place.end_one(0).unwrap();
    let status = place.status("carts-1").unwrap();
    assert_eq!(status["held"], false, "{status:#}");
    place.refuses_what_comes_too_early_or_twice().unwrap();
    place.start_one(0).unwrap();
    place
        .wait_until("carts-1", |status| status["term"] == 2)
        .unwrap();
    place.succeeds(&named("resume")).unwrap();
    place
        .wait_until("carts-1", |status| status["phase"] == "ready")
        .unwrap();
    place.succeeds(&named("cutover")).unwrap();
    place
        .wait_until("carts-1", |status| !status["given_up"].is_null())
        .unwrap();
    let shown = place.succeeds(&named("status")).unwrap();
    let given_up = shown.lines().find(|line| line.starts_with("given up"));
    let given_up = given_up.unwrap();
    for text in [
        "nothing was frozen",
        "the freeze would take about",
        "its budget is 1 ms",
    ] {
        assert!(given_up.contains(text), "{text}: {shown}");
    }
    assert!(shown.contains("served by     shard-1"), "{shown}");
    place.succeeds(&named("abort")).unwrap();
    let aborted = |status: &Value| status["phase"] == "aborted" && status["ended"] == true;
    place.wait_until("carts-1", aborted).unwrap();
    let listed = place.succeeds(&["move", "list"]).unwrap();
    assert!(listed.contains("aborted"), "{listed}");
    let none = named("certificate");
    place
        .is_refused(&none, "carts-1 has no certificate", "has not cut over")
        .unwrap();
}

/// `mongo-sharded` over two replica sets, and two processes.
struct Place {
    _sets: [MongoSet; 2],
    folder: tempfile::TempDir,
    where_it_is: Vec<String>,
    members: Vec<(SocketAddr, Option<ServerProcess>)>,
    began: Instant,
}

impl Place {
    fn start(processes: usize) -> Option<Place> {
        let label = "second".parse().unwrap();
        let first = required_or_skip(testbed::mongo(Members::One), "MongoDB")?;
        let second = required_or_skip(testbed::mongo_labelled(Members::One, &label), "MongoDB")?;
        let folder = tempfile::tempdir().unwrap();
        let where_it_is = vec![
            "--layout".to_owned(),
            own_layout(folder.path(), "mongo-sharded", &first.database("moves")),
            "--address".to_owned(),
            format!("shard-1={}", first.uri()),
            "--address".to_owned(),
            format!("shard-2={}", second.uri()),
        ];
        let mut place = Place {
            _sets: [first, second],
            folder,
            where_it_is,
            members: Vec::new(),
            began: Instant::now(),
        };
        for number in 0..processes {
            let any = "127.0.0.1:0".parse().unwrap();
            let process = ServerProcess::start(place.serving(number, any)).unwrap();
            place.members.push((process.address(), Some(process)));
        }
        Some(place)
    }

    fn serving(&self, number: usize, listen: SocketAddr) -> Command {
        let mut command = support::command(self.folder.path());
        command.env(support::UNHURRIED.0, support::UNHURRIED.1);
        command.args(["serve", "--listen", &listen.to_string()]);
        command.args(["--set", &format!("process=member-{number}")]);
        for setting in SETTINGS {
            command.args(["--set", setting]);
        }
        command.args(&self.where_it_is);
        command
    }

    fn say(&self, what: &str) {
        println!("{:6.1} s: {what}", self.began.elapsed().as_secs_f64());
    }

    /// What the command line answers, whatever it is.
    fn caravan(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = support::command(self.folder.path());
        Ok(command.args(arguments).args(&self.where_it_is).output()?)
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

    /// Asks as soon as it stands at `from`, again if it was given up, until it has come to `to`.
    fn bring(&self, name: &str, wish: &str, from: &str, to: &str) -> anyhow::Result<()> {
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
                let asked = self.caravan(&["move", wish, "--name", name])?;
                let told = String::from_utf8_lossy(&asked.stderr);
                self.say(&format!("{name}: {wish} {told}"));
            }
            thread::sleep(PAUSE);
        }
    }

    fn wait_until(&self, name: &str, reached: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let status = self.status(name)?;
            if reached(&status) {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "{name} stands: {status:#}");
            thread::sleep(PAUSE);
        }
    }

    fn end_one(&mut self, number: usize) -> anyhow::Result<()> {
        let process = self.members[number].1.take().context("it serves")?;
        let pid = Pid::from_raw(i32::try_from(process.id())?).context("a process has a number")?;
        kill_process(pid, Signal::TERM)?;
        process.wait()
    }

    fn start_one(&mut self, number: usize) -> anyhow::Result<()> {
        let process = ServerProcess::start(self.serving(number, self.members[number].0))?;
        self.members[number].1 = Some(process);
        self.say(&format!("process {number} serves again"));
        Ok(())
    }

    fn shows(&self, metric: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        for (address, _) in &self.members {
            loop {
                let answer = ureq::get(format!("http://{address}/metrics")).call();
                let text = answer?.body_mut().read_to_string()?;
                if text.lines().any(|line| line == metric) {
                    break;
                }
                let all: Vec<&str> = text.lines().filter(|line| line.contains("moves")).collect();
                ensure!(began.elapsed() < PATIENCE, "{metric}: {}", all.join("\n"));
                thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    fn there_and_back(&self) -> anyhow::Result<()> {
        let planned = self.succeeds(&carts("plan", "carts-1"))?;
        ensure!(planned.contains("nothing stands in its way"), "{planned}");
        ensure!(planned.contains("slots 0-2047"), "{planned}");
        ensure!(
            self.succeeds(&["move", "list", "--json"])?.trim() == "[]",
            "a plan changes nothing"
        );
        self.succeeds(&carts("start", "carts-1"))?;
        self.bring("carts-1", "cutover", "ready", "settling")?;
        self.certificate_holds_until_it_is_changed("carts-1")?;
        self.bring("carts-1", "rollback", "settling", "rolled back")?;
        self.succeeds(&[
            "move",
            "certificate",
            "--verify",
            "--rollback",
            "--name",
            "carts-1",
        ])?;
        Ok(())
    }

    /// While nobody serves, so that nothing gets on meanwhile.
    fn refuses_what_comes_too_early_or_twice(&self) -> anyhow::Result<()> {
        self.succeeds(&moving("start", "orders-1", "orders"))?;
        let early = |wish| ["move", wish, "--name", "orders-1"];
        let refused = "orders-1 cannot be cut over now";
        self.is_refused(&early("cutover"), refused, "is not ready")?;
        for wish in ["rollback", "complete"] {
            self.is_refused(&early(wish), "has not cut over yet", "abort it")?;
        }
        for what in ["plan", "start"] {
            let second = moving(what, "orders-2", "orders");
            self.is_refused(&second, "move orders-1 has some of the keys", "abort it")?;
        }
        let mut other_keys = moving("start", "orders-1", "orders");
        other_keys[7] = "5";
        self.is_refused(&other_keys, "there was a move orders-1", "another name")?;
        let nobody = ["move", "status", "--name", "carts-9"];
        self.is_refused(&nobody, "there is no move carts-9", "start it first")
    }

    fn certificate_holds_until_it_is_changed(&self, name: &str) -> anyhow::Result<()> {
        self.succeeds(&["move", "certificate", "--verify", "--name", name])?;
        let kept = self.succeeds(&["move", "certificate", "--json", "--name", name])?;
        let mut certificate: Value = serde_json::from_str(&kept)?;
        let verify = |text: &str| -> anyhow::Result<Option<i32>> {
            std::fs::write(self.folder.path().join("kept.json"), text)?;
            let mut command = support::command(self.folder.path());
            command.args(["move", "certificate", "--verify", "--file", "kept.json"]);
            Ok(command.output()?.status.code())
        };
        ensure!(verify(&kept)? == Some(0), "{kept}");
        let records = certificate["content"]["records"].as_u64();
        certificate["content"]["records"] = (records.context("a number")? + 1).into();
        ensure!(verify(&certificate.to_string())? == Some(1), "{kept}");
        ensure!(verify("{}")? == Some(2), "no certificate at all");
        Ok(())
    }

    fn there_for_good(&mut self) -> anyhow::Result<()> {
        self.succeeds(&carts("start", "carts-2"))?;
        self.succeeds(&moving("start", "orders-1", "orders"))?;
        // The other process has to go on with what this one had.
        self.end_one(0)?;
        self.start_one(0)?;
        self.bring("carts-2", "cutover", "ready", "settling")?;
        self.bring("orders-1", "cutover", "ready", "settling")?;
        for name in ["carts-2", "orders-1"] {
            self.bring(name, "complete", "settling", "completed")?;
            let back = ["move", "rollback", "--name", name];
            self.is_refused(&back, "it is completed", "start a move in the other")?;
            self.succeeds(&["move", "certificate", "--verify", "--name", name])?;
            self.shows(&format!(
                r#"caravan_moves_phase{{move="{name}",phase="completed"}} 1"#
            ))?;
        }
        let map = self.succeeds(&["map", "show"])?;
        for collection in ["carts", "orders"] {
            let owned = map.lines().any(|line| {
                let is_half = line.contains(&format!("slots {HALF} "));
                line.starts_with(collection) && is_half && line.ends_with("shard-2")
            });
            ensure!(owned, "{collection}: {map}");
        }
        Ok(())
    }
}

impl Fleet for Place {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|(address, _)| *address).collect()
    }

    /// Moves keys instead of breaking things, as long as that takes.
    fn disturb(&mut self, _until: Instant) -> anyhow::Result<()> {
        self.there_and_back()?;
        self.there_for_good()
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            self.members[number].1 = None;
        }
        (0..self.members.len()).try_for_each(|number| self.start_one(number))
    }
}

fn carts<'a>(what: &'a str, name: &'a str) -> [&'a str; 14] {
    moving(what, name, "carts")
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
fn a_move_that_makes_no_sense_gets_one_sentence_before_anything_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let layout = own_layout(folder.path(), "mongo-sharded", "nowhere");
    let place = ["--layout", &layout];
    let refused = |changes: &[(&str, &str)], what: &str, remedy: &str| {
        let mut arguments = carts("plan", "carts-1");
        for (old, new) in changes {
            let found = arguments.iter_mut().find(|argument| *argument == old);
            *found.unwrap() = new;
        }
        let arguments = [&arguments[..], &place[..]].concat();
        is_refused(folder.path(), &arguments, what, remedy);
    };
    refused(
        &[("carts-1", "Carts 1")],
        "a move is named by",
        "lower-case",
    );
    refused(&[("carts", "cards")], "--collection cards", "choose carts");
    refused(&[(HALF, "9-3")], "--slots 9-3", "comes first");
    refused(&[(HALF, "0-4096")], "slot 4096", "0 to 4095");
    refused(&[(HALF, "few")], "--slots few", "0-1023");
    refused(&[], "nobody says where", "--address shard-1=");
    refused(&[("--slots", "--silly")], "--silly", "--help");
    is_refused(
        folder.path(),
        &["move", "list"],
        "is no data directory",
        "caravan serve --sample",
    );
    is_refused(folder.path(), &["move", "certificate"], "--name", "--help");
    assert!(!folder.path().join("caravan-data").exists());
}

#[test]
fn a_certificate_that_was_changed_is_told_by_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let shard = |name| ShardName::new(name).unwrap();
    let certificate = Certificate::of(Content {
        name: MoveName::new("carts-1").unwrap(),
        direction: Direction::Cutover,
        term: 3,
        plan: mover::Plan {
            collection: Collection::Carts,
            moved: mover::Moved::Keys {
                scope: Scope::All,
                source: shard("shard-1"),
                target: shard("shard-2"),
            },
            freeze_ms_max: 100,
        },
        generations: Generations {
            barrier: Generation(2),
            noticed: Generation(3),
            frozen: Generation(4),
            published: Generation(5),
        },
        seal: Position(vec![1]),
        back_from: Position(vec![2]),
        records: 10,
        left_root: "0a".into(),
        entered_root: "0a".into(),
        looked_again: 4,
        freeze_ms: Some(12),
        freeze_parts: FreezeParts::default(),
        stall: None,
        frozen_at_unix_us: 100,
        proven_at_unix_us: 200,
    });
    let check = |text: String, exit: i32, said: &str| {
        std::fs::write(folder.path().join("kept.json"), text).unwrap();
        let arguments = ["move", "certificate", "--verify", "--file", "kept.json"];
        let output = support::caravan(folder.path(), &arguments);
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8(told).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{told}");
        assert!(told.contains(said), "{told}");
    };
    let kept = serde_json::to_string(&certificate).unwrap();
    check(kept.clone(), 0, "nothing was changed");
    let changed = kept.replace("\"freeze_ms\":12", "\"freeze_ms\":11");
    check(changed, 1, "A FIELD WAS CHANGED");
    check("{}".to_owned(), 2, "kept.json is no certificate");
}
