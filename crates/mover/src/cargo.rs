//! What the feeds of a move carry: everything of its scope, marks included. The feed that
//! leads back only rehearses until the keys are the target's.

use std::sync::Arc;

use async_trait::async_trait;
use engine_api::{Content, Engine, Record, RecordKey, Timestamp};
use feed::{Cargo, CargoError};
use layout::{Collection, Scope};

#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub collection: Collection,
    pub scope: Scope,
}

#[async_trait]
impl Cargo for Whole {
    fn collection(&self) -> Collection {
        self.collection
    }

    fn scope(&self) -> Scope {
        self.scope.clone()
    }

    fn load(&self, image: Record) -> Option<Record> {
        Some(image)
    }
}

/// The way back before the cutover: it reads the target's journal and writes to the
/// source, but what it writes is the source's own image, which changes nothing. A
/// target that was damaged meanwhile must not reach the source: nobody has proven it yet.
#[derive(Clone, Debug)]
pub(crate) struct Rehearsal {
    pub whole: Whole,
    pub source: Arc<dyn Engine>,
}

#[async_trait]
impl Cargo for Rehearsal {
    fn collection(&self) -> Collection {
        self.whole.collection()
    }

    fn scope(&self) -> Scope {
        self.whole.scope()
    }

    async fn read(
        &self,
        _target: &dyn Engine,
        key: &RecordKey,
        now: Timestamp,
    ) -> Result<Option<Record>, CargoError> {
        self.whole.read(self.source.as_ref(), key, now).await
    }

    /// No marks: the source has its own, and one of a record that it never had would be the target's.
    fn load(&self, image: Record) -> Option<Record> {
        match image.header.content {
            Content::Live(_) => self.whole.load(image),
            Content::Removed => None,
        }
    }
}
