//! What the shop refuses, as problems.

use engine_api::{EngineError, Remedy};
use model::{OrderError, OrderStatus, SessionError, StatusError};
use router::RouterError;
use shop_service::{Noun, ShopError};

use super::{Code, Problem};

/// After a full disk or a wrong clock somebody has to act first.
const RETRY_AFTER_REPAIR_S: u32 = 30;

impl From<ShopError> for Problem {
    fn from(error: ShopError) -> Problem {
        let detail = error.to_string();
        match error {
            ShopError::NotFound { noun, .. } => Problem::new(no_such(noun), detail),
            ShopError::NoActiveCart => Problem::new(Code::NoActiveCart, detail),
            ShopError::CartClosed { .. } => Problem::new(Code::CartClosed, detail),
            ShopError::CartFull(_) => Problem::new(Code::CartFull, detail),
            ShopError::SessionEnded(SessionError::TimesContradict { .. }) => {
                Problem::internal(detail)
            }
            ShopError::SessionEnded(SessionError::Closed { .. } | SessionError::Expired { .. }) => {
                Problem::new(Code::SessionEnded, detail)
            }
            ShopError::UnknownProduct { product } => {
                Problem::new(Code::UnknownProduct, detail).with("product_id", product.as_str())
            }
            ShopError::PriceMoved { product, seen, now } => Problem::new(Code::PriceMoved, detail)
                .with("product_id", product.as_str())
                .with("seen", seen.to_string())
                .with("now", now.to_string()),
            ShopError::SoldOut {
                product,
                zone,
                available,
            } => Problem::new(Code::SoldOut, detail)
                .with("product_id", product.as_str())
                .with("zone", zone.as_str())
                .with_number("available", available),
            ShopError::NoStockInZone { product, zone } => Problem::new(Code::NoStockInZone, detail)
                .with("product_id", product.as_str())
                .with("zone", zone.as_str()),
            ShopError::KeyReused => Problem::new(Code::IdempotencyKeyReused, detail),
            ShopError::OrderAborted { .. } => Problem::new(Code::OrderAborted, detail),
            ShopError::IllegalStatus(refusal) => {
                let (from, to) = match refusal {
                    StatusError::Already { status } => (status, status),
                    StatusError::Illegal { from, to } => (from, to),
                };
                Problem::new(Code::IllegalStatus, detail)
                    .with("from", status_name(from))
                    .with("to", status_name(to))
            }
            ShopError::NotAWishedStatus { .. } => Problem::field("status", detail),
            ShopError::BadOrder(OrderError::Contradiction { .. }) => Problem::internal(detail),
            ShopError::BadOrder(
                OrderError::NoLines
                | OrderError::TooManyLines { .. }
                | OrderError::ProductTwice { .. }
                | OrderError::Total { .. },
            ) => Problem::field("lines", detail),
            ShopError::CategoryFixed { category, .. } => {
                Problem::new(Code::CategoryFixed, detail).with("category", category.as_str())
            }
            ShopError::StockBelowSold { bound } => {
                Problem::new(Code::StockBelowSold, detail).with_number("bound", bound)
            }
            ShopError::Precondition { .. } => Problem::new(Code::PreconditionFailed, detail),
            ShopError::Contended => Problem::new(Code::ChangedMeanwhile, detail),
            ShopError::Damaged { .. } => Problem::internal(detail),
            ShopError::Store(error) => from_router(&error),
        }
    }
}

/// By what the caller may do about it, not by what broke; what broke stands in the log.
fn from_router(error: &RouterError) -> Problem {
    let cause = error.to_string();
    let unavailable = |detail: &str| Problem::new(Code::Unavailable, detail).caused_by(&cause);
    let needs_repair = matches!(
        error,
        RouterError::NoMap
            | RouterError::Clock(_)
            | RouterError::Engine {
                source: EngineError::StorageFull { .. },
                ..
            }
    );
    match error {
        RouterError::ShardBusy { .. } => {
            let detail = "too many requests wait for the part of the storage that keeps these \
                          records, wait as Retry-After says";
            return Problem::new(Code::Overloaded, detail).caused_by(&cause);
        }
        RouterError::OutOfTime => {
            let detail = "the request's time was over before all was done, send it again (an \
                          order with the same Idempotency-Key) or read back";
            return Problem::new(Code::DeadlineExceeded, detail).caused_by(&cause);
        }
        _ => {}
    }
    match error.remedy() {
        Remedy::Retry | Remedy::RefreshMap => unavailable(
            "the shop is busy with these records or cannot reach them, nothing was changed, try \
             again in a moment",
        ),
        Remedy::ReadBack => Problem::new(
            Code::OutcomeUnknown,
            "the storage's answer was lost, send the same request again (an order with the same \
             Idempotency-Key) or read back",
        )
        .caused_by(&cause),
        Remedy::GiveUp if needs_repair => unavailable(
            "a part of the shop needs its operator, nothing was changed, try again later",
        )
        .retry_after_s(RETRY_AFTER_REPAIR_S),
        Remedy::GiveUp => Problem::internal(cause),
    }
}

fn no_such(noun: Noun) -> Code {
    match noun {
        Noun::Cart => Code::NoSuchCart,
        Noun::Order => Code::NoSuchOrder,
        Noun::Product => Code::NoSuchProduct,
        Noun::Session => Code::NoSuchSession,
    }
}

/// As it stands in the order's own JSON.
fn status_name(status: OrderStatus) -> &'static str {
    match status {
        OrderStatus::Pending => "pending",
        OrderStatus::Created => "created",
        OrderStatus::Paid => "paid",
        OrderStatus::Shipped => "shipped",
        OrderStatus::Delivered => "delivered",
        OrderStatus::Cancelled => "cancelled",
        OrderStatus::Returned => "returned",
        OrderStatus::Aborted => "aborted",
    }
}

#[cfg(test)]
mod tests {
    use engine_api::Revision;
    use model::{CartError, CategoryName, Money, ProductId, Timestamp, ZoneName};
    use router::ShardName;

    use super::*;

    fn product() -> ProductId {
        ProductId::parse("p-1").unwrap()
    }

    fn rendered(error: ShopError) -> serde_json::Value {
        let problem = Problem::from(error);
        let body = super::super::Rendered {
            problem: &problem.0,
            instance: "r-1",
        };
        serde_json::to_value(&body).unwrap()
    }

    fn engine(source: EngineError) -> ShopError {
        let shard = ShardName::new("shard-7").unwrap();
        ShopError::Store(RouterError::Engine { shard, source })
    }

    #[test]
    fn every_refusal_of_the_shop_has_its_code() {
        fn check(error: ShopError, status: u16, code: &str) {
            let shown = format!("{error:?}");
            let body = rendered(error);
            assert_eq!(body["type"], format!("/problems/{code}"), "{shown}");
            assert_eq!(body["status"], status, "{shown}");
            assert_eq!(body["instance"], "r-1");
        }
        let reason = || "story".to_owned();
        let at = Timestamp::from_unix_micros(0);
        for (noun, code) in [
            (Noun::Cart, "no-such-cart"),
            (Noun::Order, "no-such-order"),
            (Noun::Product, "no-such-product"),
            (Noun::Session, "no-such-session"),
        ] {
            let id = "x".to_owned();
            check(ShopError::NotFound { noun, id }, 404, code);
        }
        check(ShopError::NoActiveCart, 404, "no-active-cart");
        check(
            ShopError::CartFull(CartError::TooManyLines { lines: 101 }),
            422,
            "cart-full",
        );
        check(
            ShopError::SessionEnded(SessionError::Closed { closed_at: at }),
            410,
            "session-ended",
        );
        check(ShopError::KeyReused, 422, "idempotency-key-reused");
        check(
            ShopError::BadOrder(OrderError::NoLines),
            422,
            "invalid-field",
        );
        check(
            ShopError::CategoryFixed {
                product: product(),
                category: CategoryName::parse("phones").unwrap(),
            },
            409,
            "category-fixed",
        );
        check(
            ShopError::StockBelowSold { bound: 3 },
            409,
            "stock-below-sold",
        );
        let current = Revision::ZERO;
        check(
            ShopError::Precondition { current },
            412,
            "precondition-failed",
        );
        check(ShopError::Contended, 409, "changed-meanwhile");
        check(ShopError::Damaged { reason: reason() }, 500, "internal");
        check(
            engine(EngineError::Unavailable { reason: reason() }),
            503,
            "unavailable",
        );
        let shard = ShardName::new("shard-7").unwrap();
        check(
            ShopError::Store(RouterError::ShardBusy { shard, places: 7 }),
            503,
            "overloaded",
        );
        check(
            ShopError::Store(RouterError::OutOfTime),
            504,
            "deadline-exceeded",
        );
        check(
            engine(EngineError::StorageFull { reason: reason() }),
            503,
            "unavailable",
        );
        check(
            engine(EngineError::OutcomeUnknown { reason: reason() }),
            503,
            "outcome-unknown",
        );
        check(
            engine(EngineError::Damaged { reason: reason() }),
            500,
            "internal",
        );
    }

    #[test]
    fn what_programs_need_stands_in_members_of_its_own() {
        let body = rendered(ShopError::SoldOut {
            product: product(),
            zone: ZoneName::parse("north").unwrap(),
            available: 2,
        });
        assert_eq!(body["product_id"], "p-1");
        assert_eq!(body["zone"], "north");
        assert_eq!(body["available"], 2);
        let body = rendered(ShopError::PriceMoved {
            product: product(),
            seen: Money::parse("10.50").unwrap(),
            now: Money::parse("11").unwrap(),
        });
        assert_eq!(
            (&body["seen"], &body["now"]),
            (&"10.5".into(), &"11".into())
        );
        let body = rendered(ShopError::IllegalStatus(StatusError::Illegal {
            from: OrderStatus::Shipped,
            to: OrderStatus::Paid,
        }));
        assert_eq!(
            (&body["from"], &body["to"]),
            (&"shipped".into(), &"paid".into())
        );
    }

    #[test]
    fn the_inside_of_the_shop_stays_in_the_log() {
        let error = engine(EngineError::Damaged {
            reason: "block 17".to_owned(),
        });
        let problem = Problem::from(error.clone());
        assert!(problem.cause().contains("shard-7"));
        let text = rendered(error).to_string();
        assert!(
            !text.contains("shard-7") && !text.contains("block 17"),
            "{text}"
        );
    }
}
