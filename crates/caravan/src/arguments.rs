//! What can be typed behind `caravan`, and the help that explains it.

mod moves;
mod shards;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use layout::Load;
use layout::schema::Part;
use shop_service::{Place, ReconcileLimits};

pub use moves::{
    CertificateArguments, CutoverArguments, LayoutMove, LayoutMoveCommand, MoveCommand, Moved,
    NamedMoves, WatchArguments, Which,
};
pub use shards::{AddedShard, NamedShard, ShardCommand};

/// Keeps an online shop's carts, orders, products and sessions, and moves them
/// while shoppers keep buying.
#[derive(Debug, Parser)]
#[command(name = "caravan", version, about, max_term_width = 100, after_help = FIRST_STEPS)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

const FIRST_STEPS: &str = "\
First steps:
  caravan serve --sample           a small shop at http://127.0.0.1:8080, data in ./caravan-data
  caravan import catalogue.jsonl   your own products
  caravan config                   every setting and its value";

const SERVE_EXAMPLES: &str = "\
Examples:
  caravan serve --sample
  caravan serve --layout layouts/hybrid.toml --address mongo=mongodb://db1,db2/?replicaSet=shop \\
                --address cassandra=10.0.0.1:9042,10.0.0.2:9042
  caravan serve --data /var/lib/caravan --listen 0.0.0.0:8080 --log json/info
  caravan serve --data /var/lib/caravan --toward layouts/mongo-sharded.toml --address …     to move there
  caravan serve --layout layouts/mongo-sharded.toml --toward embedded --data /var/lib/caravan --address …     and back
  CARAVAN_SHOP_SESSION_LIFETIME_S=86400 caravan serve --set http.slow_ms=200

Settings come from the file, then from CARAVAN_… variables, then from flags; the last one counts.
SIGINT or SIGTERM lets requests under way finish and closes the data; a second one ends at once.";

const IMPORT_EXAMPLES: &str = "\
Examples:
  caravan import catalogue.jsonl                            into ./caravan-data, while nothing serves it
  caravan import catalogue.jsonl --to http://127.0.0.1:8080  into a running shop
  zcat catalogue.jsonl.gz | caravan import - --skip-bad

One product a line; image, description, attributes and stock may be left out, stock is all that ever arrived:
  {\"product_id\":\"PHONE-1\",\"category\":\"smartphones\",\"name\":\"Kestrel One\",\"price\":\"14990\",\"stock\":{\"moscow\":50}}

A product that exists is replaced, so that the same file may be imported again.";

const MAP_EXAMPLES: &str = "\
Examples:
  caravan map show --data /var/lib/caravan
  caravan map show --layout layouts/hybrid.toml --address mongo=mongodb://db1,db2/?replicaSet=shop
  caravan map watch --config shop.toml
  caravan map split --config shop.toml --collection products --at phones/P-500";

const MOVER_EXAMPLES: &str = "\
Examples:
  caravan mover --layout layouts/hybrid.toml --address mongo=mongodb://127.0.0.1/ --address cassandra=127.0.0.1
  caravan serve --set moves.runner=mover …      leaves moves to such processes

Any number of them stand by; a move goes on in another when the one that works for it dies.";

const DEMO_EXAMPLES: &str = "\
Examples:
  caravan demo               under a minute, in a temporary directory, without servers
  caravan demo --lose-one    the same with a change lost on purpose: exits with 1";

const RECONCILE_EXAMPLES: &str = "\
Examples:
  caravan reconcile --layout layouts/hybrid.toml --address mongo=mongodb://db1,db2/?replicaSet=shop \\
                    --address cassandra=10.0.0.1:9042       beside a shop that serves
  caravan reconcile --data /var/lib/caravan --dry-run       of a directory that nothing serves

Exit code 0: nothing is left. 1: something is left, or it was interrupted. 2: it failed.";

const SCHEMA_EXAMPLES: &str = "\
Examples:
  caravan layout schema layouts/hybrid.toml
  caravan layout schema layouts/hybrid.toml --part settings >> cassandra.yaml
  caravan layout schema layouts/cassandra-orders.toml --part cron";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Open the shop: serve its HTTP interface from a data directory
    #[command(after_help = SERVE_EXAMPLES)]
    Serve {
        /// Fill the directory with a small shop, always the same; once filled it is left as it is
        #[arg(long)]
        sample: bool,
        #[command(flatten)]
        settings: SettingsArguments,
    },
    /// Take over a catalogue from a file of JSON lines
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArguments),
    /// Print every setting with the value it has after file, environment and flags
    Config {
        #[command(flatten)]
        settings: SettingsArguments,
    },
    /// Check and explain layout files
    #[command(subcommand)]
    Layout(LayoutCommand),
    /// Look at the map: which shard serves which keys, and which processes have leases
    #[command(subcommand)]
    Map(MapCommand),
    /// Move keys from one shard to another while shoppers keep buying
    #[command(subcommand)]
    Move(MoveCommand),
    /// Work for moves, and serve nobody: beside processes that serve a layout on servers
    #[command(after_help = MOVER_EXAMPLES)]
    Mover {
        #[command(flatten)]
        settings: SettingsArguments,
    },
    /// See keys move: a shop of its own, shoppers, a second shard, there, back and there again, and a verdict
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArguments),
    /// Add shards while they are served, and take them away again
    #[command(subcommand)]
    Shard(ShardCommand),
    /// Look at every record, mend what crashes left half-done, and name what only people can decide
    #[command(after_help = RECONCILE_EXAMPLES)]
    Reconcile(ReconcileArguments),
    /// Look at what feeds the order history, and help it when it is stuck
    #[command(subcommand)]
    History(HistoryCommand),
}

#[derive(Clone, Debug, Args)]
pub struct DemoArguments {
    /// How many buy at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub shoppers: u32,
    /// How long each stage is looked at before the next one begins
    #[arg(long, value_name = "N", default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub pause_ms: u64,
    /// How long a cutover may hold requests; past it, it is given up and tried again
    #[arg(long, value_name = "N", default_value_t = mover::FREEZE_MS_DEFAULT, value_parser = clap::value_parser!(u64).range(1..=mover::FREEZE_MS_MAX))]
    pub freeze_ms_max: u64,
    /// Lose an acknowledged change on purpose, to see the verdict fail
    #[arg(long)]
    pub lose_one: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArguments {
    /// Where the data is [default: ./caravan-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// How many shards a new directory gets [default: 1]; an existing one keeps its own
    #[arg(long, value_name = "N")]
    pub shards: Option<String>,
    /// A layout file that says where each collection lives; without it, all live in the directory
    #[arg(long, value_name = "FILE")]
    pub layout: Option<String>,
    /// The layout that collections are being moved to, or may be; embedded is the data directory. Its shards are opened as well
    #[arg(long, value_name = "FILE")]
    pub toward: Option<String>,
    /// The layout whose control shard keeps the map, where --layout has been moved to from there; embedded is the data directory
    #[arg(long, value_name = "FILE")]
    pub control: Option<String>,
    /// Where a shard of the layouts is; may be given several times
    #[arg(long, value_name = "SHARD=ADDRESS")]
    pub address: Vec<String>,
    /// Address and port to serve at; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// plain or json, and how much: error, warn, info, debug, trace [default: plain/info]
    #[arg(long, value_name = "FORMAT/LEVEL")]
    pub log: Option<String>,
    /// A TOML file with settings; caravan config prints one
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Any other setting, by the name that caravan config prints; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub struct DirectoryArguments {
    /// Where the data is [default: ./caravan-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// A TOML file with settings
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The file, or - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A running shop that takes the products, instead of the data directory
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub to: Option<String>,
    /// Leave lines out that cannot be taken; without it, one such line and nothing is written
    #[arg(long)]
    pub skip_bad: bool,
    #[command(flatten)]
    pub directory: DirectoryArguments,
}

#[derive(Debug, Subcommand)]
pub enum LayoutCommand {
    /// Say of each file whether it can be used, and if not, what to change
    Check {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print findings for programs
        #[arg(long)]
        json: bool,
    },
    /// Show which table answers each operation of the shop, at what cost, and how large partitions get
    Explain {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        load: LoadArguments,
    },
    /// Compare two layouts, and say what a move between them means
    Diff {
        #[arg(value_name = "FROM")]
        from: PathBuf,
        #[arg(value_name = "TO")]
        to: PathBuf,
    },
    /// Print what the servers are set up with: statements, settings, repair
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Only this part; may be given several times
        #[arg(long, value_name = "PART")]
        part: Vec<SchemaPart>,
    },
    /// List the built-in layout and the files of ./layouts
    List,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SchemaPart {
    /// CQL and MongoDB commands
    Statements,
    /// cassandra.yaml, per cluster
    Settings,
    /// Repair of every Cassandra node, by cron
    Cron,
    /// The same, by systemd timers
    Systemd,
}

/// What partition sizes are estimated for.
#[derive(Clone, Copy, Debug, Args)]
pub struct LoadArguments {
    #[arg(long, value_name = "N", default_value_t = Load::default().orders_per_day)]
    orders_per_day: u64,
    #[arg(long, value_name = "N", default_value_t = Load::default().sessions_per_day)]
    sessions_per_day: u64,
    #[arg(long, value_name = "N", default_value_t = Load::default().users, value_parser = at_least_one())]
    users: u64,
    #[arg(long, value_name = "N", default_value_t = Load::default().products)]
    products: u64,
    #[arg(long, value_name = "N", default_value_t = Load::default().categories, value_parser = at_least_one())]
    categories: u64,
    /// How long orders are kept
    #[arg(long, value_name = "DAYS", default_value_t = Load::default().keep_days, value_parser = at_least_one())]
    keep_days: u64,
    /// The largest user, or category, against the mean one
    #[arg(long, value_name = "TIMES", default_value_t = Load::default().skew, value_parser = at_least_one())]
    skew: u64,
    /// The busiest day against the mean one
    #[arg(long, value_name = "TIMES", default_value_t = Load::default().peak, value_parser = at_least_one())]
    peak: u64,
}

fn at_least_one() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..)
}

#[derive(Debug, Subcommand)]
#[command(after_help = MAP_EXAMPLES)]
pub enum MapCommand {
    /// Show the map, and the processes that serve under it; these are looked at for a moment
    Show {
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// List the maps that were published, with time and reason
    History {
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Print new maps and changes of leases as they come, until it is interrupted
    Watch {
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Cut a range in two; both pieces stay where they are, and can be moved apart
    Split(SplitArguments),
}

#[derive(Clone, Debug, Args)]
pub struct SplitArguments {
    /// A collection that is cut by ranges
    #[arg(long, value_name = "COLLECTION")]
    pub collection: String,
    /// The first shard key of the second piece, its values with slashes; the last ones may be left out
    #[arg(long, value_name = "KEY")]
    pub at: String,
    #[command(flatten)]
    pub place: PlaceArguments,
}

/// Where the map is: on the servers of a layout, or in a directory that nothing serves.
#[derive(Clone, Debug, Args)]
pub struct PlaceArguments {
    #[command(flatten)]
    pub directory: DirectoryArguments,
    /// A layout file, whose shop may be open
    #[arg(long, value_name = "FILE")]
    pub layout: Option<String>,
    /// The layout whose control shard keeps the map, where --layout has been moved to from there; embedded is the data directory
    #[arg(long, value_name = "FILE")]
    pub control: Option<String>,
    /// Where a shard of the layout is; only those that are needed are asked
    #[arg(long, value_name = "SHARD=ADDRESS")]
    pub address: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ReconcileArguments {
    #[command(flatten)]
    pub directory: DirectoryArguments,
    /// A layout file, whose shop may be open
    #[arg(long, value_name = "FILE")]
    pub layout: Option<String>,
    /// The layout that collections are being moved to
    #[arg(long, value_name = "FILE")]
    pub toward: Option<String>,
    /// The layout whose control shard keeps the map, where --layout has been moved to from there; embedded is the data directory
    #[arg(long, value_name = "FILE")]
    pub control: Option<String>,
    /// Where a shard of the layouts is; may be given several times
    #[arg(long, value_name = "SHARD=ADDRESS")]
    pub address: Vec<String>,
    /// Find, and mend nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print for programs
    #[arg(long)]
    pub json: bool,
    /// Go on where an earlier one was interrupted, as it said
    #[arg(long, value_name = "PLACE")]
    pub from: Option<Place>,
    /// Records and rows to look at in a second, at most
    #[arg(long, value_name = "N", default_value_t = ReconcileLimits::default().records_per_s)]
    pub records_per_s: u32,
}

#[derive(Debug, Subcommand)]
pub enum HistoryCommand {
    /// Show how far each feed of the order history is, and under which term
    Show {
        #[command(flatten)]
        settings: SettingsArguments,
    },
    /// Ask for everything finished to be looked at anew, after a position was lost
    Rebuild {
        #[command(flatten)]
        settings: SettingsArguments,
    },
}

impl SchemaPart {
    pub fn part(self) -> Part {
        match self {
            SchemaPart::Statements => Part::Statements,
            SchemaPart::Settings => Part::Settings,
            SchemaPart::Cron => Part::Cron,
            SchemaPart::Systemd => Part::Systemd,
        }
    }
}

impl LoadArguments {
    pub fn load(self) -> Load {
        Load {
            orders_per_day: self.orders_per_day,
            sessions_per_day: self.sessions_per_day,
            users: self.users,
            products: self.products,
            categories: self.categories,
            keep_days: self.keep_days,
            skew: self.skew,
            peak: self.peak,
        }
    }
}

impl MapCommand {
    pub fn place(&self) -> &PlaceArguments {
        match self {
            MapCommand::Show { place }
            | MapCommand::History { place }
            | MapCommand::Watch { place }
            | MapCommand::Split(SplitArguments { place, .. }) => place,
        }
    }
}

impl PlaceArguments {
    pub fn settings(&self) -> SettingsArguments {
        SettingsArguments {
            layout: self.layout.clone(),
            control: self.control.clone(),
            address: self.address.clone(),
            ..self.directory.settings()
        }
    }
}

impl ReconcileArguments {
    pub fn settings(&self) -> SettingsArguments {
        SettingsArguments {
            layout: self.layout.clone(),
            toward: self.toward.clone(),
            control: self.control.clone(),
            address: self.address.clone(),
            ..self.directory.settings()
        }
    }
}

impl DirectoryArguments {
    pub fn settings(&self) -> SettingsArguments {
        SettingsArguments {
            data: self.data.clone(),
            config: self.config.clone(),
            ..SettingsArguments::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_contradict_nothing() {
        Arguments::command().debug_assert();
    }
}
