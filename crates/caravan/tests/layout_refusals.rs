//! What a layout has no place for is not moved there: live orders where only finished ones are kept, and fields that another
//! layout keeps in a form that not every value fits. Refused with the reason, and nothing is changed.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;

use support::{Server, is_one_sentence, succeeds};

/// The default layout under another name, changed; as a file in the folder.
fn layout(folder: &Path, name: &str, changes: &[(&str, &str)]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
    let mut text = std::fs::read_to_string(root.join("embedded.toml")).unwrap();
    let named = format!("name = \"{name}\"");
    let changes = [&[("name = \"embedded\"", &*named)], changes].concat();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    let file = format!("{name}.toml");
    std::fs::write(folder.join(&file), text).unwrap();
    file
}

/// Both a plan and a start; what stands afterwards is what stood before.
#[track_caller]
fn is_refused(folder: &Path, command: &[&str], place: &[&str], said: (&str, &str)) {
    let standing = || {
        let moves = succeeds(folder, &[&["move", "list"], place].concat());
        let shards = succeeds(folder, &[&["shard", "list", "--json"], place].concat());
        [moves, shards]
    };
    let before = standing();
    for what in ["plan", "start"] {
        let mut arguments = [command, place].concat();
        *arguments.iter_mut().find(|it| **it == "WHAT").unwrap() = what;
        is_one_sentence(&support::caravan(folder, &arguments), said.0, said.1);
        assert_eq!(standing(), before, "{arguments:?}");
    }
}

#[test]
fn live_orders_do_not_go_where_finished_ones_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let history = r#"
[collections.orders.history]
engine = "past"
status = ["delivered", "cancelled", "returned"]

[collections.orders.history.tables.past_by_id]
role = "authority"
partition = ["order_id"]

[collections.orders.history.tables.past_by_user]
partition = ["user_id"]
clustering = ["created_at desc", "order_id"]
body = "pointer"

[collections.orders.history.tables.past_by_period]
partition = []
clustering = ["created_at desc", "order_id"]
body = "pointer"

[collections.products]"#;
    let engines = "[engines.past]\nkind = \"embedded\"\n\n[collections.carts]";
    let changes = [
        ("[collections.carts]", engines),
        ("[collections.products]", history),
    ];
    let file = layout(at, "apart", &changes);
    let place = ["--layout", &*file];
    let server = Server::start(at, &place);
    let orders = [
        "move",
        "WHAT",
        "--name",
        "x",
        "--collection",
        "orders",
        "--all",
    ];
    let between = ["--from", "local", "--to", "past"];
    let moved = [&orders[..], &between].concat();
    let said = ("past is not for live orders of layout apart", "choose one");
    is_refused(at, &moved, &place, said);
    server.stop();
}

#[test]
fn a_layout_that_cannot_keep_every_value_of_a_field_gets_none_of_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let changes = [
        (
            "[collections.sessions]",
            "[collections.sessions]\nids = { user_id = \"uuid\" }",
        ),
        (
            "[collections.carts]",
            "[collections.carts]\nids = { product_id = \"object_id\" }",
        ),
    ];
    let file = layout(at, "narrow", &changes);
    let server = Server::start(at, &["--toward", &file]);
    // The user of a session is a field of its own, the product of a cart one of its lines.
    for (collection, field) in [("sessions", "user_id"), ("carts", "product_id")] {
        let toward = ["--toward", &file, "--collection", collection];
        let moved = [&["move", "layout", "WHAT"][..], &toward].concat();
        let why = format!("{collection}: {field} is kept in another form there");
        is_refused(at, &moved, &[], (&why, "declare it as text"));
    }
    server.stop();
}
