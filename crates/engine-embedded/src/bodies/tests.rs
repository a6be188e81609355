//! Bodies through checkpoints, sweeps and deletions, without an engine around them.

use std::ops::Bound;

use crate::batch::{Batch, Space};
use crate::places::Arrival;
use crate::salvage::Salvage;
use crate::segment::Sequence;
use crate::store::{Step, Store};
use crate::view::View;

fn open(folder: &tempfile::TempDir) -> Store {
    let store = Store::open(folder.path(), 1 << 20).unwrap();
    store.find_bodies().unwrap();
    store
}

fn key(number: u32) -> Vec<u8> {
    [&[1][..], &number.to_be_bytes()].concat()
}

fn write(store: &Store, number: u32, text: &str) {
    let key = key(number);
    let arrival = match store.view().latest_body(&key).unwrap() {
        Some(_) => Arrival::Known,
        None => Arrival::New,
    };
    let mut batch = Batch::default();
    batch.put_body(&key, text.as_bytes(), arrival);
    store.apply([&batch]);
}

fn checkpoint(store: &Store, number: u64) {
    store.seal(Sequence(number));
    store.flush().unwrap();
}

fn text(view: &View, number: u32) -> Option<String> {
    let entry = view.body(&key(number)).unwrap()?;
    Some(String::from_utf8(entry.body().to_vec()).unwrap())
}

fn files(folder: &tempfile::TempDir) -> usize {
    std::fs::read_dir(folder.path().join("bodies"))
        .unwrap()
        .count()
}

/// Ten records in a file on disk, eight of which were replaced since.
fn worn(folder: &tempfile::TempDir) -> Store {
    let store = open(folder);
    for number in 0..10 {
        write(&store, number, "first");
    }
    checkpoint(&store, 1);
    for number in 0..8 {
        write(&store, number, "second");
    }
    checkpoint(&store, 2);
    assert_eq!(files(folder), 2);
    store
}

fn check(store: &Store) {
    for number in 0..10 {
        let expected = if number < 8 { "second" } else { "first" };
        assert_eq!(
            text(&store.view(), number).as_deref(),
            Some(expected),
            "{number}"
        );
    }
}

#[test]
fn a_body_is_the_same_in_memory_on_disk_and_after_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    write(&store, 1, "in memory");
    assert_eq!(text(&store.view(), 1).as_deref(), Some("in memory"));
    checkpoint(&store, 1);
    assert_eq!(text(&store.view(), 1).as_deref(), Some("in memory"));
    drop(store);
    assert_eq!(text(&open(&folder).view(), 1).as_deref(), Some("in memory"));
}

#[test]
fn a_view_goes_on_seeing_the_body_it_saw() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    write(&store, 1, "old");
    let view = store.view();
    write(&store, 1, "new");
    assert_eq!(text(&view, 1).as_deref(), Some("old"));
    assert_eq!(text(&store.view(), 1).as_deref(), Some("new"));
    let mut batch = Batch::default();
    batch.remove(Space::Records, &key(1));
    store.apply([&batch]);
    assert_eq!(text(&view, 1).as_deref(), Some("old"));
    assert_eq!(text(&store.view(), 1), None);
    assert!(store.view().latest_body(&key(1)).unwrap().is_none());
}

#[test]
fn a_removal_is_not_seen_before_its_sync() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    write(&store, 1, "kept");
    let mut batch = Batch::default();
    batch.remove(Space::Records, &key(1));
    let failed = store.apply_when([&batch], &[], || Err("the disk is broken"));
    assert!(failed.is_err());
    assert!(store.view().latest_body(&key(1)).unwrap().is_some());
}

#[test]
fn living_bodies_of_a_worn_file_are_moved_and_the_file_is_deleted_after_the_next_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let store = worn(&folder);
    let mut salvage = Salvage::begin(&store).unwrap();
    let living = salvage.next(&store).unwrap();
    assert_eq!(living.entries.len(), 2);
    assert!(living.is_all);
    store.move_bodies(&living).unwrap();
    assert!(salvage.next(&store).is_none());
    check(&store);
    assert_eq!(files(&folder), 2, "tables on disk still point there");
    checkpoint(&store, 3);
    check(&store);
    assert_eq!(files(&folder), 2, "the second one, and the moved ones");
    assert!(!folder.path().join("bodies/00000001.bodies").exists());
    drop(store);
    check(&open(&folder));
}

#[test]
fn what_was_moved_and_not_yet_in_a_checkpoint_is_found_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let store = worn(&folder);
    let living = Salvage::begin(&store).unwrap().next(&store).unwrap();
    store.move_bodies(&living).unwrap();
    drop(store);
    check(&open(&folder));
}

#[test]
fn moved_bodies_survive_a_checkpoint_that_is_cut_off_anywhere() {
    for cut in [
        Step::BodiesWritten,
        Step::PlacesWritten,
        Step::TablesWritten,
        Step::FilesDeleted,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let store = worn(&folder);
        let living = Salvage::begin(&store).unwrap().next(&store).unwrap();
        store.move_bodies(&living).unwrap();
        store.cut_off(cut);
        store.seal(Sequence(3));
        assert!(store.flush().is_err(), "{cut:?} is not reached");
        drop(store);
        let store = open(&folder);
        check(&store);
        checkpoint(&store, 4);
        check(&store);
        assert!(files(&folder) <= 3, "{cut:?}");
    }
}

#[test]
fn a_record_that_changed_after_it_was_read_for_moving_keeps_its_change() {
    let folder = tempfile::tempdir().unwrap();
    let store = worn(&folder);
    let living = Salvage::begin(&store).unwrap().next(&store).unwrap();
    write(&store, 8, "third");
    let mut batch = Batch::default();
    batch.remove(Space::Records, &key(9));
    store.apply([&batch]);
    store.move_bodies(&living).unwrap();
    assert_eq!(text(&store.view(), 8).as_deref(), Some("third"));
    assert_eq!(text(&store.view(), 9), None);
    checkpoint(&store, 3);
    drop(store);
    let store = open(&folder);
    assert_eq!(text(&store.view(), 8).as_deref(), Some("third"));
    assert_eq!(text(&store.view(), 9), None);
}

#[test]
fn a_view_reads_on_in_a_file_that_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    for number in 0..10 {
        write(&store, number, "first");
    }
    checkpoint(&store, 1);
    let view = store.view();
    for number in 0..10 {
        write(&store, number, "second");
    }
    checkpoint(&store, 2);
    assert!(!folder.path().join("bodies/00000001.bodies").exists());
    for number in 0..10 {
        assert_eq!(text(&view, number).as_deref(), Some("first"));
    }
    let rows = view.bodies(Bound::Unbounded, Bound::Unbounded);
    assert!(
        rows.map(Result::unwrap)
            .all(|entry| entry.body() == b"first")
    );
}

#[test]
fn a_damaged_file_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let store = worn(&folder);
    let path = folder.path().join("bodies/00000001.bodies");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(Salvage::begin(&store).unwrap().next(&store).is_none());
    assert!(Salvage::begin(&store).is_none());
    checkpoint(&store, 3);
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(text(&store.view(), 8).as_deref(), Some("first"));
    assert!(store.view().body(&key(9)).is_err());
}

/// Bodies of any length in the order in which `number`s come, on disk.
fn lying(folder: &tempfile::TempDir, numbers: impl Iterator<Item = u32>) -> Store {
    let store = open(folder);
    for number in numbers {
        write(&store, number, &text_of(number));
    }
    checkpoint(&store, 1);
    store
}

/// Some are longer than what is read at once.
fn text_of(number: u32) -> String {
    let length = match number % 97 {
        0 => 100_000,
        rest => 20 * rest,
    };
    format!("{number}:{}", "x".repeat(length as usize))
}

fn scanned(view: &View) -> Vec<Result<String, String>> {
    let all = view.bodies(Bound::Unbounded, Bound::Unbounded);
    let read = all.map(|entry| match entry {
        Ok(entry) => Ok(String::from_utf8(entry.body().to_vec()).unwrap()),
        Err(error) => Err(error.to_string()),
    });
    read.collect()
}

#[test]
fn who_reads_one_body_after_the_other_gets_each_however_they_lie() {
    const COUNT: u32 = 400;
    let orders: [fn(u32) -> u32; 4] = [
        |place| place,
        |place| COUNT - 1 - place,
        // In groups, as they come from several writers; and anywhere.
        |place| place ^ 7,
        |place| place * 189 % COUNT,
    ];
    for order in orders {
        let folder = tempfile::tempdir().unwrap();
        let store = lying(&folder, (0..COUNT).map(order));
        let expected: Vec<_> = (0..COUNT).map(|number| Ok(text_of(number))).collect();
        assert!(scanned(&store.view()) == expected);
    }
}

#[test]
fn a_damaged_body_among_others_is_named_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    drop(lying(&folder, 1..90));
    let path = folder.path().join("bodies").join("00000001.bodies");
    let mut bytes = std::fs::read(&path).unwrap();
    let place = bytes.windows(3).position(|it| it == b"50:").unwrap();
    bytes[place + 10] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let read = scanned(&open(&folder).view());
    assert_eq!(read.len(), 89);
    for (number, read) in (1..90).zip(read) {
        match number {
            50 => assert!(read.unwrap_err().contains("is damaged")),
            _ => assert!(read == Ok(text_of(number)), "{number}"),
        }
    }
}
