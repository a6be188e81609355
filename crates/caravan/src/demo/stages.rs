//! What is shown: a second shard, half of the carts and orders there, back, and there again.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ops_api::{Asked, ClientError, Request};
use serde_json::{Value, json};

use super::shop::OwnShop;
use super::shoppers::Load;
use super::show::Show;
use crate::arguments::DemoArguments;
use crate::ops::Seen;

/// Half of the 4096.
const HALF: &str = "0-2047";
const COLLECTIONS: [&str; 2] = ["carts", "orders"];

/// How long one stage may take before something is wrong.
const PATIENCE: Duration = Duration::from_secs(120);
/// Within what was said when the moves were started.
const CUTOVER: Asked = Asked::Cutover {
    when: None,
    freeze_ms_max: None,
};
const ROLLBACK: Asked = Asked::Rollback {
    freeze_ms_max: None,
};
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub fn perform(
    shop: &OwnShop,
    load: &Load,
    wish: &DemoArguments,
    show: &mut Show<'_>,
) -> Result<()> {
    let mut stage = Stage {
        shop,
        load,
        pause: Duration::from_millis(wish.pause_ms),
        freeze_ms_max: wish.freeze_ms_max,
        show,
    };
    stage.show.say(&format!("{} shoppers buy", wish.shoppers))?;
    stage.watch(&[])?;
    let added = shop.ops.ask(&Request::AddShard)?;
    let name = added["shard"].as_str().context("a shard has a name")?;
    stage.show.say(&format!(
        "a second shard is added while they buy: {name}, without keys"
    ))?;
    let first = stage.start("1", name)?;
    stage.bring(&first, None, "ready")?;
    stage
        .show
        .say("both are ready: copied, compared, and the way back rehearsed")?;
    stage.bring(&first, Some(CUTOVER), "settling")?;
    stage.told("cut over", &first)?;
    stage.watch(&first)?;
    stage.bring(&first, Some(ROLLBACK), "rolled back")?;
    stage.told("rolled back", &first)?;
    stage.watch(&first)?;
    let second = stage.start("2", name)?;
    stage.bring(&second, None, "ready")?;
    stage.bring(&second, Some(CUTOVER), "settling")?;
    stage.told("cut over again", &second)?;
    stage.watch(&second)?;
    stage.bring(&second, Some(Asked::Complete { grace: None }), "completed")?;
    stage.show.say("completed: the second shard keeps them")?;
    stage.watch(&second)
}

struct Stage<'a, 'b> {
    shop: &'a OwnShop,
    load: &'a Load,
    pause: Duration,
    freeze_ms_max: u64,
    show: &'a mut Show<'b>,
}

impl Stage<'_, '_> {
    fn start(&mut self, turn: &str, target: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for collection in COLLECTIONS {
            let name = format!("{collection}-{turn}");
            let moved = json!({
                "name": name,
                "collection": collection,
                "slots": HALF,
                "from": "shard-1",
                "to": target,
                "freeze_ms_max": self.freeze_ms_max,
            });
            self.shop.ops.ask(&Request::Start { moved })?;
            names.push(name);
        }
        let told = names.join(" and ");
        self.show.say(&format!(
            "{told} begin: slots {HALF} from shard-1 to {target}"
        ))?;
        Ok(names)
    }

    /// Looks on while nothing is asked.
    fn watch(&mut self, names: &[String]) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < self.pause {
            self.look(names)?;
        }
        self.show.sum_up()
    }

    /// Asks for it wherever it is accepted, again if it was given up, until all have come to `phase`.
    fn bring(&mut self, names: &[String], asked: Option<Asked>, phase: &str) -> Result<()> {
        let began = Instant::now();
        loop {
            let moves = self.look(names)?;
            let there = |seen: &Seen| phase_of(seen) == phase;
            if moves.iter().all(there) {
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "a move is not {phase} after {} s: {}",
                PATIENCE.as_secs(),
                Value::from_iter(moves.iter().map(Seen::to_json))
            );
            for seen in moves.iter().filter(|seen| !there(seen)) {
                let record = seen.record.as_ref();
                let free = record.is_some_and(|record| record.state.wish.is_none());
                if let Some(asked) = asked.clone().filter(|_| free) {
                    self.ask(seen, asked)?;
                }
            }
        }
    }

    /// Refused while the move is at something else: then it is asked again.
    fn ask(&mut self, seen: &Seen, asked: Asked) -> Result<()> {
        let name = seen.name.to_string();
        match self.shop.ops.ask(&Request::Ask { name, asked }) {
            Ok(_) | Err(ClientError::Refused(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn look(&mut self, names: &[String]) -> Result<Vec<Seen>> {
        ensure!(!self.load.is_broken(), "a shopper has given up");
        let mut moves = Vec::new();
        for name in names {
            let name = name.clone();
            moves.push(Seen::of_json(
                self.shop.ops.ask(&Request::Status { name })?,
            )?);
        }
        self.show.look(self.shop, self.load, &moves)?;
        thread::sleep(LOOK_EVERY);
        Ok(moves)
    }

    fn told(&mut self, what: &str, names: &[String]) -> Result<()> {
        let moves = self.look(names)?;
        let frozen = moves.iter().filter_map(|seen| {
            let ms = seen.record.as_ref()?.state.shown.freeze_ms?;
            Some(format!("{} frozen for {ms} ms", seen.name))
        });
        let frozen: Vec<String> = frozen.collect();
        self.show.say(&format!("{what}: {}", frozen.join(", ")))
    }
}

pub fn phase_of(seen: &Seen) -> &'static str {
    let record = seen.record.as_ref();
    record.map_or("never begun", |record| record.state.phase.name())
}
