//! Health, for load balancers and for people.
//!
//! A shard that does not answer takes its collections down, not the whole process:
//! then the answer says `degraded`, names them, and stays 200, or a load balancer would
//! turn one dead shard into a dead shop. So does overload: a process that is taken away
//! because it has too much to do leaves that to the others.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures::future::join_all;
use layout::Collection;
use router::{LeaseState, Map, ShardName};
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::admission::Class;
use crate::answer;
use crate::app::App;
use crate::problem::Problem;

/// How long a shard may take to answer.
const PROBE_MS_MAX: u64 = 1_000;

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
    /// What is refused now, wholly or in part, because too much is asked.
    shedding: Vec<&'static str>,
    checks: Vec<Check>,
    /// What this process would have to do and cannot: shards that it does not get open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    troubles: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Readiness {
    Ready,
    /// Some collections, or some shards of them, do not answer, or there are troubles.
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
    /// Whether all of its shards do.
    answers: bool,
    /// The shards that do not.
    down: Vec<String>,
    #[serde(skip)]
    shards: usize,
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
    let map = app.shop.router().map();
    let checks: Vec<Check> =
        join_all(Collection::ALL.map(|collection| check(&app, &map, collection))).await;
    let all_down = checks.iter().all(|check| check.down.len() == check.shards);
    let lease = app.shop.router().lease().map(|lease| match lease {
        LeaseState::Runs { .. } => Lease::Runs,
        LeaseState::RanOut => Lease::RanOut,
    });
    let troubles = app.troubles.as_ref().map(|known| known.troubles());
    let troubles = troubles.unwrap_or_default();
    let status = if app.is_draining() {
        Readiness::Draining
    } else if all_down || lease == Some(Lease::RanOut) {
        Readiness::Down
    } else if !troubles.is_empty() || checks.iter().any(|check| !check.answers) {
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
        generation: map.generation.0,
        lease,
        shedding: app.admission.shedding().map(Class::name).collect(),
        checks,
        troubles,
    };
    answer::json(code, &body)
}

async fn check(app: &App, map: &Map, collection: Collection) -> Check {
    let shards = map.collection(collection).map(|map| map.shards());
    let shards: Vec<&ShardName> = shards.unwrap_or_default().into_iter().collect();
    let asked = shards
        .iter()
        .map(|shard| answers(app, map, collection, shard));
    let answers = join_all(asked).await;
    let down = shards
        .iter()
        .zip(&answers)
        .filter(|(_, answers)| !**answers);
    let down: Vec<String> = down.map(|(shard, _)| shard.to_string()).collect();
    Check {
        collection: collection.name(),
        // A collection that the map does not have is nowhere.
        answers: down.is_empty() && !shards.is_empty(),
        down,
        shards: shards.len(),
    }
}

async fn answers(app: &App, map: &Map, collection: Collection, shard: &ShardName) -> bool {
    let probe = app.shop.router().probe(map, collection, shard);
    match timeout(Duration::from_millis(PROBE_MS_MAX), probe).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(%collection, %error, "a shard does not answer");
            false
        }
        Err(_) => {
            let after_ms = PROBE_MS_MAX;
            tracing::warn!(%collection, %shard, after_ms, "a shard is silent");
            false
        }
    }
}
