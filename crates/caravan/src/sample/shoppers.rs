//! The sample's shoppers: users and guests with what they put into carts and order.

use anyhow::{Context, Result};
use model::{
    Address, CartId, CartOwner, DeviceType, IdempotencyKey, OrderStatus, PaymentMethod, Quantity,
    Timestamp, UserAgent, UserId, ZoneName,
};
use shop_service::{ItemWish, LineWish, OrderWish, SessionWish};

use super::catalogue::{SampleProduct, ZONES, pick, scattered};

const USERS: u64 = 40;
const GUESTS: u64 = 20;
const ORDERS: u64 = 120;

/// Every so many users one has ordered a cart, every so many has one open.
const ORDERED_EVERY: u64 = 4;
const ACTIVE_EVERY: u64 = 2;

/// Every so many guests one signs in as a user of his own.
const SIGNED_IN_EVERY: u64 = 5;

/// Every so many orders one is the wholesale buyer's, who is the first user.
const WHOLESALE_EVERY: u64 = 4;
const WHOLESALE_PIECES: u32 = 12;

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 3_600;

/// How far orders lie apart; an order's whole course takes less.
const ORDERS_APART_S: u64 = 6 * HOUR_S;

const DEVICES: [(&str, &str); 3] = [
    ("phone", "sample shopper (phone)"),
    ("tablet", "sample shopper (tablet)"),
    ("desktop", "sample shopper (desktop)"),
];

const PAYMENT_METHODS: [&str; 3] = ["card", "invoice", "on-delivery"];

/// How far orders go after they were created, in turn.
const COURSES: [&[OrderStatus]; 7] = {
    use OrderStatus::{Cancelled, Delivered, Paid, Returned, Shipped};
    [
        &[],
        &[Paid],
        &[Paid, Shipped],
        &[Paid, Shipped, Delivered],
        &[Cancelled],
        &[Paid, Cancelled],
        &[Paid, Shipped, Delivered, Returned],
    ]
};

/// So many seconds before the moment that the sample's times are counted from.
#[derive(Clone, Copy, Debug)]
pub struct Ago {
    seconds: u64,
}

#[derive(Debug)]
pub struct Shoppers {
    pub users: Vec<SampleUser>,
    pub guests: Vec<SampleGuest>,
    pub orders: Vec<SampleOrder>,
}

#[derive(Clone, Debug)]
pub struct SampleUser {
    pub id: UserId,
    pub session: SampleSession,
    /// The first cart, which becomes this order.
    pub ordered: Option<(Vec<ItemWish>, SampleOrder)>,
    pub active: Vec<ItemWish>,
}

#[derive(Clone, Debug)]
pub struct SampleGuest {
    pub session: SampleSession,
    pub items: Vec<ItemWish>,
    /// Signs in as this user, in a session of his own.
    pub signs_in: Option<(UserId, SampleSession)>,
}

#[derive(Clone, Debug)]
pub struct SampleSession {
    pub wish: SessionWish,
    pub opened: Ago,
    /// Its id follows from it.
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub struct SampleOrder {
    pub wish: OrderWish,
    pub placed: Ago,
    /// What becomes of it, one status after the other, an hour apart.
    pub course: &'static [OrderStatus],
}

impl Ago {
    pub fn before(self, from: Timestamp) -> Result<Timestamp> {
        from.checked_add_seconds(-i64::try_from(self.seconds)?)
            .context("the sample's times are too far apart")
    }

    pub fn hours_later(self, hours: u64) -> Ago {
        Ago {
            seconds: self.seconds.saturating_sub(hours * HOUR_S),
        }
    }
}

impl Shoppers {
    pub fn generate(products: &[SampleProduct]) -> Result<Shoppers> {
        let users = (0..USERS).map(|number| user(number, products));
        let users: Vec<SampleUser> = users.collect::<Result<_>>()?;
        let guests = (0..GUESTS).map(|number| guest(number, products));
        let orders = (0..ORDERS).map(|number| {
            let wholesale = number.is_multiple_of(WHOLESALE_EVERY);
            let buyer = if wholesale {
                &users[0]
            } else {
                pick(&users, number)
            };
            let pieces = if wholesale { WHOLESALE_PIECES } else { 1 };
            let key = format!("sample-{}", number + 1);
            order(
                &buyer.id,
                &key,
                number,
                &basket(number * 37, pieces, products)?,
            )
        });
        Ok(Shoppers {
            guests: guests.collect::<Result<_>>()?,
            orders: orders.collect::<Result<_>>()?,
            users,
        })
    }
}

fn user_id(number: u64) -> Result<UserId> {
    Ok(UserId::parse(&format!("USER-{}", 10_001 + number))?)
}

fn user(number: u64, products: &[SampleProduct]) -> Result<SampleUser> {
    let id = user_id(number)?;
    let opened = Ago {
        seconds: (number + 1) * 90 * MINUTE_S,
    };
    let mut ordered = None;
    if number % ORDERED_EVERY == 1 {
        let basket = basket(number * 19 + 7, 1, products)?;
        let mut order = order(&id, "sample-cart", ORDERS + number, &basket)?;
        order.wish.cart = Some(CartId::of_owner(&CartOwner::User(id.clone()), 1));
        order.placed = opened.hours_later(1);
        order.course = &[];
        ordered = Some((items(&basket), order));
    }
    let has_active = number.is_multiple_of(ACTIVE_EVERY);
    let active = if has_active {
        basket(number * 17 + 3, 2, products)?
    } else {
        Vec::new()
    };
    Ok(SampleUser {
        session: session(Some(&id), number, opened)?,
        ordered,
        active: items(&active),
        id,
    })
}

fn guest(number: u64, products: &[SampleProduct]) -> Result<SampleGuest> {
    let opened = Ago {
        seconds: (number + 1) * 2 * MINUTE_S,
    };
    let mut signs_in = None;
    if number.is_multiple_of(SIGNED_IN_EVERY) {
        let user = user_id(USERS + number)?;
        let soon = Ago {
            seconds: opened.seconds - MINUTE_S,
        };
        let session = session(Some(&user), USERS + GUESTS + number, soon)?;
        signs_in = Some((user, session));
    }
    Ok(SampleGuest {
        session: session(None, USERS + number, opened)?,
        items: items(&basket(number * 13 + 5, 1, products)?),
        signs_in,
    })
}

fn session(user: Option<&UserId>, number: u64, opened: Ago) -> Result<SampleSession> {
    let (device, agent) = pick(&DEVICES, number);
    let wish = SessionWish {
        user: user.cloned(),
        // From the addresses set aside for documentation.
        ip_address: Some([203, 0, 113, u8::try_from(number % 250)?].into()),
        user_agent: Some(UserAgent::parse(agent)?),
        device_type: Some(DeviceType::parse(device)?),
        geo_zone: Some(ZoneName::parse(pick::<&str>(&ZONES, number))?),
        ..SessionWish::default()
    };
    Ok(SampleSession {
        wish,
        opened,
        seed: number,
    })
}

/// One to four products, each once.
fn basket(seed: u64, pieces: u32, products: &[SampleProduct]) -> Result<Vec<LineWish>> {
    let mut lines: Vec<LineWish> = Vec::new();
    for step in 0..=scattered(seed) % 4 {
        let wish = &pick(products, seed * 31 + step).wish;
        if lines.iter().all(|line| line.product != wish.id) {
            lines.push(LineWish {
                product: wish.id.clone(),
                category: Some(wish.category.clone()),
                quantity: Quantity::new(pieces)?,
                price: wish.price,
            });
        }
    }
    Ok(lines)
}

fn items(basket: &[LineWish]) -> Vec<ItemWish> {
    let item = |line: &LineWish| ItemWish {
        product: line.product.clone(),
        category: line.category.clone(),
        quantity: line.quantity,
    };
    basket.iter().map(item).collect()
}

fn order(user: &UserId, key: &str, number: u64, basket: &[LineWish]) -> Result<SampleOrder> {
    let courses = u64::try_from(COURSES.len())?;
    Ok(SampleOrder {
        wish: OrderWish {
            user: user.clone(),
            key: IdempotencyKey::parse(key)?,
            lines: basket.to_vec(),
            geo_zone: ZoneName::parse(pick::<&str>(&ZONES, number))?,
            address: Address::parse(&format!("ул. Садовая, {}", number + 1))?,
            payment_method: PaymentMethod::parse(pick::<&str>(&PAYMENT_METHODS, number))?,
            cart: None,
        },
        placed: Ago {
            seconds: ORDERS.saturating_sub(number) * ORDERS_APART_S,
        },
        course: COURSES[usize::try_from(number % courses)?],
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::catalogue;
    use super::*;

    #[test]
    fn no_zone_is_asked_for_more_than_it_received() {
        let products = catalogue::generate().unwrap();
        let shoppers = Shoppers::generate(&products).unwrap();
        let of_carts = shoppers
            .users
            .iter()
            .filter_map(|user| Some(&user.ordered.as_ref()?.1));
        let mut asked: BTreeMap<_, u64> = BTreeMap::new();
        for order in shoppers.orders.iter().chain(of_carts) {
            for line in &order.wish.lines {
                let place = (line.product.clone(), order.wish.geo_zone.clone());
                *asked.entry(place).or_default() += line.quantity.pieces();
            }
        }
        for ((product, zone), pieces) in asked {
            let known = products.iter().find(|known| known.wish.id == product);
            let stock = &known.unwrap().stock;
            let received = stock.iter().find(|(known, _)| *known == zone).unwrap().1;
            assert!(received >= pieces, "{product} in {zone}");
        }
    }

    #[test]
    fn the_course_of_an_order_ends_before_the_moment_it_is_counted_from() {
        let products = catalogue::generate().unwrap();
        for order in Shoppers::generate(&products).unwrap().orders {
            let hours = u64::try_from(order.course.len()).unwrap();
            assert!(order.placed.seconds > hours * HOUR_S);
        }
    }
}
