//! Whether the freeze would fit its budget, before it begins.

use std::time::Duration;

use router::Standing;

use super::{Pass, Runner, stepped};
use crate::error::MoveError;
use crate::forecast::{Forecast, Outlook};
use crate::phase::{Event, Way};
use crate::record::{GivenUp, shortened};

impl Runner<'_> {
    /// What the freeze would take now.
    pub(super) async fn foresee(&mut self, way: &Way) -> Result<Forecast, MoveError> {
        let seen = self.work.judge.look().await?;
        let live = seen.iter().filter(|lease| lease.standing == Standing::Live);
        let suspects = self
            .work
            .comparing
            .as_ref()
            .map_or(0, |it| it.verifier.open());
        let limits = &self.config.router_limits;
        let outlook = Outlook {
            fence: self.left(way.left())?.capabilities().fence,
            leases: live.count() as u64,
            notice_look_us: 1_000 * limits.notice_look_ms.min(limits.lease_look_ms),
            suspects: suspects as u64,
            looks_at_once: self.config.verifier_limits.looks_at_once_max as u64,
            now: self.config.world.elapsed(),
        };
        let forecast = self.work.measured.forecast(&outlook);
        self.work.forecast = Some(forecast);
        Ok(forecast)
    }

    pub(super) fn fits(&self, forecast: &Forecast) -> bool {
        let budget_us = self.plan().freeze_ms_max.saturating_mul(1_000);
        let percent = u64::from(self.config.limits.forecast_percent_max);
        forecast.total_us <= budget_us.saturating_mul(percent) / 100
    }

    /// Nothing is frozen, and the wish stands: it is tried again after a while.
    pub(super) async fn postpone(&mut self, forecast: &Forecast) -> Result<Pass, MoveError> {
        let why = format!(
            "the freeze would take about {} ms ({}), its budget is {} ms: it is tried again by itself, or asked for with another --freeze-ms-max",
            forecast.total_us / 1_000,
            forecast.parts,
            self.plan().freeze_ms_max
        );
        tracing::info!(name = self.tenure.name(), why, "a cutover is put off");
        let given_up = GivenUp {
            why: shortened(&why),
            generation: None,
            freeze_ms: None,
            at_unix_us: self.config.world.now().unix_micros(),
        };
        let pause = Duration::from_millis(self.config.limits.postpone_ms);
        self.work.postponed_until = self.config.world.elapsed() + pause;
        self.update(|state| {
            stepped(state, Event::GivenUp)?;
            state.given_up = Some(given_up.clone());
            Ok(())
        })
        .await?;
        Ok(Pass::Behind)
    }

    /// Whether a cutover that was put off may be tried again.
    pub(super) fn may_announce(&self) -> bool {
        self.config.world.elapsed() >= self.work.postponed_until
    }
}
