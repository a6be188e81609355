//! The movers of one process: it looks at the list now and then and stands by for each move that has not ended.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine_api::World;
use mover::{MoveName, Mover, MoverConfig, list_unless};
use router::Router;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::fickle::{Befell, fickle};
use crate::chance::Chance;
use crate::pausing::Pause;
use crate::serving::Site;

/// How soon a move that was started is seen.
const LOOK_EVERY: Duration = Duration::from_millis(140);
/// Lives of a mover in which something befalls it, while faults last.
const FICKLE_PERCENT: u64 = 50;
/// Lives that are ended in peace, as when a process is replaced by a newer one.
const STOPPED_PERCENT: u64 = 15;
const STOPPED_AFTER_MS_MAX: u64 = 1_500;

/// One life of a process, as far as moves go.
#[derive(Debug)]
pub struct StandingBy {
    pub process: usize,
    pub site: Arc<Site>,
    pub router: Arc<Router>,
    pub world: Arc<dyn World>,
    pub pause: Pause,
    pub chance: Chance,
}

impl StandingBy {
    /// Until it is dropped, and its movers with it.
    pub async fn run(mut self) {
        let (mut ended, mut running) = (BTreeSet::new(), BTreeSet::new());
        let mut movers: JoinSet<MoveName> = JoinSet::new();
        loop {
            while let Some(left) = movers.try_join_next() {
                match left {
                    Ok(name) => drop(running.remove(&name)),
                    Err(error) => {
                        let what = format!("a mover of process {} broke: {error}", self.process);
                        self.site.recording.breach(what);
                    }
                }
            }
            let control = self.site.control.as_ref();
            // A list that cannot be read now is read later.
            let moves = list_unless(control, |name| ended.contains(name)).await;
            for (name, record) in moves.unwrap_or_default() {
                let Some(record) = record else { continue };
                if record.state.phase.is_over() {
                    ended.insert(name);
                } else if running.insert(name.clone()) {
                    let pause = self.pause.clone();
                    movers.spawn(pause.over(self.stand_by(name)));
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn stand_by(&mut self, name: MoveName) -> impl Future<Output = MoveName> + Send + use<> {
        let (process, site) = (self.process, Arc::clone(&self.site));
        let mover = Mover::new(self.config(&name)).expect("the limits hold");
        let mut chance = self.chance.stream(name.as_str());
        // Another life, other draws.
        self.chance.number();
        let stopped_after = match chance.percent(STOPPED_PERCENT) {
            true => Some(Duration::from_millis(chance.below(STOPPED_AFTER_MS_MAX))),
            false => None,
        };
        let stop = async move {
            match stopped_after {
                Some(after) => sleep(after).await,
                None => std::future::pending().await,
            }
        };
        async move {
            if !chance.percent(FICKLE_PERCENT) {
                mover.run(stop).await;
                return name;
            }
            let befalls = |befell| {
                let recording = &site.recording;
                recording.note(format!(
                    "the mover of {name} at process {process}: {befell:?}"
                ));
                recording.with(|history| match befell {
                    Befell::Killed => history.moving.killed += 1,
                    Befell::StoodStill => history.moving.stood_still += 1,
                });
            };
            let is_calm = || site.is_calm.load(Ordering::Relaxed);
            fickle(mover.run(stop), chance, is_calm, befalls).await;
            name
        }
    }

    fn config(&self, name: &MoveName) -> MoverConfig {
        let site = &self.site;
        MoverConfig {
            name: name.clone(),
            shards: site.shards.clone(),
            control: Arc::clone(&site.control),
            world: Arc::clone(&self.world),
            router: Some(Arc::clone(&self.router)),
            // Its requests are not measured.
            pressure: None,
            // Records of the simulation are judged by its own checks.
            invariants: None,
            limits: mover::Limits {
                poll_ms: 30,
                retry_ms_max: 60,
                renew_ms: 60,
                take_over_ms: 250,
                // Freezes that do not fit their budget are begun all the same, and given up.
                forecast_percent_max: 100_000,
                clean_grace_ms: 200,
                clean_records_max: 3,
                ..mover::Limits::default()
            },
            feed_limits: feed::Limits {
                page_entries_max: 5,
                scan_records_max: 3,
                records_at_once_max: 3,
                poll_ms: 10,
                ..feed::Limits::default()
            },
            verifier_limits: verifier::Limits {
                scan_records_max: 4,
                scan_pages_max: 2,
                journal_entries_max: 8,
                // Unequal buckets are named in turns.
                keys_at_once_max: 3,
                lag_ms_max: 100,
                ..verifier::Limits::default()
            },
            router_limits: site.limits.clone(),
        }
    }
}
