//! Histories told by hand, for the tests of the checks.

use engine_api::{
    Authority, Change, Generation, Outcome, Record, RecordKey, Revision, Timestamp, WriteContext,
};
use router::ShardName;
use tokio::time::Instant;

use crate::clock::EPOCH_US;
use crate::ledger::{Deed, Told, Wish};
use crate::recording::{Applied, End, History, Intent, Operation};

pub struct Story {
    pub history: History,
}

pub fn revision(number: i64) -> Revision {
    Revision::from_i64(number).unwrap()
}

pub fn shard(name: &str) -> ShardName {
    ShardName::new(name).unwrap()
}

pub fn router_context(revision: Revision, generation: u64) -> WriteContext {
    WriteContext {
        authority: Authority::Router {
            generation: Generation(generation),
        },
        now: Timestamp::from_unix_micros(EPOCH_US),
        revision,
    }
}

impl Story {
    pub fn begin() -> Story {
        Story {
            history: History::new(Instant::now()),
        }
    }

    pub fn asks(&mut self, intent: Intent) -> usize {
        let invoked = self.history.note("asks".to_owned());
        let operation = Operation {
            shopper: 1,
            intent,
            invoked,
            invoked_at: Default::default(),
            ended: None,
            ended_at: None,
            end: End::Pending,
        };
        self.history.operations.push(operation);
        self.history.operations.len() - 1
    }

    pub fn is_told(&mut self, number: usize, end: End) {
        let ended = self.history.note("is told".to_owned());
        let operation = &mut self.history.operations[number];
        operation.ended = Some(ended);
        operation.ended_at = Some(Default::default());
        operation.end = end;
    }

    pub fn writes(&mut self, change: Change, done_as: i64) {
        let number = self.asks(Intent::Write(vec![change]));
        self.is_told(
            number,
            End::Done {
                revision: revision(done_as),
            },
        );
    }

    pub fn is_refused(&mut self, change: Change) {
        let number = self.asks(Intent::Write(vec![change]));
        self.is_told(
            number,
            End::Refused {
                why: "said so".to_owned(),
                met: None,
            },
        );
    }

    pub fn reads(&mut self, key: &RecordKey, image: Option<Record>) {
        let number = self.asks(Intent::Read(key.clone()));
        self.is_told(number, End::Image(image));
    }

    /// A visitor asks for something and is told something.
    pub fn visits(&mut self, wish: Wish, told: Told) {
        let invoked = self.history.note("asks".to_owned());
        let ended = self.history.note("is told".to_owned());
        self.history.deeds.push(Deed {
            visitor: 1,
            wish,
            invoked,
            invoked_at: Default::default(),
            ended: Some(ended),
            ended_at: Some(Default::default()),
            told,
        });
    }

    pub fn applies(
        &mut self,
        change: Change,
        context: WriteContext,
        before: Option<Record>,
        after: Option<Record>,
    ) {
        let moment = self.history.note("applies".to_owned());
        let answer = Ok(Outcome::Done {
            revision: context.revision,
        });
        self.history.applied.push(Applied {
            moment,
            shard: shard("a"),
            changes: vec![change],
            context,
            answer,
            images: vec![(before, after)],
        });
    }
}
