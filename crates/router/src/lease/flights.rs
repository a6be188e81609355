//! Requests that an engine has not answered yet, by the generation they were sent under.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use engine_api::Generation;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

#[derive(Debug, Default)]
pub(crate) struct Flights {
    under_way: Mutex<UnderWay>,
    landed: Notify,
}

#[derive(Debug, Default)]
struct UnderWay {
    counts: BTreeMap<Generation, usize>,
    /// What is to be acknowledged as soon as it can be.
    wanted: Generation,
}

/// One of them; over when it is dropped.
#[derive(Debug)]
pub(crate) struct Flight<'a> {
    flights: &'a Flights,
    generation: Generation,
}

impl Flights {
    pub(crate) fn begin(&self, generation: Generation) -> Flight<'_> {
        *self.lock().counts.entry(generation).or_default() += 1;
        Flight {
            flights: self,
            generation,
        }
    }

    /// The newest generation, up to `current`, with nothing older under way (W16).
    pub(crate) fn acknowledgeable(&self, current: Generation) -> Generation {
        let mut under_way = self.lock();
        under_way.wanted = current;
        let oldest = under_way.counts.keys().next().copied();
        oldest.map_or(current, |oldest| oldest.min(current))
    }

    /// Ends when the last request of a generation older than the one asked for
    /// has landed: begin to wait before asking.
    pub(crate) fn landed(&self) -> Notified<'_> {
        self.landed.notified()
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut under_way = self.flights.lock();
        let Some(count) = under_way.counts.get_mut(&self.generation) else {
            return;
        };
        *count -= 1;
        if *count > 0 {
            return;
        }
        under_way.counts.remove(&self.generation);
        let waited_for = self.generation < under_way.wanted;
        drop(under_way);
        if waited_for {
            self.flights.landed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_nothing_older_under_way_can_be_acknowledged() {
        let flights = Flights::default();
        let acknowledgeable = |current| flights.acknowledgeable(Generation(current)).0;
        assert_eq!(acknowledgeable(4), 4);
        let (one, other) = (flights.begin(Generation(2)), flights.begin(Generation(2)));
        let newer = flights.begin(Generation(3));
        assert_eq!(acknowledgeable(4), 2);
        drop(one);
        assert_eq!(acknowledgeable(4), 2);
        drop(other);
        assert_eq!(acknowledgeable(4), 3);
        drop(newer);
        assert_eq!(acknowledgeable(4), 4);
    }
}
