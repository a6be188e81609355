//! Servers for a person: `install`, `up`, `status`, `down`.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, Subcommand};
use testbed::{Label, Members, Nodes, Purpose, Unavailable};

/// A person reads and thinks between two statements; nothing runs for ever.
const STAY: Duration = Duration::from_secs(8 * 60 * 60);

/// Real MongoDB and Cassandra servers on this machine, for tests and for trying things.
#[derive(Debug, Parser)]
#[command(arg_required_else_help = false)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Fetch both databases
    Install,
    /// Start servers and leave them running
    Up {
        /// cassandra:1, cassandra:3, mongo:1 or mongo:3; by default cassandra:1 and mongo:1.
        /// More of a kind with a label behind: mongo:3@shard2, cassandra:1@orders, cassandra:1@carts
        servers: Vec<Wanted>,
    },
    /// Show the servers that run
    Status,
    /// End all of them and throw their records away
    Down,
}

#[derive(Debug, Clone)]
enum Wanted {
    Mongo(Members, Option<Label>),
    Cassandra(Nodes, Purpose),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Wanted, String> {
        let (server, label) = match text.split_once('@') {
            Some((server, label)) => (server, Some(label)),
            None => (text, None),
        };
        match server {
            "mongo:1" => Ok(Wanted::Mongo(Members::One, mongo_label(label)?)),
            "mongo:3" => Ok(Wanted::Mongo(Members::Three, mongo_label(label)?)),
            "cassandra:1" => Ok(Wanted::Cassandra(Nodes::One, purpose(label)?)),
            "cassandra:3" => Ok(Wanted::Cassandra(Nodes::Three, purpose(label)?)),
            _ => Err("say cassandra:1, cassandra:3, mongo:1 or mongo:3".to_owned()),
        }
    }
}

fn mongo_label(label: Option<&str>) -> Result<Option<Label>, String> {
    let parse = |label: &str| {
        label
            .parse()
            .map_err(|reason: Unavailable| reason.to_string())
    };
    label.map(parse).transpose()
}

fn purpose(label: Option<&str>) -> Result<Purpose, String> {
    match label {
        None => Ok(Purpose::Anything),
        Some("orders") => Ok(Purpose::Orders),
        Some("carts") => Ok(Purpose::Carts),
        Some(_) => {
            Err("a cluster is labelled orders or carts, which decides its settings".to_owned())
        }
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(mistake) if !mistake.use_stderr() => mistake.exit(),
        Err(mistake) => {
            eprintln!("{}", one_sentence(&mistake.to_string()));
            return ExitCode::from(2);
        }
    };
    match perform(arguments.task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: Task) -> Result<(), Unavailable> {
    match task {
        Task::Install => {
            testbed::install()?;
            println!("MongoDB 6.0.5 and Cassandra 5.0.8 are installed");
        }
        Task::Up { servers } if servers.is_empty() => {
            up(&[
                Wanted::Cassandra(Nodes::One, Purpose::Anything),
                Wanted::Mongo(Members::One, None),
            ])?;
        }
        Task::Up { servers } => up(&servers)?,
        Task::Status => list(&testbed::status()?, "running"),
        Task::Down => list(&testbed::down()?, "ended"),
    }
    Ok(())
}

fn up(servers: &[Wanted]) -> Result<(), Unavailable> {
    for wanted in servers {
        match wanted {
            Wanted::Mongo(members, label) => {
                let set = match label {
                    Some(label) => testbed::mongo_labelled(*members, label)?,
                    None => testbed::mongo(*members)?,
                };
                set.keep_for(STAY)?;
                println!("MongoDB    {}", set.uri());
            }
            Wanted::Cassandra(nodes, purpose) => {
                let cluster = testbed::cassandra_for(*purpose, *nodes)?;
                cluster.keep_for(STAY)?;
                let points: Vec<String> = cluster
                    .contact_points()
                    .iter()
                    .map(ToString::to_string)
                    .collect();
                println!("Cassandra  {}", points.join(" "));
            }
        }
    }
    println!(
        "They end with `cargo run -p testbed -- down`, or by themselves in {} hours.",
        STAY.as_secs() / 3600
    );
    Ok(())
}

fn list(servers: &[testbed::Running], verb: &str) {
    if servers.is_empty() {
        println!("no shared server is up");
    }
    for server in servers {
        let addresses: Vec<String> = server.addresses.iter().map(ToString::to_string).collect();
        let pids: Vec<String> = server.pids.iter().map(ToString::to_string).collect();
        println!(
            "{verb} {:<11} {} (process {})",
            server.name,
            addresses.join(" "),
            pids.join(", ")
        );
    }
}

/// The first paragraph of clap's complaint, on one line.
fn one_sentence(complaint: &str) -> String {
    let lines: Vec<&str> = complaint
        .lines()
        .take_while(|line| !line.trim().is_empty())
        .map(str::trim)
        .collect();
    lines.join(" ")
}
