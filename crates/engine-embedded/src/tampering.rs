//! Somebody alters what the storage library holds, past the log, the rules and the journal, while a move is ready: each
//! time the record, or the row that follows from it, is named, the cutover refused, and the copy repaired.

use std::sync::Arc;

use engine_api::layout::{Collection, Field, Value};
use engine_api::{
    Content, Engine, Freshness, Part, PartKey, ReadContext, RealWorld, Record, RecordId, RecordKey,
    Revision, World, expiry_fields,
};

use crate::batch::{Batch, Space};
use crate::codec::{encode_part, encode_record};
use crate::engine::{EmbeddedConfig, EmbeddedEngine};
use crate::stray::following;
use crate::tables::{Tables, part_row_key, record_key};

#[path = "../../mover/tests/tampered/mod.rs"]
mod tampered;

use tampered::{Copies, LINE, REMOVED};

struct Tampering {
    copies: Copies,
    target: Arc<EmbeddedEngine>,
    tables: Tables,
    _folder: tempfile::TempDir,
}

impl Tampering {
    async fn begin(collection: Collection) -> Tampering {
        let folder = tempfile::tempdir().unwrap();
        let layout = engine_api::layout::embedded();
        let stores = layout.collections.values();
        let tables: Vec<_> = stores.flat_map(|store| store.live.tables.clone()).collect();
        let open = |name: &str| {
            let config = EmbeddedConfig {
                path: folder.path().join(name),
                tables: tables.clone(),
                cache_bytes: 1 << 20,
            };
            Arc::new(EmbeddedEngine::open(config).unwrap())
        };
        let (source, target) = (open("source"), open("target"));
        Tampering {
            copies: Copies::make(collection, source, target.clone()).await,
            target,
            tables: Tables::new(&tables).unwrap(),
            _folder: folder,
        }
    }

    async fn record(&self, number: usize) -> Record {
        let image = self.copies.image(number);
        let context = ReadContext {
            now: RealWorld::new().now(),
            freshness: Freshness::Latest,
        };
        let found = self.target.get(&image.key, context).await;
        found.unwrap().unwrap()
    }

    /// The body alone, as it would be encoded.
    fn put(&self, record: &Record) {
        let body = encode_record(record, self.tables.parts_inside(record));
        let row = record_key(record.key.collection, &record.key.id);
        self.write(|batch| batch.put(Space::Records, &row, &body));
    }

    fn write(&self, write: impl FnOnce(&mut Batch)) {
        let mut batch = Batch::default();
        write(&mut batch);
        self.target.store().apply([&batch]);
    }

    async fn expect(&mut self, what: &str, number: usize, named: &str) {
        let id = format!("/{}:", self.copies.id(number));
        self.copies.expect(what, &[&id, named]).await;
    }
}

fn later(revision: Revision) -> Revision {
    Revision::from_i64(revision.to_i64() + 128).unwrap()
}

async fn tamper(collection: Collection, other: (Field, &str)) -> Tampering {
    let mut it = Tampering::begin(collection).await;
    let row = record_key(collection, &it.copies.image(0).key.id);
    it.write(|batch| batch.remove(Space::Records, &row));
    it.expect("a body is gone", 0, "missing at the target")
        .await;

    let mut altered = it.record(1).await;
    if let Content::Live(fields) = &altered.header.content {
        let fields = fields.clone().with(other.0, Value::text(other.1));
        altered.header.content = Content::Live(fields);
    }
    it.put(&altered);
    it.expect("a value is another one", 1, "of other content")
        .await;

    let whole = it.record(2).await;
    let mut altered = whole.clone();
    altered.header.revision = later(altered.header.revision);
    it.put(&altered);
    it.expect("a revision is another one", 2, "of another revision")
        .await;

    let mut revived = it.record(REMOVED).await;
    revived.header.content = whole.header.content.clone();
    it.put(&revived);
    it.expect("a removal is undone", REMOVED, "alive at the target")
        .await;

    let mut added = whole.clone();
    let id = RecordId::new(it.copies.id(9)).unwrap();
    added.key = RecordKey::by_id(collection, id);
    it.put(&added);
    it.expect("a body is added", 9, "at the target only").await;

    tamper_with_rows(&mut it).await;
    it
}

async fn tamper_with_rows(it: &mut Tampering) {
    let (gone, kept) = (it.record(3).await, it.record(4).await);
    let tables = it.tables.clone();
    for row in following(&tables, &gone).unwrap() {
        it.write(|batch| batch.remove(row.space, &row.row));
        let named = format!("has no row in {}", row.table);
        it.expect("a row is gone", 3, &named).await;
    }
    let id = it.copies.id(4);
    let stranger = it.copies.id(8);
    for row in following(&tables, &kept).unwrap() {
        let mut added = row.row.clone();
        added.truncate(added.len() - id.len());
        added.extend_from_slice(stranger.as_bytes());
        it.write(|batch| batch.put(row.space, &added, &row.value));
        let named = format!("a row too many in {}", row.table);
        it.expect("a row is added", 8, &named).await;
    }
}

#[tokio::test]
async fn whatever_is_done_to_a_copy_of_carts_is_named() {
    let mut it = tamper(Collection::Carts, (Field::Status, "activf")).await;
    let mut altered = it.record(1).await;
    let line = altered.parts.get_mut(&PartKey::line(LINE)).unwrap();
    let fields = line.content.live().unwrap().clone();
    line.content = Content::Live(fields.with(Field::Quantity, Value::Int(3)));
    it.put(&altered);
    it.expect("a line is another one", 1, "is another one at the target")
        .await;
    tamper_with_expiry(&mut it).await;
    it.copies.cut_over().await;
}

#[tokio::test]
async fn whatever_is_done_to_a_copy_of_orders_is_named() {
    let mut it = tamper(Collection::Orders, (Field::GeoZone, "ev")).await;
    it.copies.cut_over().await;
}

#[tokio::test]
async fn whatever_is_done_to_a_copy_of_sessions_is_named() {
    let mut it = tamper(Collection::Sessions, (Field::UserId, "bob")).await;
    tamper_with_expiry(&mut it).await;
    it.copies.cut_over().await;
}

#[tokio::test]
async fn whatever_is_done_to_a_copy_of_products_is_named() {
    let mut it = tamper(Collection::Products, (Field::Name, "Lamq")).await;
    let record = it.record(1).await;
    let (key, stock) = record.parts.iter().next().unwrap();
    let fields = stock.content.live().unwrap().clone();
    let altered = Part::live(stock.revision, fields.with(Field::Available, Value::Int(8)));
    let row = part_row_key(&record.key, key);
    it.write(|batch| batch.put(Space::Parts, &row, &encode_part(&altered)));
    it.expect("a piece more is there", 1, "is another one at the target")
        .await;
    it.copies.cut_over().await;
}

async fn tamper_with_expiry(it: &mut Tampering) {
    let mut altered = it.record(2).await;
    let expiry = altered.parts.get_mut(&PartKey::expiry()).unwrap();
    let soon = RealWorld::new().now().checked_add_seconds(600).unwrap();
    expiry.content = Content::Live(expiry_fields(soon));
    it.put(&altered);
    it.expect("it ends sooner", 2, "expires at another time")
        .await;
}
