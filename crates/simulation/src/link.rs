//! The way to a server: what is sent may be late, lost, repeated, and so may
//! the answer.
//!
//! A delivery is a task of its own: it arrives even when the sender has died
//! meanwhile. When the links are calmed, what is under way still arrives.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine_api::EngineError;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::chance::Chance;

/// How late a late delivery may be.
const LATE_MS_MAX: u64 = 900;
/// Outages of one server in a seed.
const OUTAGES_MAX: u64 = 2;
const OUTAGE_MS_MAX: u64 = 120;
/// Outages begin within this time.
const OUTAGE_AT_MS_MAX: u64 = 2_500;

/// How bad the links of a seed are, in percent of the calls.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub unavailable: u64,
    pub request_lost: u64,
    pub answer_lost: u64,
    pub late: u64,
    pub repeated: u64,
    pub slow: u64,
    pub delay_ms_max: u64,
    pub slow_ms_max: u64,
}

/// What becomes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    Unavailable,
    RequestLost,
    AnswerLost,
    Late { by: Duration },
    Repeated { after: Duration },
}

/// Whether a call changes anything at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Reads,
    Writes,
}

#[derive(Debug)]
pub struct Link {
    weather: Weather,
    chance: Mutex<Chance>,
    calm: AtomicBool,
    started: Instant,
    outages: Vec<(Duration, Duration)>,
    under_way: Arc<AtomicUsize>,
}

impl Weather {
    pub fn of_seed(chance: &mut Chance) -> Weather {
        let mut up_to = |most: u64| {
            if chance.percent(70) {
                chance.below(most + 1)
            } else {
                0
            }
        };
        Weather {
            unavailable: up_to(8),
            request_lost: up_to(6),
            answer_lost: up_to(10),
            late: up_to(8),
            repeated: up_to(10),
            slow: up_to(15),
            delay_ms_max: 2 + up_to(12),
            slow_ms_max: 40 + up_to(250),
        }
    }

    /// As bad in kind and not in degree: a shipped mover makes a hundred calls where a script
    /// makes ten, and would never come to a cutover among the shoppers.
    #[must_use]
    pub fn milder(self) -> Weather {
        Weather {
            unavailable: self.unavailable.div_ceil(2),
            slow: self.slow.div_ceil(3),
            delay_ms_max: self.delay_ms_max.div_ceil(2),
            slow_ms_max: self.slow_ms_max / 2,
            ..self
        }
    }
}

impl Link {
    pub fn new(weather: Weather, mut chance: Chance) -> Link {
        let outages = (0..chance.below(OUTAGES_MAX + 1))
            .map(|_| {
                let from = Duration::from_millis(chance.below(OUTAGE_AT_MS_MAX));
                (
                    from,
                    from + Duration::from_millis(chance.below(OUTAGE_MS_MAX)),
                )
            })
            .collect();
        Link {
            weather,
            chance: Mutex::new(chance),
            calm: AtomicBool::new(true),
            started: Instant::now(),
            outages,
            under_way: Arc::default(),
        }
    }

    /// Faults begin.
    pub fn disturb(&self) {
        self.calm.store(false, Ordering::Relaxed);
    }

    /// Faults end; what is under way still arrives.
    pub fn calm(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    pub fn deliveries_under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Sends a call to the server: `serve` is what happens there.
    pub async fn send<T, S, F>(&self, call: Call, serve: S) -> Result<T, EngineError>
    where
        T: Send + 'static,
        S: Fn() -> F + Send + 'static,
        F: Future<Output = Result<T, EngineError>> + Send,
    {
        let (fate, there, back) = (self.fate(call), self.delay(), self.delay());
        match fate {
            Fate::Unavailable => {
                sleep(there).await;
                Err(EngineError::Unavailable {
                    reason: "simulated".to_owned(),
                })
            }
            Fate::RequestLost => {
                sleep(there + back).await;
                Err(lost())
            }
            Fate::AnswerLost => {
                let answered = self.deliver(there, None, serve);
                drop(answered.await);
                sleep(back).await;
                Err(lost())
            }
            Fate::Late { by } => {
                drop(self.deliver(there + by, None, serve));
                sleep(there + back).await;
                Err(lost())
            }
            // What only reads leaves nothing behind: nobody notices if it ends with its sender.
            Fate::Answered if call == Call::Reads => {
                sleep(there).await;
                let answer = serve().await;
                sleep(back).await;
                answer
            }
            Fate::Answered | Fate::Repeated { .. } => {
                let again = match fate {
                    Fate::Repeated { after } => Some(after),
                    _ => None,
                };
                let answer = self.deliver(there, again, serve).await;
                sleep(back).await;
                answer.unwrap_or_else(|_| Err(lost()))
            }
        }
    }

    fn deliver<T, S, F>(
        &self,
        there: Duration,
        again: Option<Duration>,
        serve: S,
    ) -> oneshot::Receiver<Result<T, EngineError>>
    where
        T: Send + 'static,
        S: Fn() -> F + Send + 'static,
        F: Future<Output = Result<T, EngineError>> + Send,
    {
        let (answer, answered) = oneshot::channel();
        let under_way = Arc::clone(&self.under_way);
        under_way.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            sleep(there).await;
            // Nobody may be waiting any more: that is the point.
            drop(answer.send(serve().await));
            if let Some(after) = again {
                sleep(after).await;
                drop(serve().await);
            }
            under_way.fetch_sub(1, Ordering::Relaxed);
        });
        answered
    }

    fn fate(&self, call: Call) -> Fate {
        let mut chance = self
            .chance
            .lock()
            .expect("no code panics while it holds the lock");
        if self.calm.load(Ordering::Relaxed) {
            return Fate::Answered;
        }
        let now = self.started.elapsed();
        if self
            .outages
            .iter()
            .any(|(from, to)| (*from..*to).contains(&now))
        {
            return Fate::Unavailable;
        }
        let weather = self.weather;
        let mut drawn = chance.below(100);
        let mut falls_on = |percent: u64| {
            let falls = drawn < percent;
            drawn = drawn.saturating_sub(percent);
            falls
        };
        let unavailable = falls_on(weather.unavailable);
        if unavailable || call == Call::Reads {
            return if unavailable {
                Fate::Unavailable
            } else {
                Fate::Answered
            };
        }
        if falls_on(weather.request_lost) {
            return Fate::RequestLost;
        }
        if falls_on(weather.answer_lost) {
            return Fate::AnswerLost;
        }
        if falls_on(weather.late) {
            return Fate::Late {
                by: Duration::from_millis(chance.between(1, LATE_MS_MAX)),
            };
        }
        if falls_on(weather.repeated) {
            return Fate::Repeated {
                after: Duration::from_millis(chance.between(1, LATE_MS_MAX)),
            };
        }
        Fate::Answered
    }

    fn delay(&self) -> Duration {
        let mut chance = self
            .chance
            .lock()
            .expect("no code panics while it holds the lock");
        if self.calm.load(Ordering::Relaxed) {
            return Duration::from_millis(1);
        }
        let slow = chance.percent(self.weather.slow);
        let most = if slow {
            self.weather.slow_ms_max
        } else {
            self.weather.delay_ms_max
        };
        Duration::from_millis(chance.below(most + 1))
    }
}

fn lost() -> EngineError {
    EngineError::OutcomeUnknown {
        reason: "simulated".to_owned(),
    }
}
