//! What the feeds of a move carry: everything of its scope, marks included.

use async_trait::async_trait;
use engine_api::Record;
use feed::Cargo;
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
