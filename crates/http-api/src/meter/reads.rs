//! How the reads of clients were answered, for Prometheus.

use std::fmt;
use std::sync::Arc;

use layout::Operation;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use shop_service::{AGE_BOUNDS_MS, OperationReads, Shop};

#[derive(Debug)]
pub(crate) struct ReadsCollector {
    shop: Arc<Shop>,
}

/// What is counted of one operation under a second label.
type Counted = Vec<(&'static str, u64)>;

impl ReadsCollector {
    pub(crate) fn new(shop: Arc<Shop>) -> ReadsCollector {
        ReadsCollector { shop }
    }

    /// Each operation, under the name that layouts and requirements give it.
    fn operations(&self) -> impl Iterator<Item = (String, &OperationReads)> {
        let counts = self.shop.read_counts();
        let named = |operation: Operation| (format!("{operation:?}"), counts.of(operation));
        Operation::ALL.into_iter().map(named)
    }

    fn encode_counters(
        &self,
        encoder: &mut DescriptorEncoder,
        (name, help): (&str, &str),
        label: &str,
        counted: fn(&OperationReads) -> Counted,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (operation, reads) in self.operations() {
            for (value, count) in counted(reads) {
                family
                    .encode_family(&[("operation", operation.as_str()), (label, value)])?
                    .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        Ok(())
    }

    fn encode_ages(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "caravan_reads_staleness_seconds",
            "How old answers from copies that lag were at the most",
            None,
            MetricType::Histogram,
        )?;
        for (operation, reads) in self.operations() {
            let counts = reads.ages();
            let all: u64 = counts.iter().sum();
            if all == 0 {
                continue;
            }
            let bounds = AGE_BOUNDS_MS.iter().map(|ms| *ms as f64 / 1e3);
            let bounds = bounds.chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            family
                .encode_family(&[("operation", operation.as_str())])?
                .encode_histogram::<NoLabelSet>(
                    reads.age_sum().as_secs_f64(),
                    all,
                    &buckets,
                    None,
                )?;
        }
        Ok(())
    }
}

impl Collector for ReadsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.encode_counters(
            &mut encoder,
            (
                "caravan_reads",
                "Reads of clients by operation and by the level that answered",
            ),
            "level",
            |reads| reads.levels().collect(),
        )?;
        self.encode_counters(
            &mut encoder,
            (
                "caravan_reads_fallbacks",
                "Reads that might have lagged and were answered with the latest, by reason",
            ),
            "reason",
            |reads| reads.reasons().collect(),
        )?;
        self.encode_ages(&mut encoder)
    }
}
