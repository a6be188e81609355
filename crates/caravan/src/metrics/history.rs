//! The order history: how far behind its feeds are, and what they have moved.

use std::fmt;
use std::sync::Arc;

use engine_api::World;
use feed::{Counter, FeedCounts};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use router::ShardName;

type OfFeed = fn(&FeedCounts) -> &Counter;

const COUNTERS: [(&str, &str, OfFeed); 8] = [
    (
        "caravan_history_entries",
        "Journal entries that the history is done with",
        |counts| &counts.entries,
    ),
    (
        "caravan_history_applied",
        "Finished orders given to the history, repeats included",
        |counts| &counts.applied,
    ),
    (
        "caravan_history_archived",
        "Finished orders removed from the live ones",
        |counts| &counts.removed,
    ),
    (
        "caravan_history_rebuilds",
        "Times everything was looked at anew",
        |counts| &counts.rebuilds,
    ),
    (
        "caravan_history_positions_lost",
        "Times the journal no longer reached back",
        |counts| &counts.positions_lost,
    ),
    (
        "caravan_history_passes_failed",
        "Passes that failed",
        |counts| &counts.passes_failed,
    ),
    (
        "caravan_history_never_shown",
        "Journal entries whose change never showed",
        |counts| &counts.never_shown,
    ),
    (
        "caravan_history_terms",
        "Times this process took the history over",
        |counts| &counts.terms_claimed,
    ),
];

const GAUGES: [(&str, &str, OfFeed); 3] = [
    (
        "caravan_history_holding",
        "1 while this process feeds the history",
        |counts| &counts.holding,
    ),
    (
        "caravan_history_lag_entries",
        "Journal entries read and not done",
        |counts| &counts.lag_entries,
    ),
    (
        "caravan_history_lost",
        "1 while the position is lost and a rebuild has to be asked for",
        |counts| &counts.lost,
    ),
];

pub fn encode(
    feeds: &[(ShardName, Arc<FeedCounts>)],
    world: &dyn World,
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    if feeds.is_empty() {
        return Ok(());
    }
    for (name, help, of_feed) in COUNTERS {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (shard, counts) in feeds {
            let count = of_feed(counts).value();
            family
                .encode_family(&[("shard", shard.as_str())])?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    for (name, help, of_feed) in GAUGES {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (shard, counts) in feeds {
            let value = of_feed(counts).value() as f64;
            family
                .encode_family(&[("shard", shard.as_str())])?
                .encode_gauge(&value)?;
        }
    }
    let help = "Age of the moment up to which every finished order has gone over";
    let name = "caravan_history_lag_seconds";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (shard, counts) in feeds {
        // A process that only watches does not know.
        let Some(done_before) = counts.done_before() else {
            continue;
        };
        let lag_us = world.now().unix_micros() - done_before.unix_micros();
        family
            .encode_family(&[("shard", shard.as_str())])?
            .encode_gauge(&(lag_us.max(0) as f64 / 1e6))?;
    }
    Ok(())
}
