//! The durable ceiling: one record a writer, appended and synced in groups.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use tokio::sync::{mpsc, oneshot};

use crate::orders::OrderNumber;

const QUEUE_RECORDS_MAX: usize = 8192;
const GROUP_RECORDS_MAX: usize = 1024;

/// Appends to one file; every append is answered after the fdatasync that covers it.
#[derive(Debug)]
pub struct RawLog {
    queue: mpsc::Sender<(Vec<u8>, oneshot::Sender<()>)>,
    bytes: Arc<AtomicU64>,
}

impl RawLog {
    pub fn open(path: &Path) -> anyhow::Result<RawLog> {
        let mut file = File::create(path).with_context(|| path.display().to_string())?;
        let (queue, mut records) =
            mpsc::channel::<(Vec<u8>, oneshot::Sender<()>)>(QUEUE_RECORDS_MAX);
        let bytes = Arc::new(AtomicU64::new(0));
        let written = bytes.clone();
        std::thread::spawn(move || {
            let mut group = Vec::with_capacity(GROUP_RECORDS_MAX);
            let mut buffer = Vec::new();
            while records.blocking_recv_many(&mut group, GROUP_RECORDS_MAX) > 0 {
                buffer.clear();
                group
                    .iter()
                    .for_each(|(record, _)| buffer.extend_from_slice(record));
                // A failed append ends the thread: the writers see a closed queue.
                if file
                    .write_all(&buffer)
                    .and_then(|()| file.sync_data())
                    .is_err()
                {
                    return;
                }
                written.fetch_add(buffer.len() as u64, Ordering::Relaxed);
                group.drain(..).for_each(|(_, done)| {
                    // A writer that stopped at the end of its round has gone.
                    let _ = done.send(());
                });
            }
        });
        Ok(RawLog { queue, bytes })
    }

    pub async fn append(&self, number: OrderNumber) -> anyhow::Result<()> {
        let (done, answer) = oneshot::channel();
        self.queue
            .send((number.raw_bytes(), done))
            .await
            .context("the raw log has failed")?;
        answer.await.context("the raw log has failed")
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
