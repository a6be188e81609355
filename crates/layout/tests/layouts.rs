//! The five layouts that ship: each is read, used without refusal, and explained.

use std::collections::BTreeMap;

use layout::checker::is_usable;
use layout::explain::explain;
use layout::schema::{Part, schema};
use layout::{
    AccessPath, Collection, EngineKind, FanOut, Layout, Load, Operation, ReadLevel, ShardFanOut,
    check, plan, plan_history,
};

const LAYOUTS: [(&str, &str); 5] = [
    ("embedded", include_str!("../../../layouts/embedded.toml")),
    (
        "mongo-sharded",
        include_str!("../../../layouts/mongo-sharded.toml"),
    ),
    (
        "cassandra-orders",
        include_str!("../../../layouts/cassandra-orders.toml"),
    ),
    ("hybrid", include_str!("../../../layouts/hybrid.toml")),
    ("adr-010-1", include_str!("../../../layouts/adr-010-1.toml")),
];

fn parsed(name: &str) -> Layout {
    let shipped = LAYOUTS.iter().find(|(layout, _)| *layout == name);
    let (_, text) = shipped.expect("the test names a layout that ships");
    Layout::parse(text, &format!("{name}.toml")).expect("a layout that ships can be read")
}

#[test]
fn every_layout_is_usable_and_its_plans_stay_as_they_are() {
    for (name, _) in LAYOUTS {
        let layout = parsed(name);
        assert_eq!(layout.name, name);
        let findings = check(&layout);
        assert!(is_usable(&findings), "{name}: {findings:#?}");
        insta::assert_snapshot!(name, explain(&layout, &Load::default()));
    }
}

#[test]
fn the_default_layout_is_embedded_and_has_nothing_to_warn_of() {
    let layout = layout::embedded();
    assert!(
        layout
            .engines
            .values()
            .all(|engine| engine.kind == EngineKind::Embedded)
    );
    assert_eq!(check(&layout), []);
    assert!(
        Collection::ALL
            .iter()
            .all(|name| layout.collection(*name).live.authority().is_some())
    );
}

#[test]
fn what_the_requirements_say_of_fan_out_holds() {
    let mongo = parsed("mongo-sharded");
    let shards = |path: AccessPath| {
        let collection = mongo.collection(path.shape().collection);
        plan(collection, path, &collection.live.initial_buckets)
            .unwrap()
            .shards
    };
    for scattered in [
        AccessPath::OrderById,
        AccessPath::ProductById,
        AccessPath::OrdersByPeriod,
        AccessPath::ActiveCartByUser,
    ] {
        assert_eq!(shards(scattered), ShardFanOut::All, "{scattered}");
    }
    assert_eq!(shards(AccessPath::OrdersByUser), ShardFanOut::One);
    assert_eq!(shards(AccessPath::CartById), ShardFanOut::One);
    assert_eq!(
        shards(AccessPath::ProductsByCategory),
        ShardFanOut::SomeRanges
    );
}

#[test]
fn finished_orders_are_found_in_the_history_too() {
    let hybrid = parsed("hybrid");
    let orders = hybrid.collection(Collection::Orders);
    let history = orders.history.as_ref().unwrap();
    let buckets = &history.store.initial_buckets;
    let found = |path| plan_history(orders, path, buckets).unwrap().unwrap();
    assert_eq!(found(AccessPath::OrderById).table, "order_history_by_id");
    assert_eq!(found(AccessPath::OrdersByUser).table, "order_history");
    assert_eq!(history.statuses, ["delivered", "cancelled", "returned"]);
    assert!(
        plan_history(
            hybrid.collection(Collection::Carts),
            AccessPath::CartById,
            buckets
        )
        .is_none()
    );
}

#[test]
fn a_session_is_found_in_its_bucket_alone() {
    let adr = parsed("adr-010-1");
    let sessions = adr.collection(Collection::Sessions);
    let plan = plan(
        sessions,
        AccessPath::SessionById,
        &sessions.live.initial_buckets,
    )
    .unwrap();
    assert_eq!(
        (plan.table.as_str(), plan.fan_out),
        ("user_sessions", FanOut::OnePartition)
    );
}

#[test]
fn what_differs_between_layouts_and_what_a_move_means_stays_as_it_is() {
    for (from, to) in [("embedded", "hybrid"), ("cassandra-orders", "adr-010-1")] {
        let text = layout::diff::diff(&parsed(from), &parsed(to));
        insta::assert_snapshot!(format!("{from}_to_{to}"), text);
    }
}

#[test]
fn what_servers_are_set_up_with_stays_as_it_is() {
    for (name, _) in LAYOUTS {
        let text = schema(&parsed(name), &BTreeMap::new(), &Part::ALL);
        insta::assert_snapshot!(format!("{name}_schema"), text);
    }
}

#[test]
fn the_policies_of_the_requirements_stand_in_the_files() {
    fn check(layout: &str, operation: Operation, read: ReadLevel, lag: u64) {
        let layout = parsed(layout);
        let store = &layout.collection(operation.home()).live;
        let policy = store.consistency.policy(operation);
        assert_eq!(
            (policy.read, policy.may_lag_seconds),
            (read, lag),
            "{operation}"
        );
    }
    use Operation::{C2, O2, O3, O4, O7, P1, P2, P4, P5, P6, S2};
    for layout in ["mongo-sharded", "hybrid"] {
        for operation in [O2, O7] {
            check(layout, operation, ReadLevel::Secondary, 10);
        }
        for operation in [O3, P1, P2] {
            check(layout, operation, ReadLevel::Secondary, 5);
        }
        for operation in [O4, P4, P5, P6] {
            check(layout, operation, ReadLevel::Primary, 0);
        }
        let layout = parsed(layout);
        let status = layout
            .collection(Collection::Orders)
            .live
            .consistency
            .policy(O3);
        assert_eq!(status.unless_status, ["paid"]);
    }
    check("mongo-sharded", C2, ReadLevel::Primary, 0);
    check("cassandra-orders", C2, ReadLevel::LocalQuorum, 0);
    check("cassandra-orders", O2, ReadLevel::Quorum, 0);
    check("hybrid", C2, ReadLevel::Quorum, 0);
    check("hybrid", S2, ReadLevel::One, 0);
}

#[test]
fn the_settings_of_the_two_clusters_differ_as_the_paper_says() {
    let layout = parsed("cassandra-orders");
    let settings = |engine: &str| {
        let settings = &layout.engines[engine].settings;
        (
            settings.hint_window_seconds,
            settings.repair_interval_seconds,
            settings.sampled_repair_percent,
        )
    };
    assert_eq!(
        settings("orders"),
        (Some(3 * 3600), Some(7 * 86_400), Some(10))
    );
    assert_eq!(settings("carts"), (Some(3600), Some(30 * 86_400), None));
}

/// Every order that the shop makes has a zone; a session may be without one.
#[test]
fn orders_may_be_cut_by_zone_and_sessions_may_not() {
    let (_, text) = LAYOUTS[1];
    let cut = |from: &str, to: &str| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        Layout::parse(&text.replace(from, to), "other.toml").unwrap()
    };
    let by_zone = "shard_key = [\"geo_zone\", \"user_id\"]";
    let orders = cut("shard_key = [\"user_id\"]", by_zone);
    assert!(is_usable(&check(&orders)));
    let sessions = cut("shard_key = [\"session_id\"]", "shard_key = [\"geo_zone\"]");
    assert!(!is_usable(&check(&sessions)));
}
