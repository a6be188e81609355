//! Reading one record, from its owner: as of now, or as old as the reader allows.
//!
//! Reads of one key share answers, but only forwards (W32): a reader joins a
//! read that was not yet dispatched. While one is under way, newcomers gather
//! for the next, so that nobody is answered with what was read before it asked.
//! They share only with those who ask for the same: who may not lag is never
//! answered with what was read for somebody who may.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine_api::{Aged, Because, Freshness, ReadContext, RecordKey, Served, SharedRecord};
use tokio::sync::{OnceCell, Semaphore};

use crate::error::RouterError;
use crate::rekey::fits;
use crate::router::{MapView, Router, of_shard};
use crate::serving::Owner;

/// However long an answer may lag, a map that has stood for this long is old enough:
/// no engine bounds an answer by anything older.
const MAP_STOOD_S_MAX: u32 = 60;

type Answer = Result<Aged<Option<SharedRecord>>, RouterError>;

/// What is asked: readers of one lane ask for the same.
type Asked = (RecordKey, Freshness);

/// The keys that are being read.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<BTreeMap<Asked, Lane>>);

#[derive(Debug)]
struct Lane {
    /// One read at a time.
    turn: Arc<Semaphore>,
    /// The read not yet dispatched, which newcomers join.
    gathering: Option<Arc<Batch>>,
    readers: usize,
}

/// Readers that get one answer. If the one who reads is dropped, another takes over.
#[derive(Debug, Default)]
struct Batch {
    answer: OnceCell<Answer>,
}

impl Router {
    /// The record if it is live: not absent, not removed, not expired.
    pub async fn get(&self, key: &RecordKey) -> Result<Option<SharedRecord>, RouterError> {
        Ok(self.get_aged(key, Freshness::Latest).await?.answer)
    }

    /// What is stored, marks included.
    pub async fn image(&self, key: &RecordKey) -> Result<Option<SharedRecord>, RouterError> {
        Ok(self.image_aged(key, Freshness::Latest).await?.answer)
    }

    /// The same for a reader who may be shown something older, and how it was come by.
    pub async fn get_aged(
        &self,
        key: &RecordKey,
        freshness: Freshness,
    ) -> Result<Aged<Option<SharedRecord>>, RouterError> {
        let image = self.image_aged(key, freshness).await?;
        let now = self.world.now();
        Ok(image.map(|image| image.filter(|image| image.live_at(now).is_some())))
    }

    pub async fn image_aged(
        &self,
        key: &RecordKey,
        freshness: Freshness,
    ) -> Result<Aged<Option<SharedRecord>>, RouterError> {
        let image = match self.read_at_once(key) {
            Some(image) => Ok(Aged::latest(image, Because::Asked)),
            None => {
                let map = self.map();
                // Held while it waits for another's answer too: those who wait for a
                // shard that hangs are as many as those who ask it.
                let _place = self.enter(map.owner(key)?)?;
                self.joined(key, freshness).await
            }
        };
        match image {
            Err(RouterError::Rekeyed { .. }) => self.image_by_id(key, freshness).await,
            image => image,
        }
    }

    /// From an engine that answers on this thread: there is nothing to wait for, and
    /// so nothing to share. Whatever goes wrong is left to the long way.
    fn read_at_once(&self, key: &RecordKey) -> Option<Option<SharedRecord>> {
        if self.map_view != MapView::ThisProcess {
            return None;
        }
        let map = self.map();
        if !fits(&map, key).ok()? {
            return None;
        }
        let context = ReadContext {
            now: self.world.now(),
            freshness: Freshness::Latest,
        };
        let engine = self.engine(map.owner(key).ok()?);
        let image = engine.get_at_once(key, context)?.ok()?;
        (self.map().generation == map.generation).then_some(image)
    }

    async fn joined(&self, key: &RecordKey, freshness: Freshness) -> Answer {
        let asked = (key.clone(), freshness);
        let reader = self.lanes.enter(asked, self.limits.readers_waiting_max)?;
        let mut read_here = false;
        let answer = reader
            .batch
            .answer
            .get_or_try_init(|| async {
                let _turn = reader
                    .turn
                    .acquire()
                    .await
                    .expect("nobody closes a lane's turn");
                reader.depart();
                read_here = true;
                match self.read(key, freshness).await {
                    // This reader's time is over, not that of those who joined it.
                    Err(RouterError::OutOfTime) => Err(RouterError::OutOfTime),
                    answer => Ok(answer),
                }
            })
            .await
            .cloned();
        if !read_here {
            self.counts.reads_joined.add_one();
        }
        answer?
    }

    /// Asks the owner until the generation is the same before and after (W16).
    async fn read(&self, key: &RecordKey, freshness: Freshness) -> Answer {
        let mut retries = 0;
        for _ in 0..=self.limits.read_restarts_max {
            self.in_time()?;
            match self.read_once(key, freshness).await {
                Ok(Some(image)) => return Ok(image),
                Ok(None) => self.counts.read_restarts.add_one(),
                Err(error) => self.retry_read(&mut retries, error).await?,
            }
        }
        Err(RouterError::MapUnsteady {
            times: self.limits.read_restarts_max,
        })
    }

    /// `None`: the map changed under the read.
    async fn read_once(
        &self,
        key: &RecordKey,
        freshness: Freshness,
    ) -> Result<Option<Aged<Option<SharedRecord>>>, RouterError> {
        let held = self.current.held();
        let map = held.map;
        let Some(passage) = self.set_out(&map)? else {
            return Ok(None);
        };
        if !fits(&map, key)? {
            let key = key.to_string();
            return Err(RouterError::Rekeyed { key });
        }
        let shard = map.owner(key)?;
        let (freshness, because) = self.within_the_map(freshness, held.since);
        let context = ReadContext {
            now: self.world.now(),
            freshness,
        };
        let image = self.engine(shard).get_aged(key, context).await;
        self.settle(shard, &image);
        let image = image.map_err(of_shard(shard))?;
        let owner = Owner::of_key(&map, key)?;
        let stands = self.still_stands(&passage, owner).await?;
        let image = Aged {
            answer: image.answer,
            served: Served::Latest(because).and(image.served),
        };
        Ok(stands.then(|| image.map(|image| image.map(SharedRecord::from))))
    }

    /// A copy shows its shard as it was up to that long ago. If the keys came there
    /// later than that, by a move, it has them as a feed left them on the way, or not
    /// at all. So nothing lags before the map has stood for longer than that.
    pub(crate) fn within_the_map(
        &self,
        freshness: Freshness,
        since: Duration,
    ) -> (Freshness, Because) {
        let Freshness::MayLag { seconds, .. } = freshness else {
            return (freshness, Because::Asked);
        };
        let stood = self.world.elapsed().saturating_sub(since);
        let enough = Duration::from_secs(u64::from(seconds.min(MAP_STOOD_S_MAX)));
        match stood > enough {
            true => (freshness, Because::Asked),
            false => (Freshness::Latest, Because::Moved),
        }
    }
}

impl Lanes {
    fn enter(&self, asked: Asked, readers_waiting_max: usize) -> Result<Reader<'_>, RouterError> {
        let mut lanes = self.lock();
        let lane = lanes.entry(asked.clone()).or_insert_with(|| Lane {
            turn: Arc::new(Semaphore::new(1)),
            gathering: None,
            readers: 0,
        });
        if lane.readers >= readers_waiting_max {
            return Err(RouterError::TooManyReaders {
                key: asked.0.to_string(),
                readers_waiting_max,
            });
        }
        lane.readers += 1;
        let batch = lane.gathering.get_or_insert_default().clone();
        Ok(Reader {
            lanes: self,
            asked,
            turn: lane.turn.clone(),
            batch,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Asked, Lane>> {
        self.0
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

/// A reader's stay in a lane; the lane goes with its last reader.
struct Reader<'a> {
    lanes: &'a Lanes,
    asked: Asked,
    turn: Arc<Semaphore>,
    batch: Arc<Batch>,
}

impl Reader<'_> {
    /// From here on newcomers gather for the next read.
    fn depart(&self) {
        if let Some(lane) = self.lanes.lock().get_mut(&self.asked) {
            lane.gathering
                .take_if(|gathering| Arc::ptr_eq(gathering, &self.batch));
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut lanes = self.lanes.lock();
        if let Some(lane) = lanes.get_mut(&self.asked) {
            lane.readers -= 1;
            if lane.readers == 0 {
                lanes.remove(&self.asked);
            }
        }
    }
}
