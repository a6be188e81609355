//! Live moves: this process looks at the list every second and stands by for each move that has not ended. One
//! process holds a move, see `mover`; the others take it over when nothing is heard of it. A process that leaves moves
//! to others (`moves.runner`) looks all the same: upkeep has to know what they need.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use engine_api::{Record, Timestamp, World};
use feed::tenure::Tenured;
use http_api::App;
use mover::{Latencies, MoveName, MoveState, Mover, MoverConfig, Pressure};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use super::upkeep::Needs;
use crate::config::Config;
use crate::faults;
use crate::metrics::MoveFigures;
use crate::shards::{OpenShards, Shards};

/// How soon a move that was started is seen.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The requests that this process answers.
#[derive(Clone, Debug)]
pub struct ShopRequests(pub App);

impl Pressure for ShopRequests {
    fn requests(&self) -> Latencies {
        Latencies(self.0.latencies())
    }
}

/// A pause of a garbage collector or of a disk is not to cost a process its moves.
const TAKE_OVER_MS_LEAST: u64 = 1_000;
const TAKE_OVER_MS_MOST: u64 = 600_000;

/// How often a holder renews, at least, while others are patient.
const RENEWALS_IN_A_PATIENCE: u64 = 4;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MoveSettings {
    /// How long a move's record stands unchanged before another process takes the move over.
    pub take_over_ms: u64,
    /// How long what a completed move leaves at its source stays there, if its operator does not say.
    pub clean_grace_ms: u64,
    pub runner: Runner,
}

/// Which processes work for moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runner {
    /// Those that serve, and those that do nothing else.
    Serve,
    /// Only `caravan mover`.
    Mover,
}

impl Runner {
    pub fn name(self) -> &'static str {
        match self {
            Runner::Serve => "serve",
            Runner::Mover => "mover",
        }
    }
}

impl Default for MoveSettings {
    fn default() -> MoveSettings {
        MoveSettings {
            runner: Runner::Serve,
            take_over_ms: mover::Limits::default().take_over_ms,
            clean_grace_ms: mover::Limits::default().clean_grace_ms,
        }
    }
}

impl MoveSettings {
    pub fn check(&self) -> Result<()> {
        let take_over_ms = self.take_over_ms;
        let (least, most) = (TAKE_OVER_MS_LEAST, TAKE_OVER_MS_MOST);
        ensure!(
            (least..=most).contains(&take_over_ms),
            "moves.take_over_ms is {take_over_ms}: choose {least} to {most}"
        );
        let (grace_ms, most) = (self.clean_grace_ms, mover::GRACE_MS_MAX);
        ensure!(
            grace_ms <= most,
            "moves.clean_grace_ms is {grace_ms}: choose 0 to {most}"
        );
        Ok(())
    }

    fn limits(&self) -> mover::Limits {
        let defaults = mover::Limits::default();
        let take_over_ms = self.take_over_ms;
        mover::Limits {
            take_over_ms,
            clean_grace_ms: self.clean_grace_ms,
            renew_ms: defaults.renew_ms.min(take_over_ms / RENEWALS_IN_A_PATIENCE),
            ..defaults
        }
    }
}

/// Runs the movers of this process.
#[derive(Debug)]
pub struct Moves {
    /// What every mover is made from, but for its name: the shards as they are when it begins.
    shards: OpenShards,
    control: Arc<dyn engine_api::ControlStore>,
    router: Arc<router::Router>,
    router_limits: router::Limits,
    limits: mover::Limits,
    stands_by: bool,
    world: Arc<dyn World>,
    /// What shoppers feel of them; `None`: nobody is served here.
    pressure: Option<Arc<dyn Pressure>>,
    figures: Arc<MoveFigures>,
    /// What upkeep leaves alone because of them.
    needs: Arc<Needs>,
    /// Their records are not read again: names are never used twice.
    ended: BTreeSet<MoveName>,
    movers: JoinSet<()>,
    /// Of those that run, by their task.
    names: HashMap<Id, MoveName>,
}

impl Moves {
    pub fn new(
        config: &Config,
        shards: &Shards,
        world: Arc<dyn World>,
        figures: Arc<MoveFigures>,
        needs: Arc<Needs>,
        pressure: Option<Arc<dyn Pressure>>,
    ) -> Result<Moves> {
        Ok(Moves {
            shards: shards.engines.clone(),
            control: faults::of_moves(shards.control.clone())?,
            router: shards.router.clone(),
            router_limits: config.router.clone(),
            limits: config.moves.limits(),
            stands_by: config.moves.runner == Runner::Serve || pressure.is_none(),
            world,
            figures,
            needs,
            pressure,
            ended: BTreeSet::new(),
            movers: JoinSet::new(),
            names: HashMap::new(),
        })
    }

    /// Until `stop`; then every mover lets its move go, so that another process goes on at once.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(false);
        let mut stop = pin!(stop);
        // The same failure again and again is told once.
        let mut told = None;
        loop {
            let looked = tokio::select! {
                biased;
                () = &mut stop => break,
                looked = self.look(&stopped) => looked,
            };
            let failure = looked.err();
            if failure != told {
                match &failure {
                    Some(error) => tracing::warn!(%error, "the list of moves cannot be read now"),
                    None => tracing::info!("the list of moves can be read again"),
                }
                told = failure;
            }
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = self.world.sleep(LOOK_EVERY) => {}
            }
        }
        stopping.send_replace(true);
        while let Some(left) = self.movers.join_next_with_id().await {
            self.forget(left);
        }
    }

    /// Stands by for what is new, and lets go of what has ended.
    async fn look(&mut self, stopped: &watch::Receiver<bool>) -> Result<(), mover::MoveError> {
        while let Some(left) = self.movers.try_join_next_with_id() {
            self.forget(left);
        }
        // A mover tells this router of its maps; what it could not tell is found here.
        if let Err(error) = self.router.refresh().await {
            tracing::debug!(%error, "this process looks for a new map later");
        }
        let ended = |name: &MoveName| self.ended.contains(name);
        let moves = mover::list_unless(self.control.as_ref(), ended).await?;
        let states = moves.iter().flat_map(|(_, record)| record);
        let kept = mover::kept_for(states.map(|record| &record.state));
        self.needs.learn(kept);
        for (name, record) in moves {
            // Who died between the list and the record is to start it again.
            let Some(record) = record else { continue };
            self.figures.show(&name, &record.state);
            if record.state.phase.is_over() {
                self.ended.insert(name);
            } else if self.stands_by && !self.runs(&name) && self.has_what_it_needs(&record.state) {
                self.stand_by(name, &record, stopped.clone())?;
            }
        }
        Ok(())
    }

    fn runs(&self, name: &MoveName) -> bool {
        self.names.values().any(|running| running == name)
    }

    /// Whether the sides are open here that it cannot do without. One that was added may be a moment later than its first
    /// move, or away: then it can still be given up.
    fn has_what_it_needs(&self, state: &MoveState) -> bool {
        let open = self.shards.all();
        let ends = state.ends_needed().into_iter();
        let mut needed = ends.flat_map(|end| state.plan.stores(end));
        needed.all(|shard| open.contains_key(shard))
    }

    fn stand_by(
        &mut self,
        name: MoveName,
        record: &Tenured<MoveState>,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<(), mover::MoveError> {
        let phase = record.state.phase.name();
        tracing::info!(name = name.as_str(), phase, "stands by for a move");
        let mover = Mover::new(MoverConfig {
            name: name.clone(),
            shards: self.shards.engines(),
            control: self.control.clone(),
            world: self.world.clone(),
            router: Some(self.router.clone()),
            pressure: self.pressure.clone(),
            limits: self.limits.clone(),
            feed_limits: mover::feed_limits(),
            verifier_limits: verifier::Limits::default(),
            router_limits: self.router_limits.clone(),
            invariants: Some(Arc::new(Promises)),
        })?;
        let running = self.movers.spawn(mover.run(async move {
            // A sender that is gone means the same.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        }));
        self.names.insert(running.id(), name);
        Ok(())
    }

    /// A mover that failed is begun anew by the next look.
    fn forget(&mut self, left: Result<(Id, ()), JoinError>) {
        let id = match &left {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let name = self.names.remove(&id);
        if let (Err(error), Some(name)) = (left, name) {
            tracing::error!(
                name = name.as_str(),
                %error,
                "a mover failed: the next look begins another"
            );
        }
    }
}

/// The shop's promises, as the verifier asks for them.
#[derive(Debug)]
struct Promises;

impl verifier::Invariants for Promises {
    fn broken(&self, image: &Record, now: Timestamp) -> Option<String> {
        shop_service::broken_promise(image, now)
    }

    fn sole(&self, image: &Record, now: Timestamp) -> Option<verifier::Sole> {
        let (path, equals) = shop_service::stands_alone(image, now)?;
        Some(verifier::Sole { path, equals })
    }
}
