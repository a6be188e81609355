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

use std::sync::Arc;
use std::time::Duration;

use engine_api::{Generation, Seal};
use router::Edit;
use verifier::Proof;

use super::comparing::{Compared, Rest};
use super::copying::Fed;
use super::freezing::{Freeze, Stopped, micros};
use super::publishing::Offered;
use super::{Pass, Runner, stepped};
use crate::certificate::{self, Certificate, Content, Generations};
use crate::error::MoveError;
use crate::freeze::FreezeParts;
use crate::phase::{Event, Phase, Proven, Way};
use crate::plan::End;
use crate::record::{GivenUp, shortened};
use crate::stall::Stall;

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
        let forecast = self.foresee(way).await?;
        match (fed, compared) {
            (fed, Compared::Same) if self.is_near(fed) => {
                if !self.is_fresh(notice) {
                    return self.announce("a cutover is still near").await;
                }
                match self.fits(&forecast) {
                    true => self.cut_over(way).await,
                    false => self.postpone(&forecast).await,
                }
            }
            (Fed::Behind, _) | (_, Compared::Open { rest: Rest::Scans }) => Ok(Pass::Behind),
            _ => Ok(self.waiting()),
        }
    }

    async fn cut_over(&mut self, way: &Way) -> Result<Pass, MoveError> {
        let freeze = match self.freeze(way).await {
            Ok(Some(freeze)) => freeze,
            Ok(None) => {
                let why = "the map no longer gives the keys to where the plan has them".to_owned();
                return self.step_back(why, None, None).await;
            }
            Err(error) => return self.fail(error).await,
        };
        let budget = Duration::from_millis(self.plan().freeze_ms_max);
        let world = self.config.world.clone();
        let left = budget.saturating_sub(world.elapsed().saturating_sub(freeze.began));
        let behind = tokio::select! {
            biased;
            behind = self.behind_the_freeze(way, &freeze) => behind,
            () = world.sleep(left) => Err(Stopped::Unproven { why: self.over_budget() }),
        };
        self.work.freeze_parts.leases_us = freeze.leases_us.get().copied();
        let sealed = self.work.freeze_parts.seal_us;
        self.work.measured.seal = sealed.map(|us| (us, world.elapsed()));
        match behind {
            Ok((seal, proof)) => self.give_away(way, freeze, &seal, &proof).await,
            Err(Stopped::Unproven { why }) => self.give_up(&why, Some(freeze.began)).await,
            Err(Stopped::Failed(error)) => self.fail(error).await,
        }
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
        let mut map = freeze.map.clone();
        for _ in 0..self.config.limits.publish_attempts_max {
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
            let proven_at = self.config.world.elapsed();
            self.event(Event::Proven { proven }).await?;
            let saved_at = self.config.world.elapsed();
            self.work.freeze_parts.record_us = Some(micros(saved_at - proven_at));
            if self.since(freeze.began) > budget {
                let why = self.over_budget();
                return self.give_up(&why, Some(freeze.began)).await;
            }
            let edits = match way {
                Way::Forward { .. } => self.plan().giving_to(End::Target).into(),
                Way::Back { .. } => {
                    let before = &self.work.held.state.pinned_before;
                    before.giving_back(self.plan(), &map)
                }
            };
            let next = Arc::new(self.next_map(&map, &edits, "the keys are moved")?);
            match self.offer_at_once(&next).await {
                Ok(Offered::Published) => {
                    let freeze_ms = millis(self.since(freeze.began));
                    self.work.freeze_parts.give_us = Some(micros(self.since(saved_at)));
                    self.remember(&next).await;
                    let stall = self.gather_stalls(freeze.map.generation).await;
                    return self.arrive(Some((freeze_ms, stall))).await;
                }
                Ok(Offered::Overtaken) => map = self.load_map().await?,
                Err(error) => return self.fail(error).await,
            }
        }
        self.give_up(&self.contended().to_string(), Some(freeze.began))
            .await
    }

    /// The map gives the keys away: what is left is to say so.
    async fn arrive(&mut self, seen: Option<(u64, Stall)>) -> Result<Pass, MoveError> {
        let (freeze_ms, stall) = seen.unzip();
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
            freeze_parts: match freeze_ms {
                Some(_) => self.work.freeze_parts,
                None => FreezeParts::default(),
            },
            stall,
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
            let scope = self.plan().scope().clone();
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

    pub(super) fn since(&self, began: Duration) -> Duration {
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
