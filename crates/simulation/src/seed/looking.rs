//! Looking at everything when all is quiet: by requests, behind the servers' backs, and in
//! the journals.

use std::sync::Arc;

use engine_api::{Engine, EngineError, JournalEvent, Maintenance, Scan, Timestamp};
use layout::{Collection, Scope};

use super::{HISTORY_STATUSES, Stage};
use crate::engine::FaultyEngine;
use crate::scenery::{PRODUCTS, SESSIONS, USERS, cart, product, session};
use crate::shopper::Shopper;

impl Stage {
    /// What the owners hold, without asking anybody.
    pub(super) async fn look_behind(&self) {
        let map = self.recording.with(|history| {
            let last = history.maps.last();
            last.map(|published| Arc::clone(&published.map))
        });
        let map = map.expect("a first map was published");
        for (name, engine) in &self.servers.shards {
            for collection in Collection::ALL {
                let scan = Scan {
                    collection,
                    scope: Scope::All,
                    after: None,
                    until: None,
                    limit: engine_api::PAGE_RECORDS_MAX,
                };
                let page = engine.server().memory.scan(&scan).await;
                let page = page.expect("the memory engine answers every scan");
                let own = page
                    .images
                    .into_iter()
                    .filter(|image| map.owner(&image.key).ok() == Some(name));
                self.recording.with(|history| history.standing.extend(own));
            }
        }
        if let Some(archive) = &self.servers.archive {
            self.look_into(archive).await;
        }
    }

    /// Finished orders are in the archive and nowhere else, when all is quiet.
    async fn look_into(&self, archive: &FaultyEngine) {
        let scan = Scan {
            collection: Collection::Orders,
            scope: Scope::All,
            after: None,
            until: None,
            limit: engine_api::PAGE_RECORDS_MAX,
        };
        let page = archive.server().memory.scan(&scan).await;
        let page = page.expect("the memory engine answers every scan");
        self.recording.with(|history| {
            history.archived = page.images.len();
            history.standing.retain(|record| {
                record.key.collection != Collection::Orders
                    || record.header.content.live().is_some()
            });
            let live = history.standing.iter().filter_map(|record| {
                let header = record.header.content.live()?;
                let status = header.text(layout::Field::Status)?;
                let orders = record.key.collection == Collection::Orders;
                (orders && HISTORY_STATUSES.contains(&status)).then(|| record.key.to_string())
            });
            for key in live.collect::<Vec<_>>() {
                history
                    .breaches
                    .push(format!("{key} is finished and stays live"));
            }
            for image in page.images {
                if history
                    .standing
                    .iter()
                    .any(|record| record.key == image.key)
                {
                    let what = format!("{} is live and in the archive", image.key);
                    history.breaches.push(what);
                }
                history.standing.push(image);
            }
        });
    }

    /// The last reads, in quiet, of everything that ever was.
    pub(super) async fn look_at_everything(&self) {
        let reader = Shopper::new(
            self.company.shoppers + 1,
            Arc::clone(&self.shared),
            self.chance.stream("reader"),
        );
        let orders = self
            .shared
            .orders
            .lock()
            .expect("nobody else is left")
            .clone();
        let keys = USERS
            .map(cart)
            .into_iter()
            .chain(SESSIONS.map(session))
            .chain(PRODUCTS.map(product))
            .chain(orders);
        for key in keys {
            match reader.read(&key).await {
                Some(Some(image)) => self.recording.with(|history| history.images.push(image)),
                Some(None) => {}
                None => self
                    .recording
                    .breach(format!("{key} cannot be read in quiet")),
            }
        }
        for query in Shopper::all_listings() {
            reader.list(query).await;
        }
    }

    pub(super) async fn read_journals(&self) {
        for (name, engine) in self.servers.all() {
            let memory = &engine.server().memory;
            let origin = &self.origins[name];
            let page = memory
                .journal_read(origin, engine_api::JOURNAL_ENTRIES_MAX)
                .await;
            let page = page.expect("nothing was trimmed yet");
            let entries = page
                .entries
                .into_iter()
                .filter_map(|entry| match entry.event {
                    JournalEvent::Changed { key, revision, .. } => Some((key, revision)),
                    JournalEvent::Fenced { .. } => None,
                });
            let entries: Vec<_> = entries.collect();
            let trims = !entries.is_empty();
            self.recording
                .with(|history| history.journals.insert(name.clone(), entries));
            let end_of_time = Timestamp::from_unix_micros(i64::MAX);
            let past = Timestamp::from_unix_micros(0);
            let work = Maintenance {
                now: past,
                marks_before: past,
                journal_before: end_of_time,
                items_max: 1,
            };
            memory
                .maintain(work)
                .await
                .expect("the memory engine takes care of itself");
            // A position that was trimmed away is lost, and says so (W28).
            if trims && memory.journal_read(origin, 1).await != Err(EngineError::PositionLost) {
                self.recording
                    .breach(format!("the trimmed journal of {name} is read on silently"));
            }
        }
    }
}
