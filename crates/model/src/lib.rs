//! The rules of the shop, and nothing else: what a cart, an order, a product with
//! its stock and a shopper session are, and which changes of them are allowed.
//!
//! Pure by construction. There is no I/O, no async and no clock: times come in as
//! arguments, so that the same rules run in a service, in a simulation and in a
//! property test. Rules named `W…` are those of `docs/protocol.md`.
//!
//! Every noun is checked when it is made, and so is whatever comes back from
//! storage: `restore` functions refuse a record which the rules could not have made.
//! The limits of a cart are the one exception. Two patches may pass them together,
//! and a cart that is too large must still be read and emptied.
#![forbid(unsafe_code)]

mod text;

mod digest;
mod id;

mod time;

mod number;

mod quantity;

mod money;

mod attributes;

mod session;

mod cart;

mod stock;

mod product;

mod order;

pub use text::{
    Address, Description, DeviceType, Image, PaymentMethod, ProductName, TextError, UserAgent,
};

pub use id::{
    CartId, CategoryName, ID_BYTES_MAX, IdError, IdempotencyKey, OrderId, ProductId,
    ShopperSessionId, UserId, ZoneName,
};

pub use time::{LIFETIME_S_MAX, Lifetime, LifetimeError, Timestamp};

pub use quantity::{QUANTITY_MAX, Quantity, QuantityError};

pub use money::{AMOUNT_MAX, AMOUNT_SCALE_MAX, Money, MoneyError};

pub use attributes::{
    ATTRIBUTES_BYTES_MAX, ATTRIBUTES_MAX, AttributeError, AttributeName, AttributeValue, Attributes,
};

pub use session::{SessionDetails, SessionError, SessionTimes, ShopperSession};

pub use cart::{
    CART_BYTES_MAX, Cart, CartError, CartHeader, CartLine, CartOwner, CartPart, CartStatus,
    GUEST_CARTS_REMEMBERED_MAX, GuestCart, LINES_MAX, MergeOutcome, Removal, ShownLine,
};

pub use stock::{
    ClaimOutcome, GiveOutcome, RECEIVED_MAX, RESERVATIONS_HELD_MAX, RESERVATIONS_KEPT_MAX,
    Received, Reservation, ReservationState, Stock, StockCounts, StockError, TakeOutcome,
};

pub use product::{Bucket, PriceMoved, Product, ProductError, STOCKS_MAX, StockKey, Take};

pub use order::{
    AskedLine, AskedOrder, Fingerprint, FingerprintError, ORDER_LINES_MAX, Order, OrderError,
    OrderHeader, OrderLine, OrderRequest, OrderStatus, Repeat, RequestFields, StatusChange,
    StatusError, StockEffect,
};
