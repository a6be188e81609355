//! Who is killed, and when; and that it comes back.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rand::RngExt;
use rustix::process::Signal;

use crate::cell::{Cell, Victim};
use crate::moving::Moving;
use crate::pair::Server;
use crate::place::{Condition, MOVER, Place, ROUTER};

/// How long a victim of a named step is away.
const AWAY: Duration = Duration::from_millis(1_500);
const RANDOM_KILLS: u32 = 3;

pub struct Strikes {
    cell: Cell,
    left: u32,
    /// When the next random one comes.
    next: Instant,
    /// Each with the phase it met, as far as is known.
    struck: Vec<String>,
}

impl Strikes {
    pub fn of(cell: Cell, place: &mut Place) -> Strikes {
        let left = match cell {
            Cell::At { .. } => 1,
            Cell::Random => RANDOM_KILLS,
            Cell::Undisturbed => 0,
        };
        Strikes {
            cell,
            left,
            next: Instant::now() + rest(place, 0..3_000),
            struck: Vec::new(),
        }
    }

    /// Kills if it is time to, and returns when the victim serves again.
    pub fn look(&mut self, place: &mut Place, moving: &Moving) -> anyhow::Result<()> {
        if self.left == 0 {
            return Ok(());
        }
        match self.cell {
            Cell::At { victim, .. } => self.at_the_step(place, victim, moving),
            Cell::Random if Instant::now() >= self.next => self.at_random(place, moving),
            Cell::Random | Cell::Undisturbed => Ok(()),
        }
    }

    /// Whether its one kill has not come yet.
    pub fn waits_for_its_step(&self) -> bool {
        self.left > 0 && matches!(self.cell, Cell::At { .. })
    }

    /// A move in which nobody has been killed at random yet goes on until somebody is: a quick one would be over before.
    pub fn let_it_end(&self) -> bool {
        self.cell != Cell::Random || !self.struck.is_empty()
    }

    fn at_the_step(
        &mut self,
        place: &mut Place,
        victim: Victim,
        moving: &Moving,
    ) -> anyhow::Result<()> {
        match (victim, place.condition(MOVER)?) {
            (_, Condition::Runs) => return Ok(()),
            (Victim::Mover, Condition::Dead) => {
                let process = place.members[MOVER]
                    .process
                    .take()
                    .context("it was there")?;
                let ended = process.wait().err().context("it ended in peace")?;
                let ended = ended.to_string();
                let by_point = ended.contains("signal: 9") && ended.contains("fault point");
                ensure!(by_point, "{ended}");
                place.say("the mover is dead");
                thread::sleep(AWAY);
                place.start_one(MOVER, None)?;
            }
            (Victim::Router, Condition::StandsStill) => {
                self.kill_process(place, ROUTER)?;
                place.signal(MOVER, Signal::CONT)?;
                thread::sleep(AWAY);
                place.start_one(ROUTER, None)?;
            }
            (Victim::SourceServer | Victim::TargetServer, Condition::StandsStill) => {
                place.say(&format!("the {victim} is killed"));
                server_of(victim, moving, place)?.kill()?;
                place.signal(MOVER, Signal::CONT)?;
                thread::sleep(AWAY);
                server_of(victim, moving, place)?.restart()?;
            }
            (victim, condition) => {
                anyhow::bail!("the {victim} was to be killed, and the mover: {condition:?}")
            }
        }
        place.say(&format!("the {victim} is back"));
        self.struck.push(victim.to_string());
        self.left = 0;
        Ok(())
    }

    fn at_random(&mut self, place: &mut Place, moving: &Moving) -> anyhow::Result<()> {
        let away = rest(place, 100..2_000);
        let victims = place.pair.victims().iter();
        let there = victims.filter(|victim| place.pair.has(**victim, moving.from));
        let there: Vec<Victim> = there.copied().collect();
        let victim = there[place.random.random_range(0..there.len())];
        match victim {
            // Either may hold the move by now.
            Victim::Mover | Victim::Router => {
                let number = if victim == Victim::Mover {
                    MOVER
                } else {
                    ROUTER
                };
                self.kill_process(place, number)?;
                thread::sleep(away);
                place.start_one(number, None)?;
                self.struck
                    .push(format!("process {number} ({})", moving.phase));
            }
            Victim::SourceServer | Victim::TargetServer => {
                place.say(&format!("the {victim} is killed"));
                server_of(victim, moving, place)?.kill()?;
                thread::sleep(away);
                server_of(victim, moving, place)?.restart()?;
                self.struck.push(format!("{victim} ({})", moving.phase));
            }
        }
        place.say("it is back");
        self.left -= 1;
        self.next = Instant::now() + rest(place, 300..7_000);
        Ok(())
    }

    fn kill_process(&self, place: &mut Place, number: usize) -> anyhow::Result<()> {
        place.say(&format!("process {number} is killed"));
        let process = place.members[number].process.take();
        process.context("it serves")?.kill()
    }

    /// Who was killed. A cell that killed nobody has shown nothing.
    pub fn told(self) -> Option<String> {
        match self.cell {
            Cell::Undisturbed => Some("nobody".to_owned()),
            Cell::At { .. } | Cell::Random => {
                (!self.struck.is_empty()).then(|| self.struck.join(", "))
            }
        }
    }
}

fn server_of<'a>(victim: Victim, moving: &Moving, place: &'a Place) -> anyhow::Result<&'a Server> {
    let side = match victim {
        Victim::SourceServer => moving.from,
        Victim::Mover | Victim::Router | Victim::TargetServer => 1 - moving.from,
    };
    let server = place.pair.server(side).map(AsRef::as_ref);
    server.context("no server is under it")
}

fn rest(place: &mut Place, ms: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(place.random.random_range(ms))
}
