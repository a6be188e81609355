//! A password in an address comes out nowhere: not in settings, errors, logs or answers.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::process::Output;

use support::{Server, command};
use testbed::{Members, required_or_skip};

const SECRET: &str = "Kolobok";

const LAYOUTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../layouts");

fn layout(name: &str) -> String {
    format!("{LAYOUTS}/{name}.toml")
}

/// Everything that was printed, without the password.
#[track_caller]
fn printed(output: &Output) -> String {
    let all = [&*output.stdout, &*output.stderr].concat();
    let all = String::from_utf8(all).unwrap();
    assert!(!all.contains(SECRET), "{all}");
    all
}

#[test]
fn settings_are_shown_without_passwords_wherever_they_come_from() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("mongo=mongodb://shop:{SECRET}@db1:27017/?replicaSet=shop");
    let shown = "addresses = \"mongo=mongodb://shop:***@db1:27017/?replicaSet=shop\"";
    let mut by_flag = command(folder.path());
    by_flag.args(["config", "--address", &address]);
    let mut by_variable = command(folder.path());
    by_variable.arg("config").env("CARAVAN_ADDRESSES", &address);
    fs::write(
        folder.path().join("shop.toml"),
        format!("addresses = \"{address}\"\n"),
    )
    .unwrap();
    let mut by_file = command(folder.path());
    by_file.args(["config", "--config", "shop.toml"]);
    for mut command in [by_flag, by_variable, by_file] {
        let output = command.args(["--layout", "any.toml"]).output().unwrap();
        let text = printed(&output);
        assert!(output.status.success(), "{text}");
        assert!(text.lines().any(|line| line == shown), "{text}");
    }
}

#[test]
fn errors_name_the_shard_and_not_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |layout: &str, addresses: &[String], said: &str| {
        let mut serve = command(folder.path());
        serve.args(["serve", "--listen", "127.0.0.1:0", "--log", "plain/debug"]);
        serve.args(["--layout", layout]);
        for address in addresses {
            serve.args(["--address", address]);
        }
        let output = serve.output().unwrap();
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(said), "{said}: {text}");
    };
    let (mongo, cassandra) = (layout("mongo-sharded"), layout("hybrid"));
    let of_mongo = |password: &str| {
        let address = |shard: u8| {
            format!("shard-{shard}=mongodb://shop:{password}@127.0.0.1:1/?replicaSet=shop")
        };
        [address(1), address(2)]
    };
    refused(
        &mongo,
        &of_mongo(SECRET),
        "shard-1: no server answers at 127.0.0.1:1",
    );
    for (password, remedy) in [
        (format!("{SECRET}/x"), "%2F"),
        (format!("12/{SECRET}"), "%2F"),
        (format!("12?{SECRET}"), "%3F"),
        (format!("{SECRET}:x"), "%XX"),
        (format!("{SECRET}%"), "%XX"),
        (format!("x {SECRET}"), "%20"),
        (format!("x {SECRET} y"), "%20"),
    ] {
        refused(&mongo, &of_mongo(&password), remedy);
    }
    let nobody = format!("cassandra://shop:{SECRET}@127.0.0.1:1");
    let nowhere = format!("cassandra://shop:{SECRET}/?x@127.0.0.1:port");
    // The map's server is asked first; it has to be there.
    let Some(own) = required_or_skip(testbed::mongo(Members::One), "MongoDB") else {
        return;
    };
    let elsewhere = format!("mongo={}", own.uri());
    let of_cassandra = |address: &str| [format!("cassandra={address}"), elsewhere.clone()];
    refused(
        &cassandra,
        &of_cassandra(&nobody),
        "shard cassandra: no server answered",
    );
    refused(&cassandra, &of_cassandra(&nowhere), "write host:9042");
    refused(&cassandra, &[nobody], "address 1 has no shard");
    refused(&cassandra, &[of_mongo(SECRET)[0].clone()], "no such shard");
    let bare = of_mongo(SECRET)[0].replace("shard-1=", "");
    refused(
        &cassandra,
        std::slice::from_ref(&bare),
        "address 1 has no shard",
    );
    let unexpected = command(folder.path()).args(["serve", &bare]).output();
    assert!(printed(&unexpected.unwrap()).contains("shop:***@127.0.0.1"));
}

#[test]
fn a_layout_file_with_a_password_is_checked_without_showing_it() {
    let folder = tempfile::tempdir().unwrap();
    let good = fs::read_to_string(layout("cassandra-orders")).unwrap();
    let with = |key: &str| {
        let line = format!("kind = \"cassandra\"\n{key} = [\"shop:{SECRET}@10.0.0.1:9042\"]");
        good.replace("kind = \"cassandra\"", &line)
    };
    fs::write(folder.path().join("good.toml"), with("addresses")).unwrap();
    fs::write(folder.path().join("bad.toml"), with("adresses")).unwrap();
    for (arguments, said) in [
        (&["layout", "schema", "good.toml"][..], "shop:***@10.0.0.1"),
        (&["layout", "check", "good.toml"], "usable"),
        (&["layout", "check", "bad.toml"], "adresses"),
        (&["layout", "check", "--json", "bad.toml"], "adresses"),
        (&["layout", "explain", "bad.toml"], "adresses"),
    ] {
        let output = command(folder.path()).args(arguments).output().unwrap();
        let text = printed(&output);
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
}

#[test]
fn a_shop_that_serves_shows_no_password() {
    let folder = tempfile::tempdir().unwrap();
    let settings = format!("addresses = \"local=mongodb://shop:{SECRET}@127.0.0.1:1\"\n");
    fs::write(folder.path().join("shop.toml"), settings).unwrap();
    let embedded = layout("embedded");
    let arguments = [
        "--layout",
        &*embedded,
        "--config",
        "shop.toml",
        "--log",
        "plain/debug",
    ];
    let server = Server::start(folder.path(), &arguments);
    assert!(!server.line.contains(SECRET), "{}", server.line);
    for path in ["/", "/health/ready", "/metrics"] {
        let answer = server.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.text.contains(SECRET), "{path}: {}", answer.text);
    }
    let log = server.stop();
    assert!(!log.contains(SECRET), "{log}");
}
