//! The disk of the shard that keys are moved to is full, before the move and in the middle of it: shoppers notice nothing,
//! the operator is told why and what to do, and with room again it goes on by itself. Judged over HTTP by a ledger that is
//! not the shop's.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use judge::server::ServerProcess;
use judge::shop::disturbed::{self, Fleet, Plan};
use serde_json::{Value, json};
use support::is_one_sentence;
use testbed::{Unavailable, required_or_skip};

/// How long one step of a move may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);

const DISK_MIB: u64 = 160;
const MIB: usize = 1024 * 1024;

/// Enough of them to be copied slowly for a while.
const CARTS: usize = 200;
const SLOWLY: &str = "10";

#[test]
fn a_target_whose_disk_is_full_harms_nobody_and_goes_on_once_there_is_room() {
    let Some(place) = Place::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let seed = judge::together::run_number();
    println!("seed {seed}");
    let plan = Plan {
        load: Duration::from_secs(1),
        shoppers: 4,
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

/// One process on a directory whose second shard is on a small disk.
struct Place {
    folder: tempfile::TempDir,
    address: SocketAddr,
    process: Option<ServerProcess>,
    began: Instant,
}

impl Place {
    fn start() -> Option<Place> {
        let folder = tempfile::tempdir().unwrap();
        let own = required_or_skip(own_mounts(folder.path()), "a small disk")?;
        let any = "127.0.0.1:0".parse().unwrap();
        let serving = || serving(&folder, any);
        // The first shard is made alone: an empty folder beside it is one that was added.
        drop(ServerProcess::start(serving()).unwrap());
        let shard = folder.path().join("caravan-data/shard-2");
        let process = ServerProcess::start(on_a_small_disk(&serving(), own, &shard)).unwrap();
        Some(Place {
            address: process.address(),
            process: Some(process),
            folder,
            began: Instant::now(),
        })
    }

    fn say(&self, what: &str) {
        println!("{:6.1} s: {what}", self.began.elapsed().as_secs_f64());
    }

    /// A file that takes all the room there is, as the process sees its disk.
    fn ballast(&self) -> anyhow::Result<PathBuf> {
        let process = self.process.as_ref().context("it serves")?.id();
        let shard = self.folder.path().join("caravan-data/shard-2/ballast");
        Ok(Path::new(&format!("/proc/{process}/root")).join(shard.strip_prefix("/")?))
    }

    fn fill(&self) -> anyhow::Result<()> {
        let mut file = File::create(self.ballast()?)?;
        let nothing = vec![0; MIB];
        for _ in 0..2 * DISK_MIB {
            match file.write_all(&nothing) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => {
                    self.say("the disk of shard-2 is full");
                    return Ok(());
                }
                Err(error) => bail!("the disk cannot be filled: {error}"),
            }
        }
        bail!("shard-2 is not on a small disk")
    }

    fn make_room(&self) -> anyhow::Result<()> {
        std::fs::remove_file(self.ballast()?)?;
        self.say("there is room again");
        Ok(())
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

    /// One sentence, and map and moves are what they were.
    fn is_refused(&self, arguments: &[&str], what: &str, remedy: &str) -> anyhow::Result<()> {
        let before = self.standing()?;
        is_one_sentence(&self.caravan(arguments)?, what, remedy);
        ensure!(
            self.standing()? == before,
            "{arguments:?} changed something"
        );
        Ok(())
    }

    fn standing(&self) -> anyhow::Result<[String; 2]> {
        let moves: Vec<Value> = serde_json::from_str(&self.succeeds(&["move", "list", "--json"])?)?;
        let moves = moves
            .iter()
            .map(|one| format!("{} {}", one["move"], one["phase"]));
        let shards = self.succeeds(&["shard", "list", "--json"])?;
        Ok([moves.collect::<Vec<_>>().join("\n"), shards])
    }

    fn wait_until(&self, name: &str, reached: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let began = Instant::now();
        loop {
            let text = self.succeeds(&["move", "status", "--json", "--name", name])?;
            let status = serde_json::from_str(&text)?;
            if reached(&status) {
                return Ok(status);
            }
            ensure!(began.elapsed() < PATIENCE, "{name} stands: {status:#}");
            thread::sleep(PAUSE);
        }
    }

    /// Carts of as many users as asked for, each read back: none of them may be refused.
    fn shops(&self, who: &str, users: usize) -> anyhow::Result<()> {
        let agent = ureq::Agent::config_builder().proxy(None).build();
        let agent = ureq::Agent::from(agent);
        let shop = format!("http://{}/v1/carts", self.address);
        for number in 0..users {
            let body = json!({"user_id": format!("{who}-{number}")});
            let post = agent.post(&shop).header("content-type", "application/json");
            let made = post.send(body.to_string())?.body_mut().read_to_string()?;
            let made: Value = serde_json::from_str(&made)?;
            let cart = made["cart_id"].as_str().context("a cart has an id")?;
            let read = agent.get(format!("{shop}/{cart}")).call()?;
            ensure!(read.status() == 200, "{cart}: {}", read.status());
        }
        Ok(())
    }

    /// Sold out is an answer, "come again later" is none.
    fn nobody_was_sent_away(&self) -> anyhow::Result<()> {
        let answer = ureq::get(format!("http://{}/metrics", self.address)).call();
        let text = answer?.body_mut().read_to_string()?;
        let requests = text
            .lines()
            .filter(|line| line.starts_with("caravan_http_requests_total"));
        let (mut all, mut sent_away) = (0, Vec::new());
        for line in requests {
            all += 1;
            if line.contains(r#"status="5"#) && !line.ends_with(" 0") {
                sent_away.push(line);
            }
        }
        ensure!(all > 0, "the counter has another name: {text}");
        ensure!(sent_away.is_empty(), "{}", sent_away.join("\n"));
        Ok(())
    }

    fn nothing_is_begun_on_a_full_disk(&self) -> anyhow::Result<()> {
        self.fill()?;
        let full = "shard-2: no space left";
        for what in ["plan", "start"] {
            self.is_refused(&moving(what, "carts-1"), full, "free space on the disk")?;
        }
        let share = [
            "move",
            "start",
            "--name",
            "share",
            "--rebalance",
            "--onto",
            "shard-2",
        ];
        self.is_refused(&share, full, "free space on the disk")?;
        self.make_room()
    }

    fn it_fills_up_while_it_is_copied_to(&self) -> anyhow::Result<()> {
        let slowly = [
            &moving("start", "carts-1")[..],
            &["--records-per-s", SLOWLY],
        ]
        .concat();
        self.succeeds(&slowly)?;
        let copies = |status: &Value| {
            status["phase"] == "backfilling" && status["shown"]["records_copied"] != 0
        };
        self.wait_until("carts-1", copies)?;
        let mut watching = support::command(self.folder.path());
        watching.args(["move", "watch", "--name", "carts-1", "--until", "ready"]);
        let watching = watching.stdout(Stdio::piped()).spawn()?;
        self.fill()?;
        let stands = self.wait_until("carts-1", |status| is_full(&status["shown"]["trouble"]))?;
        self.say(&format!("it stands: {}", stands["shown"]["trouble"]));
        ensure!(stands["phase"] == "backfilling", "{stands:#}");
        let shown = self.succeeds(&["move", "status", "--name", "carts-1"])?;
        ensure!(shown.contains("no space left"), "{shown}");
        let early = ["move", "cutover", "--name", "carts-1"];
        self.is_refused(&early, "carts-1 cannot be cut over now", "is not ready")?;
        self.shops("meanwhile", CARTS / 4)?;

        self.make_room()?;
        self.succeeds(&["move", "throttle", "--name", "carts-1"])?;
        let ready = self.wait_until("carts-1", |status| status["phase"] == "ready")?;
        ensure!(ready["shown"]["trouble"].is_null(), "{ready:#}");
        self.say("ready, and nobody was asked");
        let watched = watching.wait_with_output()?;
        let lines = String::from_utf8(watched.stdout)?;
        let told = lines
            .lines()
            .any(|line| line.contains("trouble: shard-2: no space left"));
        ensure!(told && watched.status.success(), "{lines}");
        Ok(())
    }

    fn it_is_given_up_while_the_disk_is_full(&self) -> anyhow::Result<()> {
        self.fill()?;
        // What shoppers change has to be copied, and cannot be.
        self.shops("later", CARTS / 4)?;
        self.wait_until("carts-1", |status| is_full(&status["shown"]["trouble"]))?;
        self.succeeds(&["move", "abort", "--name", "carts-1"])?;
        self.wait_until("carts-1", |status| status["phase"] == "aborted")?;
        self.shops("afterwards", CARTS / 4)?;
        let listed = self.succeeds(&["shard", "list"])?;
        let empty = |line: &str| line.starts_with("shard-2") && line.ends_with("none yet");
        ensure!(listed.lines().any(empty), "{listed}");
        Ok(())
    }
}

impl Fleet for Place {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.address]
    }

    /// Fills the disk instead of breaking things, as long as that takes.
    fn disturb(&mut self, _until: Instant) -> anyhow::Result<()> {
        self.shops("early", CARTS)?;
        self.nothing_is_begun_on_a_full_disk()?;
        self.it_fills_up_while_it_is_copied_to()?;
        self.it_is_given_up_while_the_disk_is_full()?;
        self.nobody_was_sent_away()
    }

    /// On the first shard alone, which has everything: the small disk went with the process.
    fn restart(&mut self) -> anyhow::Result<()> {
        self.process.take().context("it serves")?.kill()?;
        self.process = Some(ServerProcess::start(serving(&self.folder, self.address))?);
        Ok(())
    }
}

fn is_full(trouble: &Value) -> bool {
    let trouble = trouble.as_str().unwrap_or_default();
    trouble.contains("shard-2: no space left") && trouble.contains("free space on the disk")
}

fn serving(folder: &tempfile::TempDir, listen: SocketAddr) -> Command {
    let mut command = support::command(folder.path());
    command.env(support::UNHURRIED.0, support::UNHURRIED.1);
    command.args(["serve", "--listen", &listen.to_string()]);
    command.args(["--set", "shop.sweep_after_s=10"]);
    // Upkeep looks for room as well; this is about who is refused.
    command.args(["--set", "upkeep.every_s=3600"]);
    command
}

fn moving<'a>(what: &'a str, name: &'a str) -> [&'a str; 12] {
    [
        "move",
        what,
        "--name",
        name,
        "--collection",
        "carts",
        "--slots",
        "0-2047",
        "--from",
        "shard-1",
        "--to",
        "shard-2",
    ]
}

/// How a process gets mounts that nobody else has: plainly for root, otherwise in a user namespace.
fn own_mounts(folder: &Path) -> Result<&'static [&'static str], Unavailable> {
    const WAYS: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let mut detail = String::new();
    for way in WAYS {
        let nothing = Command::new("true");
        let tried = on_a_small_disk(&nothing, way, &folder.join("tried")).output();
        match tried {
            Ok(tried) if tried.status.success() => return Ok(way),
            Ok(tried) => detail += &String::from_utf8_lossy(&tried.stderr),
            Err(error) => detail += &error.to_string(),
        }
    }
    let tool = "unshare --mount";
    Err(Unavailable::ToolFailed { tool, detail })
}

/// The same command, as the only one that sees a small disk at the folder.
fn on_a_small_disk(command: &Command, own_mounts: &[&str], folder: &Path) -> Command {
    let mount =
        format!(r#"mkdir -p "$0" && mount -t tmpfs -o size={DISK_MIB}m tmpfs "$0" && exec "$@""#);
    let mut wrapped = Command::new("unshare");
    wrapped.args(own_mounts).args(["sh", "-c", &mount]);
    wrapped.arg(folder).arg(command.get_program());
    wrapped.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        wrapped.current_dir(folder);
    }
    wrapped
}
