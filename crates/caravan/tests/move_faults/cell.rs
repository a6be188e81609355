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
    /// Nobody dies: the records are to be on the other side.
    Undisturbed,
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
    /// By command, before the cutover.
    Aborted,
}

pub const VICTIMS: [Victim; 4] = [
    Victim::Mover,
    Victim::Router,
    Victim::SourceServer,
    Victim::TargetServer,
];

/// In the order in which a move comes by. The map is published after the record says so.
const STEPS: [Step; 18] = [
    step("preflight", "move:planned"),
    step("barrier", "move:barrier"),
    step("backfilling", "move:backfilling"),
    step("catching up", "move:catching-up"),
    step("verifying", "move:verifying"),
    step("ready", "move:ready"),
    step("aborted", "move:aborted"),
    step("noticed", "move:noticed"),
    step("frozen", "move:frozen"),
    step("freeze published", "map:freeze"),
    step("proven", "move:proven"),
    step("cutover published", "map:cutover"),
    step("settling", "move:settling"),
    step("completed", "move:completed"),
    step("noticed back", "move:noticed-back"),
    step("frozen back", "move:frozen-back"),
    step("proven back", "move:proven-back"),
    step("rolled back", "move:rolled-back"),
];

const fn step(name: &'static str, point: &'static str) -> Step {
    Step { name, point }
}

/// Those next to each other differ in step and victim, so that a slice has some of everything.
pub fn all(victims: &[Victim]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for round in 0..victims.len() {
        for (number, step) in STEPS.into_iter().enumerate() {
            let victim = victims[(number + round) % victims.len()];
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

    /// Of a step; at random it is anybody.
    pub fn victim(&self) -> Option<Victim> {
        match self {
            Cell::At { victim, .. } => Some(*victim),
            Cell::Random | Cell::Undisturbed => None,
        }
    }

    pub fn step_name(&self) -> &'static str {
        match self {
            Cell::At { step, .. } => step.name,
            Cell::Random => "random",
            Cell::Undisturbed => "undisturbed",
        }
    }

    /// Whether it is meant by the name of a cell, a step or a victim.
    pub fn is_called(&self, name: &str) -> bool {
        let victim = self.victim();
        victim.is_some_and(|victim| victim.to_string() == name)
            || self.step_name() == name
            || self.to_string() == name
    }

    /// The end that this step belongs to, or else the one that is proposed.
    pub fn end(&self, proposed: End) -> End {
        let point = match self {
            Cell::At { step, .. } => step.point,
            Cell::Undisturbed => return End::Completed,
            Cell::Random => return proposed,
        };
        match point {
            "move:aborted" => End::Aborted,
            "move:completed" => End::Completed,
            "move:rolled-back" => End::RolledBack,
            _ if point.ends_with("-back") => End::RolledBack,
            _ => proposed,
        }
    }
}

impl End {
    /// The command that leads there, and the phase in which it is given.
    pub fn wish(self) -> (&'static str, &'static str) {
        match self {
            End::Completed => ("complete", "settling"),
            End::RolledBack => ("rollback", "settling"),
            End::Aborted => ("abort", "ready"),
        }
    }

    pub fn phase(self) -> &'static str {
        match self {
            End::Completed => "cleaned up",
            End::RolledBack => "rolled back",
            End::Aborted => "aborted",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::At { step, victim } => write!(f, "{}/{victim}", step.name),
            Cell::Random | Cell::Undisturbed => f.write_str(self.step_name()),
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
