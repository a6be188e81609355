//! The sample's shoppers: users and guests with their sessions, carts and orders.

use anyhow::{Context, Result};
use model::{
    Address, Attributes, Cart, CartLine, DeviceType, IdempotencyKey, LIFETIME_S_MAX, Lifetime,
    Order, OrderLine, OrderRequest, OrderStatus, PaymentMethod, Quantity, RequestFields,
    SessionDetails, ShopperSession, ShopperSessionId, Timestamp, UserAgent, UserId, ZoneName,
};

use super::catalogue::{SampleProduct, ZONES, pick, pick_text, scattered};

const USERS: u64 = 40;
const GUESTS: u64 = 20;
const ORDERS: u64 = 120;

/// Every so many orders one is the wholesale buyer's, who is the first user.
const WHOLESALE_EVERY: u64 = 4;
const WHOLESALE_PIECES: u32 = 12;

/// Monday, 5 January 2026, 08:00 UTC: when the sample's shop opens.
const OPENING: Timestamp = Timestamp::from_unix_micros(1_767_600_000_000_000);

const HOUR_S: u64 = 3600;

const DEVICES: [(&str, &str); 3] = [
    ("phone", "sample shopper (phone)"),
    ("tablet", "sample shopper (tablet)"),
    ("desktop", "sample shopper (desktop)"),
];

const PAYMENT_METHODS: [&str; 3] = ["card", "invoice", "on delivery"];

/// How far orders go, in turn. None stays pending: a sweeper would end it.
const COURSES: [&[OrderStatus]; 7] = {
    use OrderStatus::{Cancelled, Created, Delivered, Paid, Pending, Returned, Shipped};
    [
        &[Pending, Created],
        &[Pending, Created, Paid],
        &[Pending, Created, Paid, Shipped],
        &[Pending, Created, Paid, Shipped, Delivered],
        &[Pending, Created, Cancelled],
        &[Pending, Created, Paid, Cancelled],
        &[Pending, Created, Paid, Shipped, Delivered, Returned],
    ]
};

#[derive(Debug)]
pub struct Shoppers {
    pub users: Vec<UserId>,
    pub sessions: Vec<ShopperSession>,
    pub carts: Vec<SampleCart>,
    pub orders: Vec<SampleOrder>,
}

#[derive(Clone, Debug)]
pub struct SampleCart {
    pub cart: Cart,
    /// Which cart of its owner it is.
    pub ordinal: u64,
}

#[derive(Clone, Debug)]
pub struct SampleOrder {
    /// As it begins.
    pub pending: Order,
    /// What becomes of it, one status after the other.
    pub course: &'static [OrderStatus],
}

impl Shoppers {
    pub fn generate(products: &[SampleProduct]) -> Result<Shoppers> {
        let users =
            (0..USERS).map(|number| Ok(UserId::parse(&format!("USER-{}", 10_001 + number))?));
        let users: Vec<UserId> = users.collect::<Result<_>>()?;
        let mut shoppers = Shoppers {
            sessions: Vec::new(),
            carts: Vec::new(),
            orders: Vec::new(),
            users,
        };
        for (user, number) in shoppers.users.iter().zip(0..) {
            shoppers.sessions.extend(sessions_of(user, number)?);
            shoppers.carts.extend(carts_of(user, number, products)?);
        }
        for number in 0..GUESTS {
            let session = session(None, USERS * 2 + number)?;
            let mut cart = Cart::for_guest(&session, 1, lifetime()?, session.times().opened_at);
            fill(&mut cart, number * 13, products)?;
            shoppers.sessions.push(session);
            shoppers.carts.push(SampleCart { cart, ordinal: 1 });
        }
        for number in 0..ORDERS {
            shoppers
                .orders
                .push(order(&shoppers.users, number, products)?);
        }
        Ok(shoppers)
    }
}

/// So many hours after the moment.
pub fn hours_after(moment: Timestamp, hours: u64) -> Result<Timestamp> {
    let seconds = i64::try_from(hours * HOUR_S)?;
    moment
        .checked_add_seconds(seconds)
        .context("the sample's times are too far apart")
}

/// The longest there is, so that the sample is still the same in years.
fn lifetime() -> Result<Lifetime> {
    Ok(Lifetime::from_seconds(LIFETIME_S_MAX)?)
}

/// One session, and for every other user an earlier one that is closed.
fn sessions_of(user: &UserId, number: u64) -> Result<Vec<ShopperSession>> {
    let mut sessions = vec![session(Some(user), number * 2 + 1)?];
    if number.is_multiple_of(2) {
        let mut earlier = session(Some(user), number * 2)?;
        earlier.close(hours_after(earlier.times().opened_at, 1)?);
        sessions.push(earlier);
    }
    Ok(sessions)
}

fn session(user: Option<&UserId>, number: u64) -> Result<ShopperSession> {
    let (device, agent) = pick(&DEVICES, number);
    let details = SessionDetails {
        id: ShopperSessionId::parse(&format!("SESS-{:04}", number + 1))?,
        user: user.cloned(),
        // From the addresses set aside for documentation.
        ip_address: Some([203, 0, 113, u8::try_from(number % 250)?].into()),
        user_agent: Some(UserAgent::parse(agent)?),
        device_type: Some(DeviceType::parse(device)?),
        geo_zone: Some(ZoneName::parse(pick_text(&ZONES, number))?),
        attributes: Attributes::default(),
    };
    Ok(ShopperSession::open(
        details,
        lifetime()?,
        hours_after(OPENING, number)?,
    ))
}

/// An active cart, and for every other user an earlier one that became an order.
fn carts_of(user: &UserId, number: u64, products: &[SampleProduct]) -> Result<Vec<SampleCart>> {
    let opened_at = hours_after(OPENING, number * 2)?;
    let has_earlier = number.is_multiple_of(2);
    let ordinal = if has_earlier { 2 } else { 1 };
    let mut active = Cart::for_user(user, ordinal, opened_at);
    fill(&mut active, number * 17, products)?;
    let mut carts = vec![SampleCart {
        cart: active,
        ordinal,
    }];
    if has_earlier {
        let mut ordered = Cart::for_user(user, 1, opened_at);
        fill(&mut ordered, number * 19, products)?;
        ordered.mark_ordered(hours_after(opened_at, 1)?)?;
        carts.push(SampleCart {
            cart: ordered,
            ordinal: 1,
        });
    }
    Ok(carts)
}

/// One to four products; the same one twice stays one line.
fn fill(cart: &mut Cart, seed: u64, products: &[SampleProduct]) -> Result<()> {
    for step in 0..=scattered(seed) % 4 {
        let SampleProduct { product, image, .. } = pick(products, seed * 31 + step);
        cart.put_line(CartLine {
            product: product.id().clone(),
            category: product.category().clone(),
            quantity: Quantity::from_pieces(1 + scattered(seed + step) % 3)?,
            name: product.name.clone(),
            price: product.price,
            image: Some(image.clone()),
            changed_at: cart.header().created_at,
        })?;
    }
    Ok(())
}

fn order(users: &[UserId], number: u64, products: &[SampleProduct]) -> Result<SampleOrder> {
    let wholesale = number.is_multiple_of(WHOLESALE_EVERY);
    let user = if wholesale {
        &users[0]
    } else {
        pick(users, number)
    };
    let mut lines: Vec<OrderLine> = Vec::new();
    for step in 0..=scattered(number * 5) % 4 {
        let product = &pick(products, number * 37 + step).product;
        if lines.iter().any(|line| line.product == *product.id()) {
            continue;
        }
        let pieces = if wholesale { WHOLESALE_PIECES } else { 1 };
        lines.push(OrderLine {
            product: product.id().clone(),
            category: product.category().clone(),
            name: product.name.clone(),
            quantity: Quantity::new(pieces)?,
            price: product.price,
        });
    }
    let request = OrderRequest::new(RequestFields {
        idempotency_key: IdempotencyKey::parse(&format!("sample-{}", number + 1))?,
        lines,
        geo_zone: ZoneName::parse(pick_text(&ZONES, number))?,
        address: Address::parse(&format!("{} Harbour Street", number + 1))?,
        payment_method: PaymentMethod::parse(pick_text(&PAYMENT_METHODS, number))?,
    })?;
    let courses = u64::try_from(COURSES.len())?;
    Ok(SampleOrder {
        pending: Order::pending(user, request, hours_after(OPENING, number * 5)?),
        course: COURSES[usize::try_from(number % courses)?],
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::catalogue;
    use super::*;

    #[test]
    fn the_same_shoppers_come_every_time() {
        let products = catalogue::generate().unwrap();
        let twice = [(); 2].map(|()| format!("{:?}", Shoppers::generate(&products).unwrap()));
        assert_eq!(twice[0], twice[1]);
    }

    #[test]
    fn no_zone_is_asked_for_more_than_it_received() {
        let products = catalogue::generate().unwrap();
        let mut asked: BTreeMap<_, u64> = BTreeMap::new();
        for order in Shoppers::generate(&products).unwrap().orders {
            let zone = order.pending.request().unwrap().geo_zone().clone();
            for line in order.pending.lines() {
                let place = (line.product.clone(), zone.clone());
                *asked.entry(place).or_default() += line.quantity.pieces();
            }
        }
        for ((product, zone), pieces) in asked {
            let known = products
                .iter()
                .find(|known| *known.product.id() == product)
                .unwrap();
            let key = catalogue::stock_key(zone.as_str()).unwrap();
            assert!(known.product.stock(&key).unwrap().available() >= pieces);
        }
    }
}
