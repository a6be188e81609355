//! The demo as anybody runs it: its verdict holds, and it would notice.

#![allow(clippy::unwrap_used)]

mod support;

use support::caravan;

/// Short, and generous with the freeze on whatever machine.
const SHORT: [&str; 7] = [
    "demo",
    "--shoppers",
    "3",
    "--pause-ms",
    "300",
    "--freeze-ms-max",
    "4000",
];

#[test]
fn the_demo_moves_keys_there_and_back_and_there_again_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = caravan(folder.path(), &SHORT);
    let told = String::from_utf8(output.stdout).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}{complaint}");
    for text in [
        "a second shard is added",
        "carts-1: ready",
        "orders-1: settling",
        "rolled back: ",
        "cut over again: ",
        "carts-2: completed",
        "nothing acknowledged was lost",
        "lost          0\n",
        "doubled       0\n",
        "wrong         0\n",
    ] {
        assert!(told.contains(text), "{text}: {told}");
    }
    assert!(
        !told.contains('\x1b'),
        "nobody draws where there is no terminal: {told}"
    );
    assert!(
        !told.contains("acknowledged  0 "),
        "somebody bought: {told}"
    );
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "nothing is left behind");
}

#[test]
fn the_demo_says_so_when_an_acknowledged_change_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [&SHORT[..], &["--lose-one"]].concat();
    let output = caravan(folder.path(), &arguments);
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("lost          1\n"), "{told}");
    assert!(told.contains("DID NOT KEEP ITS WORD"), "{told}");
}
