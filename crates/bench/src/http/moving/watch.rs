//! Stretches of a load that does not end: what was answered between two moments.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use judge::http::Response;

use super::super::load::{Caller, Tally};
use super::super::shop::{Mix, Shop, Shoppers};

/// Counts while somebody watches.
#[derive(Debug, Default)]
pub struct Watch(Mutex<Option<Tally>>);

impl Watch {
    pub fn begin(&self) {
        *self.tally() = Some(Tally::new());
    }

    pub fn end(&self) -> anyhow::Result<Tally> {
        let tally = self.tally().take().context("nobody watched")?;
        anyhow::ensure!(tally.answers > 0, "nobody asked while somebody watched");
        Ok(tally)
    }

    fn count(&self, waited: Duration, judged: &Result<(), String>) {
        if let Some(tally) = self.tally().as_mut() {
            tally.count(waited, judged.clone());
        }
    }

    fn tally(&self) -> MutexGuard<'_, Option<Tally>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shoppers whose answers are counted while somebody watches.
#[derive(Debug)]
pub struct Watched<'a> {
    shoppers: Shoppers<'a>,
    watch: &'a Watch,
}

impl<'a> Watched<'a> {
    pub fn on_connections(
        shop: &'a Shop,
        mix: Mix,
        connections: u64,
        watch: &'a Watch,
    ) -> Vec<Self> {
        let shoppers = Shoppers::on_connections(shop, mix, connections);
        let watched = |shoppers| Watched { shoppers, watch };
        shoppers.into_iter().map(watched).collect()
    }
}

impl Caller for Watched<'_> {
    fn next(&mut self, request: &mut Vec<u8>) -> bool {
        self.shoppers.next(request)
    }

    fn answered(&mut self, response: &Response<'_>) -> Result<(), String> {
        self.shoppers.answered(response)
    }

    fn answered_after(&mut self, response: &Response<'_>, waited: Duration) -> Result<(), String> {
        let judged = self.answered(response);
        self.watch.count(waited, &judged);
        judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_answered_in_the_stretch_counts() {
        let watch = Watch::default();
        watch.count(Duration::from_secs(9), &Ok(()));
        watch.begin();
        watch.count(Duration::from_millis(5), &Ok(()));
        let stretch = watch.end().unwrap();
        watch.count(Duration::from_secs(9), &Ok(()));
        assert_eq!((stretch.answers, stretch.quantile(1.0).round()), (1, 5.0));
        watch.begin();
        assert!(
            watch.end().is_err(),
            "a stretch without answers says nothing"
        );
    }
}
