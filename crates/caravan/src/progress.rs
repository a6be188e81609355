//! Progress of work that takes longer than a glance: a bar on a terminal, plain
//! lines elsewhere, nothing at all for what is over sooner. On standard error,
//! so that results on standard output stay clean.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Shorter work shows no progress; plain lines are this far apart.
const GLANCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    /// `None`: nobody knows how much there is.
    total: Option<u64>,
    done: u64,
    shown_at: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn begin(what: &'static str, total: usize) -> Progress {
        let total = u64::try_from(total).unwrap_or(u64::MAX);
        Progress {
            total: Some(total),
            ..Progress::counting(what)
        }
    }

    /// Of work that ends when it ends.
    pub fn counting(what: &'static str) -> Progress {
        Progress {
            what,
            total: None,
            done: 0,
            shown_at: Instant::now(),
            bar: None,
        }
    }

    pub fn advance(&mut self) {
        self.go_to(self.done + 1, "");
    }

    /// So much is done, and this is what it is at.
    pub fn reach(&mut self, done: u64, at: &str) {
        self.go_to(done, at);
    }

    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    fn go_to(&mut self, done: u64, at: &str) {
        self.done = done;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
            if !at.is_empty() {
                bar.set_message(format!("{} {at}", self.what));
            }
        } else if self.shown_at.elapsed() >= GLANCE {
            self.shown_at = Instant::now();
            self.show(at);
        }
    }

    fn show(&mut self, at: &str) {
        let Progress {
            what, done, total, ..
        } = *self;
        if !std::io::stderr().is_terminal() {
            match total {
                Some(total) => eprintln!("{what}: {done} of {total}"),
                None => eprintln!("{what} {at}: {done} so far"),
            }
            return;
        }
        let template = match total {
            Some(_) => "{msg} {bar:30} {pos}/{len} {eta}",
            None => "{spinner} {msg}: {pos} so far, {elapsed}",
        };
        let style = ProgressStyle::with_template(template)
            .expect("the templates are literals that indicatif accepts");
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        let bar = bar.with_style(style).with_message(what);
        bar.set_position(done);
        self.bar = Some(bar);
    }
}
