//! What can be typed behind `caravan shard`.

use clap::{Args, Subcommand};

use super::PlaceArguments;

const SHARD_EXAMPLES: &str = "\
Examples:
  caravan shard add --config shop.toml --name shard-3 --engine mongo \\
                    --address shard-3=mongodb://db5,db6/?replicaSet=three
  caravan move start --config shop.toml --name grow --rebalance --onto shard-3
  caravan shard list --config shop.toml
  caravan shard remove --config shop.toml --name shard-3       when it has no keys any more
  caravan shard add --data caravan-data     the next one of a directory, by the process that serves it

Every process opens a new shard within seconds. User and password are not kept: each process takes those that
its own settings have for the same engine.";

#[derive(Debug, Subcommand)]
#[command(after_help = SHARD_EXAMPLES)]
pub enum ShardCommand {
    /// Show the shards and the keys they have, and of a layout which processes have them open
    List {
        #[command(flatten)]
        place: PlaceArguments,
        /// Print for programs
        #[arg(long)]
        json: bool,
    },
    /// Make a shard known to every process; it gets no keys before a move brings it some
    Add(AddedShard),
    /// Forget a shard that was added, once it has no keys; its name is never used again
    Remove(NamedShard),
}

#[derive(Clone, Debug, Args)]
pub struct NamedShard {
    /// The shard
    #[arg(long, value_name = "SHARD")]
    pub name: String,
    #[command(flatten)]
    pub place: PlaceArguments,
}

#[derive(Clone, Debug, Args)]
pub struct AddedShard {
    /// The shard; in a data directory it is the next number
    #[arg(long, value_name = "SHARD", requires = "engine")]
    pub name: Option<String>,
    /// The engine of the layout that it is of
    #[arg(long, value_name = "ENGINE", requires = "name")]
    pub engine: Option<String>,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// Print for programs
    #[arg(long)]
    pub json: bool,
}
