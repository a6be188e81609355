//! Which table answers, decided case by case over the default layout's orders.

use layout::{AccessPath, Collection, Layout, plan};

const EMBEDDED: &str = include_str!("divided.toml");

/// The plan for orders by user (or by period) when the derived tables are these.
fn check(path: AccessPath, tables: &[(&str, &str, &str)], expected: &str) {
    let start = EMBEDDED
        .find("[collections.orders.tables.orders_by_user]")
        .expect("the embedded layout lists orders by user");
    let end = EMBEDDED
        .find("# Products:")
        .expect("products follow orders");
    let mut text = EMBEDDED[..start].to_owned();
    for (name, partition, clustering) in tables {
        text += &format!(
            "[collections.orders.tables.{name}]\npartition = {partition}\nclustering = {clustering}\n"
        );
        if partition.contains("bucket") {
            text += "initial_buckets = 4\n";
        }
    }
    text += &EMBEDDED[end..];
    let layout = Layout::parse(&text, "test.toml").expect("the tables can be read");
    let orders = layout.collection(Collection::Orders);
    let found = match plan(orders, path, &orders.live.initial_buckets) {
        Ok(plan) => format!(
            "{}: {}, {}, {}",
            plan.table, plan.fan_out, plan.shards, plan.sort
        ),
        Err(missing) => {
            let reasons: Vec<String> = missing
                .tried
                .iter()
                .map(|(table, why)| format!("{table}: {why}"))
                .collect();
            reasons.join("; ")
        }
    };
    assert!(
        found.contains(expected),
        "{found:?} does not contain {expected:?}"
    );
}

#[test]
fn rows_stand_in_the_order_asked_for_or_exactly_the_other_way_round() {
    use AccessPath::OrdersByUser;
    let user = "['user_id']";
    check(
        OrdersByUser,
        &[("t", user, "['created_at desc', 'order_id']")],
        "t: one partition, one shard, native",
    );
    check(
        OrdersByUser,
        &[("t", user, "['created_at', 'order_id desc']")],
        "t: one partition, one shard, native, backward",
    );
    check(
        OrdersByUser,
        &[("t", user, "['created_at', 'order_id']")],
        "t: its rows do not stand in the order of created_at",
    );
    check(
        OrdersByUser,
        &[("t", user, "['status', 'created_at desc', 'order_id']")],
        "t: its rows do not stand in the order",
    );
    check(
        OrdersByUser,
        &[("t", user, "['order_id']")],
        "t: its rows do not stand in the order",
    );
    check(
        OrdersByUser,
        &[(
            "t",
            "['geo_zone']",
            "['user_id', 'created_at desc', 'order_id']",
        )],
        "t: its partition needs geo_zone",
    );
    check(
        OrdersByUser,
        &[("t", "[]", "['user_id', 'created_at desc', 'order_id']")],
        "t: one partition, one shard, native",
    );
}

#[test]
fn months_days_and_buckets_are_counted_off() {
    use AccessPath::{OrdersByPeriod, OrdersByUser};
    let order = "['created_at desc', 'order_id']";
    check(
        OrdersByUser,
        &[("t", "['user_id', 'month(created_at)']", order)],
        "t: each month, one shard, chained",
    );
    check(
        OrdersByUser,
        &[("t", "['user_id', 'bucket(order_id)']", order)],
        "t: 4 buckets, one shard, merged",
    );
    check(
        OrdersByUser,
        &[("t", "['bucket(user_id)', 'user_id']", order)],
        "t: one partition, one shard, native",
    );
    check(
        OrdersByPeriod,
        &[("t", "['day(created_at)', 'bucket(order_id)']", order)],
        "t: each day × 4 buckets, every shard, merged",
    );
    check(
        OrdersByPeriod,
        &[("t", "['day(updated_at)']", order)],
        "t: its partition needs updated_at",
    );
    check(
        OrdersByUser,
        &[("t", "['day(created_at)']", order)],
        "t: its key does not narrow to the given user_id",
    );
}

#[test]
fn the_least_fan_out_wins_and_the_first_of_equals_stays() {
    use AccessPath::OrdersByUser;
    let order = "['created_at desc', 'order_id']";
    let months = ("months", "['user_id', 'month(created_at)']", order);
    let days = ("days", "['user_id', 'day(created_at)']", order);
    let buckets = ("buckets", "['user_id', 'bucket(order_id)']", order);
    let (first, second) = (
        ("first", "['user_id']", order),
        ("second", "['user_id']", order),
    );
    check(OrdersByUser, &[days, months], "months:");
    check(OrdersByUser, &[days, months, buckets], "buckets:");
    check(OrdersByUser, &[buckets, first, second], "first:");
}

#[test]
fn an_order_by_id_is_found_by_the_authority_on_every_shard() {
    check(
        AccessPath::OrderById,
        &[],
        "orders_by_id: one partition, every shard, none",
    );
}
