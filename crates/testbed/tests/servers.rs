//! The public face against real servers.

use std::net::TcpStream;
use std::process::Command;
use std::thread;

use testbed::{CassandraCluster, Members, MongoSet, Nodes, required_or_skip};

const CHILD: &str = "TESTBED_TEST_CHILD";

#[test]
fn two_threads_and_a_second_process_share_one_replica_set() {
    let Some(set) = required_or_skip(testbed::mongo(Members::One), "MongoDB") else {
        return;
    };
    if std::env::var_os(CHILD).is_some() {
        println!("shared uri {}", set.uri());
        return;
    }
    let from_thread = thread::spawn(|| testbed::mongo(Members::One).unwrap().uri())
        .join()
        .unwrap();
    assert_eq!(from_thread, set.uri());
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "two_threads_and_a_second_process_share_one_replica_set",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(
        said.contains(&format!("shared uri {}\n", set.uri())),
        "{said}"
    );
    assert_ne!(set.database("carts"), set.database("carts"));
}

#[test]
fn several_sets_run_at_once_and_a_lone_server_beside_them() {
    let Some(shared) = required_or_skip(testbed::mongo(Members::One), "MongoDB") else {
        return;
    };
    let label = "second".parse().unwrap();
    let labelled = testbed::mongo_labelled(Members::One, &label).unwrap();
    assert_ne!(labelled.uri(), shared.uri());
    assert_eq!(
        testbed::mongo_labelled(Members::One, &label).unwrap().uri(),
        labelled.uri()
    );
    let listed: Vec<String> = testbed::status()
        .unwrap()
        .into_iter()
        .map(|running| running.name)
        .collect();
    for name in ["mongo:1", "mongo:1@second"] {
        assert!(listed.iter().any(|listed| listed == name), "{listed:?}");
    }
    let lone = MongoSet::standalone().unwrap();
    assert!(!lone.uri().contains("replicaSet"));
    lone.kill9(0).unwrap();
    lone.restart(0).unwrap();
    assert_eq!(lone.primary(), Some(0), "it takes writes, like a primary");
}

#[test]
fn two_threads_share_one_cassandra_node() {
    let ask =
        || thread::spawn(|| testbed::cassandra(Nodes::One).map(|cluster| cluster.contact_points()));
    let (first, second) = (ask(), ask());
    let Some(first) = required_or_skip(first.join().unwrap(), "Cassandra") else {
        return;
    };
    assert_eq!(first, second.join().unwrap().unwrap());
    assert!(TcpStream::connect(first[0]).is_ok());
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back() {
    let Some(set) = required_or_skip(MongoSet::exclusive(Members::Three), "MongoDB") else {
        return;
    };
    let killed = set.primary().unwrap();
    set.kill9(killed).unwrap();
    assert!(TcpStream::connect(set.addresses()[killed]).is_err());
    set.restart(killed).unwrap();
    assert!(set.primary().is_some());

    let paused = (set.primary().unwrap() + 1) % 3;
    set.pause(paused).unwrap();
    set.resume(paused).unwrap();
    set.wipe().unwrap();
    assert!(set.primary().is_some());
    let addresses = set.addresses();
    drop(set);
    assert!(
        addresses
            .iter()
            .all(|address| TcpStream::connect(address).is_err())
    );
}

#[test]
fn a_single_member_stops_and_comes_back() {
    let Some(set) = required_or_skip(MongoSet::exclusive(Members::One), "MongoDB") else {
        return;
    };
    set.stop().unwrap();
    assert_eq!(set.primary(), None);
    set.restart(0).unwrap();
    assert_eq!(set.primary(), Some(0));
}

#[test]
fn an_exclusive_node_runs_beside_the_shared_one() {
    let Some(cluster) = required_or_skip(CassandraCluster::exclusive(Nodes::One), "Cassandra")
    else {
        return;
    };
    let shared = testbed::cassandra(Nodes::One).unwrap();
    assert_ne!(cluster.contact_points(), shared.contact_points());
    cluster.kill9(0).unwrap();
    assert!(TcpStream::connect(cluster.contact_points()[0]).is_err());
    cluster.restart(0).unwrap();
    assert!(TcpStream::connect(cluster.contact_points()[0]).is_ok());
}

#[test]
fn bad_input_is_answered_with_one_sentence() {
    let check = |arguments: &[&str], wanted: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_testbed"))
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(wanted) && said.trim_end().lines().count() == 1,
            "{said}"
        );
    };
    check(
        &["up", "mongo:2"],
        "say cassandra:1, cassandra:3, mongo:1 or mongo:3",
    );
    check(
        &["up", "cassandra:1@users"],
        "a cluster is labelled orders or carts",
    );
    check(&["up", "mongo:1@no/label"], "write 1 to 16 of a-z and 0-9");
    check(&["upp"], "unrecognized subcommand 'upp'");
    check(&["status", "now"], "unexpected argument 'now'");
    check(&[], "install");
}
