//! What Prometheus reads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use router::{Counter, Gate, LeaseState, Router, RouterCounts};

use super::Meters;
use super::latency::BOUNDS_US;
use crate::admission::Admission;

#[derive(Debug)]
pub(crate) struct HttpCollector {
    pub(crate) meters: Arc<Meters>,
    pub(crate) admission: Arc<Admission>,
}

#[derive(Debug)]
pub(crate) struct RouterCollector {
    router: Arc<Router>,
}

type RouterFigure = (&'static str, &'static str, fn(&RouterCounts) -> &Counter);

/// Each under the name of its counter.
macro_rules! router_figures {
    ($($counter:ident: $help:literal),+ $(,)?) => {
        [$((stringify!($counter), $help, |counts| &counts.$counter)),+]
    };
}

const ROUTER_FIGURES: [RouterFigure; 12] = router_figures![
    held: "Requests that had to wait for a map",
    holds_refused: "Requests refused because too many waited, or waited too long",
    fenced_retries: "Writes that went again because a fence stopped them",
    stale_retries: "Writes that proposed a higher revision",
    unavailable_retries: "Requests that went again because a shard did not answer",
    unknown_resends: "Writes sent again to learn what became of them",
    unknown_outcomes: "Writes whose outcome stayed unknown",
    reads_joined: "Reads that were answered by another's",
    rekeyed: "Requests whose key was made under another shard key",
    read_restarts: "Reads that went again because the map changed",
    listing_restarts: "Listings that started again because the map changed",
    out_of_time: "Requests that ended because their time was over before an attempt",
];

/// Upper bounds of the buckets of stalls; one more has none.
const STALL_BOUNDS_S: [f64; 11] = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];

type GateFigure = (&'static str, &'static str, fn(&Gate) -> &Counter);

const GATE_FIGURES: [GateFigure; 3] = [
    (
        "refused",
        "Requests refused because too many were under way on the shard",
        |gate| &gate.refused,
    ),
    ("retries", "Requests that went again to the shard", |gate| {
        &gate.retries
    }),
    (
        "retries_refused",
        "Requests that did not go again because the shard's budget was spent",
        |gate| &gate.retries_refused,
    ),
];

impl RouterCollector {
    pub(crate) fn new(router: Arc<Router>) -> RouterCollector {
        RouterCollector { router }
    }

    fn encode_gates(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "caravan_router_shard_requests",
            "Requests under way on the shard, or waiting there",
            None,
            MetricType::Gauge,
        )?;
        for (shard, gate) in self.router.gates() {
            let under_way = u64::try_from(gate.under_way()).unwrap_or(u64::MAX);
            family
                .encode_family(&[("shard", shard.as_str())])?
                .encode_gauge(&under_way)?;
        }
        for (name, help, counter) in GATE_FIGURES {
            let name = format!("caravan_router_shard_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
            for (shard, gate) in self.router.gates() {
                family
                    .encode_family(&[("shard", shard.as_str())])?
                    .encode_counter::<NoLabelSet, _, u64>(&counter(gate).value(), None)?;
            }
        }
        Ok(())
    }

    fn encode_stalls(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let waits = self.router.stalls();
        let mut buckets: Vec<(f64, u64)> = STALL_BOUNDS_S.map(|bound| (bound, 0)).to_vec();
        buckets.push((f64::INFINITY, 0));
        let mut sum_s = 0.0;
        for (us, count) in waits.by_length() {
            let length_s = Duration::from_micros(us).as_secs_f64();
            sum_s += length_s * count as f64;
            let bucket = buckets.iter_mut().find(|(bound, _)| length_s <= *bound);
            bucket.expect("the last has no bound").1 += count;
        }
        encoder
            .encode_descriptor(
                "caravan_router_stall_seconds",
                "How long requests were held for frozen keys, rounded up by an eighth at most",
                None,
                MetricType::Histogram,
            )?
            .encode_histogram::<NoLabelSet>(sum_s, waits.count(), &buckets, None)
    }

    /// Only where there is a lease.
    fn encode_lease(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let Some(lease) = self.router.lease() else {
            return Ok(());
        };
        encoder
            .encode_descriptor(
                "caravan_router_lease_runs",
                "1 while this process may serve, 0 when its lease has run out",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&i64::from(lease != LeaseState::RanOut))
    }
}

impl Collector for HttpCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        gauge(
            &mut encoder,
            "caravan_http_requests_in_flight",
            "Requests at work now",
            self.admission.in_flight(),
        )?;
        self.encode_admission(&mut encoder)?;
        self.encode_requests(&mut encoder)?;
        self.encode_latency(&mut encoder)
    }
}

impl HttpCollector {
    fn encode_admission(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        gauge(
            encoder,
            "caravan_http_shed_level",
            "0: all are let in; 1: no browsing; 2: no carts either; 3: nobody",
            self.admission.level(),
        )?;
        gauge(
            encoder,
            "caravan_http_queue_seconds",
            "How long requests wait at least before they are taken up",
            self.admission.late().as_secs_f64(),
        )?;
        let mut family = encoder.encode_descriptor(
            "caravan_http_refused",
            "Requests refused because too much was asked, by class",
            None,
            MetricType::Counter,
        )?;
        for (class, count) in self.admission.refused() {
            family
                .encode_family(&[("class", class.name())])?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }

    /// Only what was answered at least once: 30 routes times 20 statuses are mostly zeros.
    fn encode_requests(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "caravan_http_requests",
            "Requests by route, method and status",
            None,
            MetricType::Counter,
        )?;
        for route in self.meters.lock().iter() {
            for (method, meter) in route.methods() {
                for (status, count) in meter.counts() {
                    let status = status.to_string();
                    let labels = [
                        ("route", route.template.as_str()),
                        ("method", method.name()),
                        ("status", &status),
                    ];
                    family
                        .encode_family(&labels)?
                        .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
                }
            }
        }
        Ok(())
    }

    fn encode_latency(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "caravan_http_request_seconds",
            "Time from a request's head to its answer",
            None,
            MetricType::Histogram,
        )?;
        for route in self.meters.lock().iter() {
            for (method, meter) in route.methods() {
                let counts = meter.latency.counts();
                let all: u64 = counts.iter().sum();
                if all == 0 {
                    continue;
                }
                let bounds = BOUNDS_US
                    .iter()
                    .map(|us| f64::from(*us) / 1e6)
                    .chain([f64::INFINITY]);
                let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
                let labels = [
                    ("route", route.template.as_str()),
                    ("method", method.name()),
                ];
                family
                    .encode_family(&labels)?
                    .encode_histogram::<NoLabelSet>(meter.latency.sum_s(), all, &buckets, None)?;
            }
        }
        Ok(())
    }
}

impl Collector for RouterCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        gauge(
            &mut encoder,
            "caravan_router_map_generation",
            "Generation of the map served under",
            self.router.map().generation.0,
        )?;
        for (name, help, counter) in ROUTER_FIGURES {
            let value = counter(self.router.counts()).value();
            let name = format!("caravan_router_{name}");
            encoder
                .encode_descriptor(&name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        self.encode_gates(&mut encoder)?;
        self.encode_stalls(&mut encoder)?;
        self.encode_lease(&mut encoder)
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: impl EncodeGaugeValue,
) -> fmt::Result {
    encoder
        .encode_descriptor(name, help, None, MetricType::Gauge)?
        .encode_gauge(&value)
}
