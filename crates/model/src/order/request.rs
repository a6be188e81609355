//! What a client asks for when it orders, checked as a whole and with its total.

use super::OrderError;
use crate::digest::FieldDigest;
use crate::id::{CategoryName, IdempotencyKey, ProductId, ZoneName};
use crate::money::Money;
use crate::quantity::Quantity;
use crate::text::{Address, PaymentMethod, ProductName};
use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

/// As many lines as a cart has products.
pub const ORDER_LINES_MAX: usize = crate::cart::LINES_MAX;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderLine {
    pub product: ProductId,
    pub category: CategoryName,
    pub name: ProductName,
    pub quantity: Quantity,
    /// What the client saw. The take of the stock is refused if it is not the price (P6).
    pub price: Money,
}

/// A line as a client asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedLine {
    pub product: ProductId,
    pub quantity: Quantity,
    pub price: Money,
}

/// What a client asks for, without what the shop copies in: a product that is renamed
/// between two attempts does not make them differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedOrder {
    pub idempotency_key: IdempotencyKey,
    pub lines: Vec<AskedLine>,
    pub geo_zone: ZoneName,
    pub address: Address,
    pub payment_method: PaymentMethod,
}

/// The fields as they come in or are stored, not yet checked against each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestFields {
    pub idempotency_key: IdempotencyKey,
    pub lines: Vec<OrderLine>,
    pub geo_zone: ZoneName,
    pub address: Address,
    pub payment_method: PaymentMethod,
}

/// A request that can become an order: at least one line, each product once (a product
/// is held by order id, so a second line would hold nothing), and a total.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RequestFields", into = "RequestFields")]
pub struct OrderRequest {
    /// Lines sorted by product, so that equal requests are equal.
    fields: RequestFields,
    total: Money,
}

/// Stands for a request's content when it is compared across a network or a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(u128);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a fingerprint is 32 lower-case hex digits, store it as it was given")]
pub struct FingerprintError;

impl OrderRequest {
    pub fn new(mut fields: RequestFields) -> Result<Self, OrderError> {
        let lines = &mut fields.lines;
        if lines.is_empty() {
            return Err(OrderError::NoLines);
        }
        if lines.len() > ORDER_LINES_MAX {
            return Err(OrderError::TooManyLines { lines: lines.len() });
        }
        lines.sort_by(|one, other| one.product.cmp(&other.product));
        if let Some(pair) = lines.windows(2).find(|p| p[0].product == p[1].product) {
            return Err(OrderError::ProductTwice {
                product: pair[0].product.clone(),
            });
        }
        let total = lines
            .iter()
            .try_fold(Money::ZERO, |total, line| {
                total.checked_add(line.price.checked_mul(line.quantity)?)
            })
            .map_err(|source| OrderError::Total { source })?;
        Ok(Self { fields, total })
    }

    /// Whether a client asked for just this, its lines in any order.
    pub fn answers(&self, asked: &AskedOrder) -> bool {
        let fields = &self.fields;
        let is_asked = |line: &OrderLine| {
            asked.lines.iter().any(|asked| {
                (&asked.product, asked.quantity, asked.price)
                    == (&line.product, line.quantity, line.price)
            })
        };
        fields.idempotency_key == asked.idempotency_key
            && fields.geo_zone == asked.geo_zone
            && fields.address == asked.address
            && fields.payment_method == asked.payment_method
            && fields.lines.len() == asked.lines.len()
            && fields.lines.iter().all(is_asked)
    }

    /// Over everything the client asked for but the key, which only names the request.
    pub fn fingerprint(&self) -> Fingerprint {
        let fields = &self.fields;
        let head = FieldDigest::of("order request")
            .text(fields.geo_zone.as_str())
            .text(fields.address.as_str())
            .text(fields.payment_method.as_str());
        let digest = fields.lines.iter().fold(head, |digest, line| {
            digest
                .text(line.product.as_str())
                .number(line.quantity.pieces())
                .text(&line.price.to_string())
        });
        Fingerprint(digest.finish())
    }

    pub fn idempotency_key(&self) -> &IdempotencyKey {
        &self.fields.idempotency_key
    }

    pub fn lines(&self) -> &[OrderLine] {
        &self.fields.lines
    }

    pub fn geo_zone(&self) -> &ZoneName {
        &self.fields.geo_zone
    }

    pub fn address(&self) -> &Address {
        &self.fields.address
    }

    pub fn payment_method(&self) -> &PaymentMethod {
        &self.fields.payment_method
    }

    pub fn total(&self) -> Money {
        self.total
    }
}

impl TryFrom<RequestFields> for OrderRequest {
    type Error = OrderError;

    fn try_from(fields: RequestFields) -> Result<Self, Self::Error> {
        Self::new(fields)
    }
}

impl From<OrderRequest> for RequestFields {
    fn from(request: OrderRequest) -> Self {
        request.fields
    }
}

impl Fingerprint {
    pub fn parse(text: &str) -> Result<Self, FingerprintError> {
        let lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(lower_hex) {
            return Err(FingerprintError);
        }
        u128::from_str_radix(text, 16)
            .map(Self)
            .map_err(|_| FingerprintError)
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = FingerprintError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}
