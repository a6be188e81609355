//! One process works for a feed; the others wait, or learn that they were replaced.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine_api::{Engine, MoverTerm};
use feed::{FeedError, Pass, Phase, ask_rebuild, begin_following, progress};
use support::{FEED, Stage, catch_up};
use tokio::sync::Semaphore;

async fn term(stage: &Stage) -> u64 {
    let progress = progress(stage.control.as_ref(), FEED).await.unwrap();
    progress.unwrap().term
}

#[tokio::test(start_paused = true)]
async fn the_second_waits_for_as_long_as_the_first_is_alive() {
    let stage = Stage::new();
    let (mut first, mut second) = (stage.feed(), stage.feed());
    catch_up(&mut first).await;
    for number in 0..60 {
        stage.create(&format!("c-{number}"), "active").await;
        assert_eq!(second.pass().await.unwrap(), Pass::Watching);
        catch_up(&mut first).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(
        (
            first.counts().holding.value(),
            second.counts().holding.value()
        ),
        (1, 0)
    );
    assert_eq!(term(&stage).await, 1);
}

/// Also when nothing changes: an idle holder renews.
#[tokio::test(start_paused = true)]
async fn an_idle_holder_is_not_taken_for_dead() {
    let stage = Stage::new();
    let (mut first, mut second) = (stage.feed(), stage.feed());
    for _ in 0..60 {
        catch_up(&mut first).await;
        assert_eq!(second.pass().await.unwrap(), Pass::Watching);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_holder_is_replaced_after_the_watchers_own_patience() {
    let stage = Stage::new();
    let (mut first, mut second) = (stage.feed(), stage.feed());
    catch_up(&mut first).await;
    let began = tokio::time::Instant::now();
    while second.pass().await.unwrap() == Pass::Watching {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let patience = Duration::from_millis(stage.limits.take_over_ms);
    assert!(began.elapsed() >= patience);
    assert!(began.elapsed() < patience + Duration::from_secs(1));
    assert_eq!(term(&stage).await, 2);

    // The first wakes up: it carries nothing more, and waits in its turn.
    stage.create("a", "active").await;
    let refused = first.pass().await.unwrap_err();
    assert!(matches!(refused, FeedError::TermLost { .. }), "{refused}");
    assert_eq!(stage.puts(), 0);
    assert_eq!(first.pass().await.unwrap(), Pass::Watching);
    assert_eq!(first.counts().holding.value(), 0);
    catch_up(&mut second).await;
    stage.assert_same("the second goes on").await;
}

/// W26: an image that was on its way when the term was lost is refused by the target.
#[tokio::test(start_paused = true)]
async fn an_image_under_a_lost_term_is_refused() {
    let stage = Stage::new();
    let mut first = stage.feed();
    catch_up(&mut first).await;
    stage.create("a", "active").await;
    let gate = Arc::new(Semaphore::new(0));
    *stage.target_quirks.gate.lock().unwrap() = Some(gate.clone());
    let sleeping = tokio::spawn(async move {
        let pass = first.pass().await;
        (first, pass)
    });
    tokio::task::yield_now().await;
    assert!(
        stage.target_quirks.gate.lock().unwrap().is_none(),
        "it waits at the gate"
    );
    let mut second = stage.feed();
    while second.pass().await.unwrap() == Pass::Watching {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    stage.remove("a").await;
    catch_up(&mut second).await;
    stage.assert_same("the second removed it").await;
    gate.add_permits(1);
    let (mut first, pass) = sleeping.await.unwrap();
    assert!(matches!(pass, Err(FeedError::TermLost { .. })), "{pass:?}");
    stage.assert_same("nothing came back").await;
    assert_eq!(stage.target_quirks.refused.load(Ordering::SeqCst), 1);
    assert_eq!(first.pass().await.unwrap(), Pass::Watching);
}

#[tokio::test(start_paused = true)]
async fn who_stops_in_peace_leaves_the_feed_to_the_next_at_once() {
    let stage = Stage::new();
    stage.create("a", "active").await;
    let first = stage.feed();
    let counts = first.counts();
    let caught_up = async {
        while counts.done_before().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    first.run(caught_up).await;
    let began = tokio::time::Instant::now();
    let mut second = stage.feed();
    catch_up(&mut second).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(
        second.counts().rebuilds.value(),
        0,
        "it goes on where the first was"
    );
    assert_eq!(term(&stage).await, 2);
}

#[tokio::test(start_paused = true)]
async fn who_stops_lets_go_of_a_feed_that_was_changed_since_it_looked() {
    let stage = Stage::new();
    stage.create("a", "active").await;
    let mut first = stage.feed();
    catch_up(&mut first).await;
    let control = stage.control.as_ref();
    ask_rebuild(control, FEED).await.unwrap();
    first.run(std::future::ready(())).await;
    let left = progress(control, FEED).await.unwrap().unwrap();
    assert_eq!((left.holder, left.term), (None, 1));
    assert_eq!(left.phase, Phase::first(), "what was asked for stays");
}

/// The control store was restored from a copy, and the target knows a higher term.
#[tokio::test(start_paused = true)]
async fn a_target_that_knows_a_higher_term_is_claimed_above_it() {
    let stage = Stage::new();
    let claimed = MoverTerm {
        move_name: format!("feed-{FEED}"),
        term: 7,
    };
    stage.target.claim_term(claimed).await.unwrap();
    let mut feed = stage.feed();
    stage.create("a", "active").await;
    catch_up(&mut feed).await;
    stage.assert_same("it works").await;
    assert_eq!(term(&stage).await, 8);
}

/// Who has a right above the feed does not wait; who held it is refused.
#[tokio::test(start_paused = true)]
async fn a_seized_feed_is_worked_for_at_once_and_its_former_holder_is_refused() {
    let stage = Stage::new();
    stage.create("a", "active").await;
    let (mut first, mut second) = (stage.feed(), stage.feed());
    catch_up(&mut first).await;
    let began = tokio::time::Instant::now();
    second.seize().await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    stage.create("b", "active").await;
    let puts = stage.puts();
    let refused = first.pass().await;
    assert!(
        matches!(
            refused,
            Ok(Pass::Watching) | Err(FeedError::TermLost { .. })
        ),
        "{refused:?}"
    );
    assert_eq!(first.phase(), None);
    assert!(stage.puts() <= puts + 1, "at most one image was on its way");
    catch_up(&mut second).await;
    stage.assert_same("the second goes on").await;
    assert_eq!(term(&stage).await, 2);
}

/// W30: what stood before the position is not copied, what comes after it is.
#[tokio::test(start_paused = true)]
async fn a_feed_may_begin_at_a_position_and_keeps_it() {
    let stage = Stage::new();
    stage.create("before", "active").await;
    let control = stage.control.as_ref();
    let at = stage.source.journal_end().await.unwrap();
    begin_following(control, FEED, at).await.unwrap();
    stage.create("after", "active").await;
    let later = stage.source.journal_end().await.unwrap();
    // A process that died here and began again.
    begin_following(control, FEED, later).await.unwrap();
    let mut feed = stage.feed();
    catch_up(&mut feed).await;
    assert_eq!(stage.target_image("before").await, None);
    assert!(stage.target_image("after").await.is_some());
    assert_eq!(feed.counts().rebuilds.value(), 0);
}

#[tokio::test(start_paused = true)]
async fn names_that_cannot_name_a_term_are_refused() {
    let stage = Stage::new();
    for name in ["", "Orders", "a b", &"a".repeat(97)] {
        let config = feed::FeedConfig {
            name: name.to_owned(),
            source: stage.source.clone(),
            target: stage.target.clone(),
            cargo: Arc::new(support::AllOf(layout::Collection::Carts)),
            control: stage.control.clone(),
            world: stage.world.clone(),
            limits: stage.limits.clone(),
        };
        let refused = feed::Feed::new(config).unwrap_err();
        assert!(matches!(refused, FeedError::Name { .. }), "{refused}");
    }
}
