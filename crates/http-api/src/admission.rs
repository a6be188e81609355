//! Who is let in: browsing is refused before carts, and carts before checkout.
//!
//! ```text
//!   pulse ── how late did it run? ──▶ level 0 ┄ browsing ┄ 1 ┄ carts ┄ 2 ┄ checkout ┄ 3
//!                                       │                    rises while all pulses of a
//!   head of a request ─▶ class ─▶ admit ┘                    window are late, falls slowly
//! ```
//!
//! Two bounds. The requests at work, of which each class may use a share: that is
//! memory, and what waits for a shard. And the time that a request waits in this
//! process before it is looked at: requests that are answered at once never wait for
//! one another at work, they wait unread in their sockets, where nothing counts them.
//! A task that is set out waits for its turn as a new connection does. How late it runs
//! is how late a request is taken up, and what is late all through a window is a queue
//! that stands, not a burst. The level then says how much of which class is refused:
//! decision 14.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use engine_api::World;
use router::Precedence;

use crate::limits::HttpLimits;

/// What a route is for, which decides when it is refused under overload: browsing
/// before carts before checkout, and the operator's own pages never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Operator,
    Browsing,
    Carts,
    Checkout,
}

/// One class of which everything is refused, in thousandths.
const WHOLE: u32 = 1_000;

/// Pulses in one window, unless they come late.
const PULSES: u32 = 10;

/// One late pulse may be anything; two in a row are a queue.
const PULSES_LEAST: u32 = 2;

/// The level falls by this part of the step that it rises by: who was let in too
/// early is met again within a window, who is let in too late waits a second more.
const FALL_DIVISOR: u32 = 5;

/// However late the pulses are, the level rises no faster than by so many steps.
const STEPS_AT_ONCE_MAX: u32 = 5;

/// Counts who is at work and feels how long requests wait; one for all requests.
#[derive(Debug)]
pub struct Admission {
    requests_max: usize,
    queue_max: Duration,
    window: Duration,
    step: u32,
    in_flight: AtomicUsize,
    /// 0: everybody is let in; 1000: no browsing; 2000: no carts either; 3000: nobody.
    level: AtomicU32,
    /// How late the pulses of the last window were at least.
    late_us: AtomicU64,
    /// By class, what of the next refusal has come together, in thousandths.
    owed: [AtomicU32; Class::SHED.len()],
    refused: [AtomicU64; Class::SHED.len()],
}

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many are at work as the class may bring it to.
    AtWork,
    /// Requests wait too long before they are looked at.
    Waiting,
}

impl Class {
    /// In the order in which they are refused.
    pub(crate) const SHED: [Class; 3] = [Class::Browsing, Class::Carts, Class::Checkout];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Class::Operator => "operator",
            Class::Browsing => "browsing",
            Class::Carts => "carts",
            Class::Checkout => "checkout",
        }
    }

    /// At a shard that is nearly full.
    pub(crate) const fn precedence(self) -> Precedence {
        match self {
            Class::Browsing => Precedence::Low,
            Class::Carts => Precedence::Middle,
            Class::Checkout | Class::Operator => Precedence::High,
        }
    }

    /// When who was refused should come again: who only looks, later than who buys.
    pub(crate) const fn retry_after_s(self) -> u32 {
        match self {
            Class::Browsing => 5,
            Class::Carts => 2,
            Class::Checkout | Class::Operator => 1,
        }
    }

    /// How many requests may be in flight for one more of this class to be let in.
    fn in_flight_max(self, all: usize) -> usize {
        match self {
            Class::Operator => usize::MAX,
            Class::Browsing => all - all / 4,
            Class::Carts => all - all / 10,
            Class::Checkout => all,
        }
    }

    /// The place in the order of refusals; the operator has none.
    fn rank(self) -> Option<usize> {
        Class::SHED.iter().position(|class| *class == self)
    }
}

impl Admission {
    pub fn new(limits: &HttpLimits) -> Admission {
        Admission {
            requests_max: limits.requests_in_flight_max,
            queue_max: Duration::from_millis(limits.queue_ms_max),
            window: Duration::from_millis(limits.queue_window_ms),
            step: WHOLE * limits.shed_step_percent / 100,
            in_flight: AtomicUsize::new(0),
            level: AtomicU32::new(0),
            late_us: AtomicU64::new(0),
            owed: Default::default(),
            refused: Default::default(),
        }
    }

    /// Counts the request as in flight, let in or not, until [`Admission::leave`].
    pub fn enter(&self, class: Class) -> Result<(), Refused> {
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let Some(rank) = class.rank() else {
            return Ok(());
        };
        let refused = if in_flight >= class.in_flight_max(self.requests_max) {
            Some(Refused::AtWork)
        } else {
            self.is_shed(rank).then_some(Refused::Waiting)
        };
        match refused {
            Some(refused) => {
                self.refused[rank].fetch_add(1, Ordering::Relaxed);
                Err(refused)
            }
            None => Ok(()),
        }
    }

    pub fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// 1 when no browsing is let in, 2 when no carts are either, 3 when nobody is.
    pub(crate) fn level(&self) -> f64 {
        f64::from(self.level.load(Ordering::Relaxed)) / f64::from(WHOLE)
    }

    /// Classes of which something is refused now because requests wait too long.
    pub(crate) fn shedding(&self) -> impl Iterator<Item = Class> {
        let level = self.level.load(Ordering::Relaxed);
        let ranked = Class::SHED.into_iter().enumerate();
        ranked
            .filter(move |(rank, _)| share(level, *rank) > 0)
            .map(|(_, class)| class)
    }

    pub(crate) fn late(&self) -> Duration {
        Duration::from_micros(self.late_us.load(Ordering::Relaxed))
    }

    /// Requests of each class that were not let in.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (Class, u64)> {
        let counts = self.refused.iter();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        Class::SHED.into_iter().zip(counts)
    }

    /// Feels the pulse for ever, from where connections are accepted.
    pub(crate) async fn watch(&self, world: &Arc<dyn World>) {
        let between = self.window / PULSES;
        loop {
            let began = world.elapsed();
            let (mut least_late, mut pulses) = (Duration::MAX, 0);
            while pulses < PULSES_LEAST || world.elapsed().saturating_sub(began) < self.window {
                let slept = world.elapsed();
                world.sleep(between).await;
                // A sleeper that wakes on a thread of the pool is run next, before all
                // who wait. What is set out from here goes to the end of the queue.
                let clock = Arc::clone(world);
                let Ok(ran) = tokio::spawn(async move { clock.elapsed() }).await else {
                    return; // the pool is being closed
                };
                let took = ran.saturating_sub(slept);
                least_late = least_late.min(took.saturating_sub(between));
                pulses += 1;
            }
            self.adjust(least_late);
        }
    }

    /// One window is over, in which every pulse was at least so late.
    fn adjust(&self, late: Duration) {
        let late_us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.late_us.store(late_us, Ordering::Relaxed);
        let before = self.level.load(Ordering::Relaxed);
        let level = if late > self.queue_max {
            let times = late.as_micros() / self.queue_max.as_micros().max(1);
            let times = u32::try_from(times).unwrap_or(u32::MAX);
            before + self.step * times.clamp(1, STEPS_AT_ONCE_MAX)
        } else {
            before.saturating_sub((self.step / FALL_DIVISOR).max(1))
        };
        let level = level.min(WHOLE * Class::SHED.len() as u32);
        self.level.store(level, Ordering::Relaxed);
        let late_ms = late_us / 1_000;
        match (before, level) {
            (0, 1..) => tracing::warn!(
                late_ms,
                "too much is asked: browsing is refused first, then carts, checkout last"
            ),
            (1.., 0) => tracing::info!("everybody is let in again"),
            _ => {}
        }
    }

    /// Refuses the share that the level says, evenly, by counting.
    fn is_shed(&self, rank: usize) -> bool {
        let share = share(self.level.load(Ordering::Relaxed), rank);
        if share == 0 {
            return false;
        }
        let owed = self.owed[rank].fetch_add(share, Ordering::Relaxed);
        owed % WHOLE + share >= WHOLE
    }
}

/// How much of a class a level refuses: the next begins where the one before ends.
fn share(level: u32, rank: usize) -> u32 {
    let from = WHOLE * u32::try_from(rank).unwrap_or(u32::MAX);
    level.saturating_sub(from).min(WHOLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Duration = Duration::from_millis(60);

    fn admission() -> Admission {
        let limits = HttpLimits {
            requests_in_flight_max: 1_000_000,
            queue_ms_max: 50,
            shed_step_percent: 25,
            ..HttpLimits::default()
        };
        Admission::new(&limits)
    }

    /// How many of a hundred of each class are let in.
    fn let_in(admission: &Admission) -> [usize; 3] {
        Class::SHED.map(|class| (0..100).filter(|_| admission.enter(class).is_ok()).count())
    }

    #[test]
    fn a_queue_that_stands_refuses_browsing_then_carts_then_checkout() {
        let admission = admission();
        assert_eq!(let_in(&admission), [100, 100, 100]);
        let expected = [
            [75, 100, 100],
            [50, 100, 100],
            [25, 100, 100],
            [0, 100, 100],
            [0, 75, 100],
            [0, 50, 100],
            [0, 25, 100],
            [0, 0, 100],
            [0, 0, 75],
        ];
        for expected in expected {
            admission.adjust(LATE);
            assert_eq!(let_in(&admission), expected);
        }
        (0..100).for_each(|_| admission.adjust(LATE));
        assert_eq!(let_in(&admission), [0, 0, 0]);
        assert_eq!(admission.enter(Class::Operator), Ok(()));
        assert_eq!(admission.enter(Class::Checkout), Err(Refused::Waiting));
    }

    #[test]
    fn when_the_queue_is_gone_all_are_let_in_again_in_the_other_order() {
        let admission = admission();
        (0..10).for_each(|_| admission.adjust(LATE));
        assert_eq!(let_in(&admission), [0, 0, 50]);
        let mut seen = vec![let_in(&admission)];
        while admission.level() > 0.0 {
            admission.adjust(Duration::from_millis(50));
            seen.push(let_in(&admission));
        }
        assert!(seen.is_sorted(), "{seen:?}");
        let first = |rank: usize| seen.iter().position(|let_in| let_in[rank] > 50).unwrap();
        assert!(first(2) < first(1) && first(1) < first(0), "{seen:?}");
        assert_eq!(admission.shedding().count(), 0);
    }

    #[test]
    fn a_long_queue_is_met_faster_but_not_at_one_blow() {
        let admission = admission();
        admission.adjust(LATE * 3);
        assert_eq!(let_in(&admission), [25, 100, 100]);
        admission.adjust(Duration::from_secs(60));
        assert_eq!(let_in(&admission), [0, 0, 100]);
    }

    #[test]
    fn the_last_places_at_work_are_kept_for_checkout() {
        let admission = Admission::new(&HttpLimits {
            requests_in_flight_max: 20,
            ..HttpLimits::default()
        });
        let entered = |class: Class| {
            let entered = admission.enter(class);
            if entered.is_err() {
                admission.leave();
            }
            entered
        };
        for (class, places) in [
            (Class::Browsing, 15),
            (Class::Carts, 18),
            (Class::Checkout, 20),
        ] {
            while admission.in_flight() < places {
                assert_eq!(entered(class), Ok(()));
            }
            assert_eq!(entered(class), Err(Refused::AtWork));
        }
        assert_eq!(entered(Class::Operator), Ok(()));
        let refused: Vec<u64> = admission.refused().map(|(_, count)| count).collect();
        assert_eq!(refused, [1, 1, 1]);
        assert_eq!(Class::Browsing.in_flight_max(1), 1);
    }

    /// A world in which whoever sleeps wakes late.
    #[derive(Debug)]
    struct Busy {
        late_ms: std::sync::Mutex<std::collections::VecDeque<u64>>,
        elapsed_ms: AtomicU64,
        /// Told when nothing is left to wake for.
        asleep: tokio::sync::Notify,
    }

    impl World for Busy {
        fn now(&self) -> engine_api::Timestamp {
            unreachable!("nobody asks for the wall clock")
        }

        fn elapsed(&self) -> Duration {
            Duration::from_millis(self.elapsed_ms.load(Ordering::Relaxed))
        }

        fn random(&self) -> u64 {
            unreachable!("nothing is left to chance")
        }

        fn sleep(
            &self,
            duration: Duration,
        ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            let late = self.late_ms.lock().unwrap().pop_front();
            let asked = u64::try_from(duration.as_millis()).unwrap();
            Box::pin(async move {
                match late {
                    Some(late) => {
                        let passed = asked + late;
                        self.elapsed_ms.fetch_add(passed, Ordering::Relaxed);
                    }
                    None => {
                        self.asleep.notify_one();
                        std::future::pending().await
                    }
                }
            })
        }
    }

    #[tokio::test]
    async fn a_window_is_as_late_as_its_earliest_pulse() {
        async fn check(late_ms: &[u64], expected_ms: u64, shed: usize) {
            let admission = Admission::new(&HttpLimits {
                queue_ms_max: 50,
                queue_window_ms: 100,
                ..HttpLimits::default()
            });
            let busy = Arc::new(Busy {
                late_ms: std::sync::Mutex::new(late_ms.iter().copied().collect()),
                elapsed_ms: AtomicU64::new(0),
                asleep: tokio::sync::Notify::new(),
            });
            let world: Arc<dyn World> = busy.clone();
            tokio::select! {
                () = admission.watch(&world) => unreachable!("it watches for ever"),
                () = busy.asleep.notified() => {}
            }
            assert_eq!(admission.late(), Duration::from_millis(expected_ms));
            assert_eq!(admission.shedding().count(), shed, "{late_ms:?}");
        }
        check(&[0; 10], 0, 0).await;
        check(&[70, 80], 70, 1).await;
        // One hiccup, however long, is no queue.
        check(&[5_000, 0], 0, 0).await;
        check(&[30, 90, 90], 30, 0).await;
    }
}
