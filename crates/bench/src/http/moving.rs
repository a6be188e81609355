//! `bench moves`, the part that shoppers feel: a move under load on schedule, throttled and not, and its cutover.
//!
//! One load runs from beginning to end; what is measured are stretches of it, each compared with one of the same load
//! just before the move. The load's own clock judges, the certificate of the move says where the time went.

mod place;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use self::place::Place;
use self::watch::{Watch, Watched};
use super::load::{self, Tally};
use super::shop::{Kind, Mix, Shop, Shoppers};
use super::{CONNECTIONS, PRODUCTS, caravan_beside, fill};
use crate::report::{Finding, Goal, median};

const THROTTLED_MOST: f64 = 1.5;
const STALL_TIMES_MOST: f64 = 10.0;
const STALL_MS_MOST: f64 = 100.0;
/// What the peers took on a machine of two cores.
const PEERS: &str = "gh-ost 1053-2052 ms, pt-online-schema-change 585-650 ms";

/// Of what the shop can answer: busy, and with room for a move.
const LOAD_SHARE: f64 = 0.3;
const OPEN_CONNECTIONS: u64 = 128;
/// No run takes longer.
const LOAD_MAX: Duration = Duration::from_secs(3_600);
/// A ceiling that nothing reaches: the copy is not held back.
const UNTHROTTLED: [&str; 2] = ["--p99-ms-max", "60000"];
/// Generous: what is judged is what shoppers felt. With the default a busy machine puts cutovers off for minutes, because
/// the forecast is made from what its disk took a moment ago.
const FREEZE: [&str; 2] = ["--freeze-ms-max", "4000"];
/// How often a cutover that was given up is asked for again.
const CUTOVERS_MAX: usize = 8;
/// What a stretch before has left behind.
const CALM: Duration = Duration::from_secs(3);

/// All about carts, which are moved. Orders would be parted from the stock that they are one commit with, and cost more
/// ever after: that is not what a copy or a cutover does to shoppers.
const MIX: Mix = &[
    (Kind::CartRead, 50),
    (Kind::CartWrite, 35),
    (Kind::ProductRead, 15),
];

#[derive(Clone, Copy, Debug)]
pub struct Size {
    carts: u64,
    mongo_carts: u64,
    rounds: usize,
    capacity: Duration,
    stretch: Duration,
    /// Around a cutover: short, so that whoever was held is among the slowest thousandth.
    cutover: Duration,
}

pub const FULL: Size = Size {
    carts: 500_000,
    mongo_carts: 20_000,
    rounds: 3,
    capacity: Duration::from_secs(5),
    stretch: Duration::from_secs(10),
    cutover: Duration::from_secs(2),
};
pub const QUICK: Size = Size {
    carts: 50_000,
    mongo_carts: 1_000,
    rounds: 1,
    capacity: Duration::from_secs(2),
    stretch: Duration::from_secs(3),
    cutover: Duration::from_secs(2),
};

pub fn run(size: Size, binary: Option<&Path>) -> anyhow::Result<Vec<Finding>> {
    let binary = binary.map_or_else(caravan_beside, |binary| Ok(binary.to_owned()))?;
    let folder = tempfile::tempdir_in(".").context("no room for the benchmark's data here")?;
    let mut findings = Vec::new();
    let embedded = Place::embedded(&binary, &folder.path().join("shop"))?;
    under_load(&embedded, size.carts, size, |stage| {
        findings.extend(stage.throttling()?);
        findings.extend(stage.cutovers("embedded")?);
        Ok(())
    })?;
    drop(embedded);
    let mongo = Place::mongo(&binary, folder.path())?;
    under_load(&mongo, size.mongo_carts, size, |stage| {
        findings.extend(stage.cutovers("MongoDB")?);
        Ok(())
    })?;
    Ok(findings)
}

/// A shop with so many carts, and shoppers in it, while `story` is told.
fn under_load(
    place: &Place,
    carts: u64,
    size: Size,
    story: impl FnOnce(&Stage<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut shop = Shop::empty(PRODUCTS, judge::together::run_number());
    fill::products(place.address(), &shop)?;
    shop.cart_ids = fill::carts(place.address(), &shop, carts)?;
    let callers = Shoppers::on_connections(&shop, MIX, CONNECTIONS);
    let (closed, _) = load::closed(place.address(), callers, Some(size.capacity))?;
    let rate = ((closed.rate() * LOAD_SHARE) as u64).max(1);
    eprintln!(
        "{carts} carts; {:.0} requests/s are answered, {rate}/s are asked",
        closed.rate()
    );
    let watch = Watch::default();
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let callers = Watched::on_connections(&shop, MIX, OPEN_CONNECTIONS, &watch);
        let (address, stopped) = (place.address(), stop.clone());
        let loading =
            scope.spawn(move || load::open_until(address, callers, rate, LOAD_MAX, &stopped));
        let told = story(&Stage {
            place,
            watch: &watch,
            size,
            rate,
        });
        stop.store(true, Ordering::Relaxed);
        let Ok(loaded) = loading.join() else {
            bail!("the load has panicked");
        };
        told?;
        let loaded = loaded?;
        for (what, count) in &loaded.answered.unexpected {
            eprintln!("unexpected, {count} times: {what}");
        }
        ensure!(
            loaded.unanswered == 0,
            "{} requests were never answered",
            loaded.unanswered
        );
        Ok(())
    })
}

struct Stage<'a> {
    place: &'a Place,
    watch: &'a Watch,
    size: Size,
    rate: u64,
}

/// What shoppers felt of one freeze.
#[derive(Debug)]
struct Freeze {
    calm_ms: f64,
    around_ms: f64,
    longest_ms: f64,
    held_ms: f64,
    held: u64,
}

impl Stage<'_> {
    /// The same move over and over, to a new shard each: throttled by what shoppers feel, and not at all.
    fn throttling(&self) -> anyhow::Result<Vec<Finding>> {
        let (mut throttled, mut control) = (Vec::new(), Vec::new());
        for round in 1..=self.size.rounds {
            eprintln!(
                "round {round} of {}: a throttled move, then one that is not",
                self.size.rounds
            );
            throttled.push(self.felt(&format!("throttled-{round}"), &[])?);
            control.push(self.felt(&format!("control-{round}"), &UNTHROTTLED)?);
        }
        let finding = |id: &str, felt: &[Felt], goal| {
            let column = |pick: fn(&Felt) -> f64| felt.iter().map(pick).collect::<Vec<f64>>();
            let notes = format!(
                "p99 {:.1} ms against {:.1} ms before, at {}/s; {:.0} records/s copied",
                median(&column(|felt| felt.during_ms)),
                median(&column(|felt| felt.before_ms)),
                self.rate,
                median(&column(|felt| felt.copied_per_second)),
            );
            Finding::of(
                id,
                &column(|felt| felt.during_ms / felt.before_ms),
                goal,
                notes,
            )
        };
        Ok(vec![
            finding(
                "shoppers' p99, throttled",
                &throttled,
                Goal::AtMost(THROTTLED_MOST),
            ),
            finding(
                "the control: not throttled",
                &control,
                Goal::AtLeast(THROTTLED_MOST),
            ),
        ])
    }

    fn felt(&self, name: &str, throttle: &[&str]) -> anyhow::Result<Felt> {
        let target = self.place.new_shard()?;
        std::thread::sleep(CALM);
        let before = self.stretch(self.size.stretch)?;
        self.place.start(name, &target, throttle)?;
        self.place
            .until(name, |status| status["phase"] == "backfilling")?;
        let during = self.stretch(self.size.stretch)?;
        let status = self.place.status(name)?;
        let copied = status["shown"]["records_copied"].as_f64().unwrap_or(0.0);
        if status["phase"] != "backfilling" {
            eprintln!(
                "  the copy ended before its stretch: it is {}",
                status["phase"]
            );
        }
        self.place.caravan(&["move", "abort", "--name", name])?;
        self.place.until(name, |status| status["ended"] == true)?;
        let felt = Felt {
            before_ms: before.quantile(0.99),
            during_ms: during.quantile(0.99),
            copied_per_second: copied / self.size.stretch.as_secs_f64(),
        };
        eprintln!("  {name}: {felt:.1?}, pacing {}", status["shown"]["pacing"]);
        Ok(felt)
    }

    fn cutovers(&self, engine: &str) -> anyhow::Result<Vec<Finding>> {
        let mut freezes = Vec::new();
        for round in 1..=self.size.rounds {
            let name = format!("moved-{round}");
            let target = self.place.new_shard()?;
            std::thread::sleep(CALM);
            let calm_ms = self.stretch(self.size.stretch)?.quantile(0.999);
            eprintln!(
                "round {round} of {}: a move on {engine}, its cutover, its rollback",
                self.size.rounds
            );
            let freely = [UNTHROTTLED, FREEZE].concat();
            self.place.start(&name, &target, &freely)?;
            freezes.push(self.cut(&name, "cutover", ("ready", "settling"), calm_ms)?);
            freezes.push(self.cut(&name, "rollback", ("settling", "rolled back"), calm_ms)?);
        }
        let column = |pick: fn(&Freeze) -> f64| freezes.iter().map(pick).collect::<Vec<f64>>();
        let held: u64 = freezes.iter().map(|freeze| freeze.held).sum();
        let notes = format!(
            "p99.9 {:.1} ms in the {:.0} s around it, longest {:.1} ms, against {:.1} ms without a move, at {}/s",
            median(&column(|freeze| freeze.around_ms)),
            self.size.cutover.as_secs_f64(),
            median(&column(|freeze| freeze.longest_ms)),
            median(&column(|freeze| freeze.calm_ms)),
            self.rate,
        );
        let ratios = column(|freeze| freeze.around_ms / freeze.calm_ms);
        Ok(vec![
            Finding::of(
                &format!("stall at cutover, {engine}"),
                &ratios,
                Goal::AtMost(STALL_TIMES_MOST),
                notes,
            ),
            Finding::of(
                &format!("held p99.9 {engine}, ms"),
                &column(|freeze| freeze.held_ms),
                Goal::AtMost(STALL_MS_MOST),
                format!("{held} requests held in {} freezes; {PEERS}", freezes.len()),
            ),
        ])
    }

    /// One cutover or rollback, asked for until it comes about.
    fn cut(
        &self,
        name: &str,
        wish: &str,
        (from, to): (&str, &str),
        calm_ms: f64,
    ) -> anyhow::Result<Freeze> {
        for _ in 0..CUTOVERS_MAX {
            let asked_from = |status: &Value| status["phase"] == from && status["wish"].is_null();
            self.place.until(name, asked_from)?;
            std::thread::sleep(CALM);
            self.watch.begin();
            self.place.caravan(&["move", wish, "--name", name])?;
            std::thread::sleep(self.size.cutover);
            let around = self.watch.end()?;
            let decided = |status: &Value| status["phase"] == to || status["wish"].is_null();
            let status = self.place.until(name, decided)?;
            if status["phase"] != to {
                eprintln!("  given up: {}", status["given_up"]);
                continue;
            }
            let certificate = self.place.certificate(name, wish)?;
            let (content, stall) = (
                &certificate["content"],
                &certificate["content"]["stall"]["all"],
            );
            let freeze = Freeze {
                calm_ms,
                around_ms: around.quantile(0.999),
                longest_ms: around.quantile(1.0),
                held_ms: stall["p999_us"].as_f64().unwrap_or(f64::NAN) / 1e3,
                held: stall["requests"].as_u64().unwrap_or(0),
            };
            eprintln!(
                "  {wish}: {freeze:.1?}, frozen {} ms, parts {}",
                content["freeze_ms"], content["freeze_parts"]
            );
            return Ok(freeze);
        }
        bail!("{name} does not come to {to}: {CUTOVERS_MAX} attempts were given up")
    }

    fn stretch(&self, length: Duration) -> anyhow::Result<Tally> {
        self.watch.begin();
        std::thread::sleep(length);
        self.watch.end()
    }
}

/// What shoppers felt of one copy.
#[derive(Debug)]
struct Felt {
    before_ms: f64,
    during_ms: f64,
    copied_per_second: f64,
}
