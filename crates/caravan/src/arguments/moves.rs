//! What can be typed behind `caravan move`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mover::FREEZE_MS_DEFAULT;

use super::PlaceArguments;

const MOVE_EXAMPLES: &str = "\
Examples:
  caravan move plan --config shop.toml --name carts-1 --collection carts --slots 0-1023 --from shard-1 --to shard-2
  caravan move start …      the same, and it begins; a serving process does the work
  caravan move status --config shop.toml --name carts-1
  caravan move cutover --config shop.toml --name carts-1      when it is ready
  caravan move rollback …   or complete, when it has settled
  caravan move plan --config shop.toml --name grow --rebalance --onto shard-3
  caravan move cutover --config shop.toml --group grow        all that were started under that name";

#[derive(Debug, Subcommand)]
#[command(after_help = MOVE_EXAMPLES)]
pub enum MoveCommand {
    /// Say who has the keys now, and whether the move would be refused; changes nothing
    Plan {
        #[command(flatten)]
        moved: Moved,
        /// Print for programs
        #[arg(long)]
        json: bool,
    },
    /// Begin: the target is filled and kept up to date, shoppers notice nothing
    Start {
        #[command(flatten)]
        moved: Moved,
    },
    /// Show how far a move is, what differs, and why the last cutover was given up
    Status {
        #[command(flatten)]
        named: NamedMoves,
        /// Print for programs
        #[arg(long)]
        json: bool,
    },
    /// List all moves, those that ended too
    List {
        #[command(flatten)]
        place: PlaceArguments,
        /// Print for programs
        #[arg(long)]
        json: bool,
    },
    /// Stand still: nothing is copied, compared or cut over
    Pause(NamedMoves),
    /// Go on after a pause
    Resume(NamedMoves),
    /// Say how fast records are copied
    Throttle {
        #[command(flatten)]
        named: NamedMove,
        /// Records in a second, at most; without it, as fast as both sides allow
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        records_per_s: Option<u32>,
        /// Why, for whoever looks at the status
        #[arg(long, value_name = "TEXT", default_value = "the operator asked for it")]
        reason: String,
    },
    /// Give the keys to the target, once the move is ready
    Cutover(NamedMoves),
    /// Give the keys back to the source, after a cutover
    Rollback(NamedMoves),
    /// Let the target keep the keys; there is no way back any more
    Complete(NamedMoves),
    /// End the move before its cutover
    Abort(NamedMoves),
    /// Show the certificate of a cutover or rollback, and whether it still holds
    Certificate(CertificateArguments),
}

/// One move, and where its record is.
#[derive(Clone, Debug, Args)]
pub struct NamedMove {
    /// The move
    #[arg(long, value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub place: PlaceArguments,
}

/// One move, or all that were started together.
#[derive(Clone, Debug, Args)]
pub struct NamedMoves {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub place: PlaceArguments,
}

#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Which {
    /// The move
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// All moves that --rebalance or --drain started under this name
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
}

/// What is to be moved.
#[derive(Clone, Debug, Args)]
pub struct Moved {
    #[command(flatten)]
    pub named: NamedMove,
    /// carts, orders, products or sessions; several moves at once take all of them
    #[arg(long, value_name = "COLLECTION", required_unless_present_any = ["rebalance", "drain"])]
    pub collection: Option<String>,
    #[command(flatten)]
    pub keys: MovedKeys,
    /// The shard that has the keys
    #[arg(long, value_name = "SHARD", required_unless_present_any = ["unpin", "rebalance", "drain"])]
    pub from: Option<String>,
    /// The shard that gets them
    #[arg(long, value_name = "SHARD", required_unless_present_any = ["unpin", "rebalance", "drain"])]
    pub to: Option<String>,
    /// The shard that a rebalance fills
    #[arg(long, value_name = "SHARD", requires = "rebalance")]
    pub onto: Option<String>,
    /// How long the cutover may hold shoppers' requests; past it, it is given up
    #[arg(long, value_name = "N", default_value_t = FREEZE_MS_DEFAULT)]
    pub freeze_ms_max: u64,
    /// Records to copy in a second, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub records_per_s: Option<u32>,
}

#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct MovedKeys {
    /// Slots, as in 0-1023,2048-2100
    #[arg(long, value_name = "SLOTS")]
    pub slots: Option<String>,
    /// Every key of the collection
    #[arg(long)]
    pub all: bool,
    /// These shard keys, with commas in between; values of one key with slashes
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub keys: Vec<String>,
    /// Keys from FROM up to before TO, as in cases/C-1..m; either end may be left open
    #[arg(long, value_name = "FROM..TO")]
    pub range: Option<String>,
    /// These pinned keys, each back to the shard that the cut gives it
    #[arg(long, value_name = "KEY", value_delimiter = ',', conflicts_with_all = ["from", "to"])]
    pub unpin: Vec<String>,
    /// Several moves that bring the shard of --onto its 1/N of the slots, taken evenly from the others
    #[arg(long, requires = "onto", conflicts_with_all = ["from", "to"])]
    pub rebalance: bool,
    /// Several moves that leave this shard nothing: its keys go to the others evenly
    #[arg(long, value_name = "SHARD", conflicts_with_all = ["from", "to"])]
    pub drain: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct CertificateArguments {
    /// The move
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "file",
        conflicts_with = "file"
    )]
    pub name: Option<String>,
    /// Of the rollback, not of the cutover
    #[arg(long, conflicts_with = "file")]
    pub rollback: bool,
    /// A certificate that was saved with --json, instead of the one that is kept
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Exit with 1 if a field was changed since it was made
    #[arg(long)]
    pub verify: bool,
    /// Print for programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: PlaceArguments,
}
