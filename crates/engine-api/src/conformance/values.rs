//! What is stored comes back as it was: E15.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use layout::{Collection, Field, FieldKind, Fields, Value};
use model::Timestamp;
use rust_decimal::Decimal;

use crate::change::PartChange;
use crate::conformance::scenery::{
    change_if, create, line, micros_after, patch, quantity, remove, set_line, usual_parts,
};
use crate::conformance::stage::{Checked, Stage};
use crate::conformance::{CARTS, Need};
use crate::record::{Content, ID_BYTES_MAX, PartKey, RecordId, RecordKey};

cases! {
    "E15" [] every_field_comes_back_as_it_was_given [];
    "E15" [] empty_and_extreme_values_come_back [];
    "E15" [] ids_of_64_bytes_and_of_any_letters_come_back [];
    "E15" [] parts_with_any_name_come_back [CARTS];
    "E15" [] optional_fields_can_be_given_and_taken_away [];
    "E15" ["W8"] a_shard_key_other_than_the_id_comes_back [CARTS];
    "E15" ["W1"] a_removed_record_is_read_as_a_mark [];
    "E15" [] the_latest_read_shows_what_was_acknowledged_before [CARTS];
    "E18" ["W8", "W22"] the_journal_names_the_shard_key [CARTS, Need::Journal];
}

/// Letters that are special somewhere: in documents, statements, paths, keys.
const ODD: &str = "Żółw 🛒 日本 'a\"b' $set a.b %_ \\ /";

async fn ensure_comes_back(stage: &Stage<'_>, key: &RecordKey, header: Fields) -> Checked {
    stage
        .done(create(
            key,
            header.clone(),
            usual_parts(key.collection, stage.now()),
        ))
        .await?;
    let record = stage.record(key).await?;
    let Content::Live(found) = &record.header.content else {
        ensure!(false, "{key} comes back as a mark");
        return Ok(());
    };
    for (field, value) in header.iter() {
        let found = found.get(field);
        ensure!(
            found == Some(value),
            "{field} was given as {value:?} and comes back as {found:?}"
        );
    }
    ensure!(
        *found == header,
        "{key} comes back with more than was given: {found:?}"
    );
    Ok(())
}

/// Every header field of the collection, filled by kind.
fn full(stage: &Stage<'_>, key: &RecordKey, by_kind: impl Fn(FieldKind, Field) -> Value) -> Fields {
    let usual = stage.header(key);
    let mut header = Fields::new();
    for field in key.collection.header_fields() {
        let value = match (field, field.kind()) {
            (Field::Category, _) => Value::text(stage.name("category")),
            (_, FieldKind::Id) if *field != key.collection.id_field() => {
                Value::text(stage.name(field.name()))
            }
            (Field::Price, _) => Value::Decimal(Decimal::new(1, 8)),
            (_, FieldKind::Id) => usual
                .get(*field)
                .cloned()
                .unwrap_or_else(|| Value::text(key.id.as_str())),
            (_, kind) => by_kind(kind, *field),
        };
        header = header.with(*field, value);
    }
    header
}

/// A moment that a store with whole milliseconds cannot hold.
fn between_milliseconds(now: Timestamp) -> Timestamp {
    Timestamp::from_unix_micros(now.unix_micros() / 1000 * 1000 + 1)
}

async fn every_field_comes_back_as_it_was_given(stage: Stage<'_>) -> Checked {
    let text_map = || {
        BTreeMap::from([
            (ODD.to_owned(), Value::text(ODD)),
            ("plain".to_owned(), Value::text("x")),
        ])
    };
    let addresses = [
        IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7)),
    ];
    let line = BTreeMap::from([
        ("product_id".to_owned(), Value::text(ODD)),
        ("price".to_owned(), Value::Decimal(Decimal::new(1990, 2))),
        ("quantity".to_owned(), Value::Int(3)),
    ]);
    for collection in stage.collections() {
        for (number, address) in addresses.iter().enumerate() {
            let key = stage.key(collection, &format!("full{number}"));
            let header = full(&stage, &key, |kind, field| match kind {
                FieldKind::Id | FieldKind::Text => Value::text(format!("{ODD} of {field}")),
                FieldKind::Int => Value::Int(42),
                FieldKind::Decimal => Value::Decimal(Decimal::new(12_345_678_901_234_567, 4)),
                FieldKind::Timestamp => Value::Timestamp(between_milliseconds(stage.now())),
                FieldKind::Inet => Value::Inet(*address),
                FieldKind::Map => Value::Map(text_map()),
                FieldKind::List => {
                    Value::List(vec![Value::Map(line.clone()), Value::Map(line.clone())])
                }
                FieldKind::Blob => Value::Blob(vec![0, 1, 255]),
            });
            ensure_comes_back(&stage, &key, header).await?;
        }
    }
    Ok(())
}

async fn empty_and_extreme_values_come_back(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        for (name, sign) in [("low", -1i64), ("high", 1)] {
            let key = stage.key(collection, name);
            let header = full(&stage, &key, |kind, field| match (kind, field) {
                (_, Field::Status) => Value::text("active"),
                (FieldKind::Id | FieldKind::Text, _) => Value::text(""),
                (FieldKind::Int, _) => Value::Int(i64::MAX * sign),
                (FieldKind::Decimal, _) => Value::Decimal(Decimal::MAX * Decimal::from(sign)),
                (FieldKind::Timestamp, _) => {
                    Value::Timestamp(micros_after(Timestamp::from_unix_micros(1), sign * 2))
                }
                (FieldKind::Inet, _) => Value::Inet(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
                (FieldKind::Map, _) => Value::Map(BTreeMap::new()),
                (FieldKind::List, _) => Value::List(Vec::new()),
                (FieldKind::Blob, _) => Value::Blob(Vec::new()),
            });
            ensure_comes_back(&stage, &key, header).await?;
        }
    }
    Ok(())
}

async fn ids_of_64_bytes_and_of_any_letters_come_back(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let start = stage.name("");
        let long = format!("{start}{}", "y".repeat(ID_BYTES_MAX - start.len()));
        for id in [long, stage.name("a.b$c"), stage.name("ü/日 '\"\\")] {
            let id = RecordId::new(id).expect("the id is at most 64 bytes long");
            let key = RecordKey::by_id(collection, id);
            stage.create_usual(&key).await?;
            let record = stage.record(&key).await?;
            ensure!(record.key == key, "{key} comes back as {}", record.key);
            let found = record
                .header
                .content
                .live()
                .and_then(|header| header.text(collection.id_field()));
            ensure!(
                found == Some(key.id.as_str()),
                "{key} is named {found:?} in its header"
            );
        }
    }
    Ok(())
}

async fn parts_with_any_name_come_back(stage: Stage<'_>) -> Checked {
    let key = stage.cart("parts");
    let long = "p".repeat(ID_BYTES_MAX);
    let names = [
        PartKey::line("a"),
        PartKey::line("a.b$c"),
        PartKey::line("a/b"),
        PartKey::line("ü 日 '\"\\"),
        PartKey::line(&long),
        PartKey::contribution("a", "b/c"),
        PartKey::contribution("a/b", "c"),
        PartKey::contribution(&long, &long),
    ];
    let (created, patched) = names.split_at(4);
    stage
        .create(
            &key,
            created.iter().map(|name| (name.clone(), line(1))).collect(),
        )
        .await?;
    let changes = patched
        .iter()
        .map(|name| (name.clone(), PartChange::Set(line(2))))
        .collect();
    stage.done(patch(&key, changes)).await?;
    stage
        .done(patch(
            &key,
            vec![(PartKey::line("a/b"), PartChange::Remove)],
        ))
        .await?;
    let record = stage.record(&key).await?;
    let mut expected: Vec<_> = names
        .iter()
        .filter(|name| **name != PartKey::line("a/b"))
        .collect();
    expected.sort();
    let found: Vec<_> = record.live_parts().map(|(name, _)| name).collect();
    ensure!(found == expected, "parts came back as {found:?}");
    Ok(())
}

async fn optional_fields_can_be_given_and_taken_away(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let key = stage.key(collection, "optional");
        let bare = stage.header(&key);
        let mut given = bare.clone();
        for field in collection.optional_fields() {
            let value = match field.kind() {
                FieldKind::Id | FieldKind::Text => Value::text(stage.name("given")),
                FieldKind::Timestamp => Value::Timestamp(stage.now()),
                FieldKind::Inet => Value::Inet(IpAddr::V4(Ipv4Addr::LOCALHOST)),
                FieldKind::Map => Value::Map(BTreeMap::from([("a".to_owned(), Value::text("b"))])),
                FieldKind::Int | FieldKind::Decimal | FieldKind::List | FieldKind::Blob => continue,
            };
            given = given.with(*field, value);
        }
        let mut expected = stage.create_usual(&key).await?;
        for header in [given, bare] {
            expected = stage
                .done(change_if(&key, expected, header.clone()))
                .await?;
            let found = stage.record(&key).await?.header.content;
            ensure!(
                found == Content::Live(header.clone()),
                "{header:?} comes back as {found:?}"
            );
        }
    }
    Ok(())
}

async fn a_shard_key_other_than_the_id_comes_back(stage: Stage<'_>) -> Checked {
    let key = stage.cart_of("owned", "owner");
    stage.create_usual(&key).await?;
    stage
        .done(patch(
            &key,
            vec![(PartKey::line("lamp"), PartChange::Set(line(2)))],
        ))
        .await?;
    let record = stage.record(&key).await?;
    ensure!(record.key == key, "{key:?} comes back as {:?}", record.key);
    Ok(())
}

async fn the_journal_names_the_shard_key(stage: Stage<'_>) -> Checked {
    let key = stage.cart_of("owned", "owner");
    let position = stage.position().await?;
    let created = stage.create_usual(&key).await?;
    stage
        .done(patch(
            &key,
            vec![(PartKey::line("lamp"), PartChange::Set(line(2)))],
        ))
        .await?;
    stage.done(remove(&key, created)).await?;
    let entries = stage.entries_after(&position).await?;
    ensure!(
        entries.len() == 3 && entries.iter().all(|entry| entry.key == key),
        "changes of {key:?} are journalled as {entries:?}"
    );
    Ok(())
}

async fn a_removed_record_is_read_as_a_mark(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let key = stage.key(collection, "removed");
        let created = stage.create_usual(&key).await?;
        let removed = stage.done(remove(&key, created)).await?;
        let mark = stage.record(&key).await?;
        ensure!(mark.key == key, "the mark of {key} is named {}", mark.key);
        ensure!(
            mark.header.content == Content::Removed,
            "the removed {key} is {:?}",
            mark.header
        );
        ensure!(
            mark.header.revision == removed,
            "the mark of {key} is {:?}",
            mark.header
        );
        ensure!(
            mark.live_parts().next().is_none(),
            "the removed {key} has parts: {:?}",
            mark.parts
        );
        ensure!(
            mark.header.cleared >= created,
            "the mark of {key} clears nothing: {:?}",
            mark.header
        );
    }
    Ok(())
}

async fn the_latest_read_shows_what_was_acknowledged_before(stage: Stage<'_>) -> Checked {
    let key = stage.key(Collection::Carts, "followed");
    stage.create_usual(&key).await?;
    for count in 1..=20 {
        stage.done(set_line(&key, "lamp", count)).await?;
        let found = quantity(&stage.record(&key).await?, "lamp");
        ensure!(
            found == Some(count),
            "{count} was acknowledged, {found:?} is read"
        );
    }
    Ok(())
}
