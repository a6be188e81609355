//! `caravan demo`: a shop of its own in a temporary directory, shoppers, a second shard, and half of the carts and orders
//! moved there, back, and there again while they buy. The verdict comes from the shoppers' ledger, which shares
//! nothing with the shop but HTTP.
//!
//! ```text
//!   this process: shoppers ── HTTP ──▶ child: caravan serve ◀── ops ── this process: stages
//!                    │ fsynced                                            │ pictures, or lines
//!                    ▼                                                    ▼
//!                 ledger ──▶ verdict ◀── everything read back over HTTP
//! ```

mod ledger;
mod shop;
mod shoppers;
mod show;
mod stages;
mod verdict;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::arguments::DemoArguments;
use ledger::Ledger;
use shop::OwnShop;
use shoppers::Load;
use show::Show;
use verdict::Verdict;

/// Something acknowledged is missing, or something is there that nobody was told of.
const EXIT_WRONG: u8 = 1;

pub fn run(wish: &DemoArguments, out: &mut dyn Write) -> Result<ExitCode> {
    let folder =
        tempfile::tempdir().context("there is no room for a temporary directory: free some")?;
    let mut show = Show::begin(out);
    show.say("a shop opens: embedded engine, one shard, no servers")?;
    let shop = OwnShop::start(folder.path())?;
    let load = Load::start(&shop, folder.path(), wish.shoppers)?;
    let performed = stages::perform(&shop, &load, wish, &mut show);
    let told = load.stop();
    performed?;
    let told = told?;
    show.say(&format!(
        "the shoppers leave after {told}; everything they were told is looked up"
    ))?;
    let ledger = Ledger::read(folder.path())?;
    if wish.lose_one {
        let lost = shop.overwrite_one(&ledger)?;
        show.say(&format!("--lose-one: {lost}, and the ledger is not told"))?;
    }
    let verdict = Verdict::of(&ledger, &shop)?;
    shop.stop()?;
    show.verdict(&verdict)?;
    Ok(match verdict.holds() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXIT_WRONG),
    })
}
