//! Reading one record, from its owner, as of now.
//!
//! Reads of one key share answers, but only forwards (W32): a reader joins a
//! read that was not yet dispatched. While one is under way, newcomers gather
//! for the next, so that nobody is answered with what was read before it asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use engine_api::{Freshness, ReadContext, RecordKey, SharedRecord};
use tokio::sync::{OnceCell, Semaphore};

use crate::error::RouterError;
use crate::router::{MapView, Router, of_shard};
use crate::serving::Owner;

type Answer = Result<Option<SharedRecord>, RouterError>;

/// The keys that are being read.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<BTreeMap<RecordKey, Lane>>);

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
        let image = self.image(key).await?;
        let now = self.world.now();
        Ok(image.filter(|image| image.live_at(now).is_some()))
    }

    /// What is stored, marks included.
    pub async fn image(&self, key: &RecordKey) -> Result<Option<SharedRecord>, RouterError> {
        match self.read_at_once(key) {
            Some(image) => Ok(image),
            None => {
                let map = self.map();
                // Held while it waits for another's answer too: those who wait for a
                // shard that hangs are as many as those who ask it.
                let _place = self.enter(map.owner(key)?)?;
                self.joined(key).await
            }
        }
    }

    /// From an engine that answers on this thread: there is nothing to wait for, and
    /// so nothing to share. Whatever goes wrong is left to the long way.
    fn read_at_once(&self, key: &RecordKey) -> Option<Option<SharedRecord>> {
        if self.map_view != MapView::ThisProcess {
            return None;
        }
        let map = self.map();
        let context = ReadContext {
            now: self.world.now(),
            freshness: Freshness::Latest,
        };
        let engine = self.engine(map.owner(key).ok()?);
        let image = engine.get_at_once(key, context)?.ok()?;
        (self.map().generation == map.generation).then_some(image)
    }

    async fn joined(&self, key: &RecordKey) -> Answer {
        let reader = self.lanes.enter(key, self.limits.readers_waiting_max)?;
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
                match self.read(key).await {
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
    async fn read(&self, key: &RecordKey) -> Answer {
        let mut retries = 0;
        for _ in 0..=self.limits.read_restarts_max {
            self.in_time()?;
            match self.read_once(key).await {
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
    ) -> Result<Option<Option<SharedRecord>>, RouterError> {
        let map = self.map();
        let Some(passage) = self.set_out(&map)? else {
            return Ok(None);
        };
        let shard = map.owner(key)?;
        let context = ReadContext {
            now: self.world.now(),
            freshness: Freshness::Latest,
        };
        let image = self.engine(shard).get(key, context).await;
        self.settle(shard, &image);
        let image = image.map_err(of_shard(shard))?;
        let owner = Owner::of_key(&map, key)?;
        let stands = self.still_stands(&passage, owner).await?;
        Ok(stands.then(|| image.map(SharedRecord::from)))
    }
}

impl Lanes {
    fn enter(
        &self,
        key: &RecordKey,
        readers_waiting_max: usize,
    ) -> Result<Reader<'_>, RouterError> {
        let mut lanes = self.lock();
        let lane = lanes.entry(key.clone()).or_insert_with(|| Lane {
            turn: Arc::new(Semaphore::new(1)),
            gathering: None,
            readers: 0,
        });
        if lane.readers >= readers_waiting_max {
            return Err(RouterError::TooManyReaders {
                key: key.to_string(),
                readers_waiting_max,
            });
        }
        lane.readers += 1;
        let batch = lane.gathering.get_or_insert_default().clone();
        Ok(Reader {
            lanes: self,
            key: key.clone(),
            turn: lane.turn.clone(),
            batch,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RecordKey, Lane>> {
        self.0
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

/// A reader's stay in a lane; the lane goes with its last reader.
struct Reader<'a> {
    lanes: &'a Lanes,
    key: RecordKey,
    turn: Arc<Semaphore>,
    batch: Arc<Batch>,
}

impl Reader<'_> {
    /// From here on newcomers gather for the next read.
    fn depart(&self) {
        if let Some(lane) = self.lanes.lock().get_mut(&self.key) {
            lane.gathering
                .take_if(|gathering| Arc::ptr_eq(gathering, &self.batch));
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut lanes = self.lanes.lock();
        if let Some(lane) = lanes.get_mut(&self.key) {
            lane.readers -= 1;
            if lane.readers == 0 {
                lanes.remove(&self.key);
            }
        }
    }
}
