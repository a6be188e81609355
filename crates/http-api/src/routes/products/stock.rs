//! Stock by zone.

use axum::http::StatusCode;
use axum::response::Response;
use model::{Product, ProductId, Received, ZoneName};
use serde::Deserialize;
use serde::ser::{Serialize, SerializeSeq, Serializer};
use utoipa::ToSchema;

use super::each_zone;
use crate::answer;
use crate::extract::{Asked, Json, PathId, PathIds, Seen};
use crate::problem::Problem;
use crate::schema::Id;

#[derive(serde::Serialize, ToSchema)]
pub(crate) struct StockAnswer<'a> {
    #[schema(value_type = Id)]
    product_id: &'a str,
    #[schema(value_type = Vec<ZoneStock>)]
    zones: Zones<'a>,
}

#[derive(serde::Serialize, ToSchema)]
struct ZoneStock<'a> {
    #[schema(value_type = Id)]
    zone: &'a str,
    available: u64,
    reserved: u64,
    sold: u64,
    /// available + reserved + sold
    received: u64,
}

struct Zones<'a>(&'a Product);

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Delivery {
    /// All pieces that ever arrived in the zone: absolute, so that it may be sent twice.
    #[schema(value_type = u64, maximum = 1000000000000i64)]
    received: Received,
}

/// What every zone has of a product.
#[utoipa::path(
    get, path = "/v1/products/{product_id}/stock", tag = "products",
    responses(
        (status = 200, description = "Stock by zone", body = StockAnswer),
        (status = 404, description = "no-such-product"),
    ),
)]
pub(crate) async fn read(
    app: Asked,
    PathId(id): PathId<ProductId>,
    seen: Seen,
) -> Result<Response, Problem> {
    let product = app.shop.shown_to(seen.0).stock(&id).await?;
    let body = StockAnswer::of(&product.value);
    answer::record(StatusCode::OK, product.revision, seen, &body)
}

/// Says how many pieces ever arrived in a zone.
#[utoipa::path(
    put, path = "/v1/products/{product_id}/stock/{zone}", tag = "products", request_body = Delivery,
    responses(
        (status = 200, description = "Stock by zone", body = StockAnswer),
        (status = 404, description = "no-such-product"),
        (status = 409, description = "stock-below-sold, changed-meanwhile"),
    ),
)]
pub(crate) async fn receive(
    app: Asked,
    PathIds(id, zone): PathIds<ProductId, ZoneName>,
    seen: Seen,
    Json(body): Json<Delivery>,
) -> Result<Response, Problem> {
    let shop = &app.shop;
    let product = shop
        .receive_stock(&id, &zone, body.received.pieces(), seen.0)
        .await?;
    let body = StockAnswer::of(&product.value);
    answer::record(StatusCode::OK, product.revision, seen, &body)
}

impl<'a> StockAnswer<'a> {
    fn of(product: &'a Product) -> StockAnswer<'a> {
        StockAnswer {
            product_id: product.id().as_str(),
            zones: Zones(product),
        }
    }
}

impl Serialize for Zones<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut zones = serializer.serialize_seq(None)?;
        each_zone(self.0, |zone, counts| {
            zones.serialize_element(&ZoneStock {
                zone,
                available: counts.available,
                reserved: counts.reserved,
                sold: counts.sold,
                received: counts.received,
            })
        })?;
        zones.end()
    }
}
