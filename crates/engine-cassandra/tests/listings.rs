//! Listings over many partitions: months, days, buckets.

#![allow(clippy::unwrap_used)]

mod shop;

use engine_api::{Query, SortRange, Timestamp};
use layout::{AccessPath, Value};
use shop::{Shopkeeper, order};

const DAY_MICROS: i64 = 86_400_000_000;
/// 2024-01-30, so that the orders lie in three months and one of them is a leap year's.
const START_MICROS: i64 = 1_706_572_800_000_000;
const ORDERS: i64 = 40;
const PAGE: usize = 7;

/// Id and moment of every order, newest first, ties by id.
fn expected() -> Vec<(String, Timestamp)> {
    let mut orders: Vec<(String, Timestamp)> = (0..ORDERS)
        .map(|number| {
            // Two orders share each moment, and there are days without any.
            let at = START_MICROS + (number / 2) * 2 * DAY_MICROS;
            (
                format!("order-{number:02}"),
                Timestamp::from_unix_micros(at),
            )
        })
        .collect();
    orders.sort_by(|(a, at), (b, bt)| bt.cmp(at).then(a.cmp(b)));
    orders
}

async fn all_pages(keeper: &Shopkeeper<'_>, mut query: Query) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        let page = keeper.page(&query).await;
        assert!(page.records.len() <= query.limit);
        found.extend(page.records.iter().map(|record| record.key.id.to_string()));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return found,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_follow_one_another_across_months_days_and_buckets() {
    let cluster = testbed::cassandra(testbed::Nodes::One);
    let Some(cluster) = testbed::required_or_skip(cluster, "Cassandra") else {
        return;
    };
    let config = shop::config(cluster.contact_points(), cluster.keyspace("listings"));
    let session = shop::bare_driver(cluster.contact_points()).await;
    let keyspace = config.keyspace.name.clone();
    let engine = shop::open(config).await;
    let keeper = Shopkeeper::new(&engine);
    let expected = expected();
    for (number, (id, at)) in expected.iter().enumerate() {
        // Another user's orders lie between: the period shows them, the history does not.
        let user = if number % 4 == 3 { "eve" } else { "ann" };
        keeper.done(order(id, user, *at)).await;
    }
    let ids = |wanted: &dyn Fn(usize, Timestamp) -> bool| -> Vec<String> {
        let wanted = expected
            .iter()
            .enumerate()
            .filter(|(number, (_, at))| wanted(*number, *at));
        wanted.map(|(_, (id, _))| id.clone()).collect()
    };
    let of_ann = |number: usize| number % 4 != 3;

    let history = Query::first(AccessPath::OrdersByUser, vec![Value::text("ann")], PAGE);
    assert_eq!(
        all_pages(&keeper, history.clone()).await,
        ids(&|number, _| of_ann(number))
    );
    let period = Query::first(AccessPath::OrdersByPeriod, vec![], PAGE);
    assert_eq!(all_pages(&keeper, period.clone()).await, ids(&|_, _| true));

    let (least, most) = (expected[30].1, expected[9].1);
    let range = SortRange {
        least: Some(Value::Timestamp(least)),
        most: Some(Value::Timestamp(most)),
    };
    let within = |at: Timestamp| least <= at && at <= most;
    let ranged = Query {
        range: range.clone(),
        ..history
    };
    assert_eq!(
        all_pages(&keeper, ranged).await,
        ids(&|number, at| of_ann(number) && within(at))
    );
    let ranged = Query { range, ..period };
    assert_eq!(all_pages(&keeper, ranged).await, ids(&|_, at| within(at)));

    let nobody = Query::first(AccessPath::OrdersByUser, vec![Value::text("bob")], PAGE);
    assert_eq!(all_pages(&keeper, nobody).await, Vec::<String>::new());

    let months = format!("SELECT DISTINCT user_id, created_at_month FROM {keyspace}.order_history");
    let mut months = shop::rows(&session, &months).await;
    months.sort();
    let each = |user: &str| ["01", "02", "03"].map(|month| format!("{user} | 2024-{month}"));
    assert_eq!(months, [each("ann"), each("eve")].concat());
}
