//! Every field a record can have, as a closed list.
//!
//! A layout file, a CQL column and a MongoDB document name a field by its
//! text; inside Caravan it is this enum, so that a misspelt field is refused
//! where it is read and a stored record spends one byte on it. The numbers are
//! part of the embedded engine's disk format: never reuse one.

use std::fmt;

macro_rules! fields {
    ($($(#[$doc:meta])* $variant:ident = $number:literal $name:literal $kind:ident,)*) => {
        /// A named field of a header or of a part.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Field { $($(#[$doc])* $variant = $number,)* }

        impl Field {
            pub const ALL: &'static [Field] = &[$(Field::$variant,)*];

            pub const fn name(self) -> &'static str {
                match self { $(Field::$variant => $name,)* }
            }

            pub const fn kind(self) -> FieldKind {
                match self { $(Field::$variant => FieldKind::$kind,)* }
            }

            pub fn from_number(number: u8) -> Option<Field> {
                match number { $($number => Some(Field::$variant),)* _ => None }
            }

            pub fn named(name: &str) -> Option<Field> {
                match name { $($name => Some(Field::$variant),)* _ => None }
            }
        }
    };
}

fields! {
    CartId = 1 "cart_id" Id,
    OrderId = 2 "order_id" Id,
    ProductId = 3 "product_id" Id,
    SessionId = 4 "session_id" Id,
    UserId = 5 "user_id" Id,
    Status = 6 "status" Text,
    CreatedAt = 7 "created_at" Timestamp,
    UpdatedAt = 8 "updated_at" Timestamp,
    LastActive = 9 "last_active" Timestamp,
    ExpiresAt = 10 "expires_at" Timestamp,
    /// Which cart of its owner this is: the first, the second, …
    Ordinal = 11 "ordinal" Int,
    Category = 12 "category" Text,
    Name = 13 "name" Text,
    Price = 14 "price" Decimal,
    Image = 15 "image" Text,
    Quantity = 16 "quantity" Int,
    Attributes = 17 "attributes" Map,
    GeoZone = 18 "geo_zone" Text,
    Address = 19 "address" Text,
    PaymentMethod = 20 "payment_method" Text,
    Total = 21 "total" Decimal,
    Lines = 22 "lines" List,
    /// Digest of the request that made the order (W10).
    Fingerprint = 23 "fingerprint" Text,
    Outcome = 24 "outcome" Text,
    IpAddress = 25 "ip_address" Inet,
    UserAgent = 26 "user_agent" Text,
    DeviceType = 27 "device_type" Text,
    SessionData = 28 "session_data" Map,
    Received = 29 "received" Int,
    Available = 30 "available" Int,
    Reserved = 31 "reserved" Int,
    Sold = 32 "sold" Int,
    /// Reservations older than this are forgotten and refused (W12).
    Floor = 33 "floor" Timestamp,
    Reservations = 34 "reservations" Map,
    Description = 35 "description" Text,
    /// When a cart or a session was closed.
    ClosedAt = 36 "closed_at" Timestamp,
    /// The user's cart that a guest's cart was closed for (W14).
    MergesInto = 37 "merges_into" Id,
    /// Guest carts merged into this one, by the moment they were closed.
    Merged = 38 "merged" Map,
    MergedFloor = 39 "merged_floor" Timestamp,
    IdempotencyKey = 40 "idempotency_key" Text,
    /// Whether an order has steps before it that a crash may have cut off (W11).
    Settlement = 41 "settlement" Text,
}

/// What values a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldKind {
    Id,
    Text,
    Int,
    Decimal,
    Timestamp,
    Inet,
    Map,
    List,
    Blob,
}

impl Field {
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_found_by_its_name_and_by_its_number() {
        for field in Field::ALL {
            assert_eq!(Field::named(field.name()), Some(*field));
            assert_eq!(Field::from_number(field.number()), Some(*field));
        }
        assert_eq!(Field::named("no_such_field"), None);
        assert_eq!(Field::from_number(0), None);
    }
}
