//! Bringing records over: read, load, put, and what follows.

use std::time::Duration;

use engine_api::{
    Authority, Change, ChangeKind, Content, EngineError, Header, Outcome, Record, RecordKey,
    Remedy, Revision, WriteContext,
};
use futures::stream::{self, StreamExt as _};
use layout::{Fields, Value};

use super::{Route, Tenure, Work, of_side};
use crate::cargo::{CargoError, Delivered};
use crate::error::{FeedError, Side};

/// The pause before an image is put again.
const PUT_PAUSE_MS: u64 = 20;

/// So often the window of records at work moves on before the holder looks at its claim.
const RUNS: usize = 8;

/// A reason to look at a record: the newest of what the journal says about it.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub key: RecordKey,
    pub kind: ChangeKind,
    pub revision: Revision,
}

/// Whether an entry is done: the source shows it (W22), and nothing is still to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Yes,
    NotYet,
}

impl Route {
    /// Brings all of them to what the source shows now, some at a time.
    pub(super) async fn carry_named(
        &self,
        tenure: &Tenure,
        work: &mut Work,
        named: &[Named],
    ) -> Result<Vec<Done>, FeedError> {
        let mut all = Vec::with_capacity(named.len());
        for some in named.chunks(self.run_records()) {
            self.renew(tenure, work).await?;
            let carrying: Vec<_> = some
                .iter()
                .map(|named| self.look(tenure, work, named))
                .collect();
            for shown in self.some_at_once(carrying).await {
                all.push(shown?);
            }
        }
        Ok(all)
    }

    /// What a scan met has no entry that would come back to it: it is carried until
    /// it is done.
    pub(super) async fn carry_scanned(
        &self,
        tenure: &Tenure,
        work: &mut Work,
        scanned: Vec<Record>,
    ) -> Result<(), FeedError> {
        // Most of a scan is not the cargo's: nothing is asked about it.
        let mut left = scanned;
        left.retain(|image| self.cargo.load(image.clone()).is_some());
        while !left.is_empty() {
            let mut early = Vec::new();
            for some in left.chunks(self.run_records()) {
                self.renew(tenure, work).await?;
                let carrying: Vec<_> = some
                    .iter()
                    .map(|image| self.confirm(tenure, work, image))
                    .collect();
                for (image, done) in some.iter().zip(self.some_at_once(carrying).await) {
                    if done? == Done::NotYet {
                        early.push(image.clone());
                    }
                }
            }
            left = early;
            if !left.is_empty() {
                let pause = Duration::from_millis(self.limits.poll_ms);
                self.world.sleep(pause).await;
            }
        }
        Ok(())
    }

    /// All of them, in order; one that is slow does not keep the others from beginning.
    async fn some_at_once<T>(&self, all: Vec<impl Future<Output = T>>) -> Vec<T> {
        let at_once = self.limits.records_at_once_max;
        stream::iter(all).buffered(at_once).collect().await
    }

    /// Records between two looks at whether this process is still the one.
    fn run_records(&self) -> usize {
        self.limits.records_at_once_max.saturating_mul(RUNS)
    }

    /// What is there is carried, shown or not: it is never too much.
    async fn look(&self, tenure: &Tenure, work: &Work, named: &Named) -> Result<Done, FeedError> {
        let (key, source) = (&named.key, self.source.as_ref());
        let image = self.cargo.read(source, key, self.world.now()).await;
        let image = image.map_err(|error| of_cargo(tenure, key, error))?;
        let shown = named.shown_by(image.as_ref());
        let followed = match image.or_else(|| named.forgotten()) {
            Some(image) => self.carry(tenure, work, image).await?,
            None => Done::Yes,
        };
        Ok(if shown == Done::Yes { followed } else { shown })
    }

    async fn confirm(
        &self,
        tenure: &Tenure,
        work: &Work,
        image: &Record,
    ) -> Result<Done, FeedError> {
        let confirmed = self.cargo.confirm(image.clone()).await;
        match confirmed.map_err(|error| of_cargo(tenure, &image.key, error))? {
            Some(image) => self.carry(tenure, work, image).await,
            None => Ok(Done::Yes),
        }
    }

    async fn carry(&self, tenure: &Tenure, work: &Work, image: Record) -> Result<Done, FeedError> {
        let Some(loaded) = self.cargo.load(image) else {
            return Ok(Done::Yes);
        };
        self.put(tenure, work, &loaded).await?;
        self.counts.applied.add(1);
        self.counts.applied_bytes.add(weight(&loaded));
        let delivered = self.cargo.delivered(&loaded).await;
        match delivered.map_err(|error| of_cargo(tenure, &loaded.key, error))? {
            Delivered::Kept => {}
            Delivered::Removed => self.counts.removed.add(1),
            Delivered::NotYet => return Ok(Done::NotYet),
        }
        Ok(Done::Yes)
    }

    /// The same image again after a lost answer: what is not newer changes nothing (W26).
    async fn put(&self, tenure: &Tenure, work: &Work, image: &Record) -> Result<(), FeedError> {
        let context = WriteContext {
            authority: Authority::Mover {
                term: tenure.mover_term(&work.held),
            },
            now: self.world.now(),
            revision: image.newest_revision(),
        };
        let mut tries = 0;
        loop {
            tries += 1;
            let change = Change::PutImage {
                image: image.clone(),
            };
            match self.target.apply(change, context.clone()).await {
                Ok(Outcome::Done { .. }) => return Ok(()),
                Ok(outcome) => {
                    return Err(FeedError::Refused {
                        feed: tenure.name().to_owned(),
                        key: image.key.to_string(),
                        outcome: name(&outcome).to_owned(),
                    });
                }
                Err(error) if may_go_again(&error) && tries < self.limits.put_tries_max => {
                    let pause = Duration::from_millis(PUT_PAUSE_MS);
                    self.world.sleep(pause).await;
                }
                Err(source) => return Err(of_side(tenure, Side::Target, source)),
            }
        }
    }
}

impl Named {
    /// A removal whose mark is forgotten already is shown by nothing at all.
    fn shown_by(&self, image: Option<&Record>) -> Done {
        let shown = match image {
            Some(image) => image.newest_revision() >= self.revision,
            None => self.kind == ChangeKind::Removed,
        };
        if shown { Done::Yes } else { Done::NotYet }
    }

    /// The mark of a removal that the source has forgotten: the target may hold
    /// what was removed. A record that merely expired takes its expiry along, and
    /// is never carried as a removal (W7).
    fn forgotten(&self) -> Option<Record> {
        (self.kind == ChangeKind::Removed).then(|| Record {
            key: self.key.clone(),
            header: Header {
                revision: self.revision,
                cleared: self.revision.just_before(),
                content: Content::Removed,
            },
            parts: Default::default(),
        })
    }
}

/// What the record's values hold, in bytes; names and numbers count eight.
fn weight(record: &Record) -> u64 {
    let of_content = |content: &Content| match content {
        Content::Live(fields) => of_fields(fields),
        Content::Removed => 0,
    };
    let parts = record
        .parts
        .values()
        .map(|part| 8 + of_content(&part.content));
    let key = record.key.id.as_str().len() as u64;
    key + of_content(&record.header.content) + parts.sum::<u64>()
}

fn of_fields(fields: &Fields) -> u64 {
    fields.iter().map(|(_, value)| of_value(value)).sum()
}

fn of_value(value: &Value) -> u64 {
    8 + match value {
        Value::Text(text) => text.len() as u64,
        Value::Blob(bytes) => bytes.len() as u64,
        Value::List(values) => values.iter().map(of_value).sum(),
        Value::Map(values) => values.values().map(of_value).sum(),
        Value::Int(_) | Value::Decimal(_) | Value::Timestamp(_) | Value::Inet(_) => 0,
    }
}

fn may_go_again(error: &EngineError) -> bool {
    matches!(error.remedy(), Remedy::Retry | Remedy::ReadBack)
}

pub(super) fn of_cargo(tenure: &Tenure, key: &RecordKey, source: CargoError) -> FeedError {
    FeedError::Cargo {
        feed: tenure.name().to_owned(),
        key: key.to_string(),
        source,
    }
}

/// The outcome without what the record holds: errors are logged, records are shoppers' own.
fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done { .. } => "done",
        Outcome::Exists { .. } => "another record lives there",
        Outcome::Conflict { .. } => "the header is another one",
        Outcome::NoRecord => "no record lives there",
        Outcome::GuardFailed { .. } => "the guard does not hold",
        Outcome::Stale { .. } => "something newer is stored",
        Outcome::TooManyParts { .. } => "the record has too many parts",
        Outcome::Stock(_) => "the stock refuses it",
    }
}
