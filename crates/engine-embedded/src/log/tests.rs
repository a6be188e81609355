//! What the log makes of torn, flipped and missing bytes.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use super::*;
use crate::batch::Space;

const SMALL: u64 = 8 * BLOCK_BYTES;

fn batch(number: u64, bytes: usize) -> Batch {
    let mut batch = Batch::default();
    batch.put(Space::Records, &number.to_be_bytes(), &vec![7; bytes]);
    batch.remove(Space::Due, &number.to_be_bytes());
    batch
}

/// Opens the log and answers what it replayed, by the number in the key.
fn open(folder: &Path, checkpoint: u64) -> Result<(CommitLog, Vec<u64>), LogError> {
    let checkpointed = Checkpointed::default();
    checkpointed.set(Sequence(checkpoint));
    let mut replayed = Vec::new();
    let log = CommitLog::open(folder, SMALL, checkpointed, |batch| {
        let key = batch.writes().next().unwrap().key;
        replayed.push(u64::from_be_bytes(key.try_into().unwrap()));
    })?;
    Ok((log, replayed))
}

fn refused(folder: &Path, checkpoint: u64) -> String {
    match open(folder, checkpoint) {
        Err(LogError::Lost(reason)) => reason,
        Err(LogError::Io(error)) => panic!("{error}"),
        Ok((_, replayed)) => panic!("opened with {replayed:?}"),
    }
}

/// Groups of one block each, in one segment; answers the segment's path.
fn three_groups(folder: &Path) -> PathBuf {
    let (mut log, _) = open(folder, 0).unwrap();
    for number in 1..=3 {
        log.append(&[batch(number, 200)]).unwrap();
    }
    log.active.path().to_owned()
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

fn segments(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn groups_are_replayed_in_order_however_often_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    three_groups(folder.path());
    for round in 0..3 {
        let (mut log, replayed) = open(folder.path(), 0).unwrap();
        assert_eq!(replayed, (1..=3 + round).collect::<Vec<_>>());
        assert_eq!(log.append(&[batch(4 + round, 10)]).unwrap().0, 4 + round);
    }
    let (_, replayed) = open(folder.path(), 4).unwrap();
    assert_eq!(replayed, [5, 6], "what the checkpoint holds is left out");
}

#[test]
fn a_group_torn_anywhere_is_absent_and_all_before_it_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = three_groups(folder.path());
    let whole = fs::read(&path).unwrap();
    let start = 3 * BLOCK_BYTES as usize;
    let end = start + group_end(&whole[start..]);
    for torn_at in start..end {
        // The name stays: it is the seed.
        let other = tempfile::tempdir().unwrap();
        let copy = other.path().join(path.file_name().unwrap());
        let mut bytes = whole.clone();
        bytes[torn_at..end].fill(0);
        // A trailing zero is no tear.
        let expected: &[u64] = if bytes == whole { &[1, 2, 3] } else { &[1, 2] };
        fs::write(&copy, bytes).unwrap();
        let (mut log, replayed) = open(other.path(), 0).unwrap();
        assert_eq!(replayed, expected, "torn at {torn_at}");
        let next = log.append(&[batch(9, 10)]).unwrap();
        assert_eq!(next.0, expected.len() as u64 + 1);
        drop(log);
        let (_, replayed) = open(other.path(), 0).unwrap();
        assert_eq!(replayed, [expected, &[9]].concat(), "torn at {torn_at}");
    }
}

/// Where the group's own bytes end and the padding begins.
fn group_end(group: &[u8]) -> usize {
    32 + u32::from_le_bytes(group[12..16].try_into().unwrap()) as usize
}

#[test]
fn blocks_of_a_group_that_never_arrived_make_it_absent() {
    let folder = tempfile::tempdir().unwrap();
    let (mut log, _) = open(folder.path(), 0).unwrap();
    log.append(&[batch(1, 10)]).unwrap();
    log.append(&[batch(2, 3 * BLOCK_BYTES as usize)]).unwrap();
    let path = log.active.path().to_owned();
    drop(log);
    let whole = fs::read(&path).unwrap();
    for missing in 1..0b1111 {
        let other = tempfile::tempdir().unwrap();
        let copy = other.path().join(path.file_name().unwrap());
        let mut bytes = whole.clone();
        for block in (0..4).filter(|block| missing >> block & 1 == 1) {
            let start = (2 + block) * BLOCK_BYTES as usize;
            bytes[start..start + BLOCK_BYTES as usize].fill(0);
        }
        fs::write(&copy, bytes).unwrap();
        assert_eq!(open(other.path(), 0).unwrap().1, [1], "{missing:b}");
    }
}

#[test]
fn a_flipped_byte_before_a_whole_group_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = three_groups(folder.path());
    let whole = fs::read(&path).unwrap();
    let start = 2 * BLOCK_BYTES as usize;
    for at in start..start + group_end(&whole[start..]) {
        overwrite(&path, at as u64, &[!whole[at]]);
        let reason = refused(folder.path(), 0);
        assert!(reason.contains("whole up to group 1"), "{reason}");
        assert!(reason.contains("group 3"), "{reason}");
        overwrite(&path, at as u64, &whole[at..=at]);
    }
    open(folder.path(), 0).unwrap();
}

#[test]
fn a_segment_whose_header_is_broken_is_refused_while_its_groups_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = three_groups(folder.path());
    overwrite(&path, 9, &[0xff]);
    assert!(refused(folder.path(), 0).contains("group 3"));
    let (_, replayed) = open(folder.path(), 3).unwrap();
    assert_eq!(replayed, [0u64; 0], "the checkpoint holds them all");
}

#[test]
fn a_log_that_begins_behind_the_checkpoint_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (mut log, _) = open(folder.path(), 0).unwrap();
    log.append(&[batch(1, 10)]).unwrap();
    drop(log);
    let (mut log, _) = open(folder.path(), 6).unwrap();
    log.append(&[batch(7, 10)]).unwrap();
    drop(log);
    assert!(refused(folder.path(), 5).contains("whole up to group 5"));
    assert_eq!(open(folder.path(), 6).unwrap().1, [7]);
}

#[test]
fn a_log_that_is_gone_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(refused(folder.path(), 1).contains("gone"));
    open(folder.path(), 0).unwrap();
}

#[test]
fn a_segment_that_is_missing_between_others_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (mut log, _) = open(folder.path(), 0).unwrap();
    for number in 1..=20 {
        log.append(&[batch(number, 10)]).unwrap();
    }
    let missing = log.sealed[1].0.path().to_owned();
    drop(log);
    fs::remove_file(missing).unwrap();
    assert!(refused(folder.path(), 0).contains("whole up to group 7"));
}

#[test]
fn segments_are_used_again_once_a_checkpoint_holds_them() {
    let folder = tempfile::tempdir().unwrap();
    let (mut log, _) = open(folder.path(), 0).unwrap();
    let mut most = 0;
    for number in 1..=500 {
        log.append(&[batch(number, 10)]).unwrap();
        if number % 20 == 0 {
            log.checkpointed.set(Sequence(number - 10));
        }
        most = most.max(segments(folder.path()));
    }
    drop(log);
    assert!((3..=8).contains(&most), "{most} segments");
    let (_, replayed) = open(folder.path(), 490).unwrap();
    assert_eq!(replayed, (491..=500).collect::<Vec<_>>());
}

#[test]
fn a_group_larger_than_a_segment_has_one_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (mut log, _) = open(folder.path(), 0).unwrap();
    log.append(&[batch(1, 10)]).unwrap();
    log.append(&[batch(2, 3 * SMALL as usize), batch(3, 10)])
        .unwrap();
    log.append(&[batch(4, 10)]).unwrap();
    log.checkpointed.set(Sequence(3));
    drop(log);
    assert_eq!(open(folder.path(), 0).unwrap().1, [1, 2, 4]);
}

#[test]
fn a_draft_of_a_segment_is_thrown_away() {
    let folder = tempfile::tempdir().unwrap();
    three_groups(folder.path());
    fs::write(folder.path().join("draft"), "half a segm").unwrap();
    assert_eq!(open(folder.path(), 0).unwrap().1, [1, 2, 3]);
    assert!(!folder.path().join("draft").exists());
}
