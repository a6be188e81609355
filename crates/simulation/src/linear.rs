//! Linearizability: whether every request took effect at one instant between its
//! invocation and its answer.
//!
//! Wing and Gong's search with Lowe's memory of what was tried: requests that may come
//! next are tried one after another, and a set of requests that led to a state before is
//! not tried again. A request without an answer may take effect at any time after its
//! invocation, or never.
//!
//! The crates that exist for it were looked at and left: `todc-utils` and `lincheck` know
//! no request that may never happen, and neither bounds its search.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt::{Debug, Display};
use std::hash::Hash;

use crate::recording::Moment;

/// Requests of one key in one history.
pub const CALLS_MAX: usize = 256;
const WORDS: usize = CALLS_MAX / 64;

/// What one key is, said as a machine of one thread.
pub trait Specification {
    type State: Clone + Eq + Hash + Debug;
    /// A request together with what it was answered, if it was.
    type Operation: Display;

    fn first(&self) -> Self::State;

    /// Whether the operation changes nothing, whatever the state. Where it fits, it is
    /// taken at once: nobody else can tell.
    fn observes(&self, operation: &Self::Operation) -> bool;

    /// The state after the operation; `None` where it could not have been answered so.
    fn step(&self, state: &Self::State, operation: &Self::Operation) -> Option<Self::State>;
}

#[derive(Clone, Debug)]
pub struct Call<O> {
    pub operation: O,
    pub invoked: Moment,
    /// `None`: no answer, or none that says whether it happened.
    pub returned: Option<Moment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Linearizable,
    /// No order explains the answers. The longest that explained some ended before `stuck`.
    Broken {
        stuck: String,
    },
    /// Not judged: too many requests, or too many orders of them.
    TooMuch {
        why: &'static str,
    },
}

/// Judges the calls of one key. Orders beyond `tries_max` are not tried.
pub fn judge<S: Specification>(
    specification: &S,
    calls: &[Call<S::Operation>],
    tries_max: usize,
) -> Verdict {
    if calls.len() > CALLS_MAX {
        return Verdict::TooMuch {
            why: "more requests than the checker takes",
        };
    }
    let mut search = Search {
        specification,
        order: in_order(calls),
        calls,
        tried: HashSet::new(),
        tries_max,
        furthest: (0, None),
    };
    search.run()
}

/// By invocation; the search then tries the likeliest first.
fn in_order<O>(calls: &[Call<O>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|index| calls[*index].invoked);
    order
}

/// Which calls have taken effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Taken([u64; WORDS]);

impl Taken {
    fn has(self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }

    fn with(mut self, index: usize) -> Taken {
        self.0[index / 64] |= 1 << (index % 64);
        self
    }

    fn count(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

struct Search<'a, S: Specification> {
    specification: &'a S,
    calls: &'a [Call<S::Operation>],
    order: Vec<usize>,
    tried: HashSet<(Taken, S::State)>,
    tries_max: usize,
    /// How many had taken effect when no next one was found, and who had to be next.
    furthest: (u32, Option<usize>),
}

impl<S: Specification> Search<'_, S> {
    fn run(&mut self) -> Verdict {
        // A stack of its own: histories are as deep as they are long.
        let mut open = vec![(Taken::default(), self.specification.first())];
        while let Some((taken, state)) = open.pop() {
            let Some(next) = self.next_to_return(taken) else {
                return Verdict::Linearizable;
            };
            if taken.count() >= self.furthest.0 {
                self.furthest = (taken.count(), Some(next));
            }
            if !self.tried.insert((taken, state.clone())) {
                continue;
            }
            if self.tried.len() > self.tries_max {
                return Verdict::TooMuch {
                    why: "more orders than the checker tries",
                };
            }
            // Pushed from the last to the first, so that the earliest is tried first.
            let before = open.len();
            for index in self.may_be_next(taken, next).into_iter().rev() {
                let operation = &self.calls[index].operation;
                let Some(state) = self.specification.step(&state, operation) else {
                    continue;
                };
                if self.specification.observes(operation) {
                    open.truncate(before);
                    open.push((taken.with(index), state));
                    break;
                }
                open.push((taken.with(index), state));
            }
        }
        let stuck = self.furthest.1.map(|index| &self.calls[index]);
        Verdict::Broken {
            stuck: stuck.map_or_else(String::new, |call| {
                format!("{} (asked at {})", call.operation, call.invoked.0)
            }),
        }
    }

    /// The answered call that must have taken effect before any other answer came.
    fn next_to_return(&self, taken: Taken) -> Option<usize> {
        let left = self.order.iter().filter(|index| !taken.has(**index));
        let answered = left.filter(|index| self.calls[**index].returned.is_some());
        answered
            .min_by_key(|index| self.calls[**index].returned)
            .copied()
    }

    /// Calls that were invoked before `next` was answered.
    fn may_be_next(&self, taken: Taken, next: usize) -> Vec<usize> {
        let before = self.calls[next].returned;
        let left = self.order.iter().filter(|index| !taken.has(**index));
        left.filter(|index| before.is_none_or(|before| self.calls[**index].invoked < before))
            .copied()
            .collect()
    }
}
