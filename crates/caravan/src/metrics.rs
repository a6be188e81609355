//! What Prometheus reads about engines, sweeper, upkeep, search, the order history and moves. The figures of
//! HTTP and of the router are registered where they are counted.

mod history;
mod moves;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine_api::World;
use engine_embedded::EmbeddedEngine;
use feed::FeedCounts;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use router::ShardName;
use search::{Counts, ProductIndex};

use crate::metered::{BOUNDS_US, Metered};
use crate::shards::OpenShards;

pub use moves::MoveFigures;

/// Counted by the tasks beside the requests.
#[derive(Debug, Default)]
pub struct TaskCounts {
    pub sweeps_failed: AtomicU64,
    pub orders_finished: AtomicU64,
    pub orders_aborted: AtomicU64,
    pub orders_failed: AtomicU64,
    pub upkeep_failed: AtomicU64,
    pub expired_collected: AtomicU64,
    pub marks_forgotten: AtomicU64,
    pub journal_trimmed: AtomicU64,
}

/// Everything that is read at a scrape; nothing is counted twice.
#[derive(Debug)]
pub struct Figures {
    pub shards: OpenShards,
    pub tasks: Arc<TaskCounts>,
    pub search: Arc<Counts>,
    pub index: Arc<ProductIndex>,
    /// What feeds the order history, by the shard that it comes from.
    pub history: Vec<(ShardName, Arc<FeedCounts>)>,
    pub moves: Arc<MoveFigures>,
    pub world: Arc<dyn World>,
}

/// The shards as they are at one scrape.
type Open = BTreeMap<ShardName, Arc<Metered>>;

/// A figure of each shard in this process: name, help and where it stands.
type EmbeddedFigure = (&'static str, &'static str, fn(&EmbeddedEngine) -> u64);

const EMBEDDED_COUNTERS: [EmbeddedFigure; 2] = [
    (
        "caravan_engine_commits",
        "Durable commits, each of all requests that waited",
        |engine| engine.commit_counts().commits.load(Ordering::Relaxed),
    ),
    (
        "caravan_engine_commit_requests",
        "Requests in these commits: divided by the commits, the size of a batch",
        |engine| engine.commit_counts().requests.load(Ordering::Relaxed),
    ),
];

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let shards = self.shards.all();
        encode_latency(&shards, &mut encoder)?;
        encode_failures(&shards, &mut encoder)?;
        encode_embedded(&shards, &mut encoder)?;
        self.encode_tasks(&mut encoder)?;
        self.encode_search(&mut encoder)?;
        self.moves.encode(&mut encoder)?;
        history::encode(&self.history, self.world.as_ref(), &mut encoder)
    }
}

impl Figures {
    fn encode_tasks(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let tasks = &self.tasks;
        let figures = [
            (
                "caravan_sweeper_orders_finished",
                "Orders whose stock and cart the sweeper brought in line",
                &tasks.orders_finished,
            ),
            (
                "caravan_sweeper_orders_aborted",
                "Orders that the sweeper gave up before they counted",
                &tasks.orders_aborted,
            ),
            (
                "caravan_sweeper_orders_failed",
                "Orders that the sweeper could not settle",
                &tasks.orders_failed,
            ),
            (
                "caravan_sweeper_passes_failed",
                "Passes of the sweeper that failed as a whole",
                &tasks.sweeps_failed,
            ),
            (
                "caravan_upkeep_failed",
                "Rounds of upkeep that a shard refused",
                &tasks.upkeep_failed,
            ),
            (
                "caravan_upkeep_expired",
                "Expired records collected",
                &tasks.expired_collected,
            ),
            (
                "caravan_upkeep_marks",
                "Marks of removed records and parts forgotten",
                &tasks.marks_forgotten,
            ),
            (
                "caravan_upkeep_journal_entries",
                "Journal entries trimmed",
                &tasks.journal_trimmed,
            ),
        ];
        figures.into_iter().try_for_each(|(name, help, count)| {
            counter(encoder, name, help, count.load(Ordering::Relaxed))
        })
    }

    fn encode_search(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let counts = &self.search;
        let figures = [
            (
                "caravan_search_entries",
                "Journal entries read",
                &counts.entries,
            ),
            (
                "caravan_search_products_put",
                "Products put into the index",
                &counts.products_put,
            ),
            (
                "caravan_search_products_removed",
                "Products taken out of the index",
                &counts.products_removed,
            ),
            (
                "caravan_search_rebuilds",
                "Times the index was built",
                &counts.rebuilds,
            ),
            (
                "caravan_search_passes_failed",
                "Passes of the follower that failed",
                &counts.passes_failed,
            ),
            (
                "caravan_search_unreadable",
                "Product records left out of the index",
                &counts.unreadable,
            ),
        ];
        for (name, help, count) in figures {
            counter(encoder, name, help, count.value())?;
        }
        gauge(
            encoder,
            "caravan_search_products",
            "Products in the index",
            self.index.products() as f64,
        )?;
        gauge(
            encoder,
            "caravan_search_waiting",
            "Changes that the owner does not show yet",
            counts.waiting.value() as f64,
        )?;
        // Before the first pass there is no lag to state.
        let Some(caught_up_at) = counts.caught_up_at() else {
            return Ok(());
        };
        let lag_us = self.world.now().unix_micros() - caught_up_at.unix_micros();
        gauge(
            encoder,
            "caravan_search_lag_seconds",
            "Age of the moment up to which every change can be found",
            lag_us.max(0) as f64 / 1e6,
        )
    }
}

fn encode_latency(shards: &Open, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let mut family = encoder.encode_descriptor(
        "caravan_engine_operation_seconds",
        "Time an engine took to answer",
        None,
        MetricType::Histogram,
    )?;
    for (shard, metered) in shards {
        for (operation, meter) in metered.meters() {
            let counts = meter.counts();
            let all: u64 = counts.iter().sum();
            if all == 0 {
                continue;
            }
            let bounds = BOUNDS_US.iter().map(|us| f64::from(*us) / 1e6);
            let bounds = bounds.chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            let labels = [("shard", shard.as_str()), ("operation", operation.name())];
            family
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(meter.sum_s(), all, &buckets, None)?;
        }
    }
    Ok(())
}

fn encode_failures(shards: &Open, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let mut family = encoder.encode_descriptor(
        "caravan_engine_operation_failures",
        "Operations that an engine answered with an error",
        None,
        MetricType::Counter,
    )?;
    for (shard, metered) in shards {
        for (operation, meter) in metered.meters() {
            let failures = meter.failures.load(Ordering::Relaxed);
            if failures > 0 {
                let labels = [("shard", shard.as_str()), ("operation", operation.name())];
                family
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&failures, None)?;
            }
        }
    }
    Ok(())
}

fn encode_embedded(shards: &Open, encoder: &mut DescriptorEncoder) -> fmt::Result {
    for (name, help, count) in EMBEDDED_COUNTERS {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (shard, engine) in embedded(shards) {
            family
                .encode_family(&[("shard", shard.as_str())])?
                .encode_counter::<NoLabelSet, _, u64>(&count(engine), None)?;
        }
    }
    let mut family = encoder.encode_descriptor(
        "caravan_engine_journal_entries",
        "Journal entries written and not yet trimmed",
        None,
        MetricType::Gauge,
    )?;
    for (shard, engine) in embedded(shards) {
        family
            .encode_family(&[("shard", shard.as_str())])?
            .encode_gauge(&engine.journal_entries())?;
    }
    Ok(())
}

fn embedded(shards: &Open) -> impl Iterator<Item = (&ShardName, &EmbeddedEngine)> {
    let shards = shards.iter();
    shards.filter_map(|(shard, metered)| Some((shard, metered.as_embedded()?)))
}

fn counter(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: u64) -> fmt::Result {
    encoder
        .encode_descriptor(name, help, None, MetricType::Counter)?
        .encode_counter::<NoLabelSet, _, u64>(&value, None)
}

fn gauge(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: f64) -> fmt::Result {
    encoder
        .encode_descriptor(name, help, None, MetricType::Gauge)?
        .encode_gauge(&value)
}
