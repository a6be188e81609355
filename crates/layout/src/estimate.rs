//! How large partitions get under a given load. Rough on purpose: it must tell
//! 1 MB from 1 GB before anything is stored; what is stored is measured.

use std::fmt;

use crate::collection::Collection;
use crate::field::Field;
use crate::file::{CollectionLayout, Store};
use crate::table::{BUCKETS_MAX, Body, KeyColumn, Role, Table};

/// L6: beyond this, a partition slows its node down.
pub const PARTITION_BYTES_MAX: u64 = 100_000_000;

/// What bucket counts are sized for: a tenth of the limit, so that a busy day
/// still fits.
pub const PARTITION_BYTES_AIM: u64 = 10_000_000;

/// A row that names its record: key, id, revision, and what a row costs itself.
const POINTER_BYTES: u64 = 150;

/// How long an order has steps still to be done, at the most.
const OPEN_SECONDS: f64 = 60.0;

/// How long an order is under way before it goes to a history.
const LIVE_DAYS: f64 = 14.0;

const DAYS_A_MONTH: f64 = 30.0;
const SECONDS_A_DAY: f64 = 86_400.0;
const GEO_ZONES: f64 = 10.0;

/// What the shop is expected to bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub orders_per_day: u64,
    pub sessions_per_day: u64,
    pub users: u64,
    pub products: u64,
    pub categories: u64,
    /// How long orders are kept.
    pub keep_days: u64,
    /// The largest user, or category, against the mean one.
    pub skew: u64,
    /// The busiest day against the mean one.
    pub peak: u64,
}

/// Rows and bytes of one partition: the mean one, and the largest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSize {
    pub records: u64,
    pub bytes: u64,
    pub largest_bytes: u64,
}

impl Default for Load {
    /// A busy shop with a wholesale buyer.
    fn default() -> Load {
        Load {
            orders_per_day: 200_000,
            sessions_per_day: 1_000_000,
            users: 1_000_000,
            products: 50_000,
            categories: 100,
            keep_days: 3 * 365,
            skew: 1000,
            peak: 5,
        }
    }
}

impl PartitionSize {
    pub fn of(layout: &CollectionLayout, store: &Store, table: &Table, load: &Load) -> Self {
        let records = records(layout, store, table, load);
        let days = days_kept(layout, store, load);
        let count = f64::from(store.initial_buckets.of(&table.name));
        let id = layout.collection.id_field();
        let (mut share, mut largest) = (1.0_f64, 1.0_f64);
        for column in &table.partition {
            let (pieces, skew) = pieces(column, records, days, count, load);
            share /= pieces;
            largest *= (skew / pieces).min(1.0);
        }
        // A record is in one partition, however the key's columns multiply.
        let single = table.partition.contains(&KeyColumn::Field(id));
        let rows = |share: f64| {
            if single {
                1.0
            } else {
                (records * share).max(1.0)
            }
        };
        let (typical, most) = row_bytes(table);
        let mean_bytes = rows(share) * typical;
        let row = if rows(largest) < 2.0 { most } else { typical };
        PartitionSize {
            records: rows(share).ceil() as u64,
            bytes: mean_bytes.ceil() as u64,
            largest_bytes: (rows(largest) * row).max(mean_bytes).ceil() as u64,
        }
    }

    pub fn is_over_limit(&self) -> bool {
        self.largest_bytes > PARTITION_BYTES_MAX
    }
}

/// The bucket count that brings the table's expected rows to partitions of
/// [`PARTITION_BYTES_AIM`]: a power of two, so that doubling splits each bucket.
pub fn buckets_for(table: &Table) -> Option<u32> {
    let divided = |column: &KeyColumn| matches!(column, KeyColumn::Bucket(_));
    let rows = table.options.expected_rows?;
    if !table.partition.iter().any(divided) {
        return None;
    }
    let wanted = partition_bytes(table, rows, 1).div_ceil(PARTITION_BYTES_AIM);
    let wanted = u32::try_from(wanted).unwrap_or(BUCKETS_MAX);
    Some(wanted.clamp(1, BUCKETS_MAX).next_power_of_two())
}

/// What each of `buckets` gets of the rows.
pub(crate) fn partition_bytes(table: &Table, rows: u64, buckets: u32) -> u64 {
    let (typical, _) = row_bytes(table);
    (rows as f64 * typical / f64::from(buckets.max(1))).ceil() as u64
}

/// Records that have a row in the table.
fn records(layout: &CollectionLayout, store: &Store, table: &Table, load: &Load) -> f64 {
    let orders = load.orders_per_day as f64;
    let days = days_kept(layout, store, load);
    match (
        layout.collection,
        table.only.as_ref().map(|(field, _)| *field),
    ) {
        (Collection::Orders, Some(Field::Settlement)) => orders * OPEN_SECONDS / SECONDS_A_DAY,
        (Collection::Orders, _) => orders * days,
        // One active cart an owner; each order has closed one besides.
        (Collection::Carts, Some(Field::Status)) => load.users as f64,
        (Collection::Carts, _) => load.users as f64 + orders * load.keep_days as f64,
        (Collection::Products, _) => load.products as f64,
        (Collection::Sessions, _) => load.sessions_per_day as f64 * days,
    }
}

fn days_kept(layout: &CollectionLayout, store: &Store, load: &Load) -> f64 {
    let is_live = std::ptr::eq(store, &layout.live);
    match (layout.collection, layout.lifetime) {
        (Collection::Sessions, Some(lifetime)) => f64::from(lifetime.seconds()) / SECONDS_A_DAY,
        (Collection::Orders, _) if is_live && layout.history.is_some() => LIVE_DAYS,
        _ => load.keep_days as f64,
    }
}

/// Into how many pieces a column cuts the records, and how many times the mean
/// the largest piece is.
fn pieces(column: &KeyColumn, records: f64, days: f64, buckets: f64, load: &Load) -> (f64, f64) {
    let (skew, peak) = (load.skew as f64, load.peak as f64);
    match column {
        KeyColumn::Field(Field::UserId) => (load.users as f64, skew),
        KeyColumn::Field(Field::Category) => (load.categories as f64, skew),
        KeyColumn::Field(Field::GeoZone) => (GEO_ZONES, GEO_ZONES),
        KeyColumn::Field(Field::SessionId | Field::CartId | Field::OrderId | Field::ProductId) => {
            (records, 1.0)
        }
        // Most records end up with the same status: the last.
        KeyColumn::Field(_) => (1.0, 1.0),
        KeyColumn::Month(_) => ((days / DAYS_A_MONTH).max(1.0), 1.0),
        KeyColumn::Day(_) => (days.max(1.0), peak),
        KeyColumn::Bucket(_) => (buckets, 1.0),
    }
}

/// A record's rows in the table: usually, and at the most.
fn row_bytes(table: &Table) -> (f64, f64) {
    if table.role == Role::Derived && table.options.body == Body::Pointer {
        return (POINTER_BYTES as f64, POINTER_BYTES as f64);
    }
    match table.collection {
        // 100 bytes a line (D3), eight lines; C8's limit.
        Collection::Carts => (1100.0, 10_000.0),
        Collection::Orders => (1200.0, 12_000.0),
        Collection::Products => (3000.0, 30_000.0),
        Collection::Sessions => (600.0, 4000.0),
    }
}

/// `640 MB`: two digits are more than an estimate is good for.
pub fn bytes_text(bytes: u64) -> String {
    let (mut amount, mut unit) = (bytes as f64, "B");
    for larger in ["KB", "MB", "GB", "TB", "PB"] {
        if amount < 1000.0 {
            break;
        }
        (amount, unit) = (amount / 1000.0, larger);
    }
    if amount < 10.0 && unit != "B" {
        format!("{amount:.1} {unit}")
    } else {
        format!("{amount:.0} {unit}")
    }
}

impl fmt::Display for PartitionSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mean, largest) = (bytes_text(self.bytes), bytes_text(self.largest_bytes));
        if mean == largest {
            return f.write_str(&mean);
        }
        write!(f, "{mean}, largest {largest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Layout;

    fn size(
        changes: &[(&str, &str)],
        collection: Collection,
        table: &str,
        load: &Load,
    ) -> PartitionSize {
        let mut text = include_str!("../tests/divided.toml").to_owned();
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        let layout = Layout::parse(&text, "divided.toml").unwrap();
        let collection = layout.collection(collection);
        let table = collection.table(table).unwrap();
        PartitionSize::of(collection, &collection.live, table, load)
    }

    const LOAD: Load = Load {
        orders_per_day: 1000,
        sessions_per_day: 100,
        users: 500,
        products: 40,
        categories: 4,
        keep_days: 100,
        skew: 10,
        peak: 4,
    };

    #[test]
    fn a_user_has_its_share_of_the_orders_and_the_largest_one_more() {
        // 100 000 orders of 500 users: 200 pointers each, ten times that at most.
        let by_user = size(&[], Collection::Orders, "orders_by_user", &LOAD);
        assert_eq!((by_user.records, by_user.bytes), (200, 200 * POINTER_BYTES));
        assert_eq!(by_user.largest_bytes, 2000 * POINTER_BYTES);
    }

    #[test]
    fn a_month_a_day_and_buckets_divide_it() {
        let monthly = [(
            "partition = [\"user_id\"]\nclustering = [\"created_at desc\", \"order_id\"]",
            "partition = [\"user_id\", \"month(created_at)\"]\nclustering = [\"created_at desc\", \"order_id\"]",
        )];
        let by_month = size(&monthly, Collection::Orders, "orders_by_user", &LOAD);
        assert_eq!(by_month.records, 60);
        // A day has 1000 orders, the busiest 4000, in eight buckets.
        let by_day = size(&[], Collection::Orders, "orders_by_period", &LOAD);
        assert_eq!(by_day.records, 125);
        assert_eq!(by_day.largest_bytes, 500 * POINTER_BYTES);
    }

    #[test]
    fn a_skew_never_makes_more_than_there_is() {
        let load = Load {
            skew: 1_000_000,
            ..LOAD
        };
        let by_user = size(&[], Collection::Orders, "orders_by_user", &load);
        assert_eq!(by_user.largest_bytes, 100_000 * POINTER_BYTES);
        let one = size(&[], Collection::Orders, "orders_by_id", &load);
        assert_eq!(one.records, 1);
    }

    #[test]
    fn buckets_are_sized_from_expected_rows() {
        let buckets = |rows: u64| {
            let expected = format!("expected_rows = {rows}");
            let text =
                include_str!("../tests/divided.toml").replace("initial_buckets = 8", &expected);
            let layout = Layout::parse(&text, "divided.toml").unwrap();
            layout
                .collection(Collection::Orders)
                .live
                .initial_buckets
                .of("orders_by_period")
        };
        assert_eq!(buckets(10), 1);
        assert_eq!(buckets(1_000_000), 16);
        assert_eq!(buckets(u64::MAX), BUCKETS_MAX);
    }

    #[test]
    fn sizes_are_read_at_a_glance() {
        let texts = [0, 999, 1000, 9950, 123_456_789, u64::MAX].map(bytes_text);
        assert_eq!(
            texts,
            ["0 B", "999 B", "1.0 KB", "9.9 KB", "123 MB", "18447 PB"]
        );
    }
}
