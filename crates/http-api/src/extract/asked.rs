//! The shop as one request may ask it: with the time it has, and its class's precedence.

use std::ops::Deref;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use shop_service::Shop;

use crate::admission::Class;
use crate::app::App;
use crate::problem::Problem;

/// Stands for [`App`] in handlers that ask the shop: its own `shop` hides the one
/// that has all the time in the world.
#[derive(Debug)]
pub(crate) struct Asked {
    app: App,
    pub(crate) shop: Shop,
}

impl Deref for Asked {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}

impl FromRequestParts<App> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Asked, Problem> {
        let class = parts.extensions.get::<Class>();
        let class = class.ok_or_else(|| Problem::internal("a route is not observed"))?;
        // The head has just come, and nobody queues behind the admission: all the time
        // is left, that of the body included.
        let shop = app.shop.within(app.limits.asking(), class.precedence());
        Ok(Asked {
            app: app.clone(),
            shop,
        })
    }
}
