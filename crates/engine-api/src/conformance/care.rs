//! What `maintain` forgets and what it keeps: E22, and the lost positions of E19.

use crate::conformance::expiry::expired_cart;
use crate::conformance::scenery::{HOUR_S, create, line, remove, remove_line, set_line};
use crate::conformance::stage::{Checked, Failure, Stage};
use crate::conformance::{CARTS, Need};
use crate::context::WriteContext;
use crate::engine::{Maintained, Maintenance};
use crate::error::EngineError;
use crate::record::{Content, PartKey, RecordKey};
use crate::revision::{Revision, Writer};

cases! {
    "E22" [] a_call_collects_at_most_as_much_as_asked [CARTS, Need::MaintainedExpiry];
    "E22" ["W26"] old_marks_are_forgotten_and_young_ones_are_kept [CARTS];
    "E22" [] living_records_survive_every_maintenance [CARTS];
    "E19" ["W28"] a_position_that_was_trimmed_away_is_lost_loudly [CARTS, Need::TrimmedJournal];
    "E22" ["W28"] the_journal_is_kept_as_long_as_asked [CARTS, Need::Journal];
}

/// More calls than any case needs.
const CALLS_MAX: usize = 10_000;

/// Collects what has expired by now; forgets marks and entries older than an hour.
fn work(stage: &Stage<'_>, items_max: usize) -> Maintenance {
    let an_hour_ago = stage.in_seconds(-HOUR_S);
    Maintenance {
        now: stage.now(),
        marks_before: an_hour_ago,
        journal_before: an_hour_ago,
        items_max,
    }
}

pub(super) async fn maintain_all(stage: &Stage<'_>, items_max: usize) -> Checked {
    maintain_to_the_end(stage, work(stage, items_max)).await
}

async fn maintain_to_the_end(stage: &Stage<'_>, work: Maintenance) -> Checked {
    let items_max = work.items_max;
    for _ in 0..CALLS_MAX {
        let done = stage.engine.maintain(work).await?;
        let Maintained {
            expired,
            marks,
            journal_entries,
        } = done;
        ensure!(
            expired + marks + journal_entries <= items_max,
            "asked for {items_max}, done were {done:?}"
        );
        if !done.reached(items_max) {
            return Ok(());
        }
    }
    Err(Failure(format!(
        "maintenance had no end after {CALLS_MAX} calls"
    )))
}

/// A router that writes two hours ago, by its clock and by its revisions.
fn long_ago(stage: &Stage<'_>, count: i64) -> WriteContext {
    let then = stage.in_seconds(-2 * HOUR_S + count);
    stage.router_at(Revision::at(then, Writer::numbered(0)), then)
}

async fn old_cart(stage: &Stage<'_>, name: &str) -> Checked<(RecordKey, Revision)> {
    let key = stage.cart(name);
    let parts = vec![
        (PartKey::line("lamp"), line(1)),
        (PartKey::line("rug"), line(2)),
    ];
    let created = stage
        .done_in(create(&key, stage.header(&key), parts), long_ago(stage, 0))
        .await?;
    Ok((key, created))
}

async fn a_call_collects_at_most_as_much_as_asked(stage: Stage<'_>) -> Checked {
    let mut keys = Vec::new();
    for number in 0..7 {
        keys.push(expired_cart(&stage, &format!("e{number}")).await?);
    }
    let done = stage.engine.maintain(work(&stage, 3)).await?;
    let sum = done.expired + done.marks + done.journal_entries;
    ensure!(sum <= 3, "asked for 3, done were {done:?}");
    let mut left = 0;
    for key in &keys {
        left += usize::from(stage.image(key).await?.is_some());
    }
    ensure!(left >= 4, "asked for 3, {} of 7 were collected", 7 - left);
    ensure!(
        done.reached(3),
        "7 records had expired, the call for 3 stopped at {done:?}"
    );
    maintain_all(&stage, 3).await?;
    for key in &keys {
        ensure!(
            stage.image(key).await?.is_none(),
            "{key} was never collected"
        );
    }
    Ok(())
}

async fn old_marks_are_forgotten_and_young_ones_are_kept(stage: Stage<'_>) -> Checked {
    let (old, created) = old_cart(&stage, "old").await?;
    stage
        .done_in(remove(&old, created), long_ago(&stage, 1))
        .await?;
    let (old_line, _) = old_cart(&stage, "old-line").await?;
    stage
        .done_in(remove_line(&old_line, "lamp"), long_ago(&stage, 1))
        .await?;
    let (young, created) = old_cart(&stage, "young").await?;
    stage.done(remove(&young, created)).await?;
    let (young_line, _) = old_cart(&stage, "young-line").await?;
    stage.done(remove_line(&young_line, "lamp")).await?;
    maintain_all(&stage, 100).await?;
    let left = stage.image(&old).await?;
    ensure!(left.is_none(), "an old mark is kept: {left:?}");
    let lamp = PartKey::line("lamp");
    let record = stage.record(&old_line).await?;
    ensure!(
        !record.parts.contains_key(&lamp),
        "an old mark of a line is kept: {record:?}"
    );
    ensure!(
        record.part(&PartKey::line("rug")).is_some(),
        "a line was lost: {record:?}"
    );
    let mark = stage.record(&young).await?;
    ensure!(
        mark.header.content == Content::Removed,
        "a young mark became {mark:?}"
    );
    let record = stage.record(&young_line).await?;
    let kept = record
        .parts
        .get(&lamp)
        .is_some_and(|part| part.content == Content::Removed);
    ensure!(kept, "a young mark of a line is lost: {record:?}");
    Ok(())
}

async fn living_records_survive_every_maintenance(stage: Stage<'_>) -> Checked {
    let (key, _) = old_cart(&stage, "alive").await?;
    stage.done(set_line(&key, "vase", 3)).await?;
    let before = stage.record(&key).await?;
    let all = Maintenance {
        now: stage.now(),
        marks_before: stage.in_seconds(HOUR_S),
        journal_before: stage.in_seconds(-HOUR_S),
        items_max: 100,
    };
    stage.engine.maintain(all).await?;
    let after = stage.record(&key).await?;
    ensure!(
        after == before,
        "maintenance made {before:?} into {after:?}"
    );
    Ok(())
}

async fn a_position_that_was_trimmed_away_is_lost_loudly(stage: Stage<'_>) -> Checked {
    let start = stage.position().await?;
    let key = stage.cart("written");
    stage.create_usual(&key).await?;
    stage.done(set_line(&key, "lamp", 2)).await?;
    let young = stage.position().await?;
    let context = stage.router_at(stage.revision(), stage.in_seconds(2 * HOUR_S));
    stage.done_in(set_line(&key, "lamp", 3), context).await?;
    let work = Maintenance {
        journal_before: stage.in_seconds(HOUR_S),
        ..work(&stage, 500)
    };
    maintain_to_the_end(&stage, work).await?;
    match stage.engine.journal_read(&start, 100).await {
        Err(EngineError::PositionLost) => {}
        other => ensure!(
            false,
            "reading from a trimmed position was answered {other:?}"
        ),
    }
    let entries = stage.entries_after(&young).await?;
    ensure!(entries.len() == 1, "from a kept position come {entries:?}");
    Ok(())
}

async fn the_journal_is_kept_as_long_as_asked(stage: Stage<'_>) -> Checked {
    let start = stage.position().await?;
    let key = stage.cart("young");
    stage.create_usual(&key).await?;
    stage.done(set_line(&key, "lamp", 3)).await?;
    let before = stage.entries_after(&start).await?;
    ensure!(before.len() == 2, "two changes have {before:?}");
    maintain_all(&stage, 100).await?;
    let after = stage.entries_after(&start).await?;
    ensure!(
        after == before,
        "maintenance made {before:?} into {after:?}"
    );
    Ok(())
}
