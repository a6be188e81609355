//! Positions: what is not shown holds them back, what is lost is said aloud.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use engine_api::ControlStore;
use feed::{FeedError, Pass, Phase, ask_rebuild, progress};
use support::{FEED, Stage, cart, catch_up};

async fn phase(stage: &Stage) -> Phase {
    let progress = progress(stage.control.as_ref(), FEED).await.unwrap();
    progress.unwrap().phase
}

fn hide(stage: &Stage, id: &str) {
    let mut hidden = stage.source_quirks.hidden.lock().unwrap();
    hidden.insert(cart(id), None);
}

fn show(stage: &Stage) {
    stage.source_quirks.hidden.lock().unwrap().clear();
}

/// W22: the journal names a change that the source does not show yet. Others are
/// carried meanwhile; the saved position stays in front of it, so that a process
/// that takes over meets it again.
#[tokio::test(start_paused = true)]
async fn an_entry_that_is_not_shown_holds_the_position_back() {
    let stage = Stage::new();
    let mut feed = stage.feed();
    catch_up(&mut feed).await;
    let before = phase(&stage).await;
    hide(&stage, "a");
    stage.create("a", "active").await;
    for id in ["b", "c", "d", "e", "f"] {
        stage.create(id, "active").await;
    }
    catch_up(&mut feed).await;
    assert!(stage.target_image("f").await.is_some());
    assert_eq!(stage.target_image("a").await, None);
    assert_eq!(feed.counts().lag_entries.value(), 1);
    assert_eq!(phase(&stage).await, before);

    drop(feed);
    show(&stage);
    let mut next = stage.feed();
    catch_up(&mut next).await;
    stage.assert_same("the next process met it again").await;
    assert_ne!(phase(&stage).await, before);
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_is_shown_later_is_carried_then() {
    let stage = Stage::new();
    let mut feed = stage.feed();
    catch_up(&mut feed).await;
    hide(&stage, "a");
    stage.create("a", "active").await;
    stage.create("b", "active").await;
    catch_up(&mut feed).await;
    let held = phase(&stage).await;
    show(&stage);
    catch_up(&mut feed).await;
    stage.assert_same("it is shown now").await;
    assert_ne!(phase(&stage).await, held);
    assert_eq!(feed.counts().never_shown.value(), 0);
}

/// E18: a change may be announced and never happen.
#[tokio::test(start_paused = true)]
async fn an_entry_that_is_never_shown_is_given_up_after_a_patience() {
    let mut stage = Stage::new();
    stage.limits.show_ms_max = 60_000;
    let mut feed = stage.feed();
    catch_up(&mut feed).await;
    let before = phase(&stage).await;
    hide(&stage, "a");
    stage.create("a", "active").await;
    catch_up(&mut feed).await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    catch_up(&mut feed).await;
    assert_eq!(feed.counts().never_shown.value(), 0);
    assert_eq!(phase(&stage).await, before);
    tokio::time::sleep(Duration::from_secs(1)).await;
    catch_up(&mut feed).await;
    assert_eq!(feed.counts().never_shown.value(), 1);
    assert_eq!(feed.counts().lag_entries.value(), 0);
    assert_ne!(phase(&stage).await, before);
}

/// The journal is not read on while too much waits: memory is bounded.
#[tokio::test(start_paused = true)]
async fn reading_stops_while_too_many_entries_wait() {
    let mut stage = Stage::new();
    stage.limits.waiting_max = 3;
    let mut feed = stage.feed();
    catch_up(&mut feed).await;
    for number in 0..12 {
        let id = format!("c-{number:02}");
        hide(&stage, &id);
        stage.create(&id, "active").await;
    }
    for _ in 0..10 {
        feed.pass().await.unwrap();
    }
    assert_eq!(feed.counts().entries.value(), 4, "one page was read");
    show(&stage);
    catch_up(&mut feed).await;
    stage.assert_same("it reads on").await;
}

/// W28: loud, for every process, until somebody asks for a rebuild.
#[tokio::test(start_paused = true)]
async fn a_lost_position_stands_still_until_a_rebuild_is_asked_for() {
    let stage = Stage::new();
    let mut feed = stage.feed();
    catch_up(&mut feed).await;
    for id in ["a", "b", "c"] {
        stage.create(id, "active").await;
    }
    stage.trim_journal().await;
    stage.create("d", "active").await;
    let lost = FeedError::PositionLost {
        feed: FEED.to_owned(),
    };
    for _ in 0..3 {
        assert_eq!(feed.pass().await, Err(lost.clone()));
    }
    assert!(lost.to_string().contains("rebuild"), "{lost}");
    assert!(matches!(phase(&stage).await, Phase::Lost { .. }));
    assert_eq!(feed.counts().lost.value(), 1);
    assert_eq!(feed.counts().positions_lost.value(), 1);
    assert_eq!(stage.puts(), 0, "nothing is carried behind a gap");

    // A new process does not begin anew by itself either.
    drop(feed);
    let mut feed = stage.feed();
    let met = loop {
        match feed.pass().await {
            Ok(Pass::Watching) => tokio::time::sleep(Duration::from_secs(1)).await,
            met => break met,
        }
    };
    assert_eq!(met, Err(lost));
    assert_eq!(feed.counts().lost.value(), 1);

    ask_rebuild(stage.control.as_ref(), FEED).await.unwrap();
    catch_up(&mut feed).await;
    stage.assert_same("everything was copied anew").await;
    assert_eq!(feed.counts().lost.value(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_rebuild_may_be_asked_for_at_any_time_and_begins_anew() {
    let stage = Stage::new();
    let none = ask_rebuild(stage.control.as_ref(), FEED).await;
    assert!(matches!(none, Err(FeedError::NoFeed { .. })), "{none:?}");
    for id in ["a", "b", "c", "d", "e"] {
        stage.create(id, "active").await;
    }
    let mut feed = stage.feed();
    feed.pass().await.unwrap();
    feed.pass().await.unwrap();
    // In the middle of its first scan, and then while it follows.
    ask_rebuild(stage.control.as_ref(), FEED).await.unwrap();
    catch_up(&mut feed).await;
    assert_eq!(feed.counts().rebuilds.value(), 2);
    ask_rebuild(stage.control.as_ref(), FEED).await.unwrap();
    stage.create("f", "active").await;
    catch_up(&mut feed).await;
    catch_up(&mut feed).await;
    assert_eq!(feed.counts().rebuilds.value(), 3);
    stage.assert_same("three times").await;
}

#[tokio::test(start_paused = true)]
async fn a_control_value_that_is_none_of_ours_is_not_overwritten() {
    let stage = Stage::new();
    let name = format!("feed-{FEED}");
    let foreign = b"{}".to_vec();
    stage
        .control
        .compare_and_set(&name, None, foreign)
        .await
        .unwrap();
    let mut feed = stage.feed();
    let refused = feed.pass().await.unwrap_err();
    assert!(matches!(refused, FeedError::Damaged { .. }), "{refused}");
    let value = stage.control.control_get(&name).await.unwrap().unwrap();
    assert_eq!(value.bytes, b"{}");
}
