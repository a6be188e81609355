//! Whether a shard answers at all, for readiness.

use engine_api::{Freshness, ReadContext, RecordId, RecordKey};
use layout::Collection;

use crate::error::RouterError;
use crate::map::{Map, ShardName};
use crate::router::{Router, of_shard};

/// An id that nothing has; asking for it costs one point read.
const PROBE_ID: &str = "readiness-probe";

impl Router {
    /// Asks one of the map's shards for a record of the collection that is not there.
    /// Whether this process may answer from that shard is another question: see
    /// [`Router::lease`].
    pub async fn probe(
        &self,
        map: &Map,
        collection: Collection,
        shard: &ShardName,
    ) -> Result<(), RouterError> {
        map.collection(collection)?;
        let _place = self.enter(shard)?;
        let id = RecordId::new(PROBE_ID).expect("the probe's id is an id");
        let context = ReadContext {
            now: self.world.now(),
            freshness: Freshness::Latest,
        };
        let key = RecordKey::by_id(collection, id);
        let found = self.engine(shard).get(&key, context).await;
        self.settle(shard, &found);
        found.map(drop).map_err(of_shard(shard))
    }
}
