//! `bench http`: the shop behind its HTTP interface against bare hyper, in one run, in turn.
//!
//! The shop is the real `caravan serve` in a process of its own; so are the baselines. Load, shop and baselines
//! share the machine, as many connections and the same bodies for all.

mod baseline;
pub mod disk;
mod fill;
mod load;
pub mod moving;
mod overload;
pub mod processes;
mod progress;
mod shop;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use judge::http::{Connection, write_request};
use judge::server::{ServerProcess, serve_command};

pub use baseline::serve as serve_baseline;
use load::{Caller, Tally};
pub use overload::{FULL as OVERLOAD_FULL, QUICK as OVERLOAD_QUICK, run as run_overload};
use shop::{Kind, Mix, SHOP_MIX, Shop, Shoppers};

use crate::report::{Finding, Goal, median};

const CONNECTIONS: u64 = 64;
const ROUNDS: usize = 5;
const PRODUCTS: u64 = 2_000;
/// More connections than measured with in the closed loop: a late answer must not keep the next request waiting.
const OPEN_CONNECTIONS: u64 = 256;
const OPEN_ORDERS_PER_SECOND: u64 = 10_000;
/// Answers of another kind than expected, beyond which no figure counts.
const UNEXPECTED_SHARE_MAX: f64 = 0.001;
const KEPT_SAMPLE: usize = 1_000;
const MEGABYTE: f64 = 1_000_000.0;

/// How much is measured, and on how much.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    carts: u64,
    orders: u64,
    round: Duration,
    open_loop: Duration,
    syncs: u64,
}

pub const FULL: Size = Size {
    carts: 1_000_000,
    orders: 1_000_000,
    round: Duration::from_secs(3),
    open_loop: Duration::from_secs(10),
    syncs: 2_000,
};
pub const QUICK: Size = Size {
    carts: 100_000,
    orders: 100_000,
    round: Duration::from_millis(500),
    open_loop: Duration::from_secs(2),
    syncs: 500,
};

pub fn run(size: Size, binary: Option<&Path>) -> anyhow::Result<Vec<Finding>> {
    let binary = binary.map_or_else(caravan_beside, |binary| Ok(binary.to_owned()))?;
    let folder = tempfile::tempdir_in(".").context("no room for the benchmark's data here")?;
    let data = folder.path().join("shop");
    let mut unexpected = Unexpected::default();
    eprintln!(
        "filling a shop with {} carts and {} orders, then kill -9",
        size.carts, size.orders
    );
    let (shop, mut findings) = filled_and_reopened(&binary, &data, size)?;
    let (server, shop) = shop;
    let baseline = ServerProcess::start(baseline_command()?)?;
    let bench = Bench {
        shop: &shop,
        caravan: server.address(),
        baseline: baseline.address(),
        log: folder.path().join("log"),
        size,
    };
    let mut ratios = bench.rounds(&mut unexpected)?;
    ratios.append(&mut findings);
    unexpected.judge()?;
    Ok(ratios)
}

/// The release build of the product lies in the same folder as this program.
fn caravan_beside() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("caravan");
    ensure!(
        path.is_file(),
        "{} is not there: cargo build --release --package caravan",
        path.display()
    );
    Ok(path)
}

fn baseline_command() -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("baseline");
    Ok(command)
}

/// G10: fills the shop, looks at disk and memory, kills the server and opens it again.
fn filled_and_reopened(
    binary: &Path,
    data: &Path,
    size: Size,
) -> anyhow::Result<((ServerProcess, Shop), Vec<Finding>)> {
    let server = ServerProcess::start(serve_command(binary, data))?;
    let mut shop = Shop::empty(PRODUCTS, judge::together::run_number());
    fill::products(server.address(), &shop)?;
    // Before the carts: the server lays files out in advance, so that a difference would say little.
    shop.order_ids = fill::orders(server.address(), &shop, size.orders)?;
    let of_orders = disk::directory_bytes(data)?;
    shop.cart_ids = fill::carts(server.address(), &shop, size.carts)?;
    let resident = disk::resident_bytes(server.id())?;

    server.kill()?;
    let begun = Instant::now();
    let server = ServerProcess::start(serve_command(binary, data))?;
    wait_until_ready(server.address())?;
    let opened = begun.elapsed();
    check_kept(server.address(), &shop)?;

    let per_order = of_orders as f64 / size.orders as f64;
    // The engine's own benchmark says what has to be written for an order of two lines, the average here too.
    let raw = crate::orders::OrderNumber(1).raw_bytes().len() as f64;
    let held = format!("{} carts and {} orders", size.carts, size.orders);
    let findings = vec![
        Finding::of(
            "G10 disk bytes per order",
            &[per_order / raw],
            Goal::AtMost(2.0),
            format!(
                "{per_order:.0} bytes against {raw:.0} of a raw append, {} orders",
                size.orders
            ),
        ),
        Finding::of(
            "G10 resident memory, MB",
            &[resident as f64 / MEGABYTE],
            Goal::AtMost(600.0),
            format!("with {held}"),
        ),
        Finding::of(
            "G10 open after kill -9, s",
            &[opened.as_secs_f64()],
            Goal::AtMost(3.0),
            format!("{held}, until ready; {KEPT_SAMPLE} orders looked up, none lost"),
        ),
    ];
    Ok(((server, shop), findings))
}

fn wait_until_ready(address: SocketAddr) -> anyhow::Result<()> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let ready = one_request(address, "/health/ready")?;
        match ready {
            200 => return Ok(()),
            503 if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            status => bail!("the server is not ready: {status}"),
        }
    }
}

fn one_request(address: SocketAddr, path: &str) -> anyhow::Result<u16> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut request = Vec::new();
        write_request(&mut request, "GET", path, &[], None);
        let mut connection = Connection::open(address).await?;
        Ok(connection.exchange(&request).await?.status)
    })
}

fn check_kept(address: SocketAddr, shop: &Shop) -> anyhow::Result<()> {
    let step = (shop.order_ids.len() / KEPT_SAMPLE).max(1);
    for id in shop.order_ids.iter().step_by(step) {
        let status = one_request(address, &format!("/v1/orders/{id}"))?;
        ensure!(
            status == 200,
            "order {id} was acknowledged and is lost: {status}"
        );
    }
    Ok(())
}

struct Bench<'a> {
    shop: &'a Shop,
    caravan: SocketAddr,
    baseline: SocketAddr,
    /// For measuring the disk alone.
    log: PathBuf,
    size: Size,
}

/// A claim against one of the two baselines.
struct Claim {
    id: &'static str,
    mix: Mix,
    against: Against,
    least: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Against {
    BareGet,
    ParseOnlyPost,
}

const CLAIMS: [Claim; 7] = [
    Claim::of_get("G1 GET active cart, hot", &[(Kind::HotCartRead, 1)], 0.70),
    Claim::of_get("G1 GET product page, hot", &[(Kind::ProductRead, 1)], 0.70),
    Claim::of_get("G2 GET order by id, random", &[(Kind::OrderRead, 1)], 0.45),
    Claim::of_get("G3 GET history, page of 10", &[(Kind::History, 1)], 0.25),
    Claim::of_get("G4 PUT cart item, durable", &[(Kind::CartWrite, 1)], 0.45),
    Claim {
        id: "G5 POST order, durable",
        mix: &[(Kind::Order, 1)],
        against: Against::ParseOnlyPost,
        least: 0.60,
    },
    Claim::of_get("G6 shop mix", SHOP_MIX, 0.50),
];

impl Claim {
    const fn of_get(id: &'static str, mix: Mix, least: f64) -> Claim {
        Claim {
            id,
            mix,
            against: Against::BareGet,
            least,
        }
    }
}

impl Bench<'_> {
    fn rounds(&self, unexpected: &mut Unexpected) -> anyhow::Result<Vec<Finding>> {
        let mut measured: Vec<Vec<(f64, f64, f64)>> = CLAIMS.iter().map(|_| Vec::new()).collect();
        let mut open = Vec::new();
        for round in 0..ROUNDS {
            eprintln!("round {} of {ROUNDS}: baselines, then the shop", round + 1);
            let get = self
                .closed(self.baseline, &[(Kind::CartRead, 1)], unexpected)?
                .rate();
            let post = self
                .closed(self.baseline, &[(Kind::Order, 1)], unexpected)?
                .rate();
            for (claim, measured) in CLAIMS.iter().zip(&mut measured) {
                let ours = self.closed(self.caravan, claim.mix, unexpected)?;
                let ceiling = match claim.against {
                    Against::BareGet => get,
                    Against::ParseOnlyPost => post,
                };
                measured.push((ours.rate(), ceiling, ours.quantile(0.99)));
            }
            open.push(self.open_loop(unexpected)?);
        }
        let mut findings: Vec<_> = CLAIMS.iter().zip(&measured).map(finding).collect();
        findings.push(open_finding(&open));
        Ok(findings)
    }

    fn closed(
        &self,
        address: SocketAddr,
        mix: Mix,
        unexpected: &mut Unexpected,
    ) -> anyhow::Result<Tally> {
        let callers = Shoppers::on_connections(self.shop, mix, CONNECTIONS);
        let (tally, _) = load::closed(address, callers, Some(self.size.round))?;
        unexpected.add(&tally);
        Ok(tally)
    }

    /// G8: p99 of an order on schedule and of one sync, both in milliseconds.
    fn open_loop(&self, unexpected: &mut Unexpected) -> anyhow::Result<OpenRound> {
        let sync_ms = disk::sync_p99_ms(&self.log, self.size.syncs)?;
        let mut on_schedule = |address| {
            let mix: Mix = &[(Kind::Order, 1)];
            let callers = Shoppers::on_connections(self.shop, mix, OPEN_CONNECTIONS);
            let open = load::open(
                address,
                callers,
                OPEN_ORDERS_PER_SECOND,
                self.size.open_loop,
            )?;
            unexpected.add(&open.answered);
            anyhow::Ok(open)
        };
        let floor = on_schedule(self.baseline)?;
        let open = on_schedule(self.caravan)?;
        Ok(OpenRound {
            order_ms: open.answered.quantile(0.99),
            sync_ms,
            floor_ms: floor.answered.quantile(0.99),
            unanswered: open.unanswered,
        })
    }
}

struct OpenRound {
    order_ms: f64,
    sync_ms: f64,
    /// What the machine, the load and HTTP take of it, with nothing done.
    floor_ms: f64,
    unanswered: u64,
}

fn finding((claim, measured): (&Claim, &Vec<(f64, f64, f64)>)) -> Finding {
    let column =
        |pick: fn(&(f64, f64, f64)) -> f64| -> Vec<f64> { measured.iter().map(pick).collect() };
    let baseline = match claim.against {
        Against::BareGet => "bare hyper GET",
        Against::ParseOnlyPost => "parse-only POST",
    };
    let notes = format!(
        "{:.0}/s against {:.0}/s of {baseline}; p99 {:.1} ms",
        median(&column(|round| round.0)),
        median(&column(|round| round.1)),
        median(&column(|round| round.2)),
    );
    let ratios = column(|round| round.0 / round.1);
    Finding::of(claim.id, &ratios, Goal::AtLeast(claim.least), notes)
}

fn open_finding(rounds: &[OpenRound]) -> Finding {
    let column = |pick: fn(&OpenRound) -> f64| -> Vec<f64> { rounds.iter().map(pick).collect() };
    let unanswered: u64 = rounds.iter().map(|round| round.unanswered).sum();
    let late = if unanswered == 0 {
        String::new()
    } else {
        format!("; {unanswered} never answered in time")
    };
    let notes = format!(
        "p99 {:.2} ms at {OPEN_ORDERS_PER_SECOND} orders/s against {:.2} ms of one fdatasync; parse-only POST {:.2} ms{late}",
        median(&column(|round| round.order_ms)),
        median(&column(|round| round.sync_ms)),
        median(&column(|round| round.floor_ms)),
    );
    let ratios = column(|round| round.order_ms / round.sync_ms);
    Finding::of(
        "G8 orders on schedule, p99",
        &ratios,
        Goal::AtMost(15.0),
        notes,
    )
}

/// Answers of another kind than expected: a fast refusal must not pass for a fast shop.
#[derive(Debug, Default)]
struct Unexpected {
    total: Option<Tally>,
}

impl Unexpected {
    fn add(&mut self, tally: &Tally) {
        match &mut self.total {
            Some(total) => total.add(tally),
            None => {
                let mut total = Tally::new();
                total.add(tally);
                self.total = Some(total);
            }
        }
    }

    fn judge(&self) -> anyhow::Result<()> {
        let Some(total) = &self.total else {
            return Ok(());
        };
        let share = total.unexpected_count() as f64 / total.answers.max(1) as f64;
        for (what, count) in &total.unexpected {
            eprintln!("unexpected, {count} times: {what}");
        }
        ensure!(
            share <= UNEXPECTED_SHARE_MAX,
            "{:.2} % of the answers were unexpected, see above: the figures do not count",
            share * 100.0
        );
        Ok(())
    }
}

/// `bench ceilings`: the baselines alone, to know a machine before measuring a shop on it.
pub fn print_ceilings(size: Size) -> anyhow::Result<()> {
    let baseline = ServerProcess::start(baseline_command()?)?;
    let mut shop = Shop::empty(PRODUCTS, judge::together::run_number());
    // Paths and bodies need a user; the baseline looks at neither.
    shop.cart_ids = vec!["c-0".into()];
    let mut unexpected = Unexpected::default();
    let ceilings: [(&str, Mix); 2] = [
        ("bare hyper GET", &[(Kind::CartRead, 1)]),
        ("parse-only POST", &[(Kind::Order, 1)]),
    ];
    for (name, mix) in ceilings {
        let callers = Shoppers::on_connections(&shop, mix, CONNECTIONS);
        let (tally, _) = load::closed(baseline.address(), callers, Some(size.round))?;
        unexpected.add(&tally);
        let (rate, p99) = (tally.rate(), tally.quantile(0.99));
        println!("{name:<16} {rate:>8.0}/s, p99 {p99:.2} ms");
    }
    let (callers, rate) = (
        Shoppers::on_connections(&shop, ceilings[1].1, OPEN_CONNECTIONS),
        OPEN_ORDERS_PER_SECOND,
    );
    let open = load::open(baseline.address(), callers, rate, size.round)?;
    unexpected.add(&open.answered);
    let [p50, p99] = [0.5, 0.99].map(|quantile| open.answered.quantile(quantile));
    println!(
        "{:<16} {rate:>8}/s on schedule, p50 {p50:.2} ms, p99 {p99:.2} ms",
        "parse-only POST"
    );
    unexpected.judge()
}

#[derive(Debug, Args)]
pub struct LoadArguments {
    /// Where a shop listens, such as 127.0.0.1:8080; it is filled with a small catalogue first
    #[arg(long)]
    address: SocketAddr,
    /// Requests a second on schedule; as many as are answered when left out
    #[arg(long)]
    rate: Option<u64>,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    #[arg(long, default_value = "shop")]
    mix: MixName,
    #[arg(long, default_value_t = CONNECTIONS)]
    connections: u64,
    /// Users with a cart, and as many orders
    #[arg(long, default_value_t = 10_000)]
    users: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MixName {
    /// 70 % cart reads, 15 % order reads, 5 % history, 8 % cart writes, 2 % orders
    Shop,
    Carts,
    CartWrites,
    Orders,
    Products,
}

/// `bench load`: puts load on a running shop and prints what its shoppers see.
pub fn put_load(arguments: &LoadArguments) -> anyhow::Result<()> {
    ensure!(
        arguments.users > 0 && arguments.connections > 0,
        "users and connections begin at 1"
    );
    let mix: Mix = match arguments.mix {
        MixName::Shop => SHOP_MIX,
        MixName::Carts => &[(Kind::CartRead, 1)],
        MixName::CartWrites => &[(Kind::CartWrite, 1)],
        MixName::Orders => &[(Kind::Order, 1)],
        MixName::Products => &[(Kind::ProductRead, 1)],
    };
    let mut shop = Shop::empty(PRODUCTS, judge::together::run_number());
    fill::products(arguments.address, &shop)?;
    shop.cart_ids = fill::carts(arguments.address, &shop, arguments.users)?;
    shop.order_ids = fill::orders(arguments.address, &shop, arguments.users)?;
    let callers = Shoppers::on_connections(&shop, mix, arguments.connections);
    let length = Duration::from_secs(arguments.seconds);
    let tally = drive(arguments, callers, length)?;
    let mut unexpected = Unexpected::default();
    unexpected.add(&tally);
    println!("{:>12} {:.0}/s", "answers", tally.rate());
    for (name, quantile) in [
        ("p50", 0.5),
        ("p90", 0.9),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("most", 1.0),
    ] {
        println!("{name:>12} {:.2} ms", tally.quantile(quantile));
    }
    unexpected.judge()
}

fn drive<C: Caller>(
    arguments: &LoadArguments,
    callers: Vec<C>,
    length: Duration,
) -> anyhow::Result<Tally> {
    let Some(rate) = arguments.rate else {
        return Ok(load::closed(arguments.address, callers, Some(length))?.0);
    };
    let open = load::open(arguments.address, callers, rate, length)?;
    if open.unanswered > 0 {
        println!("{:>12} {}", "unanswered", open.unanswered);
    }
    Ok(open.answered)
}
