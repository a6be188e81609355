//! The table of problems: what each code means, and what a client does about it.

use axum::http::StatusCode;

/// Makes the codes, so that none can be without status, title and advice.
macro_rules! codes {
    ($($code:ident $status:literal $name:literal $title:literal $advice:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($code,)*
        }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$code,)*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Code::$code => $name,)*
                }
            }

            pub const fn title(self) -> &'static str {
                match self {
                    $(Code::$code => $title,)*
                }
            }

            /// What it means and what to do, for people.
            pub const fn advice(self) -> &'static str {
                match self {
                    $(Code::$code => $advice,)*
                }
            }

            const fn status_number(self) -> u16 {
                match self {
                    $(Code::$code => $status,)*
                }
            }
        }
    };
}

codes! {
    MalformedJson 400 "malformed-json" "the body is not JSON"
        "The body ends early or breaks the grammar of JSON. The detail names line and column. Correct the body; sending it again as it is will not help.";
    MalformedQuery 400 "malformed-query" "the query cannot be read"
        "A parameter is unknown, given twice, or is not UTF-8 after percent-decoding. Parameters the shop does not know are refused, because a misspelt filter would otherwise be ignored.";
    MalformedHeader 400 "malformed-header" "a header cannot be read"
        "Caravan-Token, If-Match or Idempotency-Key is damaged; the member `header` says which. A token that is ahead of the shop's clock is refused as well. Send the value as it was given to you, or leave the header out.";
    MissingIdempotencyKey 400 "missing-idempotency-key" "the order has no idempotency key"
        "Orders are placed with the header Idempotency-Key, 1 to 64 bytes, new for every order that a shopper means and the same for every repeat of it.";
    UnknownCursor 400 "unknown-cursor" "the cursor belongs to no such listing"
        "The cursor is damaged, or comes from another listing, another user or another category. Start the listing again without one.";
    NoSuchRoute 404 "no-such-route" "there is nothing at this path"
        "The path is not part of the interface. /openapi.json lists every path, /docs shows them.";
    NoSuchCart 404 "no-such-cart" "there is no such cart"
        "The cart does not exist, or was a guest's and has expired. Open one with POST /v1/carts.";
    NoSuchOrder 404 "no-such-order" "there is no such order"
        "The order does not exist. After an answer that was lost, repeat POST /v1/orders with the same Idempotency-Key instead of looking for the order.";
    NoSuchProduct 404 "no-such-product" "there is no such product"
        "The product does not exist. Check its id.";
    NoSuchSession 404 "no-such-session" "there is no such session"
        "The session never existed, or ended so long ago that nothing is known of it. Open a new one with POST /v1/sessions.";
    NoActiveCart 404 "no-active-cart" "the owner has no active cart"
        "The user or guest has no cart to be filled now. Open one with POST /v1/carts.";
    MethodNotAllowed 405 "method-not-allowed" "the path does not take this method"
        "The header Allow lists the methods of this path.";
    RequestTimeout 408 "request-timeout" "the body did not arrive in time"
        "The body was announced but did not arrive in time. Nothing was changed. Send the request again over a better connection.";
    CartClosed 409 "cart-closed" "the cart takes no changes any more"
        "The cart was ordered, abandoned or merged. Open a new one with POST /v1/carts.";
    SoldOut 409 "sold-out" "there is not enough left"
        "The zone has fewer pieces than were asked for: `available` of `product_id` in `zone`. Nothing was taken. Order fewer, or from another zone.";
    PriceMoved 409 "price-moved" "the price is another one now"
        "The shopper was shown `seen`, the product costs `now`. Nothing was ordered. Show the new price and ask again.";
    IllegalStatus 409 "illegal-status" "the order cannot become that from where it stands"
        "Legal is created, paid, shipped, delivered, returned, one after the other, and cancelled from created or paid. `from` is where the order stands.";
    CategoryFixed 409 "category-fixed" "a product stays in its category"
        "The product stands in another category. Make a new product instead.";
    StockBelowSold 409 "stock-below-sold" "more has been sold than is said to have arrived"
        "`received` counts all pieces that ever arrived. It cannot fall below `bound`, which are reserved or sold already.";
    OrderAborted 409 "order-aborted" "the order was given up before it was complete"
        "An attempt with this Idempotency-Key was given up, and its stock is free again. Order anew with a new key.";
    ChangedMeanwhile 409 "changed-meanwhile" "others kept changing the record"
        "Many clients change the same record at once, and this request never had its turn. Nothing was changed. Try again after a short pause.";
    SessionEnded 410 "session-ended" "the session is over"
        "The session was closed or has expired. Open a new one with POST /v1/sessions.";
    PreconditionFailed 412 "precondition-failed" "the record is not at the revision that If-Match names"
        "Someone else changed the record. Read it again, and send the change with its new ETag if you still mean it.";
    BodyTooLarge 413 "body-too-large" "the body is too large"
        "A body has at most `limit` bytes. Catalogues are not loaded through this interface.";
    UnsupportedMediaType 415 "unsupported-media-type" "the body is not declared as JSON"
        "Send the header Content-Type: application/json with every body.";
    InvalidField 422 "invalid-field" "a field has no legal value"
        "`field` names the field of the body, the query or the path; the detail says what it may hold. Fields that the shop does not know are refused as well.";
    IdempotencyKeyReused 422 "idempotency-key-reused" "the idempotency key belongs to another order"
        "The same key came before with another body. A new order needs a new key.";
    CartFull 422 "cart-full" "the cart has no room for this"
        "A cart holds 100 products and 10 KiB, and no line more than 10000 pieces. Remove something first.";
    NoStockInZone 422 "no-stock-in-zone" "the product is not sold in this zone"
        "`product_id` was never delivered to `zone`. Choose another zone.";
    UnknownProduct 422 "unknown-product" "a line names a product that does not exist"
        "`product_id` is not in the catalogue. Take it out of the request.";
    TooManyRequests 429 "too-many-requests" "this client asks too often"
        "Requests from this address are above their rate. Wait as Retry-After says.";
    Internal 500 "internal" "a fault of the shop"
        "The request met a fault that it did not cause. Report the request's id. A write may have been applied: read back, or repeat an order with the same Idempotency-Key.";
    Unavailable 503 "unavailable" "the shop cannot do this at the moment"
        "A part of the storage does not answer. Nothing was changed. Wait as Retry-After says and send the request again.";
    Overloaded 503 "overloaded" "too much is asked of the shop"
        "More is asked than the shop, or the part of the storage that keeps these records, can answer. Browsing is refused first, then carts, checkout last. Wait as Retry-After says and send the request again, an order with the same Idempotency-Key.";
    OutcomeUnknown 503 "outcome-unknown" "the change may have been applied or not"
        "The answer of the storage was lost. Send the same request again, an order with the same Idempotency-Key, or read back. Every change of this interface may be sent twice without harm.";
    DeadlineExceeded 504 "deadline-exceeded" "the shop took too long"
        "The request ran out of its time. A write may have been applied: send it again, an order with the same Idempotency-Key, or read back.";
}

impl Code {
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.status_number()).expect("every status of the table is one")
    }

    pub fn named(name: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.name() == name)
    }

    /// Whether waiting helps, and the answer says how long.
    pub(crate) fn is_passing(self) -> bool {
        match self.status_number() {
            429 | 503 | 504 => true,
            _ => self == Code::ChangedMeanwhile,
        }
    }
}
