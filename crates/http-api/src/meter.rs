//! Counting requests by route, method and status, and their latency.
//!
//! A route gets its meter when it is built, so that a request touches three atomics
//! and looks nothing up. Prometheus reads them through collectors: `prometheus-client`
//! because a collector reads counters that exist anyway, where the `metrics` crate
//! would keep a second set behind a global recorder.

mod collect;
mod latency;
mod reads;

pub(crate) use collect::RouterCollector;
pub(crate) use latency::{BOUNDS_US, BUCKETS, Latency, quantile_us};
pub(crate) use reads::ReadsCollector;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::registry::Registry;

use crate::admission::{Admission, Class};

/// Methods that get figures of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeteredMethod {
    Get,
    Post,
    Put,
    Delete,
    Other,
}

/// Statuses that the interface has; whatever else comes counts as 0, which is none.
const STATUSES: [u16; 20] = [
    200,
    201,
    204,
    304,
    400,
    404,
    405,
    408,
    409,
    410,
    412,
    413,
    415,
    422,
    429,
    CLIENT_GONE,
    500,
    503,
    504,
    0,
];

/// The client closed the connection before its answer was ready.
pub(crate) const CLIENT_GONE: u16 = 499;

#[derive(Debug, Default)]
pub(crate) struct Meters {
    routes: Mutex<Vec<Arc<RouteMeter>>>,
}

#[derive(Debug)]
pub(crate) struct RouteMeter {
    pub(crate) template: String,
    pub(crate) class: Class,
    methods: [MethodMeter; MeteredMethod::ALL.len()],
}

#[derive(Debug, Default)]
pub(crate) struct MethodMeter {
    statuses: [AtomicU64; STATUSES.len()],
    latency: Latency,
}

/// Sums over the shop's own routes, for the first page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) requests: u64,
    /// Answers that say the shop failed.
    pub(crate) errors: u64,
    pub(crate) orders_placed: u64,
    pub(crate) carts_changed: u64,
    pub(crate) latency: [u64; BUCKETS],
}

impl MeteredMethod {
    pub(crate) const ALL: [MeteredMethod; 5] = [
        MeteredMethod::Get,
        MeteredMethod::Post,
        MeteredMethod::Put,
        MeteredMethod::Delete,
        MeteredMethod::Other,
    ];

    pub(crate) fn of(method: &Method) -> MeteredMethod {
        match *method {
            Method::GET => MeteredMethod::Get,
            Method::POST => MeteredMethod::Post,
            Method::PUT => MeteredMethod::Put,
            Method::DELETE => MeteredMethod::Delete,
            _ => MeteredMethod::Other,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            MeteredMethod::Get => "GET",
            MeteredMethod::Post => "POST",
            MeteredMethod::Put => "PUT",
            MeteredMethod::Delete => "DELETE",
            MeteredMethod::Other => "other",
        }
    }
}

impl Meters {
    pub(crate) fn add(&self, template: &str, class: Class) -> Arc<RouteMeter> {
        let meter = Arc::new(RouteMeter {
            template: template.to_owned(),
            class,
            methods: Default::default(),
        });
        self.lock().push(meter.clone());
        meter
    }

    pub(crate) fn register(self: &Arc<Meters>, registry: &mut Registry, admission: Arc<Admission>) {
        let meters = self.clone();
        registry.register_collector(Box::new(collect::HttpCollector { meters, admission }));
    }

    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for route in self.lock().iter() {
            if route.class == Class::Operator {
                continue;
            }
            for (method, meter) in route.methods() {
                for (status, count) in meter.counts() {
                    totals.add(route, method, status, count);
                }
                meter.latency.add_to(&mut totals.latency);
            }
        }
        totals
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<RouteMeter>>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    fn add(&mut self, route: &RouteMeter, method: MeteredMethod, status: u16, count: u64) {
        self.requests += count;
        let succeeded = (200..300).contains(&status);
        let changes = method != MeteredMethod::Get && method != MeteredMethod::Other;
        if status >= 500 {
            self.errors += count;
        }
        if route.template == "/v1/orders" && method == MeteredMethod::Post && status == 201 {
            self.orders_placed += count;
        }
        if route.template.starts_with("/v1/carts") && changes && succeeded {
            self.carts_changed += count;
        }
    }
}

impl RouteMeter {
    pub(crate) fn count(&self, method: MeteredMethod, status: StatusCode, took: Duration) {
        let meter = &self.methods[method as usize];
        meter.statuses[status_index(status.as_u16())].fetch_add(1, Ordering::Relaxed);
        meter.latency.record(took);
    }

    /// A request that nobody waits for any more has no latency.
    pub(crate) fn count_gone(&self, method: MeteredMethod) {
        let meter = &self.methods[method as usize];
        meter.statuses[status_index(CLIENT_GONE)].fetch_add(1, Ordering::Relaxed);
    }

    fn methods(&self) -> impl Iterator<Item = (MeteredMethod, &MethodMeter)> {
        MeteredMethod::ALL.into_iter().zip(&self.methods)
    }
}

impl MethodMeter {
    /// Statuses that were answered at least once.
    fn counts(&self) -> impl Iterator<Item = (u16, u64)> {
        STATUSES
            .into_iter()
            .zip(&self.statuses)
            .map(|(status, count)| (status, count.load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
    }
}

fn status_index(status: u16) -> usize {
    STATUSES
        .iter()
        .position(|known| *known == status)
        .unwrap_or(STATUSES.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_count_the_shop_and_not_its_operator() {
        let meters = Meters::default();
        let orders = meters.add("/v1/orders", Class::Checkout);
        let items = meters.add("/v1/carts/{cart_id}/items/{product_id}", Class::Carts);
        let health = meters.add("/health/live", Class::Operator);
        let took = Duration::from_micros(900);
        orders.count(MeteredMethod::Post, StatusCode::CREATED, took);
        orders.count(MeteredMethod::Post, StatusCode::OK, took);
        orders.count(MeteredMethod::Get, StatusCode::SERVICE_UNAVAILABLE, took);
        items.count(MeteredMethod::Put, StatusCode::OK, took);
        items.count(MeteredMethod::Put, StatusCode::NOT_FOUND, took);
        items.count_gone(MeteredMethod::Put);
        items.count(MeteredMethod::Put, StatusCode::IM_A_TEAPOT, took);
        health.count(MeteredMethod::Get, StatusCode::OK, took);
        let totals = meters.totals();
        assert_eq!((totals.requests, totals.errors), (7, 1));
        assert_eq!((totals.orders_placed, totals.carts_changed), (1, 1));
        assert_eq!(totals.latency.iter().sum::<u64>(), 6);
    }
}
