//! Shards that were added while this process serves: opened as they come, and with a feed of their own where finished
//! orders go to a history.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use engine_api::{ControlStore, World};
use shop_service::{Shop, archive_feed};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::shards::{LATE_LOOK_EVERY, LateShards};

pub struct Late {
    pub shards: LateShards,
    pub shop: Arc<Shop>,
    pub control: Arc<dyn ControlStore>,
    pub world: Arc<dyn World>,
}

impl Late {
    /// Until `stop`; then the feeds let go, so that another process goes on at once.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(false);
        let mut stop = pin!(stop);
        let mut feeds = JoinSet::new();
        // The same failure again and again is told once.
        let mut told = None;
        loop {
            let failure = tokio::select! {
                biased;
                () = &mut stop => break,
                looked = self.look(&mut feeds, &stopped) => looked.err(),
            };
            let failure = failure.map(|error| error.to_string());
            if failure != told {
                match &failure {
                    Some(error) => {
                        tracing::warn!(error, "the list of shards cannot be followed now")
                    }
                    None => tracing::info!("the list of shards can be followed again"),
                }
                told = failure;
            }
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = self.world.sleep(LATE_LOOK_EVERY) => {}
            }
        }
        stopping.send_replace(true);
        while feeds.join_next().await.is_some() {}
    }

    async fn look(
        &self,
        feeds: &mut JoinSet<()>,
        stopped: &watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        for came in self.shards.look().await? {
            let Some(history) = came.history else {
                continue;
            };
            let (control, limits) = (self.control.clone(), feed::Limits::default());
            let (shop, name) = (&self.shop, &came.name);
            let feed = archive_feed(shop, &history, name, came.engine, control, limits)?;
            let mut stopped = stopped.clone();
            feeds.spawn(feed.run(async move {
                // A sender that is gone means the same.
                let _ = stopped.wait_for(|stopped| *stopped).await;
            }));
        }
        Ok(())
    }
}
