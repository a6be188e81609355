//! What operators ask of a running shop: a second listener, for this machine only.
//!
//! ```text
//!   caravan move … --data DIR ─▶ DIR/ops.address ─▶ listener of the process that serves DIR ─▶ desk ─▶ control store
//!   caravan move … --layout FILE ────────────────────────────────────────────────────────────▶ desk ─▶ control store
//! ```
//!
//! The desk is the same in both. Every change goes into the audit journal, which stands in the control store.

mod address;
mod audit;
mod desk;
mod everywhere;
mod layouts;
mod operator;
mod planning;
mod seen;
mod sizing;
mod spreading;
pub mod typed;
mod wanted;

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use engine_api::World;
use ops_api::ProcessId;
use serde::Deserialize;
use tokio::net::TcpListener;

pub use address::{AddressFile, Standing, standing};
pub use audit::Entry;
pub use desk::OwnDesk;
pub use layouts::LayoutWanted;
pub use operator::this_operator;
pub use seen::{Seen, StandingMove, server};
pub use sizing::{Size, freeze_text};
pub use wanted::Wanted;

const DEFAULT_LISTEN: &str = "127.0.0.1:0";

/// How long requests that are under way may take when the shop closes.
const CLOSING_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OpsSettings {
    /// On the loopback; port 0 takes a free one.
    pub listen: SocketAddr,
}

impl Default for OpsSettings {
    fn default() -> OpsSettings {
        OpsSettings {
            listen: DEFAULT_LISTEN.parse().expect("the default is an address"),
        }
    }
}

impl OpsSettings {
    pub fn check(&self) -> Result<()> {
        let listen = self.listen;
        ensure!(
            listen.ip().is_loopback(),
            "ops.listen is {listen}: nobody proves who asks there, so choose an address of this machine alone, as 127.0.0.1:0"
        );
        Ok(())
    }
}

/// The listener, before anybody is answered.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    own: ProcessId,
}

impl Listening {
    pub async fn start(settings: &OpsSettings, world: &dyn World) -> Result<Listening> {
        let listener = TcpListener::bind(settings.listen).await.map_err(|error| {
            anyhow!(
                "operators cannot be heard at {} ({error}): choose another with --set ops.listen=ADDRESS",
                settings.listen
            )
        })?;
        let address = listener.local_addr();
        Ok(Listening {
            address: address.context("the system does not say what address it gave")?,
            own: ProcessId(format!("{:016x}{:016x}", world.random(), world.random())),
            listener,
        })
    }

    /// Tells whoever has the directory where this process listens.
    pub fn tell(&self, directory: &Path) -> Result<AddressFile> {
        AddressFile::write(directory, self.address, &self.own)
    }

    /// Answers until `stop`.
    pub async fn run<S>(self, desk: OwnDesk, stop: impl Fn() -> S)
    where
        S: Future<Output = ()> + Send + 'static,
    {
        tracing::info!(address = %self.address, "operators are heard");
        let serving = ops_api::serve(self.listener, Arc::new(desk), self.own, stop());
        let closing = async {
            stop().await;
            tokio::time::sleep(CLOSING_MAX).await;
        };
        tokio::select! {
            served = serving => {
                if let Err(error) = served {
                    tracing::error!(%error, "operators are not heard any more");
                }
            }
            () = closing => {}
        }
    }
}
