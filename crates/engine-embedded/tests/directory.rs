//! The data directory refuses what it cannot keep, and says what to do.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use engine_embedded::{EmbeddedConfig, EmbeddedEngine, FORMAT, OpenError};

fn config(path: &Path) -> EmbeddedConfig {
    let layout = engine_api::layout::embedded();
    let tables = layout
        .collections
        .values()
        .flat_map(|kept| kept.live.tables.clone())
        .collect();
    EmbeddedConfig {
        path: path.to_owned(),
        tables,
        cache_bytes: 1 << 20,
    }
}

/// Every file with its length and content: what a refusal must leave alone.
fn contents(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(contents(&entry.path()));
        } else {
            found.push((
                entry.path().display().to_string(),
                fs::read(entry.path()).unwrap(),
            ));
        }
    }
    found.sort();
    found
}

#[test]
fn a_directory_in_use_is_refused_until_it_is_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let first = EmbeddedEngine::open(config(folder.path())).unwrap();
    let error = EmbeddedEngine::open(config(folder.path())).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("in use by another process: stop it"),
        "{error}"
    );
    drop(first);
    EmbeddedEngine::open(config(folder.path())).unwrap();
}

#[test]
fn a_newer_format_is_refused_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    drop(EmbeddedEngine::open(config(folder.path())).unwrap());
    fs::write(
        folder.path().join("CARAVAN-FORMAT"),
        format!("{}\n", FORMAT + 1),
    )
    .unwrap();
    let before = contents(folder.path());
    let error = EmbeddedEngine::open(config(folder.path())).unwrap_err();
    assert!(
        matches!(error, OpenError::NewerFormat { found, .. } if found == FORMAT + 1),
        "{error}"
    );
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn an_older_format_is_refused_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    drop(EmbeddedEngine::open(config(folder.path())).unwrap());
    fs::write(folder.path().join("CARAVAN-FORMAT"), "1\n").unwrap();
    let before = contents(folder.path());
    let error = EmbeddedEngine::open(config(folder.path())).unwrap_err();
    assert!(
        matches!(error, OpenError::OlderFormat { found: 1, .. }),
        "{error}"
    );
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn a_directory_of_something_else_is_refused_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("holiday.jpg"), "not ours").unwrap();
    let before = contents(folder.path());
    let error = EmbeddedEngine::open(config(folder.path())).unwrap_err();
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error}");
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn a_layout_with_other_tables_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(EmbeddedEngine::open(config(folder.path())).unwrap());
    let mut other = config(folder.path());
    other.tables.retain(|table| table.name != "orders_by_user");
    let error = EmbeddedEngine::open(other).unwrap_err();
    assert!(matches!(error, OpenError::OtherTables { .. }), "{error}");
    EmbeddedEngine::open(config(folder.path())).unwrap();
}

#[test]
fn a_path_that_cannot_be_a_directory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = EmbeddedEngine::open(config(&file)).unwrap_err();
    assert!(error.to_string().contains("check the path"), "{error}");
}

#[test]
fn a_directory_half_made_by_a_crash_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("CARAVAN-FORMAT.new"), "").unwrap();
    fs::write(folder.path().join("LOCK"), "").unwrap();
    drop(EmbeddedEngine::open(config(folder.path())).unwrap());
    fs::remove_dir_all(folder.path().join("data")).unwrap();
    fs::create_dir(folder.path().join("data.new")).unwrap();
    fs::write(folder.path().join("data.new").join("0.jnl"), "half").unwrap();
    drop(EmbeddedEngine::open(config(folder.path())).unwrap());
    EmbeddedEngine::open(config(folder.path())).unwrap();
}
