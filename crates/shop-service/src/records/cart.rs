//! A cart as a record: owner, status and merges in the header; lines, contributions
//! and the expiry in parts of their own.

use std::collections::BTreeMap;

use engine_api::{PartKey, Record, RecordKey, Revision, SharedRecord, expiry_fields};
use layout::path::STATUS_ACTIVE;
use layout::{Field, Fields, PartKind, Value};
use model::{
    Cart, CartHeader, CartId, CartLine, CartOwner, CartPart, CartStatus, Quantity, Timestamp,
};

use super::{Reader, header, text, with_optional};
use crate::error::ShopError;
use crate::shop::{Stored, shared};

const STATUS_ORDERED: &str = "ordered";
const STATUS_ABANDONED: &str = "abandoned";

/// A stored cart, with what its record says beyond the cart itself.
#[derive(Clone, Debug)]
pub(crate) struct CartRecord {
    pub cart: Stored<Cart>,
    /// Which cart of its owner it is: the first, the second, …
    pub ordinal: u64,
    pub key: RecordKey,
    /// What a conditional change has to expect.
    pub header_revision: Revision,
    pub newest_revision: Revision,
}

impl CartRecord {
    pub(crate) fn read(record: &SharedRecord) -> Result<CartRecord, ShopError> {
        let header = header(record)?;
        let cart = shared(record, cart_of)?;
        let ordinal = u64::try_from(header.int(Field::Ordinal)?);
        Ok(CartRecord {
            ordinal: ordinal.map_err(|error| header.damaged(error))?,
            key: record.key.clone(),
            header_revision: record.header.revision,
            newest_revision: cart.revision,
            cart,
        })
    }

    pub(crate) fn is_active(&self) -> bool {
        self.cart.header().status == CartStatus::Active
    }

    pub(crate) fn stored(self) -> Stored<Cart> {
        self.cart.at(self.newest_revision)
    }
}

pub(crate) fn cart_of(record: &Record) -> Result<Cart, ShopError> {
    let header = header(record)?;
    let parts = record.live_parts();
    let parts = parts
        .filter_map(|(key, fields)| read_part(key, header.part(fields)).transpose())
        .collect::<Result<Vec<CartPart>, ShopError>>()?;
    let restored = Cart::restore(read_header(header, record.expires_at())?, parts);
    restored.map_err(|error| header.damaged(error))
}

pub(crate) fn cart_header(cart: &Cart, ordinal: u64) -> Fields {
    let header = cart.header();
    let ordinal = i64::try_from(ordinal).expect("carts of one owner are counted one by one");
    let merged = header
        .merged
        .iter()
        .map(|(guest_cart, closed_at)| (guest_cart.to_string(), Value::Timestamp(*closed_at)))
        .collect::<BTreeMap<String, Value>>();
    let fields = cart_owner(&header.owner)
        .with(Field::CartId, text(&header.id))
        .with(Field::Status, Value::text(cart_status(header.status)))
        .with(Field::CreatedAt, Value::Timestamp(header.created_at))
        .with(
            Field::UpdatedAt,
            Value::Timestamp(header.closed_at.unwrap_or(header.created_at)),
        )
        .with(Field::Ordinal, Value::Int(ordinal));
    with_optional(
        fields,
        [
            (Field::ClosedAt, header.closed_at.map(Value::Timestamp)),
            (Field::MergesInto, header.merges_into.as_ref().map(text)),
            (
                Field::Merged,
                (!merged.is_empty()).then_some(Value::Map(merged)),
            ),
            (
                Field::MergedFloor,
                header.merged_floor.map(Value::Timestamp),
            ),
        ],
    )
}

/// Lines, contributions, and the expiry of a guest's cart.
pub(crate) fn cart_parts(cart: &Cart) -> Vec<(PartKey, Fields)> {
    let expiry = cart.header().expires_at;
    let expiry = expiry.map(|at| (PartKey::expiry(), expiry_fields(at)));
    cart.parts()
        .map(|part| cart_part(&part))
        .chain(expiry)
        .collect()
}

pub(crate) fn cart_part(part: &CartPart) -> (PartKey, Fields) {
    let line = part.line();
    let fields = Fields::new()
        .with(Field::Category, text(&line.category))
        .with(Field::Name, text(&line.name))
        .with(Field::Price, Value::Decimal(line.price.as_decimal()))
        .with(Field::Quantity, Value::Int(i64::from(line.quantity.get())))
        .with(Field::UpdatedAt, Value::Timestamp(line.changed_at));
    let fields = with_optional(fields, [(Field::Image, line.image.as_ref().map(text))]);
    (cart_part_key(part), fields)
}

pub(crate) fn cart_part_key(part: &CartPart) -> PartKey {
    let product = part.line().product.as_str();
    match part {
        CartPart::Own(_) => PartKey::line(product),
        CartPart::Contribution { guest_cart, .. } => {
            PartKey::contribution(product, guest_cart.as_str())
        }
    }
}

/// The field that says whose cart it is.
pub(crate) fn cart_owner(owner: &CartOwner) -> Fields {
    match owner {
        CartOwner::Guest(session) => Fields::new().with(Field::SessionId, text(session)),
        CartOwner::User(user) => Fields::new().with(Field::UserId, text(user)),
    }
}

fn cart_status(status: CartStatus) -> &'static str {
    match status {
        CartStatus::Active => STATUS_ACTIVE,
        CartStatus::Ordered => STATUS_ORDERED,
        CartStatus::Abandoned => STATUS_ABANDONED,
    }
}

fn read_header(header: Reader<'_>, expires_at: Option<Timestamp>) -> Result<CartHeader, ShopError> {
    Ok(CartHeader {
        id: header.noun(Field::CartId)?,
        owner: read_owner(header)?,
        status: match header.text(Field::Status)? {
            STATUS_ACTIVE => CartStatus::Active,
            STATUS_ORDERED => CartStatus::Ordered,
            STATUS_ABANDONED => CartStatus::Abandoned,
            other => {
                return Err(header.damaged(format_args!("no cart has the status {other:?}")));
            }
        },
        created_at: header.timestamp(Field::CreatedAt)?,
        closed_at: header.optional_timestamp(Field::ClosedAt),
        expires_at,
        merges_into: header.optional(Field::MergesInto)?,
        merged: read_merged(header)?,
        merged_floor: header.optional_timestamp(Field::MergedFloor),
    })
}

fn read_owner(header: Reader<'_>) -> Result<CartOwner, ShopError> {
    let (session, user) = (
        header.optional(Field::SessionId)?,
        header.optional(Field::UserId)?,
    );
    match (session, user) {
        (Some(session), None) => Ok(CartOwner::Guest(session)),
        (None, Some(user)) => Ok(CartOwner::User(user)),
        (Some(_), Some(_)) | (None, None) => {
            Err(header.damaged("a cart belongs to a session or to a user"))
        }
    }
}

fn read_merged(header: Reader<'_>) -> Result<BTreeMap<CartId, Timestamp>, ShopError> {
    let entries = match header.fields.get(Field::Merged) {
        None => return Ok(BTreeMap::new()),
        Some(Value::Map(entries)) => entries,
        Some(_) => return Err(header.damaged("the merged carts are no map")),
    };
    let entry = |(guest_cart, closed_at): (&String, &Value)| {
        let guest_cart = CartId::parse(guest_cart).map_err(|error| header.damaged(error))?;
        let closed_at = closed_at.as_timestamp();
        let closed_at = closed_at.ok_or_else(|| header.damaged("a merge has no moment"))?;
        Ok((guest_cart, closed_at))
    };
    entries.iter().map(entry).collect()
}

/// `None` for a part that is not a line: the expiry.
fn read_part(key: &PartKey, fields: Reader<'_>) -> Result<Option<CartPart>, ShopError> {
    let part = match (key.kind(), key.path()) {
        (PartKind::Line, [product]) => CartPart::Own(read_line(product, fields)?),
        (PartKind::Contribution, [product, guest_cart]) => CartPart::Contribution {
            guest_cart: CartId::parse(guest_cart).map_err(|error| fields.damaged(error))?,
            line: read_line(product, fields)?,
        },
        (PartKind::Expiry, []) => return Ok(None),
        _ => return Err(fields.damaged(format_args!("a cart has no part {key}"))),
    };
    Ok(Some(part))
}

fn read_line(product: &str, fields: Reader<'_>) -> Result<CartLine, ShopError> {
    let pieces = u64::try_from(fields.int(Field::Quantity)?);
    let pieces = pieces.map_err(|error| fields.damaged(error))?;
    Ok(CartLine {
        product: product.parse().map_err(|error| fields.damaged(error))?,
        category: fields.noun(Field::Category)?,
        quantity: Quantity::from_pieces(pieces).map_err(|error| fields.damaged(error))?,
        name: fields.noun(Field::Name)?,
        price: fields.money(Field::Price)?,
        image: fields.optional(Field::Image)?,
        changed_at: fields.timestamp(Field::UpdatedAt)?,
    })
}

#[cfg(test)]
mod tests {
    use engine_api::{Content, Header, Part, RecordId, Writer};
    use model::{GUEST_CARTS_REMEMBERED_MAX, GuestCart, Lifetime, Money, SessionDetails};
    use model::{ShopperSession, UserId};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_unix_micros(second * 1_000_000)
    }

    fn revision(second: i64) -> Revision {
        Revision::at(at(second), Writer::numbered(1))
    }

    fn line(number: u64) -> CartLine {
        CartLine {
            product: format!("p {}", number % 5).parse().unwrap(),
            category: "чай".parse().unwrap(),
            quantity: Quantity::from_pieces(number % 100 + 1).unwrap(),
            name: format!("tea no. {number}").parse().unwrap(),
            price: Money::parse(&format!("{number}.05")).unwrap(),
            image: number
                .is_multiple_of(2)
                .then(|| "/tea.jpg".parse().unwrap()),
            changed_at: at(number as i64),
        }
    }

    fn guest_cart(number: u64) -> Cart {
        let details = SessionDetails {
            id: format!("s-{number}").parse().unwrap(),
            user: None,
            ip_address: None,
            user_agent: None,
            device_type: None,
            geo_zone: None,
            attributes: Default::default(),
        };
        let hour = Lifetime::from_seconds(3_600).unwrap();
        let session = ShopperSession::open(details, hour, at(0));
        let mut cart = Cart::for_guest(&session, number, hour, at(number as i64));
        cart.put_line(line(number)).unwrap();
        cart
    }

    /// A user's cart that took in so many guest carts.
    fn user_cart(merges: u64) -> Cart {
        let mut cart = Cart::for_user(&UserId::parse("u").unwrap(), 3, at(1));
        cart.put_line(line(7)).unwrap();
        for number in 0..merges {
            let mut guest = guest_cart(number);
            guest
                .abandon_into(cart.id(), at(100 + number as i64))
                .unwrap();
            cart.merge_guest(&GuestCart::closed(&guest).unwrap())
                .unwrap();
        }
        cart
    }

    fn record(cart: &Cart, ordinal: u64) -> Record {
        let part = |(key, fields)| (key, Part::live(revision(2), fields));
        Record {
            key: RecordKey::by_id(
                layout::Collection::Carts,
                RecordId::new(cart.id().as_str()).unwrap(),
            ),
            header: Header {
                revision: revision(1),
                cleared: Revision::ZERO,
                content: Content::Live(cart_header(cart, ordinal)),
            },
            parts: cart_parts(cart).into_iter().map(part).collect(),
        }
    }

    #[test]
    fn every_cart_comes_back_from_its_record() {
        let mut carts: Vec<Cart> = (0..40).map(guest_cart).collect();
        carts.extend((0..=GUEST_CARTS_REMEMBERED_MAX as u64 + 4).map(user_cart));
        let closed = carts.clone().into_iter().map(|mut cart| {
            cart.mark_ordered(at(500)).unwrap();
            cart
        });
        let merged = (0..40).map(|number| {
            let mut guest = guest_cart(number);
            guest.abandon_into(user_cart(0).id(), at(500)).unwrap();
            guest
        });
        let all: Vec<Cart> = carts.iter().cloned().chain(closed).chain(merged).collect();
        for (cart, ordinal) in all.iter().zip(1..) {
            let read = CartRecord::read(&record(cart, ordinal).into()).unwrap();
            assert_eq!(read.cart.value, *cart);
            assert_eq!(read.ordinal, ordinal);
            assert_eq!(read.header_revision, revision(1));
            let newest = if cart_parts(cart).is_empty() { 1 } else { 2 };
            assert_eq!(read.newest_revision, revision(newest));
        }
    }

    #[test]
    fn what_no_cart_could_have_written_is_damaged() {
        fn check(damage: impl Fn(&mut Record, &mut Fields), expected: &str) {
            let mut record = record(&guest_cart(1), 1);
            let mut header = record.header.content.live().unwrap().clone();
            damage(&mut record, &mut header);
            record.header.content = Content::Live(header);
            match CartRecord::read(&record.into()) {
                Err(ShopError::Damaged { reason }) => {
                    assert!(reason.contains(expected), "{reason}");
                }
                other => panic!("{expected}: {other:?}"),
            }
        }
        let set = |field: Field, value: Value| {
            move |_: &mut Record, header: &mut Fields| {
                *header = header.clone().with(field, value.clone());
            }
        };
        check(set(Field::Status, Value::text("open")), "status \"open\"");
        check(set(Field::Ordinal, Value::Int(-1)), "out of range");
        check(set(Field::UserId, Value::text("u")), "session or to a user");
        let merged = BTreeMap::from([("c-1".to_owned(), Value::Int(1))]);
        check(set(Field::Merged, Value::Map(merged)), "no moment");
        check(
            |_, header| _ = header.remove(Field::CreatedAt),
            "created_at is missing",
        );
        check(
            |record, _| _ = record.parts.remove(&PartKey::expiry()),
            "guest carts expire",
        );
        let line = PartKey::line("p 1");
        check(
            |record, _| {
                let mut fields = record.part(&line).unwrap().clone();
                fields.insert(Field::Quantity, Value::Int(0)).unwrap();
                let part = Part::live(revision(2), fields);
                record.parts.insert(line.clone(), part);
            },
            "quantity of 0",
        );
    }
}
