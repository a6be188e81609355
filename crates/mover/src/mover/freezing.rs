//! Behind the freeze: everybody has heard of it, nothing older arrives, everything before the seal is at the
//! other side, and that is proven.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine_api::{Engine, Fence, FenceKind, Generation, Remedy, Seal};
use feed::Feed;
use router::{Edit, LeaseJudge, Map};
use verifier::Proof;

use super::copying::Fed;
use super::publishing::{Offered, refuse_without_a_shard};
use super::{MoverConfig, Runner, stepped};
use crate::error::MoveError;
use crate::freeze::FreezeParts;
use crate::phase::{Event, Way};
use crate::pins::Pins;
use crate::plan::Plan;
use crate::preflight::is_all_at;

/// This part of the budget is given to journal entries whose change is not shown.
const DRAIN_PATIENCE: u32 = 4;

/// A freeze, as the process that made it knows it.
#[derive(Debug)]
pub(super) struct Freeze {
    /// The map that froze.
    pub map: Arc<Map>,
    /// By `World::elapsed`, before the map was offered.
    pub began: Duration,
    pub began_at_unix_us: i64,
    /// When every lease had acknowledged it, counted from then.
    pub leases_us: OnceLock<u64>,
}

/// Why the keys stay where they are.
pub(super) enum Stopped {
    Unproven { why: String },
    Failed(MoveError),
}

impl<E: Into<MoveError>> From<E> for Stopped {
    fn from(error: E) -> Stopped {
        Stopped::Failed(error.into())
    }
}

impl Runner<'_> {
    /// `None`: the keys are not where they are to be taken from.
    pub(super) async fn freeze(&mut self, way: &Way) -> Result<Option<Freeze>, MoveError> {
        for _ in 0..self.config.limits.publish_attempts_max {
            let freeze_from = self.load_map().await?;
            if is_all_at(self.plan(), &freeze_from, way.left()).is_err() {
                return Ok(None);
            }
            let scope = self.plan().scope().clone();
            let next = self.next_map(
                &freeze_from,
                &[Edit::Freeze { scope }],
                "the keys are frozen",
            )?;
            let (map, generation) = (Arc::new(next), freeze_from.generation.next());
            let pinned = Pins::among(self.plan(), &freeze_from);
            self.update(|state| {
                if let Way::Forward { .. } = way {
                    state.pinned_before = pinned.clone();
                }
                stepped(state, Event::Freezing { generation })
            })
            .await?;
            let freeze = Freeze {
                map,
                began: self.config.world.elapsed(),
                began_at_unix_us: self.config.world.now().unix_micros(),
                leases_us: OnceLock::new(),
            };
            if self.offer_at_once(&freeze.map).await? == Offered::Published {
                self.work.freeze_parts = FreezeParts {
                    publish_us: Some(micros(self.since(freeze.began))),
                    ..FreezeParts::default()
                };
                return Ok(Some(freeze));
            }
        }
        Err(self.contended())
    }

    /// Until nothing older is under way, the seal is reached and both sides are the same.
    pub(super) async fn behind_the_freeze(
        &mut self,
        way: &Way,
        freeze: &Freeze,
    ) -> Result<(Seal, Proof), Stopped> {
        let (keeper, config) = (self.keeper, self.config);
        let (judge, plan) = (self.work.judge.clone(), self.plan().clone());
        let leases = await_leases(&judge, config, &plan, freeze);
        // So that the next map need not see to it.
        let remembering = async {
            if let Err(error) = keeper.remember(&freeze.map).await {
                tracing::debug!(%error, "a map is not in the history yet");
            }
            Ok(())
        };
        let left = self.left(way.left())?;
        match left.capabilities().fence {
            // The fence holds back who has not heard of the freeze, and what it lets through
            // before stands in the journal (E12, E13). Whoever may still *read* at this side
            // is waited for as well, but need not be waited for first.
            FenceKind::InStore => {
                let proving = self.seal_and_prove(way, freeze);
                let ((), (), proven) = tokio::try_join!(biased; leases, remembering, proving)?;
                Ok(proven)
            }
            FenceKind::ByLease => {
                leases.await?;
                let proving = self.seal_and_prove(way, freeze);
                let ((), proven) = tokio::try_join!(biased; remembering, proving)?;
                Ok(proven)
            }
        }
    }

    async fn seal_and_prove(
        &mut self,
        way: &Way,
        freeze: &Freeze,
    ) -> Result<(Seal, Proof), Stopped> {
        let world = self.config.world.clone();
        let began = world.elapsed();
        let seal = self.seal(way, freeze.map.generation.next()).await?;
        let sealed = world.elapsed();
        self.work.freeze_parts.seal_us = Some(micros(sealed - began));
        self.drain(way).await?;
        let drained = world.elapsed();
        self.work.freeze_parts.drain_us = Some(micros(drained - sealed));
        let Some(comparing) = &mut self.work.comparing else {
            let why = "nothing was compared yet".to_owned();
            return Err(Stopped::Unproven { why });
        };
        let proven = comparing.verifier.prove(&seal).await?;
        self.work.freeze_parts.proof_us = Some(micros(world.elapsed() - drained));
        let unproven = |why: String| Err(Stopped::Unproven { why });
        match proven {
            Ok(proof) if proof.is_for(&seal.position) => Ok((seal, proof)),
            Ok(_) => unproven("the proof is for another seal".to_owned()),
            Err(not) => unproven(not.to_string()),
        }
    }

    /// A pass that began after the seal: everything before it has arrived.
    async fn drain(&mut self, way: &Way) -> Result<(), MoveError> {
        let poll = Duration::from_millis(self.config.limits.freeze_poll_ms);
        let (world, began) = (self.config.world.clone(), self.config.world.elapsed());
        let patience = Duration::from_millis(self.plan().freeze_ms_max) / DRAIN_PATIENCE;
        loop {
            match self.pass_towards(way).await? {
                Fed::CaughtUp => return Ok(()),
                Fed::Behind => {}
                Fed::Waits { .. } if world.elapsed().saturating_sub(began) >= patience => {
                    self.forgo_waiting(way)?;
                    world.sleep(poll).await;
                }
                Fed::Waits { .. } | Fed::Throttled { .. } => world.sleep(poll).await,
            }
        }
    }

    /// Where leases fence, nobody who has one has anything under way behind the seal, and
    /// who lost it has acknowledged nothing: an entry that is not shown by now is one of a
    /// change that nobody was promised (W16, E18). Elsewhere entry and change are one commit.
    fn forgo_waiting(&mut self, way: &Way) -> Result<(), MoveError> {
        if self.left(way.left())?.capabilities().fence == FenceKind::InStore {
            return Ok(());
        }
        let feed = match way {
            Way::Forward { .. } => self.work.forward.as_mut(),
            Way::Back { .. } => self.work.back.as_mut(),
        };
        let forgone = feed.map_or(0, Feed::forgo_waiting);
        let name = self.tenure.name();
        tracing::warn!(
            name,
            forgone,
            "entries whose change never showed, behind the seal"
        );
        Ok(())
    }

    /// Behind it no router's write under an older map arrives. Where the store does not
    /// fence, every lease has acknowledged the freeze: the journal's end is the seal.
    async fn seal(&mut self, way: &Way, fenced_at: Generation) -> Result<Seal, MoveError> {
        let left = way.left();
        let engine = self.left(left)?;
        let poll = Duration::from_millis(self.config.limits.freeze_poll_ms);
        loop {
            let sealed = match engine.capabilities().fence {
                FenceKind::InStore => self.raise_fence(engine.as_ref(), fenced_at).await,
                FenceKind::ByLease => engine.journal_end().await.map(|position| Seal { position }),
            };
            match sealed {
                Ok(seal) => return Ok(seal),
                // Raising it again is harmless; the budget ends this.
                Err(error) if matches!(error.remedy(), Remedy::Retry | Remedy::ReadBack) => {
                    self.config.world.sleep(poll).await;
                }
                Err(error) => return Err(self.of_end(left, error)),
            }
        }
    }

    async fn raise_fence(
        &self,
        engine: &dyn Engine,
        generation: Generation,
    ) -> Result<Seal, engine_api::EngineError> {
        let plan = self.plan();
        let fence = Fence {
            collection: plan.collection,
            scope: plan.scope().clone(),
            generation,
        };
        let term = self.tenure.mover_term(&self.work.held);
        engine
            .raise_fence(fence, term, self.config.world.now())
            .await
    }
}

/// Nobody may still answer under a map from before the freeze.
async fn await_leases(
    judge: &LeaseJudge,
    config: &MoverConfig,
    plan: &Plan,
    freeze: &Freeze,
) -> Result<(), Stopped> {
    let (world, frozen) = (&config.world, freeze.map.generation);
    let poll = Duration::from_millis(config.limits.freeze_poll_ms);
    loop {
        let seen = judge.look().await?;
        refuse_without_a_shard(plan, &seen)?;
        if !seen.iter().any(|lease| lease.is_behind(frozen)) {
            let waited = world.elapsed().saturating_sub(freeze.began);
            freeze.leases_us.get_or_init(|| micros(waited));
            return Ok(());
        }
        world.sleep(poll).await;
    }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
