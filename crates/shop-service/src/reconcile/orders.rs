//! The round of the orders: open marks that nobody looks after. The sweeper finds most
//! of them by their path; here every order is looked at, also one whose row is lost.

use engine_api::Record;
use layout::Collection;

use super::care::Problem;
use super::report::Kind;
use super::{Place, Reconciler};
use crate::error::ShopError;
use crate::orders::Current;
use crate::records::Settlement;

impl Reconciler<'_> {
    pub(super) async fn orders(&mut self, place: &Place) -> Result<Option<Place>, ShopError> {
        let (images, next) = self.survey(Collection::Orders, place).await?;
        self.report.read(images.len());
        for image in &images {
            if image.live_at(self.shop.now()).is_none() {
                continue;
            }
            self.report.look(Kind::Unreadable, 1);
            match Current::of(image) {
                Ok(order) if order.kept.settlement == Settlement::Open => {
                    self.open_order(image).await?;
                }
                Ok(_) => {}
                Err(error) => {
                    let (key, reason) = (image.key.id.to_string(), error.to_string());
                    self.take_care(Problem::Unreadable { key, reason }).await;
                }
            }
        }
        Ok(next)
    }

    async fn open_order(&mut self, image: &Record) -> Result<(), ShopError> {
        self.report.look(Kind::OpenOrder, 1);
        let Some(record) = self.shop.router.get(&image.key).await? else {
            return Ok(());
        };
        let order = Current::of(&record)?;
        let changed_at = order.kept.order.header().changed_at;
        let abandoned = changed_at <= self.shop.patience_ends();
        if order.kept.settlement == Settlement::Open && abandoned {
            let status = order.status();
            self.take_care(Problem::OpenOrder { record, status }).await;
        }
        Ok(())
    }
}
