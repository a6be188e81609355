//! Where a command is asked: at the process that has the data directory, or right here.

use anyhow::{Result, anyhow};
use ops_api::{Client, Desk as _, Request};
use serde_json::Value;

use crate::arguments::PlaceArguments;
use crate::config::Config;
use crate::ops::{OwnDesk, Standing, standing, this_operator};
use crate::shards::{self, Shards};

/// Whether somebody has to be there who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Look,
    Change,
}

#[derive(Debug)]
pub enum Counter {
    There(Client),
    /// Over servers, or over a directory that nobody serves.
    Here {
        desk: Box<OwnDesk>,
        /// Closed when the command ends.
        _directory: Option<Box<Shards>>,
    },
}

impl Counter {
    pub async fn open(place: &PlaceArguments, need: Need) -> Result<Counter> {
        let config = Config::load(&place.settings())?;
        match config.is_directory_alone() || shards::keeps_map_in_directory(&config)? {
            true => Counter::at_directory(config, need).await,
            false => Ok(Counter::of_servers(config)),
        }
    }

    /// Over servers alone.
    pub fn of_servers(config: Config) -> Counter {
        Counter::Here {
            desk: Box::new(OwnDesk::of_servers(config)),
            _directory: None,
        }
    }

    /// At the process that has the directory; if there is none, over the directory itself.
    pub async fn at_directory(config: Config, need: Need) -> Result<Counter> {
        let directory = &config.data;
        let gone = match standing(directory)? {
            Standing::Served(client) => return Ok(Counter::There(client)),
            Standing::Stale { pid } => format!(", process {pid} did and is gone"),
            Standing::Nobody => String::new(),
        };
        if config.is_directory_alone() {
            shards::refuse_unmade(directory)?;
        }
        if need == Need::Change {
            let shown = directory.display();
            return Err(anyhow!(
                "nobody serves {shown}{gone}, and who serves it does the work: start caravan serve --data {shown}, then ask again"
            ));
        }
        if !config.is_directory_alone() {
            return Ok(Counter::of_servers(config));
        }
        let opened = Shards::open_existing(directory).await?;
        let world = std::sync::Arc::new(engine_api::RealWorld::new());
        Ok(Counter::Here {
            desk: Box::new(OwnDesk::of_shards(&opened, &config, world)),
            _directory: Some(Box::new(opened)),
        })
    }

    pub async fn ask(&self, request: Request) -> Result<Value> {
        match self {
            Counter::There(client) => Ok(client.ask(&request)?),
            Counter::Here { desk, .. } => Ok(desk.carry_out(request, &this_operator()).await?),
        }
    }
}
