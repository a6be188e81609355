//! One cell of the table: what dies, and when.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    At {
        step: Step,
        victim: Victim,
    },
    /// Several kills in one move.
    Random,
}

/// A step of a move, as a fault point names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    name: &'static str,
    point: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The process that holds the move.
    Mover,
    /// Another process.
    Router,
    /// Of the shard that the keys are on when the move starts.
    SourceServer,
    TargetServer,
}

/// How a move is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Completed,
    RolledBack,
}

const VICTIMS: [Victim; 4] = [
    Victim::Mover,
    Victim::Router,
    Victim::SourceServer,
    Victim::TargetServer,
];

/// In the order in which a move comes by. The map is published after the record says so.
const STEPS: [Step; 14] = [
    step("barrier", "move:barrier"),
    step("backfilling", "move:backfilling"),
    step("catching up", "move:catching-up"),
    step("verifying", "move:verifying"),
    step("ready", "move:ready"),
    step("noticed", "move:noticed"),
    step("frozen", "move:frozen"),
    step("freeze published", "map:freeze"),
    step("proven", "move:proven"),
    step("cutover published", "map:cutover"),
    step("settling", "move:settling"),
    step("rolling back, noticed", "move:noticed-back"),
    step("rolling back, frozen", "move:frozen-back"),
    step("rolling back, proven", "move:proven-back"),
];

const fn step(name: &'static str, point: &'static str) -> Step {
    Step { name, point }
}

/// Those next to each other differ in both, so that a slice has some of everything.
pub fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for round in 0..VICTIMS.len() {
        for (number, step) in STEPS.into_iter().enumerate() {
            let victim = VICTIMS[(number + round) % VICTIMS.len()];
            cells.push(Cell::At { step, victim });
        }
        cells.push(Cell::Random);
    }
    cells
}

impl Cell {
    /// What the process that holds the move is told before it takes it.
    pub fn fault_point(&self) -> Option<String> {
        let Cell::At { step, victim } = self else {
            return None;
        };
        let side = match victim {
            Victim::Mover => "after",
            Victim::Router | Victim::SourceServer | Victim::TargetServer => "pause",
        };
        Some(format!("{side}:{}:1", step.point))
    }

    pub fn step_name(&self) -> &'static str {
        match self {
            Cell::At { step, .. } => step.name,
            Cell::Random => "random",
        }
    }

    /// Alternating, where the step does not decide it.
    pub fn end(&self, number: usize) -> End {
        let goes_back = matches!(self, Cell::At { step, .. } if step.point.ends_with("-back"));
        match goes_back || number.is_multiple_of(2) {
            true => End::RolledBack,
            false => End::Completed,
        }
    }
}

impl End {
    /// The command that leads there from settling.
    pub fn wish(self) -> &'static str {
        match self {
            End::Completed => "complete",
            End::RolledBack => "rollback",
        }
    }

    pub fn phase(self) -> &'static str {
        match self {
            End::Completed => "completed",
            End::RolledBack => "rolled back",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::At { step, victim } => write!(f, "{}/{victim}", step.name),
            Cell::Random => f.write_str("random"),
        }
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Victim::Mover => "mover",
            Victim::Router => "router",
            Victim::SourceServer => "source server",
            Victim::TargetServer => "target server",
        })
    }
}
