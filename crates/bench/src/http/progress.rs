//! Progress of work that takes longer than a glance: a bar on a terminal, plain lines elsewhere. On standard
//! error, so that the table on standard output stays clean.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Shorter work shows no progress; plain lines are this far apart.
const GLANCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    total: u64,
    shown_at: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn begin(what: &'static str, total: u64) -> Progress {
        Progress {
            what,
            total,
            shown_at: Instant::now(),
            bar: None,
        }
    }

    pub fn reach(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        } else if self.shown_at.elapsed() >= GLANCE {
            self.shown_at = Instant::now();
            self.show(done);
        }
    }

    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    fn show(&mut self, done: u64) {
        let Progress { what, total, .. } = *self;
        if !std::io::stderr().is_terminal() {
            eprintln!("{what}: {done} of {total}");
            return;
        }
        let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {eta}")
            .expect("the template is a literal that indicatif accepts");
        let bar = ProgressBar::new(total).with_style(style).with_message(what);
        bar.set_position(done);
        self.bar = Some(bar);
    }
}
