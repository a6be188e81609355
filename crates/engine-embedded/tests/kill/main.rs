//! kill -9 of a writing process, again and again, and a disk that fills up.
//!
//! Three roles in one executable. The *writer* is a process of its own: it
//! writes orders with their stock, cart lines and sessions through the engine
//! and says on its output what was acknowledged. The *judge* is this process:
//! it keeps its own fsynced ledger of those lines, kills the writer, opens the
//! directory and looks for every line of the ledger in every table.

mod judge;
mod ledger;
mod shop;
mod writer;

use std::path::Path;
use std::process::ExitCode;

use judge::Full;

/// How often the writer is killed.
const KILLS: u64 = 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("writer") => {
            let load = if arguments[3] == "heavy" {
                shop::Load::Heavy
            } else {
                shop::Load::Ordinary
            };
            writer::run(
                Path::new(&arguments[1]),
                arguments[2].parse().expect("a round"),
                load,
                arguments[4].parse().ok(),
            );
        }
        // Asked by cargo for the names of its tests.
        Some("--list") => println!("kill: test"),
        _ => {
            judge::kills_lose_nothing(KILLS);
            judge::a_full_disk_loses_nothing(Full::FromTheStart, "check the path", 0);
            judge::a_full_disk_loses_nothing(Full::ForTables, "a checkpoint failed", 100);
            judge::a_full_disk_loses_nothing(Full::ForTheLog, "the commit log failed", 100);
            println!("test result: ok. 4 passed; 0 failed");
        }
    }
    ExitCode::SUCCESS
}
