//! Progress of work that takes longer than a glance: a bar on a terminal, plain lines elsewhere.
//! Both go to standard error, so that tables on standard output stay clean.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const TICK_MS: u64 = 200;

#[derive(Debug)]
pub enum Progress {
    Bar(ProgressBar),
    Lines { done: u64, total: u64 },
}

impl Progress {
    pub fn begin(total: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines { done: 0, total };
        }
        let bar = ProgressBar::new(total);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}")
            .expect("the template is a literal that indicatif accepts");
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(TICK_MS));
        Self::Bar(bar)
    }

    /// Says what is being done now; the piece counts when `done` is called.
    pub fn working_on(&self, what: &str) {
        match self {
            Self::Bar(bar) => bar.set_message(what.to_owned()),
            Self::Lines { done, total } => eprintln!("{} of {total}: {what}", done + 1),
        }
    }

    /// What came of the piece that is being done, for whoever reads along.
    pub fn tell(&self, what: &str) {
        match self {
            Self::Bar(bar) => bar.println(what),
            Self::Lines { .. } => eprintln!("    {what}"),
        }
    }

    pub fn done(&mut self) {
        match self {
            Self::Bar(bar) => bar.inc(1),
            Self::Lines { done, .. } => *done += 1,
        }
    }

    pub fn finish(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
