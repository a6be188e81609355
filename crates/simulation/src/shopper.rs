//! Shoppers: each asks the router one thing after another, sometimes two at once, and
//! keeps an honest ledger of what it asked and what it was told.

mod browsing;
mod carts;
mod orders;
mod sessions;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine_api::{
    Change, EngineError, Query, Record, RecordKey, Remedy, Revision, SharedRecord, Timestamp,
    Together,
};
use router::{Router, RouterError};
use tokio::time::sleep;

use crate::chance::Chance;
use crate::recording::{End, Intent, Recording};
use crate::scenery::Marks;
use crate::serving::Process;

/// Requests that one shopper begins.
pub const WISHES_MAX: u64 = 12;
/// Pages that one listing asks for.
const PAGES_MAX: usize = 40;
/// How often a shopper asks at the process it is used to, in percent.
const AT_HOME_PERCENT: u64 = 80;

/// What all shoppers share.
#[derive(Debug)]
pub struct Shared {
    pub processes: Vec<Arc<Process>>,
    pub recording: Recording,
    pub marks: Marks,
    /// How long they think before they ask.
    pub thinks_ms_max: u64,
    /// Whether one commit may hold an order and its stock.
    pub together: Together,
    /// Orders that someone has begun.
    pub orders: Mutex<Vec<RecordKey>>,
}

#[derive(Debug)]
pub struct Shopper {
    number: usize,
    shared: Arc<Shared>,
    chance: Mutex<Chance>,
    /// The newest revision this shopper has seen of each record (W5).
    seen: Arc<Mutex<BTreeMap<RecordKey, Revision>>>,
}

impl Shopper {
    pub fn new(number: usize, shared: Arc<Shared>, chance: Chance) -> Shopper {
        Shopper {
            number,
            shared,
            chance: Mutex::new(chance),
            seen: Arc::default(),
        }
    }

    pub async fn go_shopping(&self) {
        for _ in 0..WISHES_MAX {
            let pause = self.chance().below(self.shared.thinks_ms_max);
            sleep(Duration::from_millis(pause)).await;
            let wish = self.chance().below(100);
            match wish {
                0..=44 => self.visit_cart().await,
                45..=68 => self.order_something().await,
                69..=84 => self.visit_session().await,
                _ => self.browse().await,
            }
        }
    }

    /// Writes, and notes what was told. `None`: the process died.
    pub async fn write(&self, changes: Vec<Change>) -> Option<End> {
        let process = self.process();
        let request = |router: Arc<Router>| {
            let (recording, seen) = (self.shared.recording.clone(), Arc::clone(&self.seen));
            let keys: Vec<RecordKey> = changes.iter().map(|change| change.key().clone()).collect();
            let floor = floor(&seen, &keys);
            let entry = recording.invoke(self.number, Intent::Write(changes.clone()));
            async move {
                let written = match <[Change; 1]>::try_from(changes) {
                    Ok([change]) => router.write(change, floor).await,
                    Err(changes) => router.write_together(changes, floor).await,
                };
                let end = match written {
                    Ok(written) if written.outcome.is_done() => {
                        keys.iter()
                            .for_each(|key| saw(&seen, key, written.revision));
                        End::Done {
                            revision: written.revision,
                        }
                    }
                    Ok(written) => End::Refused {
                        why: format!("{:?}", written.outcome),
                        met: Some(written.outcome),
                    },
                    Err(error @ RouterError::OutcomeUnknown { .. }) => End::Unknown {
                        why: error.to_string(),
                    },
                    Err(error) => {
                        report_if_impossible(&recording, &error);
                        End::Refused {
                            why: error.to_string(),
                            met: None,
                        }
                    }
                };
                recording.end(entry, end.clone());
                end
            }
        };
        process.call(request).await
    }

    /// Reads the image. `None`: no answer.
    pub async fn read(&self, key: &RecordKey) -> Option<Option<Record>> {
        let process = self.process();
        let request = |router: Arc<Router>| {
            let (recording, seen) = (self.shared.recording.clone(), Arc::clone(&self.seen));
            let entry = recording.invoke(self.number, Intent::Read(key.clone()));
            let key = key.clone();
            async move {
                let (end, image) = match router.image(&key).await {
                    Ok(image) => {
                        let image = image.map(SharedRecord::into_record);
                        image
                            .iter()
                            .for_each(|image| saw(&seen, &key, image.newest_revision()));
                        (End::Image(image.clone()), Some(image))
                    }
                    Err(error) => {
                        report_if_impossible(&recording, &error);
                        (
                            End::Failed {
                                why: error.to_string(),
                            },
                            None,
                        )
                    }
                };
                recording.end(entry, end);
                image
            }
        };
        process.call(request).await?
    }

    /// The image if its header is live.
    pub async fn read_live(&self, key: &RecordKey) -> Option<Record> {
        self.read(key)
            .await?
            .filter(|image| image.header.content.live().is_some())
    }

    /// Asks for all pages of a listing, at a process that may know nothing yet
    /// of a map under which others have written already.
    pub async fn list(&self, query: Query) {
        let process = Arc::clone(self.chance().pick(&self.shared.processes));
        let (recording, shopper) = (self.shared.recording.clone(), self.number);
        process
            .call(move |router| async move {
                let entry = recording.invoke(shopper, Intent::List(query.clone()));
                let mut pages = Vec::new();
                let mut asked = query;
                let end = loop {
                    match router.query(&asked).await {
                        Ok(page) => {
                            pages.push(page.records);
                            match page.next {
                                Some(next) if pages.len() < PAGES_MAX => asked = asked.after(next),
                                Some(_) => {
                                    break End::Failed {
                                        why: "the listing has no end".to_owned(),
                                    };
                                }
                                None => break End::Pages(pages),
                            }
                        }
                        Err(error) => {
                            report_if_impossible(&recording, &error);
                            break End::Failed {
                                why: error.to_string(),
                            };
                        }
                    }
                };
                recording.end(entry, end);
            })
            .await;
    }

    fn process(&self) -> Arc<Process> {
        let processes = &self.shared.processes;
        let mut chance = self.chance();
        if chance.percent(AT_HOME_PERCENT) {
            return Arc::clone(&processes[self.number % processes.len()]);
        }
        Arc::clone(chance.pick(processes))
    }

    fn now(&self) -> Timestamp {
        self.shared.processes[self.number % self.shared.processes.len()]
            .world()
            .now()
    }

    fn chance(&self) -> MutexGuard<'_, Chance> {
        self.chance
            .lock()
            .expect("no code panics while it holds the lock")
    }

    fn pick(&self, from: &[&'static str]) -> &'static str {
        self.chance().pick::<&str>(from)
    }
}

type Seen = Mutex<BTreeMap<RecordKey, Revision>>;

fn saw(seen: &Seen, key: &RecordKey, revision: Revision) {
    let mut seen = seen.lock().expect("no code panics while it holds the lock");
    let known = seen.entry(key.clone()).or_default();
    *known = revision.max(*known);
}

fn floor(seen: &Seen, keys: &[RecordKey]) -> Revision {
    let seen = seen.lock().expect("no code panics while it holds the lock");
    let known = keys.iter().filter_map(|key| seen.get(key).copied());
    known.fold(Revision::ZERO, Revision::max)
}

/// Shoppers ask nothing malformed, and nothing here breaks by itself: some
/// errors can only mean that a rule did not hold.
fn report_if_impossible(recording: &Recording, error: &RouterError) {
    let source = match error {
        RouterError::Engine { source, .. } => source,
        RouterError::Lease(lease) if lease.remedy() == Remedy::GiveUp => {
            recording.breach(format!("a shopper was told: {error}"));
            return;
        }
        _ => return,
    };
    match source {
        EngineError::Unavailable { .. } | EngineError::OutcomeUnknown { .. } => {}
        EngineError::Fenced { .. }
        | EngineError::TermLost { .. }
        | EngineError::StorageFull { .. }
        | EngineError::Damaged { .. }
        | EngineError::PositionLost
        | EngineError::Unsupported { .. }
        | EngineError::NoTable { .. }
        | EngineError::Invalid { .. } => {
            recording.breach(format!("a shopper was told: {error}"));
        }
    }
}
