//! What happened, in one order: the trace, the shoppers' ledger, and what the
//! servers really applied. The checks read nothing else.
//!
//! One thread runs a seed, so that the order in which things are recorded is
//! the order in which they happened; a [`Moment`] is a place in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine_api::{
    Change, EngineError, Fence, MoverTerm, Outcome, Query, Record, RecordKey, Revision,
    WriteContext,
};
use feed::tenure::Tenured;
use mover::{Certificate, MoveState};
use router::{Map, ShardName};
use shop_service::{ShopError, Swept};
use tokio::time::Instant;

use crate::chance::fnv;
use crate::ledger::{Deed, Told, Wish};

/// A place in the order of all events. Of two, the lower came first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

#[derive(Clone, Debug)]
pub struct Recording(Arc<Mutex<History>>);

/// Everything a check may look at.
#[derive(Clone, Debug)]
pub struct History {
    started: Instant,
    pub events: Vec<Event>,
    pub operations: Vec<Operation>,
    /// What visitors asked of the shop.
    pub deeds: Vec<Deed>,
    pub applied: Vec<Applied>,
    pub fences: Vec<Raised>,
    pub terms: Vec<Claimed>,
    pub maps: Vec<Published>,
    /// What a check found while the world still ran.
    pub breaches: Vec<String>,
    /// What the journals hold at the end, per shard.
    pub journals: BTreeMap<ShardName, Vec<(RecordKey, Revision)>>,
    /// What shoppers read at the end.
    pub images: Vec<Record>,
    /// What the owners hold at the end, seen by nobody's request.
    pub standing: Vec<Record>,
    pub sweeps: Sweeps,
    /// Orders in the archive at the end.
    pub archived: usize,
    /// Servers that know no fences.
    pub by_lease: BTreeSet<ShardName>,
    pub crashes: u64,
    pub pauses: u64,
    /// Pauses that outlasted the lease.
    pub leases_run_out: u64,
    pub moves_done: u64,
    pub moves_given_up: u64,
    /// Every value that a record of a move had.
    pub records: Vec<Recorded>,
    pub certificates: Vec<Certificate>,
    pub moving: Moving,
}

/// What befell the movers of a seed, and their operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moving {
    pub killed: u64,
    pub stood_still: u64,
    pub wishes_refused: u64,
    pub starts_refused: u64,
    /// Records that sources have forgotten after a completion.
    pub forgotten: u64,
}

/// What all sweepers of a seed did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweeps {
    pub passes: u64,
    pub finished: u64,
    pub aborted: u64,
}

#[derive(Clone, Debug)]
pub struct Event {
    pub at: Duration,
    pub what: String,
}

/// One request of a shopper, from its first word to the answer.
#[derive(Clone, Debug)]
pub struct Operation {
    pub shopper: usize,
    pub intent: Intent,
    pub invoked: Moment,
    pub invoked_at: Duration,
    pub ended: Option<Moment>,
    pub ended_at: Option<Duration>,
    pub end: End,
}

#[derive(Clone, Debug)]
pub enum Intent {
    Write(Vec<Change>),
    Read(RecordKey),
    /// All pages of a listing.
    List(Query),
}

/// How a shopper's request ended.
#[derive(Clone, Debug)]
pub enum End {
    /// No answer: under way, or its process died.
    Pending,
    Done {
        revision: Revision,
    },
    /// Definitely not applied.
    Refused {
        why: String,
        /// What the store met, if it was asked.
        met: Option<Outcome>,
    },
    Unknown {
        why: String,
    },
    Image(Option<Record>),
    /// The pages, each as it came.
    Pages(Vec<Vec<Record>>),
    Failed {
        why: String,
    },
}

/// A change as a server met it.
#[derive(Clone, Debug)]
pub struct Applied {
    pub moment: Moment,
    pub shard: ShardName,
    pub changes: Vec<Change>,
    pub context: WriteContext,
    pub answer: Result<Outcome, EngineError>,
    /// The records before and after, in the order of the changes.
    pub images: Vec<(Option<Record>, Option<Record>)>,
}

#[derive(Clone, Debug)]
pub struct Raised {
    pub moment: Moment,
    pub shard: ShardName,
    pub fence: Fence,
    pub term: MoverTerm,
}

#[derive(Clone, Debug)]
pub struct Claimed {
    pub moment: Moment,
    pub shard: ShardName,
    pub term: MoverTerm,
}

#[derive(Clone, Debug)]
pub struct Published {
    pub moment: Moment,
    pub map: Arc<Map>,
}

/// The record of a move, as it stood from this moment on.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub moment: Moment,
    pub name: String,
    pub record: Tenured<MoveState>,
}

/// A place in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(usize);

impl Default for Recording {
    fn default() -> Recording {
        Recording::new()
    }
}

impl Recording {
    /// Starts at the present virtual time.
    pub fn new() -> Recording {
        Recording(Arc::new(Mutex::new(History::new(Instant::now()))))
    }

    pub fn note(&self, what: impl fmt::Display) -> Moment {
        self.lock().note(what.to_string())
    }

    pub fn invoke(&self, shopper: usize, intent: Intent) -> Entry {
        let mut history = self.lock();
        let number = history.operations.len();
        let moment = history.note(format!("shopper {shopper} asks #{number} {intent}"));
        let invoked_at = history.started.elapsed();
        history.operations.push(Operation {
            shopper,
            intent,
            invoked: moment,
            invoked_at,
            ended: None,
            ended_at: None,
            end: End::Pending,
        });
        Entry(number)
    }

    pub fn end(&self, entry: Entry, end: End) {
        let mut history = self.lock();
        let moment = history.note(format!("answer to #{}: {end}", entry.0));
        let ended_at = history.started.elapsed();
        let operation = &mut history.operations[entry.0];
        operation.ended = Some(moment);
        operation.ended_at = Some(ended_at);
        operation.end = end;
    }

    /// A visitor begins a request of the shop.
    pub fn begin(&self, visitor: usize, wish: Wish) -> Entry {
        let mut history = self.lock();
        let number = history.deeds.len();
        let invoked = history.note(format!("visitor {visitor} asks ${number} {wish}"));
        let invoked_at = history.started.elapsed();
        history.deeds.push(Deed {
            visitor,
            wish,
            invoked,
            invoked_at,
            ended: None,
            ended_at: None,
            told: Told::Nothing,
        });
        Entry(number)
    }

    pub fn tell(&self, entry: Entry, told: Told) {
        let mut history = self.lock();
        let moment = history.note(format!("answer to ${}: {told}", entry.0));
        let ended_at = history.started.elapsed();
        let deed = &mut history.deeds[entry.0];
        deed.ended = Some(moment);
        deed.ended_at = Some(ended_at);
        deed.told = told;
    }

    pub fn swept(&self, process: usize, swept: &Result<Swept, ShopError>) {
        let mut history = self.lock();
        history.sweeps.passes += 1;
        match swept {
            Ok(swept) => {
                history.sweeps.finished += swept.finished;
                history.sweeps.aborted += swept.aborted;
                if *swept != Swept::default() {
                    history.note(format!("process {process} swept: {swept:?}"));
                }
            }
            Err(error) => {
                history.note(format!("process {process} cannot sweep: {error}"));
            }
        }
    }

    /// For the parts of the world that add to the history in their own words.
    pub fn with<T>(&self, add: impl FnOnce(&mut History) -> T) -> T {
        add(&mut self.lock())
    }

    pub fn breach(&self, what: impl fmt::Display) {
        let mut history = self.lock();
        history.note(format!("breach: {what}"));
        history.breaches.push(what.to_string());
    }

    pub fn history(&self) -> History {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.0
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

impl History {
    pub fn new(started: Instant) -> History {
        History {
            started,
            events: Vec::new(),
            operations: Vec::new(),
            deeds: Vec::new(),
            applied: Vec::new(),
            fences: Vec::new(),
            terms: Vec::new(),
            maps: Vec::new(),
            breaches: Vec::new(),
            journals: BTreeMap::new(),
            images: Vec::new(),
            standing: Vec::new(),
            sweeps: Sweeps::default(),
            archived: 0,
            by_lease: BTreeSet::new(),
            crashes: 0,
            pauses: 0,
            leases_run_out: 0,
            moves_done: 0,
            moves_given_up: 0,
            records: Vec::new(),
            certificates: Vec::new(),
            moving: Moving::default(),
        }
    }

    pub fn note(&mut self, what: String) -> Moment {
        self.events.push(Event {
            at: self.started.elapsed(),
            what,
        });
        Moment(self.events.len() as u64)
    }

    /// The same for every run of a seed.
    pub fn digest(&self) -> u64 {
        self.events.iter().fold(0, |digest, event| {
            let line = format!("{digest} {} {}", event.at.as_micros(), event.what);
            fnv(line.as_bytes())
        })
    }

    /// Writes with a definite place in time, and those that may have one.
    pub fn writes(&self) -> impl Iterator<Item = (&Operation, &[Change])> {
        self.operations
            .iter()
            .filter_map(|operation| match &operation.intent {
                Intent::Write(changes) => Some((operation, changes.as_slice())),
                Intent::Read(_) | Intent::List(_) => None,
            })
    }

    /// Answered reads with what they showed.
    pub fn reads(&self) -> impl Iterator<Item = (&Operation, &RecordKey, Option<&Record>)> {
        self.operations
            .iter()
            .filter_map(|operation| match (&operation.intent, &operation.end) {
                (Intent::Read(key), End::Image(image)) => Some((operation, key, image.as_ref())),
                _ => None,
            })
    }
}

impl Operation {
    pub fn done(&self) -> Option<Revision> {
        match self.end {
            End::Done { revision } => Some(revision),
            _ => None,
        }
    }

    /// Whether it may have been applied, now or later.
    pub fn is_open(&self) -> bool {
        matches!(self.end, End::Pending | End::Unknown { .. })
    }

    /// Whether this one had ended before the other began.
    pub fn is_before(&self, other: &Operation) -> bool {
        self.ended.is_some_and(|ended| ended < other.invoked)
    }
}

impl fmt::Display for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Intent::Write(changes) => changes
                .iter()
                .try_for_each(|change| write!(f, "{} ", brief(change))),
            Intent::Read(key) => write!(f, "read {key}"),
            Intent::List(query) => write!(f, "list {}", query.path),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Pending => f.write_str("none"),
            End::Done { revision } => write!(f, "done {revision}"),
            End::Refused { why, .. } => write!(f, "refused, {why}"),
            End::Unknown { why } => write!(f, "unknown, {why}"),
            End::Image(None) => f.write_str("nothing there"),
            End::Image(Some(image)) => f.write_str(&shown(image)),
            End::Pages(pages) => {
                let ids = |page: &Vec<Record>| {
                    page.iter()
                        .map(|record| record.key.id.to_string())
                        .collect::<Vec<_>>()
                };
                write!(f, "{:?}", pages.iter().map(ids).collect::<Vec<_>>())
            }
            End::Failed { why } => write!(f, "failed, {why}"),
        }
    }
}

/// A change in a few words.
pub fn brief(change: &Change) -> String {
    let key = change.key();
    match change {
        Change::CreateIfAbsent { parts, .. } => format!("create {key} with {} parts", parts.len()),
        Change::ChangeIf { expected, .. } => format!("change {key} from {expected}"),
        Change::Patch { parts, .. } => {
            let names: Vec<String> = parts.iter().map(|(part, _)| part.to_string()).collect();
            format!("patch {key} {}", names.join(" "))
        }
        Change::Remove { expected, .. } => format!("remove {key} at {expected}"),
        Change::Stock { action, .. } => format!("stock {key} {action:?}"),
        Change::PutImage { image } => format!("put image {}", shown(image)),
    }
}

/// An image in one line: revisions, and which of them are marks.
pub fn shown(image: &Record) -> String {
    let mark = |live: bool| if live { "" } else { "x" };
    let mut line = format!(
        "{} @{}{}",
        image.key,
        image.header.revision,
        mark(image.header.content.live().is_some())
    );
    for (key, part) in &image.parts {
        line += &format!(
            " {key}@{}{}",
            part.revision,
            mark(part.content.live().is_some())
        );
    }
    line
}
