//! The steps of a filling. Each looks first whether an earlier filling did it.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use engine_api::{Revision, Timestamp};
use model::{CartId, CartOwner, CartStatus, OrderId, ShopperSessionId};
use router::Router;
use shop_service::{ItemWish, OrderHistory, Settings, Shop, ShopConfig, ShopError, Swept};
use tokio::task::JoinSet;

use super::Sample;
use super::catalogue::SampleProduct;
use super::moment::{Moment, session_id};
use super::shoppers::{Ago, SampleGuest, SampleOrder, SampleSession, SampleUser};
use crate::progress::Progress;
use crate::shards::Shards;

/// Steps at the same time.
const STEPS_AT_ONCE_MAX: usize = 64;

#[derive(Clone, Debug)]
pub struct Filler {
    router: Arc<Router>,
    histories: Vec<OrderHistory>,
    settings: Settings,
    /// What times are counted back from.
    from: Timestamp,
}

impl Filler {
    pub fn new(shards: &Shards, settings: Settings, from: Timestamp) -> Filler {
        Filler {
            router: shards.router.clone(),
            histories: shards.histories.clone(),
            settings,
            from,
        }
    }

    pub async fn fill(&self, sample: &Sample) -> Result<()> {
        let shoppers = &sample.shoppers;
        let total = sample.products.len()
            + shoppers.orders.len()
            + shoppers.users.len()
            + shoppers.guests.len();
        let mut progress = Progress::begin("writing the sample", total);
        let mut steps = Steps::new(&mut progress);
        for product in &sample.products {
            let (filler, product) = (self.clone(), product.clone());
            steps
                .take(async move { filler.product(product).await })
                .await?;
        }
        // Nobody can buy what is not there.
        steps.finish().await?;
        for order in &shoppers.orders {
            let (filler, order) = (self.clone(), order.clone());
            steps
                .take(async move { filler.order(&order).await })
                .await?;
        }
        for user in &shoppers.users {
            let (filler, user) = (self.clone(), user.clone());
            steps.take(async move { filler.user(user).await }).await?;
        }
        for guest in &shoppers.guests {
            let (filler, guest) = (self.clone(), guest.clone());
            steps.take(async move { filler.guest(guest).await }).await?;
        }
        steps.finish().await?;
        self.settle().await?;
        progress.finish();
        Ok(())
    }

    /// What an interrupted filling left open over several shards. Nobody else is at
    /// work, so that nothing has to be waited for.
    async fn settle(&self) -> Result<()> {
        let patience_s = i64::from(self.settings.sweep_after_s.seconds());
        let later = self.from.checked_add_seconds(patience_s + 1);
        let shop = self.shop(later.context("the sample begins too late")?, 0);
        loop {
            let swept = shop.sweep().await?;
            ensure!(
                swept.failed == 0,
                "an order of the sample cannot be settled: use an empty directory"
            );
            if swept == Swept::default() {
                return Ok(());
            }
        }
    }

    async fn product(&self, product: SampleProduct) -> Result<()> {
        let shop = self.shop(self.from, 0);
        let id = product.wish.id.clone();
        shop.put_product(product.wish, None, Revision::ZERO).await?;
        for (zone, pieces) in &product.stock {
            shop.receive_stock(&id, zone, *pieces, Revision::ZERO)
                .await?;
        }
        Ok(())
    }

    async fn order(&self, order: &SampleOrder) -> Result<()> {
        let shop = self.shop_ago(order.placed, 0)?;
        let placed = shop.place_order(order.wish.clone(), Revision::ZERO).await?;
        let id = &placed.order.value.header().id;
        let stands = placed.order.value.header().status;
        // An earlier filling may have come as far as its status says.
        let done = order.course.iter().position(|status| *status == stands);
        let left = done.map_or(0, |done| done + 1);
        for (status, hours) in order.course.iter().zip(1..).skip(left) {
            let shop = self.shop_ago(order.placed.hours_later(hours), 0)?;
            shop.change_order_status(id, *status, None, Revision::ZERO)
                .await?;
        }
        Ok(())
    }

    async fn user(&self, user: SampleUser) -> Result<()> {
        self.session(&user.session).await?;
        let owner = CartOwner::User(user.id.clone());
        let mut carts = 0;
        if let Some((items, order)) = &user.ordered {
            carts += 1;
            let shop = self.shop_ago(user.session.opened, 0)?;
            let id = OrderId::derived(&user.id, &order.wish.key);
            match shop.order(&id, Some(&user.id)).await {
                Ok(_) => {}
                Err(ShopError::NotFound { .. }) => self.cart(&shop, &owner, carts, items).await?,
                Err(error) => return Err(error.into()),
            }
            self.order(order).await?;
        }
        if !user.active.is_empty() {
            let shop = self.shop_ago(user.session.opened.hours_later(1), 0)?;
            self.cart(&shop, &owner, carts + 1, &user.active).await?;
        }
        Ok(())
    }

    async fn guest(&self, guest: SampleGuest) -> Result<()> {
        let session = self.session(&guest.session).await?;
        let shop = self.shop_ago(guest.session.opened, 0)?;
        let owner = CartOwner::Guest(session.clone());
        self.cart(&shop, &owner, 1, &guest.items).await?;
        if let Some((user, signed_in)) = guest.signs_in {
            let shop = self.shop_ago(signed_in.opened, signed_in.seed)?;
            match shop.session(&session_id(signed_in.seed)).await {
                Ok(_) => {
                    shop.merge_guest_cart(&session, &user, Revision::ZERO)
                        .await?;
                }
                Err(ShopError::NotFound { .. }) => {
                    let login = shop.login(signed_in.wish, &user, Some(&session), Revision::ZERO);
                    check_id(login.await?.session.value.id(), signed_in.seed)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn session(&self, session: &SampleSession) -> Result<ShopperSessionId> {
        let shop = self.shop_ago(session.opened, session.seed)?;
        let id = session_id(session.seed);
        match shop.session(&id).await {
            Ok(_) => {}
            Err(ShopError::NotFound { .. }) => {
                let opened = shop.open_session(session.wish.clone()).await?;
                check_id(opened.value.id(), session.seed)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(id)
    }

    /// The owner's cart with that number; one that is closed was filled before.
    async fn cart(
        &self,
        shop: &Shop,
        owner: &CartOwner,
        ordinal: u64,
        items: &[ItemWish],
    ) -> Result<()> {
        let id = CartId::of_owner(owner, ordinal);
        match shop.cart(&id).await {
            Ok(cart) if cart.value.header().status != CartStatus::Active => return Ok(()),
            Ok(_) => {}
            Err(ShopError::NotFound { .. }) => {
                shop.open_cart(owner, Revision::ZERO).await?;
            }
            Err(error) => return Err(error.into()),
        }
        for item in items {
            shop.put_item(&id, item.clone(), Revision::ZERO).await?;
        }
        Ok(())
    }

    fn shop_ago(&self, ago: Ago, seed: u64) -> Result<Shop> {
        Ok(self.shop(ago.before(self.from)?, seed))
    }

    /// The shop as it was at that moment.
    fn shop(&self, at: Timestamp, seed: u64) -> Shop {
        let shop = Shop::new(ShopConfig {
            router: self.router.clone(),
            world: Arc::new(Moment::at(at, seed)),
            settings: self.settings.clone(),
        });
        let histories = self.histories.iter().cloned();
        histories.fold(shop, Shop::with_history)
    }
}

/// If the shop drew ids in another way, a filling could not be repeated.
fn check_id(opened: &ShopperSessionId, seed: u64) -> Result<()> {
    let foreseen = session_id(seed);
    ensure!(
        *opened == foreseen,
        "the sample's session is {opened} and not {foreseen}: use an empty directory"
    );
    Ok(())
}

/// A bounded number of steps at a time; the first error ends them.
struct Steps<'a> {
    running: JoinSet<Result<()>>,
    progress: &'a mut Progress,
}

impl Steps<'_> {
    fn new(progress: &mut Progress) -> Steps<'_> {
        Steps {
            running: JoinSet::new(),
            progress,
        }
    }

    async fn take(
        &mut self,
        step: impl Future<Output = Result<()>> + Send + 'static,
    ) -> Result<()> {
        if self.running.len() >= STEPS_AT_ONCE_MAX {
            self.finish_one().await?;
        }
        self.running.spawn(step);
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        while !self.running.is_empty() {
            self.finish_one().await?;
        }
        Ok(())
    }

    async fn finish_one(&mut self) -> Result<()> {
        if let Some(finished) = self.running.join_next().await {
            finished.context("writing the sample was cut short: start it again")??;
            self.progress.advance();
        }
        Ok(())
    }
}
