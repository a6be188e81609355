//! What the source holds comes to the target, once, newest, removals and all.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use engine_api::{Content, Record, Revision, World};
use feed::{Cargo, CargoError, Delivered, Pass};
use layout::Collection;
use support::{AllOf, Life, Stage, StillWorld, Stop, cart, catch_up, catch_up_or_die};

#[tokio::test(start_paused = true)]
async fn a_record_that_changed_often_is_copied_once_a_page() {
    let mut stage = Stage::new();
    stage.limits.page_entries_max = 100;
    let mut feed = stage.feed();
    catch_up(&mut feed).await;
    stage.create("hot", "active").await;
    for quantity in 0..50 {
        stage.set_line("hot", "p-1", quantity).await;
    }
    catch_up(&mut feed).await;
    assert_eq!(stage.puts(), 1);
    stage.assert_same("the last quantity has arrived").await;
    assert_eq!(feed.counts().entries.value(), 51);
    assert_eq!(feed.counts().lag_entries.value(), 0);
    assert!(feed.counts().done_before().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_was_there_before_the_feed_is_copied_and_what_comes_meanwhile_too() {
    let stage = Stage::new();
    for id in ["a", "b", "c", "d", "e"] {
        stage.create(id, "active").await;
    }
    let mut feed = stage.feed();
    // The position is taken; a page of the scan is through.
    feed.pass().await.unwrap();
    feed.pass().await.unwrap();
    stage.set_line("a", "p-2", 7).await;
    stage.remove("b").await;
    stage.create("aa", "active").await;
    catch_up(&mut feed).await;
    stage.assert_same("what the scan had passed already").await;
    assert_eq!(feed.counts().rebuilds.value(), 1);
}

#[tokio::test(start_paused = true)]
async fn removed_lines_and_removed_records_do_not_come_back() {
    let stage = Stage::new();
    let mut feed = stage.feed();
    stage.create("a", "active").await;
    stage.set_line("a", "p-2", 2).await;
    catch_up(&mut feed).await;
    stage.remove_line("a", "p-2").await;
    stage.create("b", "active").await;
    catch_up(&mut feed).await;
    stage.assert_same("a line was removed").await;
    stage.remove("a").await;
    catch_up(&mut feed).await;
    let mark = stage.target_image("a").await.unwrap();
    assert_eq!(mark.header.content, Content::Removed);
    stage.assert_same("a record was removed").await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_whose_mark_is_forgotten_still_arrives() {
    let stage = Stage::new();
    let mut feed = stage.feed();
    stage.create("a", "active").await;
    catch_up(&mut feed).await;
    let removed = stage.remove("a").await;
    stage
        .forget(|work| work.marks_before = support::end_of_time())
        .await;
    assert_eq!(stage.source_image("a").await, None);
    catch_up(&mut feed).await;
    let mark = stage.target_image("a").await.unwrap();
    assert_eq!(
        (mark.header.revision, mark.header.content),
        (removed, Content::Removed)
    );
    assert!(mark.parts.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_expired_at_the_source_is_not_carried_as_a_removal() {
    let stage = Stage::new();
    let mut feed = stage.feed();
    stage.create("a", "active").await;
    catch_up(&mut feed).await;
    stage.expire("a", Duration::from_secs(1)).await;
    catch_up(&mut feed).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    stage.forget(|_| {}).await;
    assert_eq!(stage.source_image("a").await, None);
    catch_up(&mut feed).await;
    // It takes its expiry along: here it may have been extended meanwhile (W7).
    let copy = stage.target_image("a").await.unwrap();
    assert!(matches!(copy.header.content, Content::Live(_)));
    assert!(copy.expires_at().is_some());
}

#[tokio::test(start_paused = true)]
async fn other_collections_pass_by() {
    let stage = Stage::new();
    let mut feed = stage.feed_of(Arc::new(AllOf(Collection::Orders)), Life::endless());
    catch_up(&mut feed).await;
    for id in ["a", "b", "c", "d", "e"] {
        stage.create(id, "active").await;
    }
    catch_up(&mut feed).await;
    assert_eq!(stage.puts(), 0);
    assert_eq!(feed.counts().entries.value(), 5);
}

/// W26: what arrives late is not newer, and changes nothing.
#[tokio::test(start_paused = true)]
async fn an_older_image_that_comes_late_changes_nothing() {
    let stage = Stage::new();
    let mut feed = stage.feed();
    stage.create("a", "active").await;
    let old = stage.source_image("a").await;
    stage.set_line("a", "p-1", 9).await;
    stage.remove_line("a", "p-1").await;
    catch_up(&mut feed).await;
    // The source is read from a copy that lags behind, and the journal read again.
    stage.create("b", "active").await;
    stage.set_line("a", "p-3", 1).await;
    let hidden = &stage.source_quirks.hidden;
    hidden.lock().unwrap().insert(cart("a"), old);
    feed.pass().await.unwrap();
    let copy = stage.target_image("a").await.unwrap();
    assert!(copy.live_parts().next().is_none(), "{copy:?}");
    stage.source_quirks.hidden.lock().unwrap().clear();
    catch_up(&mut feed).await;
    stage.assert_same("the copy has caught up").await;
}

/// W27: the re-read asks for the latest, a copy that lags is not asked.
#[tokio::test(start_paused = true)]
async fn re_reads_come_from_where_nothing_lags() {
    let stage = Stage::new();
    *stage.source_quirks.lags.lock().unwrap() = true;
    let mut feed = stage.feed();
    catch_up(&mut feed).await;
    stage.create("a", "active").await;
    catch_up(&mut feed).await;
    stage.assert_same("one read is enough").await;
    assert_eq!(feed.counts().lag_entries.value(), 0);
}

#[tokio::test(start_paused = true)]
async fn lost_answers_of_the_target_are_asked_again() {
    let stage = Stage::new();
    let mut feed = stage.feed();
    catch_up(&mut feed).await;
    stage.target_quirks.lose_answers.store(2, Ordering::SeqCst);
    stage.create("a", "active").await;
    catch_up(&mut feed).await;
    stage.assert_same("the third answer came").await;
    assert_eq!(stage.puts(), 3);
}

/// With a delay, entries are looked at when they are old enough.
#[tokio::test(start_paused = true)]
async fn a_delayed_feed_lets_changes_ripen() {
    let mut stage = Stage::new();
    stage.limits.delay_ms = 5_000;
    let mut feed = stage.feed();
    catch_up(&mut feed).await;
    stage.create("b", "active").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    stage.create("c", "active").await;
    assert_eq!(feed.pass().await.unwrap(), Pass::CaughtUp);
    assert_eq!(stage.target_image("b").await, None);
    tokio::time::sleep(Duration::from_secs(3)).await;
    catch_up(&mut feed).await;
    assert!(stage.target_image("b").await.is_some());
    assert_eq!(stage.target_image("c").await, None);
    tokio::time::sleep(Duration::from_secs(3)).await;
    catch_up(&mut feed).await;
    stage.assert_same("all are old").await;
}

/// What follows may have its time: the entry waits for it, and so does a scan.
#[tokio::test(start_paused = true)]
async fn a_cargo_that_says_not_yet_is_asked_again_until_it_is_done() {
    let stage = Stage::new();
    stage.create("a", "active").await;
    let ripe = Duration::from_secs(5);
    let slow = Arc::new(Ripening {
        world: stage.world.clone(),
        ripe_at: ripe,
    });
    let mut feed = stage.feed_of(slow.clone(), Life::endless());
    feed.pass().await.unwrap();
    // The scan does not end before its last record is done.
    feed.pass().await.unwrap();
    assert!(stage.world.elapsed() >= ripe);
    assert_eq!(feed.counts().removed.value(), 1);

    let later = Arc::new(Ripening {
        world: stage.world.clone(),
        ripe_at: stage.world.elapsed() + Duration::from_secs(60),
    });
    drop(feed);
    let mut feed = stage.feed_of(later, Life::endless());
    catch_up(&mut feed).await;
    stage.create("b", "active").await;
    catch_up(&mut feed).await;
    assert_eq!(feed.counts().lag_entries.value(), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    catch_up(&mut feed).await;
    assert_eq!(feed.counts().lag_entries.value(), 0);
    assert_eq!(feed.counts().removed.value(), 1);
}

/// Has something to do at a certain moment.
#[derive(Debug)]
struct Ripening {
    world: Arc<StillWorld>,
    ripe_at: Duration,
}

#[async_trait]
impl Cargo for Ripening {
    fn collection(&self) -> Collection {
        Collection::Carts
    }

    fn load(&self, image: Record) -> Option<Record> {
        Some(image)
    }

    async fn delivered(&self, _: &Record) -> Result<Delivered, CargoError> {
        Ok(if self.world.elapsed() < self.ripe_at {
            Delivered::NotYet
        } else {
            Delivered::Removed
        })
    }
}

/// The process dies at every call in turn, before or after the call's effect;
/// whoever comes next finishes its work.
#[tokio::test(start_paused = true)]
async fn wherever_the_process_dies_the_next_one_finishes() {
    for stop in [Stop::Before, Stop::After] {
        let mut deaths = 0;
        for calls in 0.. {
            let stage = Stage::new();
            for id in ["a", "b", "c"] {
                stage.create(id, "active").await;
            }
            let life = Life::of(calls, stop);
            catch_up_or_die(stage.feed_living(life.clone())).await;
            stage.remove("a").await;
            stage.set_line("b", "p-2", 2).await;
            stage.create("d", "active").await;
            stage.remove_line("c", "p-1").await;
            stage.create("a", "ordered").await;
            if !life.is_over() {
                catch_up_or_die(stage.feed_living(life.clone())).await;
            }
            let mut next = stage.feed();
            catch_up(&mut next).await;
            stage
                .assert_same(&format!("stopped {stop:?} call {calls}"))
                .await;
            deaths += u32::from(life.is_over());
            if !life.is_over() {
                break;
            }
        }
        assert!(deaths > 20, "it died {deaths} times only");
    }
}

#[tokio::test(start_paused = true)]
async fn revisions_of_the_target_are_those_of_the_source() {
    let stage = Stage::new();
    let mut feed = stage.feed();
    let created = stage.create("a", "active").await;
    catch_up(&mut feed).await;
    let copy = stage.target_image("a").await.unwrap();
    assert_eq!(copy.header.revision, created);
    assert!(created > Revision::ZERO);
}
