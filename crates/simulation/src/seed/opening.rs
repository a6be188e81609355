//! The beginning: a first map, processes that serve, goods on the shelves, and those who come.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine_api::{ControlStore, Engine, PriceCondition, StockAction};
use router::MapKeeper;
use tokio::task::JoinHandle;

use super::Stage;
use super::servers::Kinds;
use crate::scenery::{
    GOODS, GOODS_PIECES, PIECES, PRODUCTS, create, first_map, product, product_header, stock,
};
use crate::serving::Moving;
use crate::shopper::Shopper;
use crate::visitor::Visitor;

impl Stage {
    pub(super) async fn open(&mut self) {
        let mut origins = BTreeMap::new();
        for (name, engine) in self.servers.all() {
            let origin = engine.server().memory.journal_end().await;
            let origin = origin.expect("the memory engine has a journal");
            origins.insert(name.clone(), origin);
        }
        self.origins = origins;
        let keeper = MapKeeper::new(Arc::clone(&self.control) as Arc<dyn ControlStore>);
        keeper
            .publish(&first_map(|collection| self.servers.serving(collection)))
            .await
            .expect("nothing is in the way of a first map");
        for process in &self.shared.processes {
            process.start().await;
            if self.company.visitors > 0 {
                process.start_sweeper();
            }
            if self.servers.archive.is_some() {
                process.start_archiver();
            }
            if self.moving == Moving::Shipped {
                process.start_movers();
            }
        }
        let keeper = Shopper::new(
            self.company.shoppers,
            Arc::clone(&self.shared),
            self.chance.stream("keeper"),
        );
        for name in PRODUCTS {
            let header = product_header(name, 500, &self.shared.marks);
            keeper
                .write(vec![create(&product(name), header, vec![])])
                .await;
            let receive = StockAction::Receive { total: PIECES };
            keeper
                .write(vec![stock(&product(name), PriceCondition::Any, receive)])
                .await;
        }
        let chance = self.chance.stream("manager");
        let manager = Visitor::new(self.company.visitors, Arc::clone(&self.hall), chance);
        for name in GOODS {
            manager.set_price(name, 500).await;
            manager.receive(name, GOODS_PIECES).await;
        }
    }

    pub(super) fn shoppers(&self) -> Vec<JoinHandle<()>> {
        (0..self.company.shoppers)
            .map(|number| {
                let chance = self.chance.stream(&format!("shopper {number}"));
                let shopper = Shopper::new(number, Arc::clone(&self.shared), chance);
                tokio::spawn(async move { shopper.go_shopping().await })
            })
            .collect()
    }

    /// Where orders live apart from their stock or go to an archive, somebody watches them.
    pub(super) fn watchers(&self) -> Vec<JoinHandle<()>> {
        let watches = self.servers.archive.is_some() || self.servers.kinds == Kinds::OrdersApart;
        let number = self.company.visitors + 2;
        let watcher = watches.then(|| {
            let chance = self.chance.stream("watcher");
            let watcher = Visitor::new(number, Arc::clone(&self.hall), chance);
            tokio::spawn(async move { watcher.watch().await })
        });
        watcher.into_iter().collect()
    }

    pub(super) fn visitors(&self) -> Vec<JoinHandle<()>> {
        (0..self.company.visitors)
            .map(|number| {
                let chance = self.chance.stream(&format!("visitor {number}"));
                let visitor = Visitor::new(number, Arc::clone(&self.hall), chance);
                tokio::spawn(async move { visitor.look_around().await })
            })
            .collect()
    }
}
