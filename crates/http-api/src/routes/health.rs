//! Health, for load balancers and for people.
//!
//! A shard that does not answer takes its collections down, not the whole process:
//! then the answer says `degraded` and stays 200, or a load balancer would turn one
//! dead shard into a dead shop.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use model::{CartId, OrderId, ProductId, ShopperSessionId};
use router::LeaseState;
use serde::Serialize;
use shop_service::ShopError;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::answer;
use crate::app::App;
use crate::problem::Problem;

/// How long a collection may take to answer.
const PROBE_MS_MAX: u64 = 1_000;

/// An id that nothing has; asking for it costs one point read.
const PROBE_ID: &str = "readiness-probe";

#[derive(Serialize, ToSchema)]
pub(crate) struct Live {
    /// Always `live`.
    status: &'static str,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Ready {
    status: Readiness,
    /// The map served under.
    generation: u64,
    /// Where several processes serve: whether this one has the right to now.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<Lease>,
    checks: [Check; 4],
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Readiness {
    Ready,
    /// Some collections answer.
    Degraded,
    Draining,
    /// No collection answers, or the process has no lease.
    Down,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Lease {
    Runs,
    /// The process was stopped or cannot reach the control store. It comes back by itself.
    RanOut,
}

#[derive(Serialize, ToSchema)]
struct Check {
    collection: &'static str,
    answers: bool,
}

/// The process runs.
#[utoipa::path(
    get, path = "/health/live", tag = "operation",
    responses((status = 200, description = "It runs", body = Live)),
)]
pub(crate) async fn live() -> Result<Response, Problem> {
    answer::json(StatusCode::OK, &Live { status: "live" })
}

/// The process may be sent requests: it has a map, its collections answer, and it is
/// not draining.
#[utoipa::path(
    get, path = "/health/ready", tag = "operation",
    responses(
        (status = 200, description = "Send requests", body = Ready),
        (status = 503, description = "Send none", body = Ready),
    ),
)]
pub(crate) async fn ready(State(app): State<App>) -> Result<Response, Problem> {
    let checks = check_all(&app).await;
    let answering = checks.iter().filter(|check| check.answers).count();
    let lease = app.shop.router().lease().map(|lease| match lease {
        LeaseState::Runs { .. } => Lease::Runs,
        LeaseState::RanOut => Lease::RanOut,
    });
    let status = if app.is_draining() {
        Readiness::Draining
    } else if answering == 0 || lease == Some(Lease::RanOut) {
        Readiness::Down
    } else if answering < checks.len() {
        Readiness::Degraded
    } else {
        Readiness::Ready
    };
    let code = match status {
        Readiness::Ready | Readiness::Degraded => StatusCode::OK,
        Readiness::Draining | Readiness::Down => StatusCode::SERVICE_UNAVAILABLE,
    };
    let body = Ready {
        status,
        generation: app.shop.router().map().generation.0,
        lease,
        checks,
    };
    answer::json(code, &body)
}

async fn check_all(app: &App) -> [Check; 4] {
    let shop = &app.shop;
    let cart = CartId::parse(PROBE_ID).expect("the probe's id is an id");
    let order = OrderId::parse(PROBE_ID).expect("the probe's id is an id");
    let product = ProductId::parse(PROBE_ID).expect("the probe's id is an id");
    let session = ShopperSessionId::parse(PROBE_ID).expect("the probe's id is an id");
    let (carts, orders, products, sessions) = tokio::join!(
        check("carts", shop.cart(&cart)),
        check("orders", shop.order(&order, None)),
        check("products", shop.product(&product, None)),
        check("sessions", shop.session(&session)),
    );
    [carts, orders, products, sessions]
}

async fn check<T>(
    collection: &'static str,
    read: impl Future<Output = Result<T, ShopError>>,
) -> Check {
    let found = timeout(Duration::from_millis(PROBE_MS_MAX), read).await;
    let answers = match found {
        Ok(Ok(_) | Err(ShopError::NotFound { .. })) => true,
        Ok(Err(error)) => {
            tracing::warn!(collection, %error, "a collection does not answer");
            false
        }
        Err(_) => {
            tracing::warn!(
                collection,
                after_ms = PROBE_MS_MAX,
                "a collection is silent"
            );
            false
        }
    };
    Check {
        collection,
        answers,
    }
}
