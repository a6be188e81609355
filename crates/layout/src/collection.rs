//! The four collections of the shop and the shape of their records.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::field::Field;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Collection {
    Carts = 1,
    Orders = 2,
    Products = 3,
    Sessions = 4,
}

/// What a separately changeable piece of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PartKind {
    /// When the record expires (W7). Never present on a record that lives for ever.
    Expiry = 1,
    /// A cart line, by product.
    Line = 2,
    /// What a merged guest cart adds to a line, by product and guest cart (W14).
    Contribution = 3,
    /// Stock, by zone and bucket.
    Stock = 4,
    /// When a shopper session was last active.
    Activity = 5,
}

impl Collection {
    pub const ALL: [Collection; 4] = [
        Collection::Carts,
        Collection::Orders,
        Collection::Products,
        Collection::Sessions,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Collection::Carts => "carts",
            Collection::Orders => "orders",
            Collection::Products => "products",
            Collection::Sessions => "sessions",
        }
    }

    pub fn named(name: &str) -> Option<Collection> {
        Collection::ALL
            .into_iter()
            .find(|collection| collection.name() == name)
    }

    pub fn from_number(number: u8) -> Option<Collection> {
        Collection::ALL
            .into_iter()
            .find(|collection| collection.number() == number)
    }

    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The field that names a record of this collection.
    pub const fn id_field(self) -> Field {
        match self {
            Collection::Carts => Field::CartId,
            Collection::Orders => Field::OrderId,
            Collection::Products => Field::ProductId,
            Collection::Sessions => Field::SessionId,
        }
    }

    /// Header fields, the id first. A table's key columns come from here.
    pub const fn header_fields(self) -> &'static [Field] {
        use Field::*;
        match self {
            Collection::Carts => &[
                CartId,
                UserId,
                SessionId,
                Status,
                CreatedAt,
                UpdatedAt,
                Ordinal,
                ClosedAt,
                MergesInto,
                Merged,
                MergedFloor,
            ],
            Collection::Orders => &[
                OrderId,
                UserId,
                Status,
                CreatedAt,
                UpdatedAt,
                GeoZone,
                Address,
                PaymentMethod,
                Total,
                Lines,
                Fingerprint,
                Outcome,
                IdempotencyKey,
                CartId,
                Settlement,
            ],
            Collection::Products => &[
                ProductId,
                Category,
                Name,
                Price,
                Image,
                Description,
                Attributes,
                UpdatedAt,
            ],
            Collection::Sessions => &[
                SessionId,
                UserId,
                Status,
                CreatedAt,
                IpAddress,
                UserAgent,
                DeviceType,
                GeoZone,
                SessionData,
                ClosedAt,
            ],
        }
    }

    /// Header fields that a record may lack: a guest has no user, a user no guest session.
    pub const fn optional_fields(self) -> &'static [Field] {
        use Field::*;
        match self {
            Collection::Carts => &[
                UserId,
                SessionId,
                UpdatedAt,
                ClosedAt,
                MergesInto,
                Merged,
                MergedFloor,
            ],
            Collection::Orders => &[
                UpdatedAt,
                GeoZone,
                Address,
                PaymentMethod,
                Fingerprint,
                Outcome,
                IdempotencyKey,
                CartId,
                Settlement,
            ],
            Collection::Products => &[Image, Description, Attributes, UpdatedAt],
            Collection::Sessions => &[
                UserId,
                IpAddress,
                UserAgent,
                DeviceType,
                GeoZone,
                SessionData,
                ClosedAt,
            ],
        }
    }

    /// Whether a record that the shop made may be without the field. Engines take an order without a zone; the shop
    /// makes none, and cannot read one.
    pub fn may_lack(self, field: Field) -> bool {
        let is_given = self == Collection::Orders && field == Field::GeoZone;
        !is_given && self.optional_fields().contains(&field)
    }

    pub const fn part_kinds(self) -> &'static [PartKind] {
        match self {
            Collection::Carts => &[PartKind::Expiry, PartKind::Line, PartKind::Contribution],
            Collection::Orders => &[],
            Collection::Products => &[PartKind::Stock],
            Collection::Sessions => &[PartKind::Expiry, PartKind::Activity],
        }
    }

    /// Whether records of this collection can expire.
    pub fn expires(self) -> bool {
        self.part_kinds().contains(&PartKind::Expiry)
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartKind {
    pub const ALL: [PartKind; 5] = [
        PartKind::Expiry,
        PartKind::Line,
        PartKind::Contribution,
        PartKind::Stock,
        PartKind::Activity,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            PartKind::Expiry => "expiry",
            PartKind::Line => "line",
            PartKind::Contribution => "contribution",
            PartKind::Stock => "stock",
            PartKind::Activity => "activity",
        }
    }

    pub fn named(name: &str) -> Option<PartKind> {
        PartKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub fn from_number(number: u8) -> Option<PartKind> {
        PartKind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// How many texts name a part of this kind within its record.
    pub const fn path_len(self) -> usize {
        match self {
            PartKind::Expiry | PartKind::Activity => 0,
            PartKind::Line => 1,
            PartKind::Contribution | PartKind::Stock => 2,
        }
    }
}
