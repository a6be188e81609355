//! What can be typed behind `caravan`, and the help that explains it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

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
  caravan serve --data /var/lib/caravan --listen 0.0.0.0:8080 --log json/info
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
    /// Look at the map: which shard serves which keys
    #[command(subcommand)]
    Map(MapCommand),
}

#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArguments {
    /// Where the data is [default: ./caravan-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// How many shards a new directory gets [default: 1]; an existing one keeps its own
    #[arg(long, value_name = "N")]
    pub shards: Option<String>,
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
    },
    /// Show which table answers each operation of the shop, and at what cost
    Explain {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// List the built-in layout and the files of ./layouts
    List,
}

#[derive(Debug, Subcommand)]
pub enum MapCommand {
    /// Show the map of a data directory that no other process has open
    Show {
        #[command(flatten)]
        directory: DirectoryArguments,
    },
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
