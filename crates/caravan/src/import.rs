//! `caravan import`: a catalogue from JSON lines, into a directory or a running shop.
//!
//! ```text
//!   file ─▶ every line checked ─▶ one is bad: nothing is written
//!                               └▶ all good:  every line written, many at a time
//! ```
//!
//! Standard input is copied to a file that has no name, because it is read twice.
//! Products are replaced and stock is what ever arrived, so that an import which
//! stopped half-way is completed by starting it again.

mod lines;

mod target;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use model::ProductId;
use tokio::task::JoinSet;

use crate::arguments::ImportArguments;
use crate::config::Config;
use crate::progress::Progress;
use crate::shards;
use lines::{Line, Lines, Offer};
use target::{Refusal, Target};

/// Bad lines that are told one by one; the rest is only counted.
const BAD_LINES_TOLD_MAX: usize = 20;

/// What to do with lines that cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bad {
    Refuse,
    Skip,
}

pub fn run(wish: &ImportArguments, out: &mut dyn Write) -> Result<()> {
    let config = Config::load(&wish.directory.settings())?;
    let bad = if wish.skip_bad {
        Bad::Skip
    } else {
        Bad::Refuse
    };
    let mut file = spooled(wish)?;
    let checked = check(&file, bad)?;
    file.rewind().map_err(|error| {
        anyhow!("the file cannot be read twice ({error}): give it as standard input")
    })?;
    let written = shards::runtime()?.block_on(async {
        let target = match &wish.to {
            Some(url) => Target::running(url)?,
            None => Target::offline(&config).await?,
        };
        let target = Arc::new(target);
        let written = write(&file, &checked, target.clone(), bad).await;
        if let Some(target) = Arc::into_inner(target) {
            target.leave().await;
        }
        written
    })?;
    let skipped = checked.bad.len() as u64 + written.refused;
    let note = match skipped {
        0 => String::new(),
        skipped => format!(", lines left out: {skipped}"),
    };
    writeln!(out, "products imported: {}{note}", written.products)?;
    Ok(())
}

/// What the first reading found.
#[derive(Debug)]
struct Checked {
    good: usize,
    /// The numbers of bad lines, rising.
    bad: Vec<u64>,
}

struct Written {
    products: u64,
    refused: u64,
}

/// The file; what can be read only once is copied to one.
fn spooled(wish: &ImportArguments) -> Result<File> {
    let named = wish.file.as_os_str() != "-";
    let unreadable = |error: io::Error| {
        let shown = wish.file.display();
        anyhow!(
            "{shown} cannot be read ({error}): name a file of JSON lines, or - for standard input"
        )
    };
    if !named {
        return spool(io::stdin().lock());
    }
    let file = File::open(&wish.file).map_err(unreadable)?;
    let kind = file.metadata().map_err(unreadable)?;
    if kind.is_dir() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    if kind.is_file() {
        Ok(file)
    } else {
        spool(file)
    }
}

fn spool(mut source: impl Read) -> Result<File> {
    let mut keep = || {
        let mut file = tempfile::tempfile()?;
        io::copy(&mut source, &mut file)?;
        file.rewind()?;
        Ok(file)
    };
    keep().map_err(|error: io::Error| {
        anyhow!("the input cannot be kept aside ({error}): make room where temporary files go")
    })
}

/// Reads all lines, and writes nothing.
fn check(file: &File, bad: Bad) -> Result<Checked> {
    let mut checked = Checked {
        good: 0,
        bad: Vec::new(),
    };
    let mut seen: HashMap<ProductId, u64> = HashMap::new();
    for line in Lines::of(BufReader::new(file)) {
        let Line { number, offer } = line?;
        let verdict = offer.and_then(|offer| match seen.entry(offer.product_id) {
            Entry::Vacant(free) => {
                free.insert(number);
                Ok(())
            }
            Entry::Occupied(taken) => Err(format!(
                "product {} stands in line {} already: keep one of them",
                taken.key(),
                taken.get()
            )),
        });
        match verdict {
            Ok(()) => checked.good += 1,
            Err(reason) => {
                if checked.bad.len() < BAD_LINES_TOLD_MAX {
                    eprintln!("line {number}: {reason}");
                }
                checked.bad.push(number);
            }
        }
    }
    let count = checked.bad.len();
    ensure!(
        count == 0 || bad == Bad::Skip,
        "{count} of {} lines cannot be taken, nothing was written: correct them, or leave them out with --skip-bad",
        count + checked.good
    );
    Ok(checked)
}

async fn write(file: &File, checked: &Checked, target: Arc<Target>, bad: Bad) -> Result<Written> {
    let mut writing = Writing {
        running: JoinSet::new(),
        progress: Progress::begin("importing", checked.good),
        bad,
        written: Written {
            products: 0,
            refused: 0,
        },
    };
    for line in Lines::of(BufReader::new(file)) {
        let Line { number, offer } = line?;
        if checked.bad.binary_search(&number).is_ok() {
            continue;
        }
        let offer = offer.map_err(|reason| {
            anyhow!("line {number} changed while it was read ({reason}): import again")
        })?;
        if writing.running.len() >= target.offers_at_once_max() {
            writing.finish_one().await?;
        }
        writing.spawn(number, offer, target.clone());
    }
    while !writing.running.is_empty() {
        writing.finish_one().await?;
    }
    writing.progress.finish();
    Ok(writing.written)
}

struct Writing {
    running: JoinSet<(u64, Result<(), Refusal>)>,
    progress: Progress,
    bad: Bad,
    written: Written,
}

impl Writing {
    fn spawn(&mut self, number: u64, offer: Offer, target: Arc<Target>) {
        self.running
            .spawn(async move { (number, target.take(offer).await) });
    }

    /// A shop that refuses one product goes on with the others if it may; one that
    /// does not answer will not answer for the next either.
    async fn finish_one(&mut self) -> Result<()> {
        let Some(finished) = self.running.join_next().await else {
            return Ok(());
        };
        let (number, taken) = finished.context("the import was cut short: start it again")?;
        match taken {
            Ok(()) => self.written.products += 1,
            Err(Refusal::OfThisLine(reason)) if self.bad == Bad::Skip => {
                if self.written.refused < BAD_LINES_TOLD_MAX as u64 {
                    eprintln!("line {number}: {reason}");
                }
                self.written.refused += 1;
            }
            Err(Refusal::OfThisLine(reason)) => bail!(
                "line {number} was refused ({reason}) after {} others were taken: correct it and import again, or leave it out with --skip-bad",
                self.written.products
            ),
            Err(Refusal::OfAll(reason)) => bail!(
                "{reason}, after {} lines were taken: import again when that is mended",
                self.written.products
            ),
        }
        self.progress.advance();
        Ok(())
    }
}
