//! Ids in paths.

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use model::{CartId, OrderId, ProductId, ShopperSessionId, TextError, UserId, ZoneName};

use crate::app::App;
use crate::problem::Problem;

pub(crate) struct PathId<T>(pub(crate) T);

pub(crate) struct PathIds<A, B>(pub(crate) A, pub(crate) B);

pub(crate) trait InPath: Sized {
    /// As the route's template calls it.
    const NAME: &'static str;

    fn parse(text: &str) -> Result<Self, TextError>;
}

macro_rules! in_path {
    ($($type:ty: $name:literal,)*) => {
        $(impl InPath for $type {
            const NAME: &'static str = $name;

            fn parse(text: &str) -> Result<Self, TextError> {
                <$type>::parse(text)
            }
        })*
    };
}

in_path! {
    CartId: "cart_id",
    OrderId: "order_id",
    ProductId: "product_id",
    ShopperSessionId: "session_id",
    UserId: "user_id",
    ZoneName: "zone",
}

impl<T: InPath> FromRequestParts<App> for PathId<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<PathId<T>, Problem> {
        let values = values(parts, app).await?;
        Ok(PathId(value(&values)?))
    }
}

impl<A: InPath, B: InPath> FromRequestParts<App> for PathIds<A, B> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<PathIds<A, B>, Problem> {
        let values = values(parts, app).await?;
        Ok(PathIds(value(&values)?, value(&values)?))
    }
}

async fn values(parts: &mut Parts, app: &App) -> Result<RawPathParams, Problem> {
    RawPathParams::from_request_parts(parts, app)
        .await
        .map_err(|rejection| match rejection {
            RawPathParamsRejection::InvalidUtf8InPathParam(_) => {
                Problem::field("path", "the path is not UTF-8, encode it so")
            }
            other => Problem::internal(other.to_string()),
        })
}

fn value<T: InPath>(values: &RawPathParams) -> Result<T, Problem> {
    let (_, text) = values
        .iter()
        .find(|(name, _)| *name == T::NAME)
        .ok_or_else(|| Problem::internal(format!("the route has no {}", T::NAME)))?;
    T::parse(text).map_err(|error| Problem::field(T::NAME, error.to_string()))
}
