//! Moves that are brought to their end, whatever happens on the way.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::Signal;

use crate::cell::{Cell, End};
use crate::moving::Moving;
use crate::place::{Condition, MOVER, Place, ROUTER, told};
use crate::striking::Strikes;

/// How long one move may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often a cell is tried: the process with the fault point may lose the move before it comes there.
const ATTEMPTS_MAX: u32 = 3;
/// How long after the end a fault point may still be met.
const LAST_MOMENT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Struck,
    /// Another process took the move over before the step.
    Missed,
}

impl Place {
    /// Every cell.
    pub fn run_errands(&mut self) -> anyhow::Result<()> {
        let (mut number, mut misses) = (0, 0);
        loop {
            let collection = number % self.owners.len();
            let from = self.owners[collection];
            let Some((cell, end)) = self.errands.next(from) else {
                return Ok(());
            };
            let name = format!("cell-{number}-{}", misses + 1);
            let ran = self.attempt(cell, name, collection, end);
            let ran = ran.with_context(|| format!("cell {number}, {cell}"))?;
            if ran == Attempt::Struck {
                (number, misses) = (number + 1, 0);
                continue;
            }
            misses += 1;
            ensure!(
                misses < ATTEMPTS_MAX,
                "{cell}: nobody was killed in {misses} moves"
            );
            self.say("on a busy machine the other process took it before: once more");
            self.errands.again(from, cell);
        }
    }

    /// A move, from its start to its end.
    fn attempt(
        &mut self,
        cell: Cell,
        name: String,
        collection: usize,
        end: End,
    ) -> anyhow::Result<Attempt> {
        let began = Instant::now();
        let fault = cell.fault_point();
        self.say(&format!("{cell}: {}", fault.as_deref().unwrap_or("-")));
        self.end_one(MOVER)?;
        self.from = self.owners[collection];
        self.start_one(MOVER, fault.as_deref())?;
        let mut moving = self.begin(name, collection, end)?;
        let mut strikes = Strikes::of(cell, self);
        loop {
            strikes.look(self, &moving)?;
            if self.advance(&mut moving, &strikes)? {
                break;
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{cell}: {} does not come to its end: {:#}",
                moving.name,
                self.status(&moving.name)?.unwrap_or_default()
            );
            thread::sleep(PAUSE);
        }
        self.await_the_last(&mut strikes, &moving)?;
        self.certificates_hold(&moving)?;
        if moving.end == End::Completed {
            self.owners[collection] = 1 - moving.from;
        }
        let Some(struck) = strikes.told() else {
            let (phase, term) = (&moving.phase, moving.term);
            ensure!(term > 1, "it is {phase}, and its fault point was never met");
            return Ok(Attempt::Missed);
        };
        self.note(cell, collection, &moving, &struck, began.elapsed());
        Ok(Attempt::Struck)
    }

    fn note(&self, cell: Cell, collection: usize, moving: &Moving, struck: &str, took: Duration) {
        let pair = &self.pair;
        let moved = format!(
            "{} {} to {}, {}",
            pair.collections[collection],
            pair.sides[moving.from],
            pair.sides[1 - moving.from],
            moving.end.phase()
        );
        self.table.row([
            pair.names[moving.from],
            cell.step_name(),
            struck,
            &moved,
            &moving.story(),
            &moving.freezes(),
            &format!("{:.0} s", took.as_secs_f64()),
        ]);
    }

    /// Starts it so that the process with the fault point takes it: another stands still until then.
    fn begin(&mut self, name: String, collection: usize, end: End) -> anyhow::Result<Moving> {
        let from = self.owners[collection];
        let has_others = self.members.len() > ROUTER;
        if has_others {
            self.signal(ROUTER, Signal::STOP)?;
        }
        let collection = self.pair.collections[collection];
        let (name, start) = self.pair.starting(&name, collection, from);
        let begun = self.caravan(&start)?;
        // Who takes it may be struck before it has answered.
        if begun.status.success() || !self.is_closed()? {
            told(&start, &begun)?;
        }
        let began = Instant::now();
        while self
            .status(&name)?
            .is_some_and(|status| status["held"] != true)
            && self.condition(MOVER)? == Condition::Runs
        {
            ensure!(began.elapsed() < PATIENCE, "nobody takes {name}");
            thread::sleep(PAUSE);
        }
        if has_others {
            self.signal(ROUTER, Signal::CONT)?;
        }
        Ok(Moving::started(name, from, end))
    }

    /// Looks where it stands and gives the next command. Whether it has ended.
    fn advance(&self, moving: &mut Moving, strikes: &Strikes) -> anyhow::Result<bool> {
        let Some(status) = self.status(&moving.name)? else {
            return Ok(false);
        };
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
            let (wish, wished_in) = moving.end.wish();
            if moving.phase == wished_in {
                if strikes.let_it_end() {
                    moving.endings += self.asks(wish, moving)?;
                }
            } else if moving.phase == "ready" {
                moving.cutovers += self.asks("cutover", moving)?;
            }
        }
        Ok(false)
    }

    /// Refused if it does not stand there any more since we looked: then it is asked again.
    fn asks(&self, wish: &str, moving: &Moving) -> anyhow::Result<u32> {
        // Nobody waits for a grace here.
        let grace = ["--grace", "0s"].into_iter().filter(|_| wish == "complete");
        let asked = ["move", wish, "--name", &moving.name];
        let asked = self.asked(&asked.into_iter().chain(grace).collect::<Vec<_>>())?;
        let told = String::from_utf8_lossy(&asked.stderr);
        self.say(&format!("{}: {wish} {told}", moving.name));
        match asked.status.code() {
            Some(0) => Ok(1),
            Some(2) => Ok(0),
            // It died over the question.
            _ if self.is_closed()? => Ok(0),
            code => bail!("move {wish} ended with {code:?}: {told}"),
        }
    }

    /// The step may be the end itself. Who takes a move over has none: then nobody is waited for.
    fn await_the_last(&mut self, strikes: &mut Strikes, moving: &Moving) -> anyhow::Result<()> {
        let began = Instant::now();
        while strikes.waits_for_its_step() && moving.term == 1 && began.elapsed() < LAST_MOMENT {
            strikes.look(self, moving)?;
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn certificates_hold(&self, moving: &Moving) -> anyhow::Result<()> {
        let verify = ["move", "certificate", "--verify", "--name", &moving.name];
        match moving.end {
            End::Aborted => return Ok(()),
            End::Completed => {}
            End::RolledBack => {
                self.succeeds(&[&verify[..], &["--rollback"]].concat())?;
            }
        }
        self.succeeds(&verify)?;
        Ok(())
    }
}
