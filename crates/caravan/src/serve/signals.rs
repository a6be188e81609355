//! SIGINT and SIGTERM: the first asks for an end in peace, the second ends at once.

use std::process;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// What a process that was told twice ends with.
const EXIT_AT_ONCE: i32 = 1;

/// Whether somebody asked to stop.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Returns when somebody has asked.
    pub async fn asked(&mut self) {
        // The sender lives as long as the task that waits for signals: for ever.
        let _ = self.0.wait_for(|asked| *asked).await;
    }
}

pub fn listen() -> Result<Stop> {
    let deaf = "the program cannot listen to signals: check the limits of this user";
    let mut interrupt = signal(SignalKind::interrupt()).context(deaf)?;
    let mut terminate = signal(SignalKind::terminate()).context(deaf)?;
    let (asked, stop) = watch::channel(false);
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => "SIGINT",
                _ = terminate.recv() => "SIGTERM",
            }
        };
        let signal = next().await;
        tracing::info!(signal, "stopping: requests under way are finished first");
        asked.send_replace(true);
        let signal = next().await;
        tracing::warn!(signal, "stopping at once");
        process::exit(EXIT_AT_ONCE);
    });
    Ok(Stop(stop))
}
