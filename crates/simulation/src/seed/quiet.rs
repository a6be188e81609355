//! The end: faults are over, what is under way arrives, and the last things are done.

use std::sync::Arc;
use std::time::Duration;

use mover::{Direction, certificate};
use shop_service::Swept;
use tokio::time::sleep;

use super::Stage;
use crate::moving::bring_to_rest;
use crate::serving::Moving;
use crate::visitor::Visitor;

/// How long late deliveries are waited for.
const QUIET_LOOKS_MAX: u64 = 10_000;
/// Of different lengths, or they could keep step with the renewals of a lease.
const QUIET_LOOK_MS_LEAST: u64 = 17;
const QUIET_LOOK_MS_SPREAD: u64 = 7;
/// Longer than a sweeper's patience and all that clocks can differ.
const UNTIL_ALL_IS_OLD: Duration = Duration::from_secs(3);
const LAST_SWEEPS_MAX: u32 = 20;
const LAST_ARCHIVINGS_MAX: u32 = 1_000;

impl Stage {
    /// Every move gets on now. What they came to is looked at behind the link.
    pub(super) async fn end_moves(&self) {
        if self.moving == Moving::HandMade {
            return;
        }
        let chance = self.chance.stream("last wishes");
        bring_to_rest(self.control.as_ref(), &self.recording, chance).await;
        let processes = self.hall.processes.iter();
        processes.for_each(|process| process.stop_movers());
        let moves = mover::list(self.control.behind()).await;
        let moves = moves.expect("the memory engine answers");
        for (name, _) in moves {
            for direction in [Direction::Cutover, Direction::Rollback] {
                match certificate(self.control.behind(), &name, direction).await {
                    Ok(found) => self
                        .recording
                        .with(|history| history.certificates.extend(found)),
                    Err(error) => self.recording.breach(error),
                }
            }
        }
    }

    pub(super) async fn wait_for_late_deliveries(&self) {
        for look in 0..QUIET_LOOKS_MAX {
            if self.links().all(|link| link.deliveries_under_way() == 0) {
                self.recording.note("all is quiet");
                return;
            }
            let pause_ms = QUIET_LOOK_MS_LEAST + look % QUIET_LOOK_MS_SPREAD;
            sleep(Duration::from_millis(pause_ms)).await;
        }
        self.recording.breach("the world does not come to rest");
    }

    /// Sweeps until nothing is left to do, and no sweeper after that.
    pub(super) async fn sweep_up(&self) {
        sleep(UNTIL_ALL_IS_OLD).await;
        let process = &self.hall.processes[0];
        for _ in 0..LAST_SWEEPS_MAX {
            let swept = process.ask(|shop| async move { shop.sweep().await }).await;
            let Some(swept) = swept else { break };
            self.recording.swept(0, &swept);
            if swept == Ok(Swept::default()) {
                return;
            }
        }
        self.recording.breach("the sweepers find no end");
    }

    /// Archives until nothing is left to do, and looks at every order once more.
    pub(super) async fn archive_up(&self) {
        if self.servers.archive.is_none() {
            return;
        }
        sleep(UNTIL_ALL_IS_OLD).await;
        let process = &self.hall.processes[0];
        process.archive_up(LAST_ARCHIVINGS_MAX).await;
        let chance = self.chance.stream("looking back");
        let reader = Visitor::new(self.company.visitors + 1, Arc::clone(&self.hall), chance);
        reader.look_back().await;
    }
}
