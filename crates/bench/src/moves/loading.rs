//! The shipped mover and verifier, run by hand: how long a copy takes, and how long the comparison.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use engine_api::layout::{Collection, Field, Scope};
use engine_api::{ControlStore, Engine, RealWorld, World};
use mover::{MoveName, Moved, Mover, MoverConfig, Pass, Phase, Plan, Shards, feed_limits};
use router::{CollectionMap, Map, MapKeeper, ShardName};
use verifier::{Pair, Verifier, VerifierConfig};

/// A move or a comparison that takes longer is stuck.
const PATIENCE: Duration = Duration::from_secs(900);

/// All orders of one engine, to be moved to another.
#[derive(Clone, Debug)]
pub struct Course {
    pub source: Arc<dyn Engine>,
    pub target: Arc<dyn Engine>,
}

/// Records a second.
#[derive(Clone, Copy, Debug)]
pub struct Rate(pub f64);

impl Rate {
    pub fn of(records: u64, took: Duration) -> Rate {
        Rate(records as f64 / took.as_secs_f64())
    }
}

impl Course {
    /// The backfill of a move, whose record and map stand in `control`.
    pub async fn backfill(
        &self,
        control: Arc<dyn ControlStore>,
        records: u64,
    ) -> anyhow::Result<Rate> {
        let mut moving = self.begin(control).await?;
        moving
            .until(|phase| matches!(phase, Phase::Backfilling { .. }))
            .await?;
        let begun = Instant::now();
        moving
            .until(|phase| matches!(phase, Phase::CatchingUp { .. }))
            .await?;
        Ok(Rate::of(records, begun.elapsed()))
    }

    /// A move that waits for its first pass.
    pub async fn begin(&self, control: Arc<dyn ControlStore>) -> anyhow::Result<Moving> {
        let (source, target) = (ShardName::new("source")?, ShardName::new("target")?);
        let orders = CollectionMap::on_one_shard("bench", vec![Field::UserId], source.clone());
        let map = Map::first(BTreeMap::from([(Collection::Orders, orders)]));
        MapKeeper::new(control.clone()).publish(&map).await?;
        let shards: Shards = BTreeMap::from([
            (source.clone(), self.source.clone()),
            (target.clone(), self.target.clone()),
        ]);
        let plan = Plan {
            collection: Collection::Orders,
            moved: Moved::Keys {
                scope: Scope::All,
                source,
                target,
            },
            freeze_ms_max: mover::FREEZE_MS_DEFAULT,
        };
        let name = MoveName::new("bench")?;
        mover::start(&control, &shards, &name, &plan).await?;
        let mover = Mover::new(MoverConfig {
            name: name.clone(),
            shards,
            control: control.clone(),
            world: Arc::new(RealWorld::new()),
            router: None,
            pressure: None,
            limits: mover::Limits::default(),
            feed_limits: feed_limits(),
            verifier_limits: verifier::Limits::default(),
            router_limits: router::Limits::default(),
            invariants: None,
        })?;
        Ok(Moving {
            mover,
            control,
            name,
        })
    }

    /// A comparison of everything, with the copy standing still.
    pub async fn verify(&self, records: u64) -> anyhow::Result<Rate> {
        let begun = Instant::now();
        let mut verifier = Verifier::begin(VerifierConfig {
            pair: Pair {
                collection: Collection::Orders,
                scope: Scope::All,
                source: self.source.clone(),
                target: self.target.clone(),
            },
            world: Arc::new(RealWorld::new()),
            limits: verifier::Limits::default(),
            // The orders of this benchmark are no orders that a shop has made: it would complain of each.
            invariants: None,
        })
        .await?;
        while !verifier.is_watching() {
            ensure!(begun.elapsed() < PATIENCE, "a comparison does not end");
            verifier.pass().await?;
        }
        let rate = Rate::of(records, begun.elapsed());
        let differences = verifier.differences();
        ensure!(
            differences.is_empty() && verifier.open() == 0,
            "the copy differs: {differences:?}"
        );
        Ok(rate)
    }
}

/// A move and who works for it.
#[derive(Debug)]
pub struct Moving {
    mover: Mover,
    control: Arc<dyn ControlStore>,
    name: MoveName,
}

impl Moving {
    pub async fn until(&mut self, reached: impl Fn(&Phase) -> bool) -> anyhow::Result<()> {
        let (begun, world) = (Instant::now(), RealWorld::new());
        loop {
            let status = mover::status(self.control.as_ref(), &self.name).await?;
            if reached(&status.state.phase) {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "the move stands: {:?}",
                status.state.shown
            );
            match self
                .mover
                .pass()
                .await
                .context("the move does not get on")?
            {
                Pass::Behind => {}
                Pass::Waiting { ms } => world.sleep(Duration::from_millis(ms)).await,
                Pass::Watching | Pass::Ended => bail!("nobody works for the move any more"),
            }
        }
    }
}
