//! The right to serve: what a request sets out with, and whether its answer
//! counts when it comes (W16). And how that right is kept.

use std::time::Duration;

use engine_api::{Generation, RecordKey};
use layout::Collection;

use crate::current::Held;
use crate::error::RouterError;
use crate::lease::{Flight, Lease, LeaseState, News, Renewed, Taken, Term};
use crate::map::Map;
use crate::router::{MapView, Router};

/// A request on its way to an engine and back.
#[derive(Debug)]
pub(crate) struct Passage<'a> {
    pub(crate) generation: Generation,
    lease: Option<(Term, Flight<'a>)>,
}

/// Whether it is time to look for a new map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Due,
    NotYet,
}

/// Whether the owner of the keys can change while this process holds its map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Nobody moves keys before every process has seen them frozen.
    Settled,
    /// They are frozen: the next map may give them away at any moment.
    InMotion,
}

impl Owner {
    pub(crate) fn of_key(map: &Map, key: &RecordKey) -> Result<Owner, RouterError> {
        Ok(match map.is_frozen(key)? {
            true => Owner::InMotion,
            false => Owner::Settled,
        })
    }

    pub(crate) fn of_collection(map: &Map, collection: Collection) -> Result<Owner, RouterError> {
        Ok(match map.collection(collection)?.frozen.is_empty() {
            true => Owner::Settled,
            false => Owner::InMotion,
        })
    }
}

impl Router {
    /// The right to send under the map, or `None` when it is no longer the current one.
    pub(crate) fn set_out(&self, map: &Map) -> Result<Option<Passage<'_>>, RouterError> {
        let generation = map.generation;
        let Some(lease) = &self.lease else {
            let lease = None;
            return Ok(Some(Passage { generation, lease }));
        };
        // Counted before the map is looked at again: whoever acknowledges a
        // newer one has either installed it by now, or will see this flight.
        let flight = lease.flights.begin(generation);
        let term = lease.term()?;
        if self.map().generation != generation {
            return Ok(None);
        }
        let lease = Some((term, flight));
        Ok(Some(Passage { generation, lease }))
    }

    /// Whether the generation is still the one that the request set out under,
    /// looked up where the map view says, after the answer.
    pub(crate) async fn still_stands(
        &self,
        passage: &Passage<'_>,
        owner: Owner,
    ) -> Result<bool, RouterError> {
        let seen = match (&self.map_view, &self.lease, &passage.lease) {
            (MapView::Lease { .. }, Some(lease), Some((term, _))) => {
                // The lease first: if the generation has not changed after it,
                // then both held at that one moment.
                lease.covers(*term)?;
                match owner {
                    Owner::Settled => self.map().generation,
                    Owner::InMotion => self.refresh().await?,
                }
            }
            (MapView::ControlStore, ..) => self.refresh().await?,
            _ => self.map().generation,
        };
        Ok(seen == passage.generation)
    }

    /// Where there is a lease, whether it runs.
    pub fn lease(&self) -> Option<LeaseState> {
        self.lease.as_ref().map(Lease::state)
    }

    /// Keeps the lease: looks for new maps, acknowledges them when nothing older
    /// is under way, renews, and takes a new term when one is over. Runs beside
    /// the requests until it is dropped; ends at once where there is no lease.
    pub async fn keep_lease(&self) {
        let Some(lease) = &self.lease else {
            return;
        };
        let mut told = None;
        let mut looked = None;
        loop {
            let (changed, landed) = (self.current.changed(), lease.flights.landed());
            // Woken by a map, or by an answer, there is no need to look for another.
            let now = self.world.elapsed();
            let look = match looked {
                Some(at) if now.saturating_sub(at) < self.lease_pause() => Look::NotYet,
                _ => Look::Due,
            };
            if look == Look::Due {
                looked = Some(now);
            }
            let failure = self.tend(lease, look).await.err();
            // The same failure again and again is told once.
            if failure != told {
                match &failure {
                    Some(error) => tracing::warn!(%error, "the lease cannot be renewed now"),
                    None => tracing::info!("the lease is renewed again"),
                }
                told = failure;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = landed => {}
                () = self.world.sleep(self.lease_pause()) => {}
            }
        }
    }

    /// Lets the lease go, so that nobody has to wait until it has run out. Call
    /// it when nothing is served any more.
    pub async fn give_up_lease(&self) -> Result<(), RouterError> {
        match &self.lease {
            Some(lease) => Ok(lease.give_up().await?),
            None => Ok(()),
        }
    }

    async fn tend(&self, lease: &Lease, look: Look) -> Result<(), RouterError> {
        if lease.state() == LeaseState::RanOut {
            return self.take_new_term(lease).await;
        }
        // Who cannot read the map, or not serve under it, may still go on under
        // the one it has: whoever published the other waits.
        let looked = match look {
            Look::Due => self.refresh().await.map(drop),
            Look::NotYet => Ok(()),
        };
        let news = News {
            generation: self.acknowledgeable(lease),
            shards: self.shard_names(),
            stalls: self.stalls_by_freeze(),
        };
        if lease.renewal_is_due(&news) && lease.renew(news).await? == Renewed::TermOver {
            return self.take_new_term(lease).await;
        }
        looked
    }

    async fn take_new_term(&self, lease: &Lease) -> Result<(), RouterError> {
        let taken = lease.take(self.shard_names()).await?;
        self.clock.write_as(taken.writer);
        self.refresh().await?;
        self.serve_under(lease, taken);
        Ok(())
    }

    pub(crate) fn serve_under(&self, lease: &Lease, taken: Taken) {
        lease.serve(taken);
        if let LeaseState::Runs { term } = lease.state() {
            let (writer, generation) = (taken.writer.number(), self.map().generation);
            tracing::info!(%term, writer, %generation, "this process has a lease");
        }
    }

    fn acknowledgeable(&self, lease: &Lease) -> Generation {
        lease.flights.acknowledgeable(self.map().generation)
    }

    /// While keys are frozen somebody waits for the acknowledgement, and shoppers for the
    /// map that follows; after a notice they are about to.
    fn lease_pause(&self) -> Duration {
        let Held { map, since } = self.current.held();
        let frozen = map.collections.values().any(|map| !map.frozen.is_empty());
        let is_fresh = self.world.elapsed().saturating_sub(since) < self.limits.notice();
        match (frozen, map.followed_soon) {
            (true, _) | (_, true) if is_fresh => self.limits.notice_look(),
            (true, _) => self.limits.hold_poll(),
            (false, _) => self.limits.lease_look(),
        }
    }
}
