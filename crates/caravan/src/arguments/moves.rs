//! What can be typed behind `caravan move`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mover::FREEZE_MS_DEFAULT;

use super::{PlaceArguments, SettingsArguments};

const MOVE_EXAMPLES: &str = "\
Examples:
  caravan move plan --config shop.toml --name carts-1 --collection carts --slots 0-1023 --from shard-1 --to shard-2
  caravan move start …      the same, and it begins; a serving process does the work
  caravan move status --config shop.toml --name carts-1
  caravan move cutover --config shop.toml --name carts-1      when it is ready
  caravan move watch --config shop.toml --name carts-1 --until ready
  caravan move rollback …   or complete, when it has settled
  caravan move plan --config shop.toml --name grow --rebalance --onto shard-3
  caravan move cutover --config shop.toml --group grow        all that were started under that name
With --data DIR instead, the process that serves the directory is asked.";

#[derive(Debug, Subcommand)]
#[command(after_help = MOVE_EXAMPLES)]
pub enum MoveCommand {
    /// Say who has the keys now, and whether the move would be refused; changes nothing
    Plan {
        #[command(flatten)]
        moved: Moved,
    },
    /// Begin: the target is filled and kept up to date, shoppers notice nothing
    Start {
        #[command(flatten)]
        moved: Moved,
        #[command(flatten)]
        time: CutoverArguments,
    },
    /// Move whole collections to another layout, shard key or engine
    #[command(subcommand)]
    Layout(LayoutMoveCommand),
    /// Show how far a move is, what differs, and why the last cutover was given up
    Status(NamedMoves),
    /// The same as it changes, until the move has ended: a picture on a terminal, lines elsewhere
    Watch(WatchArguments),
    /// List all moves, those that ended too
    List {
        #[command(flatten)]
        place: PlaceArguments,
        /// Print for programs
        #[arg(long)]
        json: bool,
    },
    /// Show who changed what of moves and shards, and what came of it
    Audit {
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
        named: NamedMoves,
        #[command(flatten)]
        most: Throttled,
        /// Why, for whoever looks at the status
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Give the keys to the target: now that the move is ready, or when it is
    Cutover {
        #[command(flatten)]
        named: NamedMoves,
        #[command(flatten)]
        time: CutoverArguments,
        /// Withdraw what was said with --when-ready or --at
        #[arg(long, conflicts_with_all = ["when_ready", "at"])]
        by_hand: bool,
        #[command(flatten)]
        within: Within,
    },
    /// Give the keys back to the source, after a cutover
    Rollback {
        #[command(flatten)]
        named: NamedMoves,
        #[command(flatten)]
        within: Within,
    },
    /// Let the target keep the keys; there is no way back any more, and after a grace the source is cleaned of them
    Complete {
        #[command(flatten)]
        named: NamedMoves,
        /// How long what was moved stays at the source, as 90s, 10m or 2h [default: moves.clean_grace_ms]
        #[arg(long, value_name = "TIME")]
        grace: Option<String>,
        /// Leave it there for good
        #[arg(long, conflicts_with = "grace")]
        keep: bool,
    },
    /// End the move before its cutover, or the cleaning of its source: then what is left there stays
    Abort(NamedMoves),
    /// Show the certificate of a cutover or rollback, and whether it still holds
    Certificate(CertificateArguments),
}

const LAYOUT_EXAMPLES: &str = "\
Examples:
  caravan move layout plan --config shop.toml --toward layouts/cassandra-orders.toml
  caravan move layout start …                       the next collection in that order
  caravan move layout start … --collection orders   or one that you choose

The processes that serve must know both layouts: caravan serve --config shop.toml --toward FILE.
If one of them is a data directory, a single process serves, and is asked: name the directory with --data DIR.
A move of a collection is then like any other: caravan move status, cutover, rollback, complete.";

#[derive(Debug, Subcommand)]
#[command(after_help = LAYOUT_EXAMPLES)]
pub enum LayoutMoveCommand {
    /// Say what would be moved, in which order and why, and what stands in the way; changes nothing
    Plan {
        #[command(flatten)]
        moved: LayoutMove,
        /// Print for programs
        #[arg(long)]
        json: bool,
    },
    /// Begin with one collection: the other layout is filled and kept up to date, shoppers notice nothing
    Start {
        #[command(flatten)]
        moved: LayoutMove,
    },
}

/// Whole collections, and where they go.
#[derive(Clone, Debug, Args)]
pub struct LayoutMove {
    /// The layout that gets them, embedded for the data directory; the settings may name it as well
    #[arg(long, value_name = "FILE")]
    pub toward: Option<String>,
    /// carts, orders, products or sessions; without it, all in turn
    #[arg(long, value_name = "COLLECTION")]
    pub collection: Option<String>,
    /// The moves are called NAME-COLLECTION [default: the name of the layout]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// How long a cutover may hold shoppers' requests; past it, it is given up
    #[arg(long, value_name = "N", default_value_t = FREEZE_MS_DEFAULT)]
    pub freeze_ms_max: u64,
    #[command(flatten)]
    pub most: Throttled,
    #[command(flatten)]
    pub place: PlaceArguments,
}

impl LayoutMove {
    pub fn settings(&self) -> SettingsArguments {
        SettingsArguments {
            toward: self.toward.clone(),
            ..self.place.settings()
        }
    }
}

/// One move, and where its record is.
#[derive(Clone, Debug, Args)]
pub struct NamedMove {
    /// The move
    #[arg(long, value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// Print for programs
    #[arg(long)]
    pub json: bool,
}

/// How long the freeze that is asked for may take.
#[derive(Clone, Copy, Debug, Args)]
pub struct Within {
    /// How long shoppers' requests may be held from now on, instead of what was said when the move was started
    #[arg(long, value_name = "N")]
    pub freeze_ms_max: Option<u64>,
}

/// When a move cuts over without anybody asking.
#[derive(Clone, Debug, Args)]
pub struct CutoverArguments {
    /// Cut over as soon as the move is ready, once
    #[arg(long, conflicts_with = "at")]
    pub when_ready: bool,
    /// Cut over at this time of day in UTC, or within the hour after it, on the first day that the move is ready then
    #[arg(long, value_name = "HH:MM")]
    pub at: Option<String>,
}

impl CutoverArguments {
    /// As it travels; `None`: nothing was said.
    pub fn when(&self) -> Option<String> {
        let ready = self.when_ready.then(|| "ready".to_owned());
        ready.or_else(|| self.at.clone())
    }
}

#[derive(Clone, Debug, Args)]
pub struct WatchArguments {
    #[command(flatten)]
    pub named: NamedMove,
    /// End when the move has come to this phase; exit with 1 if it ends otherwise
    #[arg(long, value_name = "PHASE", value_parser = ["ready", "settling", "completed", "cleaned up", "aborted", "rolled back"])]
    pub until: Option<String>,
}

/// One move, or all that were started together.
#[derive(Clone, Debug, Args)]
pub struct NamedMoves {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub place: PlaceArguments,
    /// Print for programs
    #[arg(long)]
    pub json: bool,
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
    #[command(flatten)]
    pub most: Throttled,
}

/// What holds the copy back; without any of it, what shoppers feel does.
#[derive(Clone, Debug, Args)]
pub struct Throttled {
    /// Records to copy in a second, at most; without it, as fast as both sides allow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub records_per_s: Option<u32>,
    /// Bytes to copy in a second, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub bytes_per_s: Option<u64>,
    /// What 99 of 100 shoppers' requests may take meanwhile; without it, half as much again as before
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub p99_ms_max: Option<u32>,
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
