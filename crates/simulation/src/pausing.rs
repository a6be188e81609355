//! Standing still: everything a process does stops between two steps and goes
//! on later, while time and what it has sent go their way.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// Stops and continues everything that runs under it.
#[derive(Clone, Debug, Default)]
pub struct Pause(Arc<Mutex<Stopped>>);

#[derive(Debug, Default)]
struct Stopped {
    is_stopped: bool,
    /// In the order in which they found themselves stopped, which is the same in every run.
    waiting: Vec<Waker>,
}

impl Pause {
    pub fn stop(&self) {
        self.lock().is_stopped = true;
    }

    pub fn go_on(&self) {
        let mut stopped = self.lock();
        stopped.is_stopped = false;
        let waiting = std::mem::take(&mut stopped.waiting);
        drop(stopped);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// The same work, which takes no step while it is stopped.
    pub fn over<F: Future>(&self, work: F) -> Paused<F> {
        Paused {
            pause: self.clone(),
            work: Box::pin(work),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stopped> {
        self.0
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

#[derive(Debug)]
pub struct Paused<F> {
    pause: Pause,
    work: Pin<Box<F>>,
}

impl<F: Future> Future for Paused<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut stopped = self.pause.lock();
        if stopped.is_stopped {
            stopped.waiting.push(context.waker().clone());
            return Poll::Pending;
        }
        drop(stopped);
        self.work.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_stands_still_takes_no_step_until_it_goes_on() {
        let pause = Pause::default();
        let began = Instant::now();
        let work = tokio::spawn(pause.over(async move {
            sleep(Duration::from_millis(10)).await;
            began.elapsed()
        }));
        sleep(Duration::from_millis(5)).await;
        pause.stop();
        sleep(Duration::from_millis(50)).await;
        assert!(!work.is_finished());
        pause.go_on();
        let ended = work.await.expect("nobody ends it");
        assert_eq!(ended, Duration::from_millis(55));
    }
}
