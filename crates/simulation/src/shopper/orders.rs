//! Orders and stock: sold in one commit where one shard has both sides, by
//! reservation otherwise; cancelled, shipped, and tried twice.

use engine_api::{PriceCondition, Record, RecordKey, StockAction, Together};
use layout::{Field, Fields, Value};
use rust_decimal::Decimal;

use super::Shopper;
use crate::recording::End;
use crate::scenery::{
    PRICES_CENTS, PRODUCTS, Sale, USERS, change_if, create, order, order_header, order_line,
    product, stock, with_status,
};

const PIECES_MAX: u64 = 3;

impl Shopper {
    pub(super) async fn order_something(&self) {
        let wish = self.chance().below(100);
        match wish {
            0..=34 if self.shared.together == Together::Atomic => self.buy_at_once().await,
            0..=64 => self.buy_by_reservation().await,
            _ => self.visit_order().await,
        }
    }

    async fn buy_at_once(&self) {
        let (user, name) = (self.pick(&USERS), self.pick(&PRODUCTS));
        let key = self.new_order(user);
        let pieces = self.pieces();
        let item = (name, pieces);
        let header = order_header(
            &key,
            user,
            Sale::AtOnce,
            item,
            self.now(),
            &self.shared.marks,
        );
        let sell = StockAction::Sell { quantity: pieces };
        let written = self
            .write(vec![
                create(&key, header, vec![]),
                stock(&product(name), self.price(), sell),
            ])
            .await;
        if matches!(written, Some(End::Done { .. })) {
            self.look_at_orders(user).await;
        }
    }

    /// What was just ordered is looked for, sometimes.
    async fn look_at_orders(&self, user: &str) {
        if self.chance().percent(50) {
            self.list(Self::orders_of(user)).await;
        }
    }

    /// Take, order, claim; or take and give back.
    async fn buy_by_reservation(&self) {
        let (user, name) = (self.pick(&USERS), self.pick(&PRODUCTS));
        let (key, shelf) = (self.new_order(user), product(name));
        let (pieces, at) = (self.pieces(), self.now());
        let order_id = key.id.to_string();
        let take = StockAction::Take {
            order: order_id.clone(),
            quantity: pieces,
            at,
        };
        let take = stock(&shelf, self.price(), take);
        let taken = self.write(vec![take.clone()]).await;
        if self.chance().percent(40) {
            self.write(vec![take]).await;
        }
        if !matches!(taken, Some(End::Done { .. })) {
            return;
        }
        let item = (name, pieces);
        let header = order_header(&key, user, Sale::Reserved, item, at, &self.shared.marks);
        let created = self.write(vec![create(&key, header, vec![])]).await;
        let settled = match created {
            Some(End::Done { .. }) => StockAction::Claim { order: order_id },
            Some(End::Refused { .. }) => StockAction::Give {
                order: order_id,
                quantity: pieces,
                at: self.now(),
            },
            _ => return,
        };
        let settled = stock(&shelf, PriceCondition::Any, settled);
        self.look_at_orders(user).await;
        self.write(vec![settled.clone()]).await;
        if self.chance().percent(30) {
            self.write(vec![settled]).await;
        }
    }

    /// Someone's order is read, shipped or cancelled.
    async fn visit_order(&self) {
        let known = self
            .shared
            .orders
            .lock()
            .expect("no code panics while it holds the lock")
            .clone();
        if known.is_empty() {
            return;
        }
        let key = self.chance().pick(&known).clone();
        let Some(image) = self.read_live(&key).await else {
            return;
        };
        let Some(header) = image.header.content.live() else {
            return;
        };
        if header.text(Field::Status) != Some("created") {
            return;
        }
        if self.chance().percent(10) {
            return self.give_away(&image, header).await;
        }
        if self.chance().percent(40) {
            let shipped = with_status(header, "shipped", &self.shared.marks);
            self.write(vec![change_if(&key, image.header.revision, shipped)])
                .await;
        } else if header.text(Field::PaymentMethod) == Some(Sale::AtOnce.name()) {
            self.cancel(&image).await;
        }
    }

    /// A change of the user, which is not allowed: it must be refused (W8).
    async fn give_away(&self, image: &Record, header: &Fields) {
        let header = with_status(header, "created", &self.shared.marks)
            .with(Field::UserId, Value::text("nobody"));
        self.write(vec![change_if(&image.key, image.header.revision, header)])
            .await;
    }

    async fn cancel(&self, image: &Record) {
        let Some(header) = image.header.content.live() else {
            return;
        };
        let Some((name, pieces)) = order_line(header) else {
            return;
        };
        let cancelled = with_status(header, "cancelled", &self.shared.marks);
        let unsell = StockAction::Unsell { quantity: pieces };
        self.write(vec![
            change_if(&image.key, image.header.revision, cancelled),
            stock(&product(&name), PriceCondition::Any, unsell),
        ])
        .await;
    }

    fn new_order(&self, user: &str) -> RecordKey {
        let key = order(&format!("order-{}", self.shared.marks.next()), user);
        let mut orders = self
            .shared
            .orders
            .lock()
            .expect("no code panics while it holds the lock");
        orders.push(key.clone());
        key
    }

    fn pieces(&self) -> u32 {
        u32::try_from(self.chance().between(1, PIECES_MAX)).expect("a few pieces are few")
    }

    /// Sometimes a price that was seen, which may have moved since.
    fn price(&self) -> PriceCondition {
        let mut chance = self.chance();
        if chance.percent(50) {
            return PriceCondition::Any;
        }
        PriceCondition::Exactly(Decimal::new(*chance.pick(&PRICES_CENTS), 2))
    }

    /// Another price for a product, and a stray piece of news about it.
    pub(super) async fn change_price(&self) {
        let name = self.pick(&PRODUCTS);
        let key = product(name);
        let Some(image) = self.read_live(&key).await else {
            return;
        };
        let Some(header) = image.header.content.live() else {
            return;
        };
        let price = Value::Decimal(Decimal::new(*self.chance().pick(&PRICES_CENTS), 2));
        let mark = Value::text(format!("{name} {}", self.shared.marks.next()));
        let header = header
            .clone()
            .with(Field::Price, price)
            .with(Field::Description, mark);
        self.write(vec![change_if(&key, image.header.revision, header)])
            .await;
    }
}
