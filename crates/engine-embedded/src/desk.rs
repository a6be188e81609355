//! The desk: where writers decide their requests, one after the other.
//!
//! A writer judges its own request on its own thread, on what the requests before
//! it leave behind, on disk or not. What was decided lies on the desk until the
//! committer takes it, with everything beside it, as one group. An answer, whatever
//! it says, is given only after everything it rests on is on disk.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use engine_api::{
    Change, Condemned, EngineError, Fence, Maintained, Maintenance, MoverTerm, Outcome, Record,
    RecordKey, Seal, SetOutcome, SharedRecord, Stray, StrayEnd, Timestamp, WriteContext,
};
use tokio::sync::oneshot;

use crate::batch::Batch;
use crate::committer::Progress;
use crate::state::{GroupNumber, State};

/// From this many answers in a group on, more are expected to come at once.
const BUSY_ANSWERS: usize = 4;

/// How long a group waits for them: about as long as the disk takes.
const GATHER: Duration = Duration::from_micros(200);

pub(crate) type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

/// Sends an answer that was decided, or what became of its commit instead.
pub(crate) type Answer = Box<dyn FnOnce(Option<EngineError>) + Send>;

pub(crate) enum Request {
    Apply {
        changes: Vec<Change>,
        context: WriteContext,
        reply: Reply<Outcome>,
    },
    Restore {
        image: Box<Record>,
        context: WriteContext,
        reply: Reply<Outcome>,
    },
    Mend {
        stray: Stray,
        reply: Reply<StrayEnd>,
    },
    RaiseFence {
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
        reply: Reply<Seal>,
    },
    ClaimTerm {
        term: MoverTerm,
        reply: Reply<()>,
    },
    CompareAndSet {
        name: String,
        expected: Option<u64>,
        bytes: Vec<u8>,
        reply: Reply<SetOutcome>,
    },
    Condemn {
        keys: Vec<RecordKey>,
        context: WriteContext,
        reply: Reply<Vec<Condemned>>,
    },
    Care(Care),
    /// Everything into tables on disk.
    Rest {
        reply: Reply<()>,
    },
}

/// What goes to the disk together.
pub(crate) struct Group {
    pub number: GroupNumber,
    pub batch: Batch,
    /// Records for the readers' cache, in the order of their changes.
    pub changed: Vec<SharedRecord>,
    pub answers: Vec<Answer>,
    pub journal_first: u64,
    pub journal_last: u64,
    /// Everything goes to tables on disk before it is answered.
    pub rests: bool,
}

/// What the committer finds when it comes to the desk.
pub(crate) enum Work {
    Group(Group),
    /// Care erases, so it stands alone: the group is what lies before it, and
    /// nothing is judged until the state comes back.
    Care(Group, Box<State>, VecDeque<Care>),
}

pub(crate) enum Care {
    Maintain {
        work: Maintenance,
        reply: Reply<Maintained>,
    },
    Forget {
        condemned: Vec<Condemned>,
        context: WriteContext,
        reply: Reply<u64>,
    },
}

impl Care {
    /// Does it, and answers when its commit is on disk. `failure` is why nothing is done any more.
    pub(crate) fn take(self, state: &mut State, failure: Option<EngineError>) -> Answer {
        match self {
            Care::Maintain { work, reply } => {
                answer(reply, unless(failure, || state.maintain(&work)))
            }
            Care::Forget {
                condemned,
                context,
                reply,
            } => answer(
                reply,
                unless(failure, || state.forget(&condemned, &context)),
            ),
        }
    }

    fn refuse(self, failure: EngineError) -> Answer {
        match self {
            Care::Maintain { reply, .. } => answer(reply, Err(failure)),
            Care::Forget { reply, .. } => answer(reply, Err(failure)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Desk {
    place: Mutex<Place>,
    filled: Condvar,
}

struct Place {
    /// Away while the committer takes care of it.
    state: Option<Box<State>>,
    /// What came meanwhile.
    waiting: Vec<Request>,
    answers: Vec<Answer>,
    /// How many answers the committer waits for; none is waited for while it is 0.
    wanted: usize,
    care: VecDeque<Care>,
    rests: bool,
    /// Why writes are refused for now.
    refusal: Option<EngineError>,
    closed: bool,
}

impl Desk {
    pub(crate) fn new(state: State) -> Desk {
        Desk {
            place: Mutex::new(Place {
                state: Some(Box::new(state)),
                waiting: Vec::new(),
                answers: Vec::new(),
                wanted: 0,
                care: VecDeque::new(),
                rests: false,
                refusal: None,
                closed: false,
            }),
            filled: Condvar::new(),
        }
    }

    pub(crate) fn submit(&self, request: Request, progress: &Progress) {
        let mut place = self.place();
        let was_empty = place.is_empty();
        let answer = place.take(request, progress);
        let is_filled = (was_empty && !place.is_empty()) || place.answers.len() == place.wanted;
        drop(place);
        if is_filled {
            self.filled.notify_one();
        }
        if let Some(answer) = answer {
            answer(None);
        }
    }

    /// Waits for work; `None` when everything is done and nobody will come any more.
    /// `last` is how many answers the group before had: after many, the next few wait
    /// a moment for as many again, because a group costs the same whatever its size.
    pub(crate) fn work(&self, settled: GroupNumber, last: usize) -> Option<Work> {
        let busy = if last >= BUSY_ANSWERS { last } else { 0 };
        let mut place = self.place();
        place.state().settle(settled);
        let mut place = self
            .filled
            .wait_while(place, |place| place.is_empty() && !place.closed)
            .expect("no code panics while it holds the lock");
        if place.is_empty() {
            return None;
        }
        if place.answers.len() < busy {
            place.wanted = busy;
            let few = |place: &mut Place| place.answers.len() < busy && !place.closed;
            let waited = self.filled.wait_timeout_while(place, GATHER, few);
            (place, _) = waited.expect("no code panics while it holds the lock");
            place.wanted = 0;
        }
        let group = place.group();
        if place.care.is_empty() {
            return Some(Work::Group(group));
        }
        let care = std::mem::take(&mut place.care);
        let state = place.state.take();
        Some(Work::Care(group, state.expect(STATE_IS_HERE), care))
    }

    /// The state is back: what came meanwhile is judged.
    pub(crate) fn reopen(&self, state: Box<State>, progress: &Progress) {
        let mut place = self.place();
        place.state = Some(state);
        let waiting = std::mem::take(&mut place.waiting);
        let answers: Vec<Answer> = waiting
            .into_iter()
            .filter_map(|request| place.take(request, progress))
            .collect();
        drop(place);
        answers.into_iter().for_each(|answer| answer(None));
    }

    pub(crate) fn refuse(&self, refusal: Option<EngineError>) {
        self.place().refusal = refusal;
    }

    /// What lies on the desk is still committed.
    pub(crate) fn close(&self) {
        self.place().closed = true;
        self.filled.notify_one();
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

const STATE_IS_HERE: &str = "only the committer takes the state away, and brings it back";

impl Place {
    fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.care.is_empty()
    }

    fn state(&mut self) -> &mut State {
        self.state.as_mut().expect(STATE_IS_HERE)
    }

    /// Judges the request. An answer that rests on nothing but the disk comes back.
    fn take(&mut self, request: Request, progress: &Progress) -> Option<Answer> {
        let Some(state) = &mut self.state else {
            self.waiting.push(request);
            return None;
        };
        let failure = progress.failure();
        let refusal = failure.or(self.refusal.as_ref()).cloned();
        let answer = match request {
            // A full disk does not refuse it: it is what helps.
            Request::Care(care) => match failure.cloned() {
                None => {
                    self.care.push_back(care);
                    return None;
                }
                Some(failure) => care.refuse(failure),
            },
            Request::Rest { reply } => {
                self.rests = true;
                self.answers.push(answer(reply, refused(refusal)));
                return None;
            }
            request => judge(state, request, refusal),
        };
        let rests_on_writes = state.has_writes() || state.last_under_way().is_some();
        // The committer looks for room after each group: without one it would never look again.
        if rests_on_writes || self.refusal.is_some() {
            self.answers.push(answer);
            return None;
        }
        Some(answer)
    }

    fn group(&mut self) -> Group {
        let answers = std::mem::take(&mut self.answers);
        let rests = std::mem::take(&mut self.rests);
        self.state().take_group(answers, rests)
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Place")
    }
}

fn judge(state: &mut State, request: Request, refusal: Option<EngineError>) -> Answer {
    match request {
        Request::Apply {
            changes,
            context,
            reply,
        } => answer(reply, unless(refusal, || state.apply(&changes, &context))),
        Request::Restore {
            image,
            context,
            reply,
        } => answer(reply, unless(refusal, || state.restore(*image, &context))),
        Request::Mend { stray, reply } => answer(reply, unless(refusal, || state.mend(&stray))),
        Request::RaiseFence {
            fence,
            term,
            now,
            reply,
        } => answer(
            reply,
            unless(refusal, || state.raise_fence(fence, &term, now)),
        ),
        Request::ClaimTerm { term, reply } => {
            answer(reply, unless(refusal, || state.claim_term(&term)))
        }
        Request::CompareAndSet {
            name,
            expected,
            bytes,
            reply,
        } => answer(
            reply,
            unless(refusal, || state.compare_and_set(&name, expected, bytes)),
        ),
        Request::Condemn {
            keys,
            context,
            reply,
        } => answer(reply, unless(refusal, || state.condemn(&keys, &context))),
        Request::Care(_) | Request::Rest { .. } => {
            unreachable!("these are not judged")
        }
    }
}

fn unless<T>(
    refusal: Option<EngineError>,
    act: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    match refusal {
        Some(refusal) => Err(refusal),
        None => act(),
    }
}

fn refused<T: Default>(refusal: Option<EngineError>) -> Result<T, EngineError> {
    refusal.map_or_else(|| Ok(T::default()), Err)
}

pub(crate) fn answer<T: Send + 'static>(reply: Reply<T>, result: Result<T, EngineError>) -> Answer {
    Box::new(move |lost| {
        // An asker that went away reads back, as after any lost answer.
        let _ = reply.send(match lost {
            Some(lost) => Err(lost),
            None => result,
        });
    })
}
