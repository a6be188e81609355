//! Carts: `/v1/carts`.

pub(crate) mod change;
pub(crate) mod read;

use model::{Cart, CartOwner, CartStatus, Money, ShownLine, Timestamp};
use serde::ser::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::answer;
use crate::problem::Problem;
use crate::schema::{Amount, Id, Moment};

const FOLDER: &str = "/v1/carts";

#[derive(serde::Serialize, ToSchema)]
#[schema(as = Cart)]
pub(crate) struct CartAnswer<'a> {
    #[schema(value_type = Id)]
    cart_id: &'a str,
    /// Whose cart it is; a guest's has `session_id` instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Id, required = false)]
    user_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Id, required = false)]
    session_id: Option<&'a str>,
    #[schema(value_type = CartStatusName)]
    status: CartStatus,
    #[schema(value_type = Vec<CartItem>)]
    items: Items<'a>,
    /// Null if it is more than the shop can count.
    #[serde(serialize_with = "answer::optional_money")]
    #[schema(value_type = Option<Amount>, required)]
    total: Option<Money>,
    #[serde(serialize_with = "answer::time")]
    #[schema(value_type = Moment)]
    created_at: Timestamp,
    /// Null: never, as every user's cart.
    #[serde(serialize_with = "answer::optional_time")]
    #[schema(value_type = Option<Moment>, required)]
    expires_at: Option<Timestamp>,
}

#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = CartStatus)]
#[allow(dead_code)]
enum CartStatusName {
    Active,
    Ordered,
    Abandoned,
}

#[derive(serde::Serialize, ToSchema)]
struct CartItem<'a> {
    #[schema(value_type = Id)]
    product_id: &'a str,
    #[schema(value_type = Id)]
    category: &'a str,
    name: &'a str,
    /// As it was when the item was put; the order asks the product.
    #[serde(serialize_with = "answer::money")]
    #[schema(value_type = Amount)]
    price: Money,
    #[schema(required)]
    image: Option<&'a str>,
    /// May pass 10000 after a merge; lower it before ordering.
    quantity: u64,
    #[serde(serialize_with = "answer::optional_money")]
    #[schema(value_type = Option<Amount>, required)]
    total: Option<Money>,
}

/// Written line by line, as the cart yields them.
struct Items<'a>(&'a Cart);

impl<'a> CartAnswer<'a> {
    pub(crate) fn of(cart: &'a Cart) -> CartAnswer<'a> {
        let header = cart.header();
        let (user_id, session_id) = match &header.owner {
            CartOwner::User(user) => (Some(user.as_str()), None),
            CartOwner::Guest(session) => (None, Some(session.as_str())),
        };
        CartAnswer {
            cart_id: header.id.as_str(),
            user_id,
            session_id,
            status: header.status,
            items: Items(cart),
            total: cart.total().ok(),
            created_at: header.created_at,
            expires_at: header.expires_at,
        }
    }
}

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.lines().map(CartItem::of))
    }
}

impl<'a> CartItem<'a> {
    fn of(shown: ShownLine<'a>) -> CartItem<'a> {
        let line = shown.line;
        CartItem {
            product_id: line.product.as_str(),
            category: line.category.as_str(),
            name: line.name.as_str(),
            price: line.price,
            image: line.image.as_ref().map(|image| image.as_str()),
            quantity: shown.pieces,
            total: shown.total().ok(),
        }
    }
}

/// A cart belongs to a user or to a guest's session, never to both.
fn owner_of(
    user_id: Option<model::UserId>,
    session_id: Option<model::ShopperSessionId>,
) -> Result<CartOwner, Problem> {
    match (user_id, session_id) {
        (Some(user), None) => Ok(CartOwner::User(user)),
        (None, Some(session)) => Ok(CartOwner::Guest(session)),
        (None, None) => {
            let detail = "say whose cart it is, by user_id or by session_id";
            Err(Problem::field("user_id", detail))
        }
        (Some(_), Some(_)) => {
            let detail = "give user_id or session_id, not both";
            Err(Problem::field("session_id", detail))
        }
    }
}
