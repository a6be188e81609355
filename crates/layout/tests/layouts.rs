//! The five layouts that ship: each is read, used without refusal, and explained.

use layout::checker::is_usable;
use layout::explain::explain;
use layout::{
    AccessPath, Collection, EngineKind, FanOut, Layout, Load, ShardFanOut, check, plan,
    plan_history,
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
