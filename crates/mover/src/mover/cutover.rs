//! The cutover, in either direction.
//!
//! ```text
//! notice ─▶ all leases ─▶ freeze ─▶ all leases ─▶ fence: the seal ─▶ drain ─▶ proof ─▶ move and thaw
//!                            └──────────────┴──────────────┴───────────┴────────┴──▶ or give up: thaw
//! ```
//!
//! The record says `Frozen` before the freeze is offered, and holds the proof before the
//! new owner is. Each of these saves comes after the map was read that the offer rests
//! on: whoever took the move over since has made the save fail, or publishes after it
//! and makes the offer fail.

use std::time::Duration;

use engine_api::{Engine, Fence, FenceKind, Generation, Remedy, Seal};
use router::{Edit, ShardName};
use verifier::Proof;

use super::comparing::{Compared, Rest};
use super::copying::Fed;
use super::publishing::Offered;
use super::{Pass, Runner, stepped};
use crate::certificate::{self, Certificate, Content, Generations};
use crate::error::MoveError;
use crate::phase::{Event, Phase, Proven, Way};
use crate::preflight::is_all_on;
use crate::record::{GivenUp, shortened};

/// A freeze, as the process that made it knows it.
#[derive(Clone, Copy, Debug)]
struct Freeze {
    generation: Generation,
    /// By `World::elapsed`, before the map was offered.
    began: Duration,
    began_at_unix_us: i64,
}

/// What came of the time behind the freeze.
enum Behind {
    Proven { seal: Seal, proof: Proof },
    Unproven { why: String },
}

impl Runner<'_> {
    /// Waits for everybody while traffic flows, so that a dead process does not eat the
    /// freeze (W18), and comes as close to the source as it can.
    pub(super) async fn noticed(
        &mut self,
        way: &Way,
        notice: Generation,
    ) -> Result<Pass, MoveError> {
        let fed = self.pass_towards(way).await?;
        let compared = self.compare(way.direction()).await?;
        if let Compared::Differs { count } = compared {
            let why = format!("{count} records or rows differ");
            return self.step_back(why, None, None).await;
        }
        if self.behind(notice).await?.is_some() {
            return Ok(self.waiting());
        }
        match (fed, compared) {
            (Fed::CaughtUp, Compared::Same) => self.cut_over(way).await,
            (Fed::Behind, _) | (_, Compared::Open { rest: Rest::Scans }) => Ok(Pass::Behind),
            _ => Ok(self.waiting()),
        }
    }

    async fn cut_over(&mut self, way: &Way) -> Result<Pass, MoveError> {
        let freeze = match self.freeze(way).await {
            Ok(Some(freeze)) => freeze,
            Ok(None) => {
                let why = "the map no longer gives the keys to one shard".to_owned();
                return self.step_back(why, None, None).await;
            }
            Err(error) => return self.fail(error).await,
        };
        let budget = Duration::from_millis(self.plan().freeze_ms_max);
        let world = self.config.world.clone();
        let left = budget.saturating_sub(world.elapsed().saturating_sub(freeze.began));
        let behind = tokio::select! {
            biased;
            behind = self.behind_the_freeze(way, freeze.generation) => behind,
            () = world.sleep(left) => Ok(Behind::Unproven { why: self.over_budget() }),
        };
        match behind {
            Ok(Behind::Proven { seal, proof }) => self.give_away(way, freeze, &seal, &proof).await,
            Ok(Behind::Unproven { why }) => self.give_up(&why, Some(freeze.began)).await,
            Err(error) => self.fail(error).await,
        }
    }

    /// `None`: the keys are not where they are to be taken from.
    async fn freeze(&mut self, way: &Way) -> Result<Option<Freeze>, MoveError> {
        for _ in 0..self.config.limits.publish_attempts_max {
            let map = self.load_map().await?;
            if is_all_on(self.plan(), &map, self.sides(way).0).is_err() {
                return Ok(None);
            }
            let generation = map.generation.next();
            self.event(Event::Freezing { generation }).await?;
            let freeze = Freeze {
                generation,
                began: self.config.world.elapsed(),
                began_at_unix_us: self.config.world.now().unix_micros(),
            };
            let scope = self.plan().scope.clone();
            let edits = [Edit::Freeze { scope }];
            if self.offer(&map, &edits, "the keys are frozen").await? == Offered::Published {
                return Ok(Some(freeze));
            }
        }
        Err(self.contended())
    }

    /// Until nothing older is under way, the seal is reached and both sides are the same.
    async fn behind_the_freeze(
        &mut self,
        way: &Way,
        frozen: Generation,
    ) -> Result<Behind, MoveError> {
        let poll = Duration::from_millis(self.config.limits.freeze_poll_ms);
        while self.behind(frozen).await?.is_some() {
            self.config.world.sleep(poll).await;
        }
        let seal = self.seal(way, frozen.next()).await?;
        // A pass that began after the seal: everything before it has arrived.
        loop {
            match self.pass_towards(way).await? {
                Fed::CaughtUp => break,
                Fed::Behind => {}
                Fed::Waits | Fed::Throttled { .. } => self.config.world.sleep(poll).await,
            }
        }
        let Some(comparing) = &mut self.work.comparing else {
            let why = "nothing was compared yet".to_owned();
            return Ok(Behind::Unproven { why });
        };
        Ok(match comparing.verifier.prove(&seal).await? {
            Ok(proof) if proof.is_for(&seal.position) => Behind::Proven { seal, proof },
            Ok(_) => Behind::Unproven {
                why: "the proof is for another seal".to_owned(),
            },
            Err(unproven) => Behind::Unproven {
                why: unproven.to_string(),
            },
        })
    }

    /// Behind it no router's write under an older map arrives. Where the store does not
    /// fence, every lease has acknowledged the freeze: the journal's end is the seal.
    async fn seal(&mut self, way: &Way, fenced_at: Generation) -> Result<Seal, MoveError> {
        let shard = self.sides(way).0.clone();
        let engine = self.engine(&shard)?;
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
                Err(error) => return Err(self.of_shard(&shard, error)),
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
            scope: plan.scope.clone(),
            generation,
        };
        let term = self.tenure.mover_term(&self.work.held);
        engine
            .raise_fence(fence, term, self.config.world.now())
            .await
    }

    async fn give_away(
        &mut self,
        way: &Way,
        freeze: Freeze,
        seal: &Seal,
        proof: &Proof,
    ) -> Result<Pass, MoveError> {
        let (left_root, entered_root) = proof.roots();
        let budget = Duration::from_millis(self.plan().freeze_ms_max);
        for _ in 0..self.config.limits.publish_attempts_max {
            let map = self.load_map().await?;
            if !self.is_frozen(&map) {
                return self.give_up("the keys thawed", Some(freeze.began)).await;
            }
            let proven = Proven {
                generation: map.generation.next(),
                seal: seal.position.clone(),
                records: proof.records(),
                left_root: format!("{left_root:032x}"),
                entered_root: format!("{entered_root:032x}"),
                looked_again: proof.looked_again(),
                frozen_at_unix_us: freeze.began_at_unix_us,
                proven_at_unix_us: self.config.world.now().unix_micros(),
            };
            self.event(Event::Proven { proven }).await?;
            if self.since(freeze.began) > budget {
                let why = self.over_budget();
                return self.give_up(&why, Some(freeze.began)).await;
            }
            let scope = self.plan().scope.clone();
            let to = self.sides(way).1.clone();
            let edits = [
                Edit::Move {
                    scope: scope.clone(),
                    to,
                },
                Edit::Thaw { scope },
            ];
            match self.offer(&map, &edits, "the keys are moved").await {
                Ok(Offered::Published) => {
                    let freeze_ms = millis(self.since(freeze.began));
                    return self.arrive(Some(freeze_ms)).await;
                }
                Ok(Offered::Overtaken) => {}
                Err(error) => return self.fail(error).await,
            }
        }
        self.give_up(&self.contended().to_string(), Some(freeze.began))
            .await
    }

    /// The map gives the keys away: what is left is to say so.
    async fn arrive(&mut self, freeze_ms: Option<u64>) -> Result<Pass, MoveError> {
        let Phase::Frozen {
            way,
            noticed,
            generation,
            proven: Some(proven),
        } = self.phase().clone()
        else {
            return Err(MoveError::OutOfStep {
                phase: self.phase().name(),
                event: "a cutover without a proof".to_owned(),
            });
        };
        let certificate = Certificate::of(Content {
            name: self.config.name.clone(),
            direction: way.direction(),
            term: self.work.held.term,
            plan: self.plan().clone(),
            generations: Generations {
                barrier: way.barrier(),
                noticed,
                frozen: generation,
                published: proven.generation,
            },
            seal: proven.seal,
            back_from: way.back_from().clone(),
            records: proven.records,
            left_root: proven.left_root,
            entered_root: proven.entered_root,
            looked_again: proven.looked_again,
            freeze_ms,
            frozen_at_unix_us: proven.frozen_at_unix_us,
            proven_at_unix_us: proven.proven_at_unix_us,
        });
        certificate::keep(self.config.control.as_ref(), &certificate).await?;
        self.update(|state| {
            stepped(state, Event::CutOver)?;
            state.wish = None;
            state.shown.freeze_ms = freeze_ms;
            Ok(())
        })
        .await?;
        // The copy in this direction ends here, and the way back does more than rehearse.
        self.work.copied_before = self.work.held.state.shown.records_copied;
        self.work.copied_back_before = self.work.held.state.shown.records_copied_back;
        self.work.forward = None;
        self.work.back = None;
        self.work.comparing = None;
        let (name, freeze_ms) = (self.tenure.name(), freeze_ms.unwrap_or_default());
        tracing::info!(
            name,
            freeze_ms,
            phase = self.phase().name(),
            "a move has cut over"
        );
        Ok(Pass::Behind)
    }

    /// Nothing of the frozen time is known here but the record and the map: the cutover has happened or is given up.
    pub(super) async fn recover(&mut self, why: &str) -> Result<Pass, MoveError> {
        self.give_up(why, None).await
    }

    /// Who lost the move leaves the freeze to whoever has it now.
    async fn fail(&mut self, error: MoveError) -> Result<Pass, MoveError> {
        match (error, self.phase()) {
            (error @ MoveError::TermLost { .. }, _) => Err(error),
            (error, Phase::Frozen { .. }) => self.give_up(&error.to_string(), None).await,
            (error, _) => Err(error),
        }
    }

    /// Thaws what may be frozen. Publishes in any case: a freeze that was offered and not
    /// heard of could arrive afterwards, and stay (W20).
    async fn give_up(&mut self, why: &str, began: Option<Duration>) -> Result<Pass, MoveError> {
        for _ in 0..self.config.limits.publish_attempts_max {
            let map = self.load_map().await?;
            // Ours still, after the map was read.
            self.update(|_| Ok(())).await?;
            let Phase::Frozen { way, proven, .. } = self.phase().clone() else {
                return Ok(Pass::Behind);
            };
            if proven.is_some() && self.is_cut_over(&map, &way) {
                return self.arrive(None).await;
            }
            let scope = self.plan().scope.clone();
            let edits = match self.is_frozen(&map) {
                true => vec![Edit::Thaw { scope }],
                false => Vec::new(),
            };
            if self.offer(&map, &edits, "the cutover is given up").await? == Offered::Published {
                let freeze_ms = began.map(|began| millis(self.since(began)));
                let thawed = Some(map.generation.next());
                return self.step_back(why.to_owned(), thawed, freeze_ms).await;
            }
        }
        Err(self.contended())
    }

    /// Back to where the cutover was wished for, with the reason.
    async fn step_back(
        &mut self,
        why: String,
        generation: Option<Generation>,
        freeze_ms: Option<u64>,
    ) -> Result<Pass, MoveError> {
        let given_up = GivenUp {
            why: shortened(&why),
            generation,
            freeze_ms,
            at_unix_us: self.config.world.now().unix_micros(),
        };
        tracing::warn!(name = self.tenure.name(), why, "a cutover is given up");
        self.update(|state| {
            stepped(state, Event::GivenUp)?;
            state.wish = None;
            state.given_up = Some(given_up.clone());
            Ok(())
        })
        .await?;
        Ok(Pass::Behind)
    }

    /// The shard that is left, and the one that is entered.
    pub(super) fn sides(&self, way: &Way) -> (&ShardName, &ShardName) {
        let plan = self.plan();
        match way {
            Way::Forward { .. } => (&plan.source, &plan.target),
            Way::Back { .. } => (&plan.target, &plan.source),
        }
    }

    fn since(&self, began: Duration) -> Duration {
        self.config.world.elapsed().saturating_sub(began)
    }

    fn over_budget(&self) -> String {
        let freeze_ms_max = self.plan().freeze_ms_max;
        format!("the freeze took longer than its budget of {freeze_ms_max} ms")
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
