//! Problems, and the two ways to deal with them: mending, and only looking.

use std::fmt;

use async_trait::async_trait;
use engine_api::{
    Change, Outcome, PartKey, PriceCondition, RecordKey, Revision, RowFault, SharedRecord,
    StockAction, Stray, StrayEnd,
};
use model::{CartId, OrderId, OrderStatus, ProductId, Quantity, UserId, ZoneName};
use router::ShardName;

use super::report::Kind;
use crate::carts::MergeEnd;
use crate::error::ShopError;
use crate::orders::Current;
use crate::records::CartRecord;
use crate::shop::Shop;

/// Something that is wrong, with what is needed to mend it.
#[derive(Clone, Debug)]
pub(super) enum Problem {
    Unreadable {
        key: String,
        reason: String,
    },
    OpenOrder {
        record: SharedRecord,
        status: OrderStatus,
    },
    /// The order is decided and settled, and its pieces are still held.
    Held {
        held: HeldPieces,
        order: Current,
    },
    /// Pieces are held for an order that neither the live orders nor the history have.
    Orderless {
        held: HeldPieces,
    },
    Shelf(ShelfSum),
    UnmergedCart {
        guest: CartRecord,
        user: UserId,
    },
    SecondCart {
        cart: CartId,
        beside: CartId,
    },
    Row {
        shard: ShardName,
        stray: Stray,
    },
}

/// A reservation that was not claimed and not given back.
#[derive(Clone, Debug)]
pub(super) struct HeldPieces {
    pub product: RecordKey,
    pub part: PartKey,
    pub order: OrderId,
    pub quantity: Quantity,
}

/// Pieces of a product in a zone that are sold and reserved, and those of the orders.
#[derive(Clone, Debug)]
pub(super) struct ShelfSum {
    pub product: ProductId,
    pub zone: ZoneName,
    pub held: u64,
    pub least: u64,
    pub most: u64,
}

/// What became of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Mended,
    /// Somebody else was faster.
    Gone,
    Left {
        why: Option<String>,
    },
}

#[async_trait]
pub(super) trait Care: Send + Sync + fmt::Debug {
    async fn of(&self, problem: &Problem) -> Result<End, ShopError>;
}

/// Finds, and writes nothing.
#[derive(Debug)]
pub(super) struct Looking;

#[async_trait]
impl Care for Looking {
    async fn of(&self, _: &Problem) -> Result<End, ShopError> {
        Ok(End::Left { why: None })
    }
}

/// Mends what the records themselves decide.
#[derive(Debug)]
pub(super) struct Mending<'a>(pub &'a Shop);

#[async_trait]
impl Care for Mending<'_> {
    async fn of(&self, problem: &Problem) -> Result<End, ShopError> {
        let shop = self.0;
        match problem {
            Problem::OpenOrder { record, .. } => {
                shop.sweep_one(record).await?;
                Ok(End::Mended)
            }
            Problem::Held { held, order } => self.resolve(held, order).await,
            Problem::UnmergedCart { guest, user } => {
                match shop.merge_cart(guest.clone(), user, Revision::ZERO).await? {
                    MergeEnd::Merged | MergeEnd::AlreadyMerged => Ok(End::Mended),
                    MergeEnd::NothingToMerge => Ok(left("it is gone, or went elsewhere")),
                    MergeEnd::Refused { why } => Ok(left(why)),
                }
            }
            Problem::Row { shard, stray } => match shop.mend_stray(shard, stray).await? {
                StrayEnd::Mended => Ok(End::Mended),
                StrayEnd::Follows => Ok(End::Gone),
            },
            // Nothing that is stored says what would be right.
            Problem::Unreadable { .. }
            | Problem::Orderless { .. }
            | Problem::Shelf(_)
            | Problem::SecondCart { .. } => Ok(End::Left { why: None }),
        }
    }
}

impl Mending<'_> {
    /// By the order's record, which has decided for good (W11).
    async fn resolve(&self, held: &HeldPieces, order: &Current) -> Result<End, ShopError> {
        let Some(action) = resolution(held, order) else {
            return Ok(left("the order does not name the product"));
        };
        let change = Change::Stock {
            key: held.product.clone(),
            part: held.part.clone(),
            price: PriceCondition::Any,
            action,
        };
        match self.0.router.write(change, Revision::ZERO).await?.outcome {
            Outcome::Done { .. } => Ok(End::Mended),
            refusal => Ok(left(format_args!("the stock answered {refusal:?}"))),
        }
    }
}

/// What a decided order asks of pieces that are held for it.
fn resolution(held: &HeldPieces, order: &Current) -> Option<StockAction> {
    let header = order.kept.order.header();
    let id = held.order.to_string();
    match header.status {
        OrderStatus::Pending => None,
        OrderStatus::Created
        | OrderStatus::Paid
        | OrderStatus::Shipped
        | OrderStatus::Delivered => {
            let mut lines = order.kept.order.lines().iter();
            let named = lines.any(|line| {
                line.product.as_str() == held.product.id.as_str() && line.quantity == held.quantity
            });
            named.then_some(StockAction::Claim { order: id })
        }
        OrderStatus::Cancelled | OrderStatus::Returned | OrderStatus::Aborted => {
            Some(StockAction::Give {
                order: id,
                quantity: held.quantity.get(),
                at: header.changed_at,
            })
        }
    }
}

fn left(why: impl fmt::Display) -> End {
    End::Left {
        why: Some(why.to_string()),
    }
}

impl Problem {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Problem::Unreadable { .. } => Kind::Unreadable,
            Problem::OpenOrder { .. } => Kind::OpenOrder,
            Problem::Held { .. } | Problem::Orderless { .. } => Kind::Reservation,
            Problem::Shelf(_) => Kind::Shelf,
            Problem::UnmergedCart { .. } => Kind::UnmergedCart,
            Problem::SecondCart { .. } => Kind::SecondCart,
            Problem::Row { .. } => Kind::Row,
        }
    }

    pub(super) fn key(&self) -> String {
        match self {
            Problem::Unreadable { key, .. } => key.clone(),
            Problem::OpenOrder { record, .. } => record.key.id.to_string(),
            Problem::Held { held, .. } | Problem::Orderless { held } => {
                format!("{}/{}/{}", held.product.id, held.part, held.order)
            }
            Problem::Shelf(sum) => format!("{}/{}", sum.product, sum.zone),
            Problem::UnmergedCart { guest, .. } => guest.cart.id().to_string(),
            Problem::SecondCart { cart, .. } => cart.to_string(),
            Problem::Row { shard, stray } => format!("{shard}/{}/{}", stray.table, stray.id),
        }
    }
}

/// What is wrong, for whoever has to decide.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Unreadable { reason, .. } => f.write_str(reason),
            Problem::OpenOrder { status, .. } => {
                write!(
                    f,
                    "the order is {status:?} with steps that nobody goes on with"
                )
            }
            Problem::Held { held, order } => {
                let (pieces, status) = (held.quantity.get(), order.status());
                write!(
                    f,
                    "{pieces} held for an order that is {status:?} and settled"
                )
            }
            Problem::Orderless { held } => {
                let pieces = held.quantity.get();
                write!(
                    f,
                    "{pieces} held for an order that does not exist: find out what became of it"
                )
            }
            Problem::Shelf(sum) => {
                let ShelfSum {
                    held, least, most, ..
                } = sum;
                write!(f, "{held} sold or reserved, and the orders have ")?;
                match least == most {
                    true => write!(f, "{least}"),
                    false => write!(f, "{least} to {most}"),
                }
            }
            Problem::UnmergedCart { guest, .. } => match &guest.cart.header().merges_into {
                Some(target) => write!(f, "it was closed to go into {target} and is not there"),
                None => f.write_str("it goes nowhere"),
            },
            Problem::SecondCart { beside, .. } => {
                write!(
                    f,
                    "it is active beside {beside} of the same owner: ask the shopper"
                )
            }
            Problem::Row { stray, .. } => f.write_str(match stray.fault {
                RowFault::Missing => "the record has no row here",
                RowFault::Outgrown => "a row that no record has",
                RowFault::Altered => "the row holds something else than its record",
            }),
        }
    }
}
