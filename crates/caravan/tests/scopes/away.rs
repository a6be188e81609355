//! The server that keys are moved to goes away and does not come back: shoppers are at the source and notice nothing, the
//! operator is told which shard it is, and can give the move up without it.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use judge::shop::disturbed::{self, Fleet, Plan};
use serde_json::Value;
use testbed::{ExclusiveMongoSet, Members, MongoSet, required_or_skip};

use crate::added;
use crate::place::{self, Place};

/// How long one step of a move may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);
const PROCESSES: usize = 2;
const ORDERS: usize = 10;

#[test]
fn a_target_that_goes_away_harms_nobody_and_its_move_is_given_up_without_it() {
    let Some(place) = Place::start(1, 1, PROCESSES) else {
        return;
    };
    let target = MongoSet::exclusive(Members::One);
    let Some(target) = required_or_skip(target, "MongoDB") else {
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
        patience: Duration::from_secs(12),
        settle: Duration::from_secs(120),
    };
    let verdict = place::block_on(disturbed::run(Away { place, target }, &plan)).unwrap();
    if !verdict.holds() {
        let kept = folder.keep();
        panic!("ledger in {}: {verdict}", kept.display());
    }
}

struct Away {
    place: Place,
    target: ExclusiveMongoSet,
}

impl Fleet for Away {
    fn addresses(&self) -> Vec<SocketAddr> {
        let members = self.place.members.iter();
        members.map(|(address, _)| *address).collect()
    }

    fn disturb(&mut self, _until: Instant) -> anyhow::Result<()> {
        self.place.put_own_product()?;
        let address = format!("shard-2={}", self.target.uri());
        self.place.succeeds(&added("shard-2", &address))?;
        let before = self.place.map()?;
        self.nothing_is_begun_without_it()?;
        self.the_mover_gives_it_up()?;
        self.whoever_starts_without_it_gives_it_up()?;
        let after = self.place.map()?;
        ensure!(after.collections == before.collections, "keys were moved");
        Ok(())
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        self.place.restart()
    }
}

impl Away {
    fn nothing_is_begun_without_it(&self) -> anyhow::Result<()> {
        self.goes()?;
        for what in ["plan", "start"] {
            self.place
                .is_refused(&carts(what, "first"), "shard-2", "start the replica set")?;
        }
        self.place.say("nothing was begun");
        self.comes_back()
    }

    /// The process that works for it lives on.
    fn the_mover_gives_it_up(&self) -> anyhow::Result<()> {
        self.begin("first")?;
        let sent_away = self.place.sent_away()?;
        self.goes()?;
        let trouble = |status: &Value| {
            let trouble = status["shown"]["trouble"].as_str().unwrap_or_default();
            trouble.starts_with("shard-2: ")
        };
        let stands = self.wait_until("first", trouble)?;
        self.place
            .say(&format!("it stands: {}", stands["shown"]["trouble"]));
        let early = ["move", "cutover", "--name", "first"];
        self.place
            .is_refused(&early, "first cannot be cut over now", "is not ready")?;
        for number in 0..ORDERS {
            self.place
                .order(&format!("key-{number}"), &format!("user-{number}"))?;
        }
        self.give_up("first")?;
        let later = self.place.sent_away()?;
        ensure!(later == sent_away, "{} were sent away", later - sent_away);
        self.comes_back()
    }

    /// Nobody has the target open, and whoever worked for the move is gone.
    fn whoever_starts_without_it_gives_it_up(&mut self) -> anyhow::Result<()> {
        self.begin("second")?;
        self.goes()?;
        self.place.restart()?;
        self.place.say("both processes serve again, without it");
        self.give_up("second")
    }

    fn begin(&self, name: &str) -> anyhow::Result<()> {
        let slowly = [&carts("start", name)[..], &["--records-per-s", "2"]].concat();
        self.place.succeeds(&slowly)?;
        self.wait_until(name, |status| {
            status["phase"] == "backfilling" && status["shown"]["records_copied"] != 0
        })?;
        Ok(())
    }

    fn give_up(&self, name: &str) -> anyhow::Result<()> {
        self.place.succeeds(&["move", "abort", "--name", name])?;
        self.wait_until(name, |status| status["phase"] == "aborted")?;
        self.place.say(&format!("{name} is given up"));
        Ok(())
    }

    fn goes(&self) -> anyhow::Result<()> {
        self.target.kill9(0)?;
        self.place.say("the target's server is gone");
        Ok(())
    }

    fn comes_back(&self) -> anyhow::Result<()> {
        self.target.restart(0)?;
        self.place.say("the target's server is back");
        Ok(())
    }

    fn wait_until(&self, name: &str, reached: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let began = Instant::now();
        loop {
            let mut statuses = self.place.statuses(["--name", name])?;
            let status = statuses.remove(0);
            if reached(&status) {
                return Ok(status);
            }
            ensure!(began.elapsed() < PATIENCE, "{name} stands: {status:#}");
            thread::sleep(PAUSE);
        }
    }
}

fn carts<'a>(what: &'a str, name: &'a str) -> [&'a str; 12] {
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
