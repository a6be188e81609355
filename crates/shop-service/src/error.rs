//! Why an operation did not do what was asked, and what the caller can do.

use std::fmt;

use engine_api::Revision;
use model::{
    CartError, CartId, CategoryName, Money, OrderError, OrderId, OrderStatus, ProductId,
    SessionError, StatusError, ZoneName,
};
use router::RouterError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noun {
    Cart,
    Order,
    Product,
    Session,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShopError {
    #[error("there is no {noun} {id}, check the id")]
    NotFound { noun: Noun, id: String },
    #[error("the owner has no active cart, open one")]
    NoActiveCart,
    #[error("cart {cart} takes no changes any more, open a new one")]
    CartClosed { cart: CartId },
    #[error(transparent)]
    CartFull(CartError),
    #[error(transparent)]
    SessionEnded(#[from] SessionError),
    #[error("there is no product {product}, remove it from the request")]
    UnknownProduct { product: ProductId },
    #[error(
        "product {product} costs {now} and not {seen}, show the new price and ask the shopper again"
    )]
    PriceMoved {
        product: ProductId,
        seen: Money,
        now: Money,
    },
    #[error("only {available} of product {product} are left in zone {zone}, order fewer")]
    SoldOut {
        product: ProductId,
        zone: ZoneName,
        available: u64,
    },
    #[error("product {product} is not sold in zone {zone}, choose another zone")]
    NoStockInZone { product: ProductId, zone: ZoneName },
    #[error("the idempotency key was used for another request, send this one with a new key")]
    KeyReused,
    #[error("order {order} was given up before it was complete, order again with a new key")]
    OrderAborted { order: OrderId },
    #[error(transparent)]
    IllegalStatus(#[from] StatusError),
    #[error("an order cannot be made {status:?} from outside, choose a later status")]
    NotAWishedStatus { status: OrderStatus },
    #[error(transparent)]
    BadOrder(#[from] OrderError),
    #[error(
        "product {product} is in category {category} and stays there, make a new product instead"
    )]
    CategoryFixed {
        product: ProductId,
        category: CategoryName,
    },
    #[error("{bound} pieces are reserved or sold already, no fewer can have arrived")]
    StockBelowSold { bound: u64 },
    #[error("the record stands at {current}, read it again before changing it")]
    Precondition { current: Revision },
    #[error("others change the same record all the time, try again in a moment")]
    Contended,
    #[error("a stored record cannot be read ({reason}), restore it from a good copy")]
    Damaged { reason: String },
    #[error(transparent)]
    Store(#[from] RouterError),
}

impl fmt::Display for Noun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Noun::Cart => "cart",
            Noun::Order => "order",
            Noun::Product => "product",
            Noun::Session => "session",
        })
    }
}
