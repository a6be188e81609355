//! Orders: `/v1/orders`, and a user's history.

pub(crate) mod place;
pub(crate) mod read;

use model::{Money, Order, OrderLine, OrderRequest, OrderStatus, Timestamp};
use serde::ser::{Serialize, Serializer};
use shop_service::Stored;
use utoipa::ToSchema;

use crate::answer;
use crate::schema::{Amount, Id, Moment};

const FOLDER: &str = "/v1/orders";

#[derive(serde::Serialize, ToSchema)]
#[schema(as = Order)]
pub(crate) struct OrderAnswer<'a> {
    #[schema(value_type = Id)]
    order_id: &'a str,
    #[schema(value_type = Id)]
    user_id: &'a str,
    #[schema(value_type = OrderStatusName)]
    status: OrderStatus,
    #[serde(serialize_with = "answer::time")]
    #[schema(value_type = Moment)]
    created_at: Timestamp,
    #[serde(serialize_with = "answer::time")]
    #[schema(value_type = Moment)]
    updated_at: Timestamp,
    /// Null, as address and payment method, only in an order that was aborted before
    /// its request was recorded.
    #[schema(value_type = Option<Id>, required)]
    geo_zone: Option<&'a str>,
    #[schema(required)]
    address: Option<&'a str>,
    #[schema(required)]
    payment_method: Option<&'a str>,
    #[schema(value_type = Vec<OrderedLine>)]
    lines: Lines<'a>,
    #[serde(serialize_with = "answer::money")]
    #[schema(value_type = Amount)]
    total: Money,
}

#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = OrderStatus)]
#[allow(dead_code)]
enum OrderStatusName {
    Pending,
    Created,
    Paid,
    Shipped,
    Delivered,
    Cancelled,
    Returned,
    Aborted,
}

#[derive(serde::Serialize, ToSchema)]
#[schema(as = OrderLine)]
struct OrderedLine<'a> {
    #[schema(value_type = Id)]
    product_id: &'a str,
    #[schema(value_type = Id)]
    category: &'a str,
    name: &'a str,
    quantity: u32,
    #[serde(serialize_with = "answer::money")]
    #[schema(value_type = Amount)]
    price: Money,
    #[serde(serialize_with = "answer::optional_money")]
    #[schema(value_type = Amount)]
    total: Option<Money>,
}

struct Lines<'a>(&'a [OrderLine]);

/// A page of orders.
#[derive(serde::Serialize, ToSchema)]
pub(crate) struct OrderPage<'a> {
    #[schema(value_type = Vec<OrderAnswer>)]
    orders: Orders<'a>,
    /// Where the next page starts; null at the end.
    #[schema(required)]
    next_cursor: Option<String>,
}

struct Orders<'a>(&'a [Stored<Order>]);

impl<'a> OrderAnswer<'a> {
    pub(crate) fn of(order: &'a Order) -> OrderAnswer<'a> {
        let header = order.header();
        let request: Option<&OrderRequest> = order.request();
        OrderAnswer {
            order_id: header.id.as_str(),
            user_id: header.user.as_str(),
            status: header.status,
            created_at: header.created_at,
            updated_at: header.changed_at,
            geo_zone: request.map(|request| request.geo_zone().as_str()),
            address: request.map(|request| request.address().as_str()),
            payment_method: request.map(|request| request.payment_method().as_str()),
            lines: Lines(order.lines()),
            total: order.total(),
        }
    }
}

impl Serialize for Lines<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|line| OrderedLine {
            product_id: line.product.as_str(),
            category: line.category.as_str(),
            name: line.name.as_str(),
            quantity: line.quantity.get(),
            price: line.price,
            // A line of an order was counted when the order was made.
            total: line.price.checked_mul(line.quantity).ok(),
        }))
    }
}

impl Serialize for Orders<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let orders = self.0.iter().map(|stored| &stored.value);
        serializer.collect_seq(orders.map(OrderAnswer::of))
    }
}
