//! The demo on a screen: a picture drawn anew on a terminal; elsewhere a line per event and the picture when a stage
//! is over.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use anyhow::Result;
use serde_json::Value;

use super::shop::{OwnShop, shards};
use super::shoppers::{Figures, Load};
use super::stages::phase_of;
use super::verdict::Verdict;
use crate::canvas::Canvas;
use crate::ops::Seen;
use crate::text::{bar, spark_line};

const BAR_CELLS: usize = 16;
/// Looks in the small picture of the load.
const LOOKS_SHOWN: usize = 32;

/// The collections that move; more would be wider than a terminal.
const SHOWN: [&str; 2] = ["carts", "orders"];

pub struct Show<'a> {
    out: &'a mut dyn Write,
    began: Instant,
    looked: Instant,
    /// `None`: there is no terminal.
    canvas: Option<Canvas>,
    picture: String,
    loads: Vec<u64>,
    worst_p99_ms: f64,
    phases: Vec<(String, &'static str)>,
}

impl<'a> Show<'a> {
    pub fn begin(out: &'a mut dyn Write) -> Show<'a> {
        let now = Instant::now();
        Show {
            out,
            began: now,
            looked: now,
            canvas: io::stdout().is_terminal().then(Canvas::default),
            picture: String::new(),
            loads: Vec::new(),
            worst_p99_ms: 0.0,
            phases: Vec::new(),
        }
    }

    /// Something has happened.
    pub fn say(&mut self, what: &str) -> Result<()> {
        self.wipe()?;
        let seconds = self.began.elapsed().as_secs_f64();
        writeln!(self.out, "{seconds:6.1} s  {what}")?;
        self.redraw()
    }

    /// Looks at shop, load and moves; tells what is new.
    pub fn look(&mut self, shop: &OwnShop, load: &Load, moves: &[Seen]) -> Result<()> {
        let figures = load.figures(self.looked.elapsed());
        self.looked = Instant::now();
        self.loads.push(figures.per_s);
        let surplus = self.loads.len().saturating_sub(LOOKS_SHOWN);
        self.loads.drain(..surplus);
        self.worst_p99_ms = self.worst_p99_ms.max(figures.p99_ms);
        for seen in moves {
            self.tell_phase(seen)?;
        }
        self.picture = self.paint(&shards(&shop.ops)?, figures, moves);
        self.redraw()
    }

    /// Where there is no terminal, the picture is shown when a stage is over.
    pub fn sum_up(&mut self) -> Result<()> {
        if self.canvas.is_none() {
            write!(self.out, "{}", self.picture)?;
            self.out.flush()?;
        }
        Ok(())
    }

    pub fn verdict(&mut self, verdict: &Verdict) -> Result<()> {
        self.wipe()?;
        let Verdict {
            cart_changes,
            orders,
            lost,
            doubled,
            wrong,
            findings,
        } = verdict;
        let sentence = match verdict.holds() {
            true => "nothing acknowledged was lost",
            false => "THE SHOP DID NOT KEEP ITS WORD",
        };
        writeln!(
            self.out,
            "\nverdict, from the shoppers' own ledger after {:.0} s: {sentence}",
            self.began.elapsed().as_secs_f64()
        )?;
        let all = cart_changes + orders;
        writeln!(
            self.out,
            "  acknowledged  {all} ({cart_changes} changes of carts, {orders} orders)"
        )?;
        writeln!(self.out, "  lost          {lost}")?;
        writeln!(self.out, "  doubled       {doubled}")?;
        writeln!(self.out, "  wrong         {wrong}")?;
        writeln!(
            self.out,
            "  slowest look  p99 of {:.1} ms",
            self.worst_p99_ms
        )?;
        for finding in findings {
            writeln!(self.out, "  {finding}")?;
        }
        Ok(())
    }

    fn tell_phase(&mut self, seen: &Seen) -> Result<()> {
        let (name, phase) = (seen.name.to_string(), phase_of(seen));
        let known = self.phases.iter_mut().find(|(known, _)| *known == name);
        match known {
            Some((_, known)) if *known == phase => return Ok(()),
            Some((_, known)) => *known = phase,
            None => self.phases.push((name.clone(), phase)),
        }
        let copied = seen
            .record
            .as_ref()
            .map(|record| record.state.shown.records_copied);
        let copied = copied.filter(|copied| *copied > 0);
        let copied = copied.map_or(String::new(), |copied| format!(", {copied} records copied"));
        self.say(&format!("  {name}: {phase}{copied}"))
    }

    fn paint(&self, shards: &Value, figures: Figures, moves: &[Seen]) -> String {
        let mut text = String::new();
        for shard in shards.as_array().into_iter().flatten() {
            let name = shard["shard"].as_str().unwrap_or_default();
            let cells = SHOWN.map(|collection| {
                let slots = slots_of(&shard["keys"][collection]);
                format!("{collection} {} {slots:4}", bar(slots, SLOTS, BAR_CELLS))
            });
            text += &format!("          {name}  {}\n", cells.join("  "));
        }
        let Figures { per_s, p99_ms } = figures;
        let loads = spark_line(&self.loads);
        text += &format!("          {per_s:5} requests/s {loads}  p99 {p99_ms:.1} ms\n");
        for seen in moves {
            if let Some(record) = &seen.record {
                let shown = &record.state.shown;
                text += &format!(
                    "          {}: {}, {} copied, lag {} entries\n",
                    seen.name,
                    phase_of(seen),
                    shown.records_copied,
                    shown.lag_entries
                );
            }
        }
        text
    }

    fn wipe(&mut self) -> Result<()> {
        if let Some(canvas) = &mut self.canvas {
            canvas.wipe(self.out)?;
        }
        Ok(())
    }

    fn redraw(&mut self) -> Result<()> {
        if let Some(canvas) = &mut self.canvas {
            canvas.draw(&self.picture, self.out)?;
        }
        Ok(self.out.flush()?)
    }
}

const SLOTS: u64 = layout::SLOT_COUNT as u64;

/// How many slots are in pieces as `slots 0-2047`.
fn slots_of(pieces: &Value) -> u64 {
    let pieces = pieces.as_array().into_iter().flatten();
    let count = |piece: &Value| {
        let (first, last) = piece.as_str()?.strip_prefix("slots ")?.split_once('-')?;
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Some(last + 1 - first)
    };
    pieces.filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn slots_are_counted_from_what_the_shop_tells() {
        assert_eq!(
            slots_of(&json!(["slots 0-2047", "slots 4095-4095", "pinned x"])),
            2049
        );
        assert_eq!(slots_of(&Value::Null), 0);
    }
}
