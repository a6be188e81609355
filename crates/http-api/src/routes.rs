//! All routes, each with its meter and its place in the documentation.

pub(crate) mod carts;
pub(crate) mod docs;
pub(crate) mod health;
pub(crate) mod login;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod orders;
pub(crate) mod page;
pub(crate) mod problems;
pub(crate) mod products;
pub(crate) mod sessions;

use axum::Router;
use axum::routing::any;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::admission::Class;
use crate::app::App;
use crate::observe::Observe;
use crate::problem::{Code, Problem};

/// The whole interface.
pub fn router(app: App) -> Router {
    let (router, openapi) = described(&app).split_for_parts();
    let document = openapi::finish(openapi, &app.build.version);
    router
        .route(
            "/openapi.json",
            openapi::route(document)
                .fallback(method_not_allowed)
                .layer(Observe::new(&app, "/openapi.json", Class::Operator)),
        )
        .fallback_service(
            any(no_such_route)
                .layer(Observe::new(&app, "none", Class::Operator))
                .with_state(app.clone()),
        )
        .with_state(app)
}

fn described(app: &App) -> OpenApiRouter<App> {
    let of = |class: Class| move |routes: UtoipaMethodRouter<App>| observed(app, class, routes);
    let (operator, browsing) = (of(Class::Operator), of(Class::Browsing));
    let (cart, checkout) = (of(Class::Carts), of(Class::Checkout));
    OpenApiRouter::new()
        .routes(cart(routes!(carts::change::open)))
        .routes(cart(routes!(carts::read::active)))
        .routes(cart(routes!(carts::read::by_id)))
        .routes(cart(routes!(
            carts::change::put_item,
            carts::change::remove_item
        )))
        .routes(cart(routes!(carts::change::close)))
        .routes(cart(routes!(login::login)))
        .routes(checkout(routes!(
            orders::place::place,
            orders::read::of_period
        )))
        .routes(checkout(routes!(orders::read::by_id)))
        .routes(checkout(routes!(orders::place::change_status)))
        .routes(browsing(routes!(orders::read::of_user)))
        .routes(browsing(routes!(products::read::of_category)))
        .routes(browsing(routes!(products::search::search)))
        .routes(browsing(routes!(
            products::read::by_id,
            products::change::put
        )))
        .routes(browsing(routes!(products::stock::read)))
        .routes(browsing(routes!(products::stock::receive)))
        .routes(cart(routes!(sessions::change::open)))
        .routes(cart(routes!(
            sessions::read::by_id,
            sessions::change::close
        )))
        .routes(cart(routes!(sessions::change::touch)))
        .routes(browsing(routes!(sessions::read::of_user)))
        .routes(operator(routes!(health::live)))
        .routes(operator(routes!(health::ready)))
        .routes(operator(routes!(metrics::metrics)))
        .routes(operator(routes!(page::first_page)))
        .routes(operator(routes!(page::figures)))
        .routes(operator(routes!(problems::all)))
        .routes(operator(routes!(problems::one)))
        .routes(operator(routes!(docs::page)))
        .routes(operator(routes!(docs::file)))
}

fn observed(
    app: &App,
    class: Class,
    (schemas, paths, methods): UtoipaMethodRouter<App>,
) -> UtoipaMethodRouter<App> {
    let template = paths.paths.keys().next().cloned().unwrap_or_default();
    let layer = Observe::new(app, &template, class);
    let methods = methods.fallback(method_not_allowed).layer(layer);
    (schemas, paths, methods)
}

async fn no_such_route() -> Problem {
    let detail = "there is nothing at this path, see /openapi.json or /docs";
    Problem::new(Code::NoSuchRoute, detail)
}

async fn method_not_allowed() -> Problem {
    let detail = "this path does not take the method, the header Allow lists those it takes";
    Problem::new(Code::MethodNotAllowed, detail)
}
