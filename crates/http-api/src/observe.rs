//! The one middleware: names, counts, limits and ends every request.
//!
//! One hand-written future around each route instead of a stack of layers, because
//! each layer would box and clone on a path that takes microseconds.

use std::any::Any;
use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tower_layer::Layer;
use tower_service::Service;

use crate::admission::{Class, Refused};
use crate::app::App;
use crate::meter::{MeteredMethod, RouteMeter};
use crate::problem::{Code, Problem};
use crate::request_id::{self, X_REQUEST_ID};

/// Who asks. Present only where clients have a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

#[derive(Clone, Debug)]
pub(crate) struct Observe(Arc<Route>);

/// A route with all that its requests need, behind one pointer.
#[derive(Debug)]
struct Route {
    app: App,
    meter: Arc<RouteMeter>,
}

#[derive(Clone, Debug)]
pub(crate) struct Observed<S> {
    route: Arc<Route>,
    inner: S,
}

pin_project! {
    pub(crate) struct Answering<F> {
        #[pin]
        inner: Option<F>,
        // Made when the request first has to wait, so that one answered at once pays nothing.
        #[pin]
        deadline: Option<Sleep>,
        refusal: Option<Problem>,
        watch: Watch,
    }
}

/// Counts the request as in flight until it is dropped.
struct Watch {
    route: Arc<Route>,
    method: MeteredMethod,
    started: Duration,
    client_id: Option<HeaderValue>,
    answered: bool,
}

impl Observe {
    pub(crate) fn new(app: &App, template: &str, class: Class) -> Observe {
        Observe(Arc::new(Route {
            app: app.clone(),
            meter: app.meters.add(template, class),
        }))
    }
}

impl<S> Layer<S> for Observe {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed {
            route: self.0.clone(),
            inner,
        }
    }
}

impl<S> Service<Request> for Observed<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Answering<S::Future> {
        let app = &self.route.app;
        let started = app.world.elapsed();
        let class = self.route.meter.class;
        let entered = app.admission.enter(class);
        let watch = Watch {
            route: self.route.clone(),
            method: MeteredMethod::of(request.method()),
            started,
            client_id: request_id::of_client(request.headers()),
            answered: false,
        };
        match self.route.admit(&request, entered, started) {
            Ok(()) => {
                request.extensions_mut().insert(class);
                Answering {
                    inner: Some(self.inner.call(request)),
                    deadline: None,
                    refusal: None,
                    watch,
                }
            }
            Err(refusal) => Answering {
                inner: None,
                deadline: None,
                refusal: Some(refusal),
                watch,
            },
        }
    }
}

impl Route {
    /// Before the body is read, and before anything is made of it.
    fn admit(
        &self,
        request: &Request,
        entered: Result<(), Refused>,
        now: Duration,
    ) -> Result<(), Problem> {
        if let Err(refused) = entered {
            let detail = match refused {
                Refused::AtWork => "too many requests are at work, wait as Retry-After says",
                Refused::Waiting => "requests wait too long here, wait as Retry-After says",
            };
            let seconds = self.meter.class.retry_after_s();
            return Err(Problem::new(Code::Overloaded, detail).retry_after_s(seconds));
        }
        if let Some(clients) = &self.app.clients
            && self.meter.class != Class::Operator
            && let Some(Peer(peer)) = request.extensions().get()
            && let Err(wait) = clients.admit(*peer, now)
        {
            let seconds = wait.as_secs_f64().ceil().max(1.0) as u32;
            let detail = format!("this address asks above its rate, wait {seconds} s");
            return Err(Problem::new(Code::TooManyRequests, detail).retry_after_s(seconds));
        }
        Ok(())
    }
}

impl<F> Future for Answering<F>
where
    F: Future<Output = Result<Response, Infallible>>,
{
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let response = match (this.inner.as_pin_mut(), this.refusal.take()) {
            (_, Some(refusal)) => refusal.into_response(),
            (None, None) => unreachable!("a request is either let in or refused"),
            // A handler that panics leaves nothing behind that others would meet: the
            // shop's state is in the engines, behind whole commits.
            (Some(inner), None) => match catch_unwind(AssertUnwindSafe(|| inner.poll(cx))) {
                Ok(Poll::Ready(Ok(response))) => response,
                Ok(Poll::Pending) => {
                    if this.deadline.is_none() {
                        let left = this.watch.time_left();
                        this.deadline.set(Some(sleep(left)));
                    }
                    let deadline = this.deadline.as_mut().as_pin_mut();
                    ready!(deadline.expect("it was set just now").poll(cx));
                    let detail = "the shop took too long, read back before you decide";
                    Problem::new(Code::DeadlineExceeded, detail).into_response()
                }
                Err(panic) => Problem::internal(panic_text(&*panic)).into_response(),
            },
        };
        Poll::Ready(Ok(this.watch.finish(response)))
    }
}

impl Watch {
    fn took(&self) -> Duration {
        let elapsed = self.route.app.world.elapsed();
        elapsed.saturating_sub(self.started)
    }

    fn time_left(&self) -> Duration {
        self.route.app.limits.request().saturating_sub(self.took())
    }

    fn finish(&mut self, mut response: Response) -> Response {
        self.answered = true;
        let app = &self.route.app;
        let made = || app.request_ids.make();
        let id = self.client_id.take().unwrap_or_else(made);
        let status = response.status();
        let problem = if status.is_client_error() || status.is_server_error() {
            response.extensions_mut().remove::<Problem>()
        } else {
            None
        };
        if let Some(problem) = &problem {
            problem.render(text(&id), &mut response);
        }
        let took = self.took();
        self.route.meter.count(self.method, status, took);
        // Of what is refused under overload the figures tell; a line for each would be
        // more work than the refusal.
        let shed = problem
            .as_ref()
            .is_some_and(|it| it.code() == Code::Overloaded);
        if (status.is_server_error() && !shed) || took >= app.limits.slow() {
            self.log(&id, status, took, problem.as_ref());
        }
        response.headers_mut().insert(X_REQUEST_ID, id);
        response
    }

    /// Where an error is handled is here, so here it is logged, once.
    fn log(&self, id: &HeaderValue, status: StatusCode, took: Duration, problem: Option<&Problem>) {
        let request_id = text(id);
        let route = self.route.meter.template.as_str();
        let method = self.method.name();
        let status = status.as_u16();
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        match problem {
            Some(problem) if problem.code() == Code::Internal => {
                let cause = problem.cause();
                tracing::error!(
                    request_id,
                    route,
                    method,
                    status,
                    took_ms,
                    cause,
                    "a request met a fault"
                );
            }
            Some(problem) if status >= 500 => {
                let cause = problem.cause();
                tracing::warn!(
                    request_id,
                    route,
                    method,
                    status,
                    took_ms,
                    cause,
                    "a request could not be served"
                );
            }
            _ => tracing::warn!(
                request_id,
                route,
                method,
                status,
                took_ms,
                "a request was slow"
            ),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let route = &self.route;
        route.app.admission.leave();
        if !self.answered {
            route.meter.count_gone(self.method);
        }
    }
}

/// Ids are visible ASCII, by how they are made and taken over.
fn text(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!("a handler panicked: {}", text.unwrap_or_default())
}
