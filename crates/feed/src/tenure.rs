//! Who works for something, and how far it is: one control value, changed by
//! compare-and-set. Term and state stand together, so that whoever lost the one
//! cannot change the other (W21).

use std::sync::Arc;
use std::time::Duration;

use engine_api::{ControlStore, ControlValue, EngineError, MoverTerm, Remedy, SetOutcome};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest name of what is worked for, which names its term in the engines as well.
pub const NAME_BYTES_MAX: usize = 96;

/// How often somebody who does not hold the value compares again to change it.
const AMEND_ATTEMPTS_MAX: u32 = 16;

/// What may stand beside a term.
pub trait State: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync {}

impl<S: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync> State for S {}

/// What stands in the control store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenured<S> {
    /// Rises with every process that takes the work over.
    pub term: u64,
    /// Who works; `None`: nobody any more, the next may begin at once.
    pub holder: Option<String>,
    #[serde(alias = "phase")]
    pub state: S,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenureError {
    #[error(
        "{name:?} is no name: give 1 to {NAME_BYTES_MAX} lower-case letters, digits, dashes and underscores"
    )]
    Name { name: String },
    #[error("{name}: another process has taken it over: this one waits")]
    Lost { name: String },
    #[error("{name}: its control value cannot be read ({reason}): restore it")]
    Damaged { name: String, reason: String },
    #[error("{name}, control store: {source}")]
    Control { name: String, source: EngineError },
}

impl TenureError {
    pub fn remedy(&self) -> Remedy {
        match self {
            TenureError::Lost { .. } => Remedy::Retry,
            TenureError::Control { source, .. } => source.remedy(),
            TenureError::Name { .. } | TenureError::Damaged { .. } => Remedy::GiveUp,
        }
    }
}

/// The name of a control value: what kind of work, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkName {
    kind: &'static str,
    name: String,
}

impl WorkName {
    pub fn new(kind: &'static str, name: &str) -> Result<WorkName, TenureError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        let name = name.to_owned();
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
            return Err(TenureError::Name { name });
        }
        Ok(WorkName { kind, name })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Of the control value, and of the term in the engines.
    pub fn control_name(&self) -> String {
        format!("{}-{}", self.kind, self.name)
    }

    /// The value and its number; `None`: it was never begun.
    pub async fn load<S: State>(
        &self,
        control: &dyn ControlStore,
    ) -> Result<Option<(u64, Tenured<S>)>, TenureError> {
        let value = control.control_get(&self.control_name()).await;
        let value = value.map_err(|source| self.of_control(source))?;
        value.map(|value| self.decoded(&value)).transpose()
    }

    /// Makes the value, held by nobody yet. Changes nothing if there is one.
    pub async fn begin<S: State>(
        &self,
        control: &dyn ControlStore,
        state: S,
    ) -> Result<(), TenureError> {
        let begun = Tenured {
            term: 0,
            holder: None,
            state,
        };
        let name = self.control_name();
        let setting = control.compare_and_set(&name, None, encoded(&begun));
        match setting.await {
            Ok(SetOutcome::Set { .. } | SetOutcome::Lost { .. }) => Ok(()),
            Err(source) => Err(self.of_control(source)),
        }
    }

    /// Changes the state from outside; who works finds it changed. `amend` answers
    /// `None` to leave it as it is. Answers the value as it stands then, or `None` if
    /// there is none.
    pub async fn amend<S: State, E>(
        &self,
        control: &dyn ControlStore,
        amend: impl Fn(&S) -> Result<Option<S>, E>,
    ) -> Result<Option<Tenured<S>>, E>
    where
        E: From<TenureError>,
    {
        for _ in 0..AMEND_ATTEMPTS_MAX {
            let Some((number, mut value)) = self.load::<S>(control).await? else {
                return Ok(None);
            };
            let Some(state) = amend(&value.state)? else {
                return Ok(Some(value));
            };
            value.state = state;
            let name = self.control_name();
            let setting = control.compare_and_set(&name, Some(number), encoded(&value));
            match setting.await {
                Ok(SetOutcome::Set { .. }) => return Ok(Some(value)),
                // The holder moved on, or nobody knows: look again.
                Ok(SetOutcome::Lost { .. }) | Err(EngineError::OutcomeUnknown { .. }) => {}
                Err(source) => return Err(self.of_control(source).into()),
            }
        }
        let reason = "its control value changes all the time".to_owned();
        Err(self.of_control(EngineError::Unavailable { reason }).into())
    }

    fn decoded<S: State>(&self, value: &ControlValue) -> Result<(u64, Tenured<S>), TenureError> {
        match serde_json::from_slice(&value.bytes) {
            Ok(tenured) => Ok((value.number, tenured)),
            Err(error) => Err(TenureError::Damaged {
                name: self.name.clone(),
                reason: error.to_string(),
            }),
        }
    }

    fn of_control(&self, source: EngineError) -> TenureError {
        TenureError::Control {
            name: self.name.clone(),
            source,
        }
    }
}

/// The control value as one process sees it.
#[derive(Debug)]
pub struct Tenure<S> {
    control: Arc<dyn ControlStore>,
    name: WorkName,
    /// This process, for this work, in this life.
    me: String,
    /// Where something begins that was never begun; `None`: others begin it.
    first: Option<S>,
}

/// The work is this process's, as long as nobody changes the value under it.
#[derive(Clone, Debug)]
pub struct Held<S> {
    number: u64,
    pub term: u64,
    pub state: S,
}

/// What a save met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    AsAsked,
    /// Somebody amended it meanwhile, or an earlier save of ours was answered late:
    /// `Held::state` says what stands.
    Otherwise,
}

/// Somebody else's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    number: u64,
    /// Nobody holds it any more.
    free: bool,
}

#[derive(Debug)]
pub enum Found<S> {
    Own(Held<S>),
    Nobody,
    Other(Watched),
}

/// How long somebody else's value has stood as it is, by the watcher's own clock (W17).
#[derive(Clone, Debug, Default)]
pub struct Watch(Option<(Watched, Duration)>);

impl<S: State> Tenure<S> {
    pub fn new(
        control: Arc<dyn ControlStore>,
        name: WorkName,
        me: String,
        first: Option<S>,
    ) -> Tenure<S> {
        Tenure {
            control,
            name,
            me,
            first,
        }
    }

    pub fn name(&self) -> &str {
        self.name.name()
    }

    pub fn mover_term(&self, held: &Held<S>) -> MoverTerm {
        MoverTerm {
            move_name: self.name.control_name(),
            term: held.term,
        }
    }

    pub async fn look(&self) -> Result<Found<S>, TenureError> {
        let found = self.name.load::<S>(self.control.as_ref()).await?;
        Ok(match found {
            None => Found::Nobody,
            Some((number, value)) if value.holder.as_deref() == Some(&self.me) => {
                Found::Own(Held {
                    number,
                    term: value.term,
                    state: value.state,
                })
            }
            Some((number, value)) => Found::Other(Watched {
                number,
                free: value.holder.is_none(),
            }),
        })
    }

    /// Looks who works, and takes over if nobody does or the value stood unchanged for
    /// as long as the watcher is patient. `None`: it is another's.
    pub async fn seek(
        &self,
        watch: &mut Watch,
        now: Duration,
        patience: Duration,
    ) -> Result<Option<Held<S>>, TenureError> {
        match self.look().await? {
            // A take of ours whose answer never came.
            Found::Own(held) => Ok(Some(held)),
            Found::Nobody => self.take(None).await,
            Found::Other(watched) => {
                let since = match watch.0 {
                    Some((seen, since)) if seen == watched => since,
                    _ => now,
                };
                watch.0 = Some((watched, since));
                if !watched.free && now.saturating_sub(since) < patience {
                    return Ok(None);
                }
                self.take(Some(watched)).await
            }
        }
    }

    /// Takes over if the value is still the one that was watched. `None`: somebody
    /// was faster.
    async fn take(&self, watched: Option<Watched>) -> Result<Option<Held<S>>, TenureError> {
        let expected = watched.map(|watched| watched.number);
        let standing = self.name.load::<S>(self.control.as_ref()).await?;
        let (term, state) = match (standing, &self.first) {
            (Some((number, value)), _) if Some(number) == expected => (value.term + 1, value.state),
            (None, Some(first)) if expected.is_none() => (1, first.clone()),
            _ => return Ok(None),
        };
        let value = self.held_by_me(term, state);
        let Compared::Set { number } = self.compare_and_set(expected, &value).await? else {
            return Ok(None);
        };
        Ok(Some(Held {
            number,
            term,
            state: value.state,
        }))
    }

    /// Moves on to `state`; also what renews the holder's claim.
    pub async fn save(&self, held: &mut Held<S>, state: S) -> Result<Saved, TenureError> {
        self.replace(held, held.term, state).await
    }

    /// An engine has met a higher term: goes above it.
    pub async fn raise(&self, held: &mut Held<S>, above: u64) -> Result<Saved, TenureError> {
        let state = held.state.clone();
        self.replace(held, above + 1, state).await
    }

    async fn replace(&self, held: &mut Held<S>, term: u64, state: S) -> Result<Saved, TenureError> {
        let value = self.held_by_me(term, state);
        match self.compare_and_set(Some(held.number), &value).await? {
            Compared::Set { number } => {
                *held = Held {
                    number,
                    term,
                    state: value.state,
                };
                Ok(Saved::AsAsked)
            }
            Compared::Standing { number, value } if value.holder.as_deref() == Some(&self.me) => {
                *held = Held {
                    number,
                    term: value.term,
                    state: value.state,
                };
                Ok(Saved::Otherwise)
            }
            Compared::Standing { .. } | Compared::Nothing => Err(TenureError::Lost {
                name: self.name().to_owned(),
            }),
        }
    }

    /// Lets the next process begin at once. Whether it is heard does not matter.
    pub async fn release(&self, held: &Held<S>) {
        let value = Tenured {
            term: held.term,
            holder: None,
            state: held.state.clone(),
        };
        let _ = self.compare_and_set(Some(held.number), &value).await;
    }

    fn held_by_me(&self, term: u64, state: S) -> Tenured<S> {
        Tenured {
            term,
            holder: Some(self.me.clone()),
            state,
        }
    }

    /// A lost answer is read back: nobody else writes these bytes.
    async fn compare_and_set(
        &self,
        expected: Option<u64>,
        value: &Tenured<S>,
    ) -> Result<Compared<S>, TenureError> {
        let name = self.name.control_name();
        let next = expected.unwrap_or(0) + 1;
        let setting = self
            .control
            .compare_and_set(&name, expected, encoded(value));
        let current = match setting.await {
            Ok(SetOutcome::Set { number }) => return Ok(Compared::Set { number }),
            Ok(SetOutcome::Lost { current }) => match current {
                Some(value) => Some(self.name.decoded::<S>(&value)?),
                None => None,
            },
            Err(EngineError::OutcomeUnknown { .. }) => {
                self.name.load::<S>(self.control.as_ref()).await?
            }
            Err(source) => return Err(self.name.of_control(source)),
        };
        Ok(match current {
            Some((number, standing)) if number == next && standing == *value => {
                Compared::Set { number }
            }
            Some((number, value)) => Compared::Standing { number, value },
            None => Compared::Nothing,
        })
    }
}

enum Compared<S> {
    Set { number: u64 },
    Standing { number: u64, value: Tenured<S> },
    Nothing,
}

fn encoded<S: State>(value: &Tenured<S>) -> Vec<u8> {
    serde_json::to_vec(value).expect("a state is made of numbers, texts and lists of them")
}
