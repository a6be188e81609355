//! Work that stands still or ends at some of its awaits, whichever the seed picks.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;

use crate::chance::Chance;

/// How many steps a life takes at most before something befalls it, and how long it stands still then.
const STEPS_MAX: u64 = 260;
const STILL_MS_MAX: u64 = 1_200;
const DIES_PERCENT: u64 = 55;

/// What befell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Befell {
    Killed,
    StoodStill,
}

/// Steps on until the work ends, or is dropped where it waits. Nothing befalls it while all is calm; each time
/// something does, it is told.
pub async fn fickle(
    work: impl Future<Output = ()> + Send,
    mut chance: Chance,
    is_calm: impl Fn() -> bool + Send,
    befalls: impl Fn(Befell) + Send,
) {
    let mut work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(work);
    loop {
        let steps = chance.between(1, STEPS_MAX);
        if steps_of(&mut work, steps).await {
            return;
        }
        if is_calm() {
            continue;
        }
        if chance.percent(DIES_PERCENT) {
            befalls(Befell::Killed);
            return;
        }
        befalls(Befell::StoodStill);
        sleep(Duration::from_millis(chance.between(1, STILL_MS_MAX))).await;
    }
}

/// Whether the work has ended within so many steps.
async fn steps_of(work: &mut Pin<Box<dyn Future<Output = ()> + Send + '_>>, steps: u64) -> bool {
    let mut left = steps;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match work.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const STEPS: usize = 200;

    #[tokio::test(start_paused = true)]
    async fn work_ends_at_any_of_its_awaits_or_goes_on_later() {
        let (mut places, mut ended, mut stood) = ([false; STEPS], 0, 0);
        for seed in 0..200 {
            let steps = AtomicU32::new(0);
            let killed = AtomicU32::new(0);
            let still = AtomicU32::new(0);
            let work = async {
                for _ in 0..STEPS {
                    sleep(Duration::from_millis(1)).await;
                    steps.fetch_add(1, Ordering::Relaxed);
                }
            };
            let is_calm = || seed % 10 == 0;
            fickle(work, Chance::new(seed), is_calm, |befell| {
                let count = match befell {
                    Befell::Killed => &killed,
                    Befell::StoodStill => &still,
                };
                count.fetch_add(1, Ordering::Relaxed);
            })
            .await;
            let (steps, killed) = (steps.into_inner(), killed.into_inner());
            match killed {
                0 => assert_eq!(steps as usize, STEPS),
                _ if seed % 10 == 0 => panic!("something befell it while all was calm"),
                _ => places[steps as usize] = true,
            }
            ended += 1 - killed;
            stood += still.into_inner();
        }
        let died_at = places.iter().filter(|died| **died).count();
        assert!(
            died_at > 40 && ended > 40 && stood > 20,
            "{died_at} {ended} {stood}"
        );
    }
}
