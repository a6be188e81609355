//! Who works for a feed, and how far it is: one control value, changed by
//! compare-and-set. Term and position stand together, so that whoever lost the one
//! cannot move the other (W21).

use std::sync::Arc;

use engine_api::{ControlStore, ControlValue, EngineError, MoverTerm, SetOutcome};
use serde::{Deserialize, Serialize};

use crate::error::FeedError;
use crate::phase::{Event, Phase};

/// The longest name of a feed, which names its term in the target as well.
pub(crate) const NAME_BYTES_MAX: usize = 96;

/// How often somebody who asks for a rebuild compares again.
const ASK_ATTEMPTS_MAX: u32 = 16;

/// What stands in the control store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Rises with every process that takes the feed over.
    pub term: u64,
    /// Who works for it; `None`: nobody any more, the next may begin at once.
    pub holder: Option<String>,
    pub phase: Phase,
}

/// How far the feed of this name is; `None`: it has never run.
pub async fn progress(
    control: &dyn ControlStore,
    feed: &str,
) -> Result<Option<Progress>, FeedError> {
    Ok(load(control, feed).await?.map(|(_, progress)| progress))
}

/// Asks whoever holds the feed to copy everything anew. The only way out of a lost
/// position; a feed whose target must forget what the source has removed needs an
/// empty target, or a comparison of both sides, besides (W28).
pub async fn ask_rebuild(control: &dyn ControlStore, feed: &str) -> Result<(), FeedError> {
    for _ in 0..ASK_ATTEMPTS_MAX {
        let Some((number, mut progress)) = load(control, feed).await? else {
            return Err(FeedError::NoFeed {
                feed: feed.to_owned(),
            });
        };
        if progress.phase == Phase::first() {
            return Ok(());
        }
        if let Some(phase) = progress.phase.step(Event::RebuildAsked) {
            progress.phase = phase;
        }
        match control
            .compare_and_set(&control_name(feed), Some(number), encoded(&progress))
            .await
        {
            Ok(SetOutcome::Set { .. }) => return Ok(()),
            // The holder moved on, or nobody knows: look again.
            Ok(SetOutcome::Lost { .. }) | Err(EngineError::OutcomeUnknown { .. }) => {}
            Err(source) => return Err(of_control(feed, source)),
        }
    }
    Err(of_control(
        feed,
        EngineError::Unavailable {
            reason: "its control value changes all the time".to_owned(),
        },
    ))
}

/// The control value of one feed, as one process sees it.
#[derive(Debug)]
pub(crate) struct Tenure {
    control: Arc<dyn ControlStore>,
    feed: String,
    /// This process, for this feed, in this life.
    me: String,
}

/// The feed is this process's, as long as nobody changes the value under it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    number: u64,
    pub term: u64,
    pub phase: Phase,
}

/// What a save met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    AsAsked,
    /// Somebody asked for a rebuild meanwhile, or an earlier save of ours was
    /// answered late: `Held::phase` says what stands.
    Otherwise,
}

/// Somebody else's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watched {
    pub number: u64,
    /// Nobody holds the feed any more.
    pub free: bool,
}

pub(crate) enum Found {
    Own(Held),
    Nobody,
    Other(Watched),
}

impl Tenure {
    pub(crate) fn new(
        control: Arc<dyn ControlStore>,
        feed: String,
        me: String,
    ) -> Result<Tenure, FeedError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        if feed.is_empty() || feed.len() > NAME_BYTES_MAX || !feed.chars().all(plain) {
            return Err(FeedError::Name { feed });
        }
        Ok(Tenure { control, feed, me })
    }

    pub(crate) fn feed(&self) -> &str {
        &self.feed
    }

    pub(crate) fn mover_term(&self, held: &Held) -> MoverTerm {
        MoverTerm {
            move_name: control_name(&self.feed),
            term: held.term,
        }
    }

    pub(crate) async fn look(&self) -> Result<Found, FeedError> {
        let found = load(self.control.as_ref(), &self.feed).await?;
        Ok(match found {
            None => Found::Nobody,
            Some((number, progress)) if progress.holder.as_deref() == Some(&self.me) => {
                Found::Own(Held {
                    number,
                    term: progress.term,
                    phase: progress.phase,
                })
            }
            Some((number, progress)) => Found::Other(Watched {
                number,
                free: progress.holder.is_none(),
            }),
        })
    }

    /// Takes the feed if its value is still the one that was watched. `None`:
    /// somebody was faster.
    pub(crate) async fn take(&self, watched: Option<Watched>) -> Result<Option<Held>, FeedError> {
        let expected = watched.map(|watched| watched.number);
        let standing = load(self.control.as_ref(), &self.feed).await?;
        let (term, phase) = match standing {
            Some((number, progress)) if Some(number) == expected => {
                (progress.term + 1, progress.phase)
            }
            None if expected.is_none() => (1, Phase::first()),
            _ => return Ok(None),
        };
        let progress = Progress {
            term,
            holder: Some(self.me.clone()),
            phase,
        };
        let Compared::Set { number } = self.compare_and_set(expected, &progress).await? else {
            return Ok(None);
        };
        Ok(Some(Held {
            number,
            term,
            phase: progress.phase,
        }))
    }

    /// Moves on to `phase`; also what renews the holder's claim.
    pub(crate) async fn save(&self, held: &mut Held, phase: Phase) -> Result<Saved, FeedError> {
        self.replace(held, held.term, phase).await
    }

    /// The target has met a higher term: goes above it.
    pub(crate) async fn raise(&self, held: &mut Held, above: u64) -> Result<Saved, FeedError> {
        let phase = held.phase.clone();
        self.replace(held, above + 1, phase).await
    }

    async fn replace(&self, held: &mut Held, term: u64, phase: Phase) -> Result<Saved, FeedError> {
        let progress = Progress {
            term,
            holder: Some(self.me.clone()),
            phase,
        };
        match self.compare_and_set(Some(held.number), &progress).await? {
            Compared::Set { number } => {
                *held = Held {
                    number,
                    term,
                    phase: progress.phase,
                };
                Ok(Saved::AsAsked)
            }
            Compared::Standing { number, progress }
                if progress.holder.as_deref() == Some(&self.me) =>
            {
                *held = Held {
                    number,
                    term: progress.term,
                    phase: progress.phase,
                };
                Ok(Saved::Otherwise)
            }
            Compared::Standing { .. } | Compared::Nothing => Err(FeedError::TermLost {
                feed: self.feed.clone(),
            }),
        }
    }

    /// Lets the next process begin at once. Whether it is heard does not matter.
    pub(crate) async fn release(&self, held: &Held) {
        let progress = Progress {
            term: held.term,
            holder: None,
            phase: held.phase.clone(),
        };
        let _ = self.compare_and_set(Some(held.number), &progress).await;
    }

    /// A lost answer is read back: nobody else writes these bytes.
    async fn compare_and_set(
        &self,
        expected: Option<u64>,
        progress: &Progress,
    ) -> Result<Compared, FeedError> {
        let bytes = encoded(progress);
        let name = control_name(&self.feed);
        let next = expected.unwrap_or(0) + 1;
        let setting = self.control.compare_and_set(&name, expected, bytes);
        let current = match setting.await {
            Ok(SetOutcome::Set { number }) => return Ok(Compared::Set { number }),
            Ok(SetOutcome::Lost { current }) => match current {
                Some(value) => Some(decoded(&self.feed, &value)?),
                None => None,
            },
            Err(EngineError::OutcomeUnknown { .. }) => {
                load(self.control.as_ref(), &self.feed).await?
            }
            Err(source) => return Err(of_control(&self.feed, source)),
        };
        Ok(match current {
            Some((number, standing)) if number == next && standing == *progress => {
                Compared::Set { number }
            }
            Some((number, progress)) => Compared::Standing { number, progress },
            None => Compared::Nothing,
        })
    }
}

enum Compared {
    Set { number: u64 },
    Standing { number: u64, progress: Progress },
    Nothing,
}

/// The name of a feed's control value, and of its term in the target.
fn control_name(feed: &str) -> String {
    format!("feed-{feed}")
}

async fn load(
    control: &dyn ControlStore,
    feed: &str,
) -> Result<Option<(u64, Progress)>, FeedError> {
    let value = control.control_get(&control_name(feed)).await;
    let value = value.map_err(|source| of_control(feed, source))?;
    value.map(|value| decoded(feed, &value)).transpose()
}

fn encoded(progress: &Progress) -> Vec<u8> {
    serde_json::to_vec(progress).expect("numbers and texts always become JSON")
}

fn decoded(feed: &str, value: &ControlValue) -> Result<(u64, Progress), FeedError> {
    match serde_json::from_slice(&value.bytes) {
        Ok(progress) => Ok((value.number, progress)),
        Err(error) => Err(FeedError::Damaged {
            feed: feed.to_owned(),
            reason: error.to_string(),
        }),
    }
}

fn of_control(feed: &str, source: EngineError) -> FeedError {
    FeedError::Engine {
        feed: feed.to_owned(),
        side: "control store",
        source,
    }
}
