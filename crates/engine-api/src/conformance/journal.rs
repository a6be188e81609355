//! The journal: E18, E19.

use layout::Collection;

use crate::change::{Change, StockAction};
use crate::conformance::images::image;
use crate::conformance::scenery::{
    change_if, changed, create, remove, remove_line, set_line, set_line_while_active, stock, take,
};
use crate::conformance::stage::{Checked, Entry, Stage};
use crate::conformance::{CARTS, Need, ORDERS, PRODUCTS};
use crate::journal::ChangeKind;
use crate::revision::{Revision, Writer};

cases! {
    "E18" ["W22"] every_applied_change_has_an_entry_when_it_is_acknowledged [CARTS, Need::Journal];
    "E18" ["W22"] an_image_that_was_newer_has_an_entry [CARTS, Need::Journal];
    "E18" ["W22"] a_change_of_stock_has_an_entry [PRODUCTS, Need::Journal, Need::Stock];
    "E18" ["W22"] changes_that_go_together_have_an_entry_each [ORDERS, PRODUCTS, Need::Journal, Need::Together, Need::Stock];
    "E18" ["W22"] the_source_shows_what_an_entry_announces [CARTS, Need::Journal];
    "E18" [] a_refused_or_repeated_change_has_no_entry [CARTS, Need::Journal];
    "E18" [] entries_of_concurrent_writers_are_all_there_and_in_order_per_key [CARTS, Need::Journal];
    "E19" [] the_same_position_gives_the_same_entries_again [CARTS, Need::Journal];
    "E19" [] pages_of_the_journal_make_the_whole [CARTS, Need::Journal];
    "E19" [] nothing_comes_after_the_end [CARTS, Need::Journal];
}

async fn every_applied_change_has_an_entry_when_it_is_acknowledged(stage: Stage<'_>) -> Checked {
    let key = stage.cart("written");
    let mut revision = Revision::ZERO;
    for (number, kind) in [
        ChangeKind::Written,
        ChangeKind::Written,
        ChangeKind::Written,
        ChangeKind::Written,
        ChangeKind::Removed,
        ChangeKind::Written,
    ]
    .into_iter()
    .enumerate()
    {
        let change = match number {
            0 | 5 => create(&key, stage.header(&key), vec![]),
            1 => set_line(&key, "lamp", 1),
            2 => remove_line(&key, "lamp"),
            3 => change_if(
                &key,
                revision,
                changed(&stage.header(&key), key.collection, "ordered"),
            ),
            _ => remove(&key, revision),
        };
        let position = stage.position().await?;
        let done = stage.done(change.clone()).await?;
        if !matches!(change, Change::Patch { .. }) {
            revision = done;
        }
        let expected = [Entry {
            key: key.clone(),
            kind,
            revision: done,
        }];
        let found = stage.entries_after(&position).await?;
        ensure!(
            found == expected,
            "{change:?} is journalled as {found:?}, not {expected:?}"
        );
    }
    Ok(())
}

async fn an_image_that_was_newer_has_an_entry(stage: Stage<'_>) -> Checked {
    let key = stage.cart("moved");
    let position = stage.position().await?;
    let revision = stage.revision();
    stage
        .put_image(&image(&key, revision, stage.header(&key)))
        .await?;
    let expected = [Entry {
        key,
        kind: ChangeKind::Written,
        revision,
    }];
    let found = stage.entries_after(&position).await?;
    ensure!(
        found == expected,
        "an image is journalled as {found:?}, not {expected:?}"
    );
    Ok(())
}

async fn a_change_of_stock_has_an_entry(stage: Stage<'_>) -> Checked {
    let key = stage.key(Collection::Products, "lamp");
    stage.create(&key, vec![]).await?;
    stage
        .done(stock(&key, StockAction::Receive { total: 5 }))
        .await?;
    let position = stage.position().await?;
    let revision = stage.done(stock(&key, take("a", 1, stage.now()))).await?;
    stage.done(stock(&key, take("a", 1, stage.now()))).await?;
    let expected = [Entry {
        key,
        kind: ChangeKind::Written,
        revision,
    }];
    let found = stage.entries_after(&position).await?;
    ensure!(
        found == expected,
        "a take and its repeat are journalled as {found:?}, not {expected:?}"
    );
    Ok(())
}

async fn changes_that_go_together_have_an_entry_each(stage: Stage<'_>) -> Checked {
    let (product, order) = (
        stage.key(Collection::Products, "lamp"),
        stage.key(Collection::Orders, "o"),
    );
    stage.create(&product, vec![]).await?;
    stage
        .done(stock(&product, StockAction::Receive { total: 5 }))
        .await?;
    let position = stage.position().await?;
    let changes = vec![
        create(&order, stage.header(&order), vec![]),
        stock(&product, StockAction::Sell { quantity: 2 }),
    ];
    stage
        .together(changes, stage.router(stage.revision()))
        .await?;
    let mut found: Vec<_> = stage
        .entries_after(&position)
        .await?
        .into_iter()
        .map(|entry| entry.key)
        .collect();
    found.sort();
    let mut expected = vec![order, product];
    expected.sort();
    ensure!(found == expected, "the commit is journalled as {found:?}");
    Ok(())
}

async fn the_source_shows_what_an_entry_announces(stage: Stage<'_>) -> Checked {
    let position = stage.position().await?;
    for number in 0..6 {
        let key = stage.cart(&format!("r{number}"));
        let created = stage.create_usual(&key).await?;
        stage.done(set_line(&key, "lamp", 5)).await?;
        if number % 2 == 0 {
            stage.done(remove(&key, created)).await?;
        }
    }
    let entries = stage.entries_after(&position).await?;
    ensure!(
        entries.len() == 15,
        "15 changes have {} entries",
        entries.len()
    );
    for entry in entries {
        let shown = stage.record(&entry.key).await?.newest_revision();
        ensure!(
            shown >= entry.revision,
            "{entry:?} is announced, the source shows {shown}"
        );
    }
    Ok(())
}

async fn a_refused_or_repeated_change_has_no_entry(stage: Stage<'_>) -> Checked {
    let (key, absent) = (stage.cart("kept"), stage.cart("absent"));
    let wrong = stage.revision();
    let created = stage.create_usual(&key).await?;
    let closed = changed(&stage.header(&key), key.collection, "ordered");
    let again = stage.router(stage.revision());
    stage
        .done_in(change_if(&key, created, closed.clone()), again.clone())
        .await?;
    let position = stage.position().await?;
    let mut refused = vec![
        create(&key, stage.header(&key), vec![]),
        change_if(&key, wrong, stage.header(&key)),
        remove(&key, wrong),
        remove(&absent, wrong),
        change_if(&absent, wrong, stage.header(&absent)),
    ];
    if stage.judges_guards_atomically() {
        refused.push(set_line(&absent, "lamp", 1));
        refused.push(set_line_while_active(&key, "lamp", 1));
    }
    for change in refused {
        let outcome = stage.apply(change.clone()).await?;
        ensure!(!outcome.is_done(), "{change:?} was done");
    }
    stage
        .done_in(change_if(&key, created, closed), again)
        .await?;
    let found = stage.entries_after(&position).await?;
    ensure!(
        found.is_empty(),
        "refused and repeated changes are journalled as {found:?}"
    );
    Ok(())
}

async fn entries_of_concurrent_writers_are_all_there_and_in_order_per_key(
    stage: Stage<'_>,
) -> Checked {
    let position = stage.position().await?;
    let keys: Vec<_> = (0..3)
        .map(|number| stage.cart(&format!("r{number}")))
        .collect();
    for key in &keys {
        stage.create(key, vec![]).await?;
    }
    let mut expected = keys.iter().map(|_| 1).collect::<Vec<usize>>();
    for round in 0..5 {
        let writes: Vec<_> = (0..12u8)
            .map(|number| {
                let key = &keys[usize::from(number) % keys.len()];
                let context = stage.router(stage.revision_by(Writer::numbered(number)));
                (set_line(key, &format!("p{number}"), round + 1), context)
            })
            .collect();
        for outcome in stage.at_once(writes).await? {
            ensure!(outcome.is_done(), "a writer was answered {outcome:?}");
        }
        expected.iter_mut().for_each(|count| *count += 4);
    }
    let entries = stage.entries_after(&position).await?;
    for (key, expected) in keys.iter().zip(expected) {
        let of_key: Vec<_> = entries.iter().filter(|entry| entry.key == *key).collect();
        ensure!(
            of_key.len() == expected,
            "{expected} changes of {key} have {} entries",
            of_key.len()
        );
        // Within a round any order is right; rounds follow one another.
        let rounds = of_key[1..].chunks(4);
        let newest_before = rounds
            .clone()
            .map(|round| round.iter().map(|entry| entry.revision).max());
        let oldest_after = rounds
            .skip(1)
            .map(|round| round.iter().map(|entry| entry.revision).min());
        let in_order = newest_before
            .zip(oldest_after)
            .all(|(before, after)| before < after);
        ensure!(
            in_order,
            "the entries of {key} are out of order: {of_key:?}"
        );
    }
    Ok(())
}

async fn the_same_position_gives_the_same_entries_again(stage: Stage<'_>) -> Checked {
    let position = stage.position().await?;
    let key = stage.cart("written");
    stage.create_usual(&key).await?;
    let first = stage.entries_after(&position).await?;
    let middle = stage.position().await?;
    stage.done(set_line(&key, "lamp", 2)).await?;
    let both = stage.entries_after(&position).await?;
    ensure!(
        both.len() == 2 && both[..1] == first[..],
        "{first:?} became {both:?}"
    );
    for _ in 0..2 {
        let again = stage.entries_after(&position).await?;
        ensure!(
            again == both,
            "the same position gave {both:?} and then {again:?}"
        );
        let second = stage.entries_after(&middle).await?;
        ensure!(
            second == both[1..],
            "from the middle came {second:?}, not {:?}",
            &both[1..]
        );
    }
    Ok(())
}

async fn pages_of_the_journal_make_the_whole(stage: Stage<'_>) -> Checked {
    let position = stage.position().await?;
    let key = stage.cart("written");
    stage.create_usual(&key).await?;
    for count in 1..8 {
        stage.done(set_line(&key, "lamp", count)).await?;
    }
    let whole = stage.journal_after(&position, 500).await?;
    ensure!(
        whole.len() >= 8,
        "eight changes have {} entries",
        whole.len()
    );
    for page in [1, 3] {
        let pages = stage.journal_after(&position, page).await?;
        ensure!(
            pages == whole,
            "in pages of {page} the journal is {pages:?}, as a whole {whole:?}"
        );
    }
    for (index, entry) in whole.iter().enumerate() {
        let rest = stage.journal_after(&entry.position, 500).await?;
        ensure!(
            rest == whole[index + 1..],
            "from entry {index} on the journal is {rest:?}"
        );
    }
    Ok(())
}

async fn nothing_comes_after_the_end(stage: Stage<'_>) -> Checked {
    stage.create_usual(&stage.cart("written")).await?;
    let end = stage.position().await?;
    for _ in 0..2 {
        let found = stage.entries_after(&end).await?;
        ensure!(found.is_empty(), "after the end come {found:?}");
    }
    Ok(())
}
