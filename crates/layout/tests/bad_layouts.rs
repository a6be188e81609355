//! Bad layouts: each is told what is wrong, where, and what to do.

use layout::explain::findings_text;
use layout::{Layout, check};

/// What a file's reader or the checker says to it.
fn verdict(text: &str, origin: &str) -> String {
    match Layout::parse(text, origin) {
        Err(error) => error.to_string(),
        Ok(layout) => findings_text(&check(&layout)),
    }
}

macro_rules! bad_layouts {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let origin = concat!(stringify!($name), ".toml");
            let said = verdict(include_str!(concat!("bad/", stringify!($name), ".toml")), origin);
            assert!(!said.starts_with("usable"), "{said}");
            insta::assert_snapshot!(stringify!($name), said);
        }
    )*};
}

bad_layouts! {
    broken_toml
    unknown_key
    unknown_engine
    unknown_field
    field_of_another_collection
    missing_collection
    missing_path
    two_authorities
    products_on_cassandra
    key_without_id
    nullable_shard_key
    day_without_bucket
}

#[test]
fn what_cannot_be_meant_is_refused_where_it_is_read() {
    fn check(from: &str, to: &str, expected: &str) {
        let embedded = include_str!("divided.toml");
        assert!(
            embedded.contains(from),
            "the embedded layout has no {from:?} to change"
        );
        let error = Layout::parse(&embedded.replacen(from, to, 1), "changed.toml").expect_err(to);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let orders = "[collections.orders]\n";
    let with = |line: &str| format!("{orders}{line}\n");
    check(
        orders,
        &with("ids = { status = \"uuid\" }"),
        "status is not an id",
    );
    check(
        orders,
        &with("ids = { user_id = \"hex\" }"),
        "unknown variant `hex`",
    );
    check(orders, &with("lifetime_seconds = 5"), "orders never expire");
    check(
        orders,
        &with("ranges = [{}]"),
        "ranges need cut = \"ranges\"",
    );
    check(orders, &with("zones = {}"), "zones need cut = \"ranges\"");
    check(
        orders,
        &with("initial_shards = [\"a\", \"a\"]"),
        "each once",
    );
    check(
        orders,
        &with("operations.O9 = {}"),
        "there is no operation \"O9\"",
    );
    check(
        orders,
        &with("history = { engine = \"local\", status = [], tables = {} }"),
        "needs the statuses",
    );
    check(
        "shard_key = [\"user_id\"]",
        "shard_key = []",
        "write [\"order_id\"]",
    );
    check(
        "kind = \"embedded\"",
        "kind = \"embedded\"\nreplication = { here = 0 }",
        "1 to 100 copies",
    );
    check(
        "initial_buckets = 8",
        "initial_buckets = 0",
        "initial_buckets is 1 to 4096",
    );
    check(
        "only = { status = \"active\" }",
        "only = {}",
        "only names one field",
    );
    check(
        "lifetime_seconds = 604800",
        "lifetime_seconds = 0",
        "a lifetime of 0 s is out of range",
    );
    check(
        "name = \"embedded\"",
        "name = \"\"",
        "a layout needs a name",
    );
    let cut = "shard_key = [\"product_id\"]\ncut = \"slots\"";
    let ranges = |rest: &str| format!("shard_key = [\"product_id\"]\ncut = \"ranges\"\n{rest}");
    check(cut, &ranges(""), "needs ranges");
    check(cut, &ranges("ranges = []"), "ranges is empty");
    check(
        cut,
        &ranges("ranges = [{ from = [] }]"),
        "a split point gives values for product_id",
    );
    check(
        cut,
        &ranges("ranges = [{ from = [5] }]"),
        "this is no split point of product_id",
    );
    check(
        cut,
        &ranges("initial_shards = [\"a\"]"),
        "each range names its shard",
    );
}

#[test]
fn options_of_servers_are_single_values_under_plain_names() {
    fn check(line: &str, expected: &str) {
        let text = include_str!("divided.toml").replace("initial_buckets = 8", line);
        let error = Layout::parse(&text, "changed.toml").expect_err(line);
        assert!(error.to_string().contains(expected), "{error}");
    }
    check("options = { \"a; b\" = 1 }", "is not the name of an option");
    check(
        "options = { caching = { keys = \"ALL\" } }",
        "caching is one value",
    );
    check("options = { comment = \"a\\nb\" }", "a text of one line");
}
