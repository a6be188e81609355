//! What visitors ask of the shop, and what they are told: the honest ledger that
//! the checks compare with the records.

use std::fmt;
use std::time::Duration;

use model::{
    Cart, CartId, CartOwner, CartStatus, Money, Order, OrderId, OrderStatus, Product, ProductId,
    ShopperSessionId, UserId,
};
use shop_service::{Made, MergeEnd, OrderWish, ShopError};

use crate::recording::Moment;

/// One request of a visitor, from its first word to the answer.
#[derive(Clone, Debug)]
pub struct Deed {
    pub visitor: usize,
    pub wish: Wish,
    pub invoked: Moment,
    pub invoked_at: Duration,
    pub ended: Option<Moment>,
    pub ended_at: Option<Duration>,
    pub told: Told,
}

#[derive(Clone, Debug)]
pub enum Wish {
    OpenCart {
        owner: CartOwner,
    },
    ReadCart {
        cart: CartId,
    },
    PutItem {
        cart: CartId,
        product: ProductId,
        pieces: u32,
    },
    RemoveItem {
        cart: CartId,
        product: ProductId,
    },
    CloseCart {
        cart: CartId,
        status: CartStatus,
    },
    OpenSession,
    TouchSession {
        session: ShopperSessionId,
    },
    CloseSession {
        session: ShopperSessionId,
    },
    SignIn {
        guest: ShopperSessionId,
        user: UserId,
    },
    PlaceOrder(OrderWish),
    ReadOrder {
        order: OrderId,
    },
    ListOrders {
        user: UserId,
    },
    ChangeStatus {
        order: OrderId,
        status: OrderStatus,
    },
    ReadProduct {
        product: ProductId,
    },
    SetPrice {
        product: ProductId,
        price: Money,
    },
    Receive {
        product: ProductId,
        total: u64,
    },
}

/// What a visitor was told.
#[derive(Clone, Debug)]
pub enum Told {
    /// No answer: under way, or its process died.
    Nothing,
    /// Done, and there is no more to say.
    Done,
    Cart {
        made: Option<Made>,
        cart: Cart,
    },
    Order {
        made: Option<Made>,
        order: Order,
    },
    /// All of a user's orders.
    Orders {
        orders: Vec<Order>,
    },
    Session {
        session: ShopperSessionId,
    },
    Product {
        product: Product,
    },
    Merged {
        end: MergeEnd,
    },
    /// A reason in the shop's own words: what was asked for did not happen.
    Refused {
        why: ShopError,
    },
    /// It may have happened, in part or as a whole, or happen yet.
    Unknown {
        why: String,
    },
}

impl Deed {
    pub fn is_acknowledged(&self) -> bool {
        match self.told {
            Told::Done
            | Told::Cart { .. }
            | Told::Order { .. }
            | Told::Orders { .. }
            | Told::Session { .. }
            | Told::Product { .. }
            | Told::Merged { .. } => true,
            Told::Nothing | Told::Refused { .. } | Told::Unknown { .. } => false,
        }
    }

    pub fn is_refused(&self) -> bool {
        matches!(self.told, Told::Refused { .. })
    }

    /// Whether this one had ended before the other began.
    pub fn is_before(&self, other: &Deed) -> bool {
        self.ended.is_some_and(|ended| ended < other.invoked)
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wish::OpenCart { owner } => write!(f, "open a cart for {owner:?}"),
            Wish::ReadCart { cart } => write!(f, "read cart {cart}"),
            Wish::PutItem {
                cart,
                product,
                pieces,
            } => write!(f, "put {pieces} {product} into cart {cart}"),
            Wish::RemoveItem { cart, product } => write!(f, "remove {product} from cart {cart}"),
            Wish::CloseCart { cart, status } => write!(f, "close cart {cart} as {status:?}"),
            Wish::OpenSession => f.write_str("open a session"),
            Wish::TouchSession { session } => write!(f, "touch session {session}"),
            Wish::CloseSession { session } => write!(f, "close session {session}"),
            Wish::SignIn { guest, user } => write!(f, "sign {guest} in as {user}"),
            Wish::PlaceOrder(wish) => {
                write!(f, "order {} of {} at", wish.key, wish.user)?;
                for line in &wish.lines {
                    let pieces = line.quantity.get();
                    write!(f, " {pieces} {} for {}", line.product, line.price)?;
                }
                match &wish.cart {
                    Some(cart) => write!(f, " from cart {cart}"),
                    None => Ok(()),
                }
            }
            Wish::ReadOrder { order } => write!(f, "read order {order}"),
            Wish::ListOrders { user } => write!(f, "list the orders of {user}"),
            Wish::ChangeStatus { order, status } => write!(f, "make order {order} {status:?}"),
            Wish::ReadProduct { product } => write!(f, "read product {product}"),
            Wish::SetPrice { product, price } => write!(f, "set the price of {product} to {price}"),
            Wish::Receive { product, total } => write!(f, "have received {total} {product}"),
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Told::Nothing => f.write_str("none"),
            Told::Done => f.write_str("done"),
            Told::Cart { made, cart } => {
                write!(f, "cart {} {:?}", cart.id(), cart.header().status)?;
                for part in cart.parts() {
                    let line = part.line();
                    write!(f, " {} {}", line.quantity.get(), line.product)?;
                }
                made_of(*made, f)
            }
            Told::Order { made, order } => {
                let header = order.header();
                write!(f, "order {} {:?}", header.id, header.status)?;
                made_of(*made, f)
            }
            Told::Orders { orders } => {
                let ids = orders.iter().map(|order| order.header().id.as_str());
                write!(f, "orders {}", ids.collect::<Vec<_>>().join(" "))
            }
            Told::Session { session } => write!(f, "session {session}"),
            Told::Product { product } => {
                write!(f, "product {} for {}", product.id(), product.price)?;
                for (key, stock) in product.stocks() {
                    write!(f, ", {} in {}", stock.available(), key.zone)?;
                }
                Ok(())
            }
            Told::Merged { end } => write!(f, "{end:?}"),
            Told::Refused { why } => write!(f, "refused, {why}"),
            Told::Unknown { why } => write!(f, "unknown, {why}"),
        }
    }
}

fn made_of(made: Option<Made>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match made {
        Some(made) => write!(f, ", made {made:?}"),
        None => Ok(()),
    }
}
