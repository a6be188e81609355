//! Fault points: a process that ends itself, as `kill -9` would, at a chosen write.
//!
//! ```text
//!   CARAVAN_FAULT_POINT=after:orders:create:1     the first order is pending, and nobody was told
//!   CARAVAN_FAULT_POINT=before:products:claim:2   the second claim is never sent
//!   CARAVAN_FAULT_POINT=after:move:frozen:1       the move's record says frozen, the map does not yet
//!   CARAVAN_FAULT_POINT=before:map:cutover:1      proven, and not published
//!   CARAVAN_FAULT_POINT=pause:move:proven:1       stands still right after it, until SIGCONT
//!   CARAVAN_FAULT_ALLOWED=this-process-may-die    without it, the point is refused at the start
//! ```
//!
//! For tests that stop a saga or a move between any two of its steps, on the program that
//! ships. Read from the environment alone: no settings file can hold it, and the second
//! variable says in words what is asked for. Without a point nothing is wrapped.

mod moves;
mod point;
mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use engine_api::{ControlStore, Engine};
use router::ShardName;
use rustix::process::{Signal, getpid, kill_process};

use moves::FaultyControl;
use point::{FaultPoint, Kind, Side};
use writes::FaultyEngine;

/// The engines that shoppers write to, wrapped if the environment asks for a fault there.
pub fn of_writes(
    engines: BTreeMap<ShardName, Arc<dyn Engine>>,
) -> Result<BTreeMap<ShardName, Arc<dyn Engine>>> {
    let Some(point) = point::asked()? else {
        return Ok(engines);
    };
    tracing::warn!(%point, "THIS PROCESS WILL KILL OR STOP ITSELF at the write that CARAVAN_FAULT_POINT names");
    let Kind::Write { .. } = point.kind else {
        return Ok(engines);
    };
    let trap = Arc::new(Trap::at(point));
    let faulty = |(name, engine)| {
        let trap = trap.clone();
        let faulty: Arc<dyn Engine> = Arc::new(FaultyEngine { engine, trap });
        (name, faulty)
    };
    Ok(engines.into_iter().map(faulty).collect())
}

/// The control store that movers work with, wrapped if the environment asks for a fault there.
pub fn of_moves(control: Arc<dyn ControlStore>) -> Result<Arc<dyn ControlStore>> {
    let Some(point) = point::asked()? else {
        return Ok(control);
    };
    match point.kind {
        Kind::Write { .. } => Ok(control),
        Kind::Move { .. } | Kind::Map { .. } => Ok(Arc::new(FaultyControl::new(
            control,
            Arc::new(Trap::at(point)),
        ))),
    }
}

/// The point, and how often it was passed.
#[derive(Debug)]
struct Trap {
    point: FaultPoint,
    met: AtomicU64,
}

/// What a write is to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Passes,
    Ends,
}

impl Trap {
    fn at(point: FaultPoint) -> Trap {
        let met = AtomicU64::new(0);
        Trap { point, met }
    }

    /// Counts a write of the point's kind.
    fn met(&self) -> Fate {
        match self.met.fetch_add(1, Ordering::SeqCst) + 1 == self.point.nth {
            true => Fate::Ends,
            false => Fate::Passes,
        }
    }

    /// As a signal from outside: no destructor, no farewell.
    fn spring(&self) {
        let point = &self.point;
        match point.side {
            Side::Before | Side::After => {
                eprintln!("fault point {point}: this process kills itself");
                // Nothing can refuse a process its own end; if something does, abort is next.
                let _ = kill_process(getpid(), Signal::KILL);
                std::process::abort()
            }
            Side::Pause => {
                eprintln!("fault point {point}: this process stops itself");
                if let Err(error) = kill_process(getpid(), Signal::STOP) {
                    eprintln!("fault point {point}: it cannot ({error})");
                    std::process::abort()
                }
            }
        }
    }
}
