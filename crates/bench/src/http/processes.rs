//! `bench processes`: a second process over the same servers, and what lease and admission cost a request.
//!
//! Both costs are far below what two runs of this machine differ by. They are taken where nothing else is: the same
//! router over an engine in memory, with a lease and without, in turn; the admission alone. Then they are set against
//! the time that a request takes: one through the real servers for the lease, which the embedded engine has not, and
//! the fastest there is, a hot product on the embedded engine, for the admission.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use engine_api::memory::MemoryEngine;
use engine_api::{Engine, RealWorld, Revision, Writer};
use http_api::{Admission, Class, HttpLimits};
use judge::server::{ServerProcess, serve_command};
use layout::{Collection, Field};
use router::{
    CollectionMap, Limits, Map, MapKeeper, MapView, ProcessName, Router, RouterConfig, ShardName,
};
use testbed::{CassandraCluster, Members, MongoSet, Nodes};

use super::load::{self, Tally};
use super::shop::{Kind, Mix, SHOP_MIX, Shop, Shoppers};
use super::{CONNECTIONS, ROUNDS, Unexpected, caravan_beside, fill, wait_until_ready};
use crate::orders::OrderNumber;
use crate::report::{Finding, Goal, median};

const LAYOUT: &str = include_str!("../../../../layouts/hybrid.toml");
const PRODUCTS: u64 = 100;
const USERS: u64 = 500;

/// Two processes on one machine share its cores with the servers: they must not be slower than one.
const TWO_OVER_ONE_MIN: f64 = 0.9;
const SHARE_MAX: f64 = 0.03;

#[derive(Clone, Copy, Debug)]
pub struct Size {
    round: Duration,
    warm_up: Duration,
    /// Reads and writes of one round through the router in memory.
    calls: u64,
}

pub const FULL: Size = Size {
    round: Duration::from_secs(5),
    warm_up: Duration::from_secs(15),
    calls: 100_000,
};
pub const QUICK: Size = Size {
    round: Duration::from_millis(500),
    warm_up: Duration::from_millis(500),
    calls: 5_000,
};

pub fn run(size: Size) -> anyhow::Result<Vec<Finding>> {
    let (two_over_one, request_us) = processes(size)?;
    Ok(vec![
        two_over_one,
        lease(size, request_us)?,
        admission(size)?,
    ])
}

/// Also how long a request takes, in microseconds of the whole machine.
fn processes(size: Size) -> anyhow::Result<(Finding, f64)> {
    let folder = tempfile::tempdir()?;
    let place = Place::start(folder.path())?;
    let one = ServerProcess::start(place.command("one")?)?;
    let two = ServerProcess::start(place.command("two")?)?;
    wait_until_ready(one.address())?;
    wait_until_ready(two.address())?;
    let mut shop = Shop::empty(PRODUCTS, judge::together::run_number());
    fill::products(one.address(), &shop)?;
    shop.cart_ids = fill::carts(one.address(), &shop, USERS)?;
    shop.order_ids = fill::orders(one.address(), &shop, USERS)?;
    let (alone, both) = ([one.address()], [one.address(), two.address()]);
    let mut unexpected = Unexpected::default();
    drive(&shop, &both, size.warm_up, &mut unexpected)?;
    let (mut ones, mut twos) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}: one process, then two");
        ones.push(drive(&shop, &alone, size.round, &mut unexpected)?);
        twos.push(drive(&shop, &both, size.round, &mut unexpected)?);
    }
    unexpected.judge()?;
    let ratios: Vec<f64> = twos.iter().zip(&ones).map(|(two, one)| two / one).collect();
    let (one, two) = (median(&ones), median(&twos));
    let notes = format!("{two:.0}/s against {one:.0}/s of one process, shop mix, layout hybrid");
    let goal = Goal::AtLeast(TWO_OVER_ONE_MIN);
    let finding = Finding::of("two processes over one", &ratios, goal, notes);
    Ok((finding, 1e6 / one))
}

/// Answers a second, from as many connections whatever the number of processes.
fn drive(
    shop: &Shop,
    addresses: &[SocketAddr],
    length: Duration,
    unexpected: &mut Unexpected,
) -> anyhow::Result<f64> {
    let share = CONNECTIONS / addresses.len() as u64;
    let tallies: anyhow::Result<Vec<Tally>> = std::thread::scope(|scope| {
        let drivers: Vec<_> = addresses
            .iter()
            .map(|address| {
                let callers = Shoppers::on_connections(shop, SHOP_MIX, share);
                scope.spawn(move || load::closed(*address, callers, Some(length)))
            })
            .collect();
        let joined = drivers.into_iter().map(|driver| driver.join());
        joined
            .map(|ran| match ran {
                Ok(ran) => ran.map(|(tally, _)| tally),
                Err(_) => bail!("a thread of the load has panicked"),
            })
            .collect()
    });
    let tallies = tallies?;
    tallies.iter().for_each(|tally| unexpected.add(tally));
    Ok(tallies.iter().map(Tally::rate).sum())
}

/// The layout `hybrid` on servers of the testbed.
struct Place {
    _mongo: MongoSet,
    _cassandra: CassandraCluster,
    arguments: Vec<String>,
}

impl Place {
    fn start(folder: &Path) -> anyhow::Result<Place> {
        let mongo = testbed::mongo(Members::One).map_err(|error| anyhow!("{error}"))?;
        let cassandra = testbed::cassandra(Nodes::One).map_err(|error| anyhow!("{error}"))?;
        let own = format!("keyspace = \"{}\"", cassandra.keyspace("bench"));
        let file = folder.join("hybrid.toml");
        std::fs::write(&file, LAYOUT.replace("keyspace = \"shop\"", &own))?;
        let point = cassandra.contact_points()[0];
        let arguments = vec![
            "--layout".to_owned(),
            file.display().to_string(),
            "--address".to_owned(),
            format!("mongo={}", mongo.uri()),
            "--address".to_owned(),
            format!("cassandra={point}/?replication=datacenter1:1"),
        ];
        Ok(Place {
            _mongo: mongo,
            _cassandra: cassandra,
            arguments,
        })
    }

    fn command(&self, name: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(caravan_beside()?);
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        command.args(["--set", &format!("process={name}")]);
        command.args(&self.arguments);
        Ok(command)
    }
}

fn lease(size: Size, request_us: f64) -> anyhow::Result<Finding> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let plain = routed(MapView::ThisProcess).await?;
        let process = ProcessName::new("bench")?;
        let leased = routed(MapView::Lease { process }).await?;
        let keeping = tokio::spawn({
            let leased = leased.clone();
            async move { leased.keep_lease().await }
        });
        let mut costs = Vec::new();
        for round in 1..=ROUNDS {
            eprintln!("round {round} of {ROUNDS}: without a lease, then with one");
            let without = call_us(&plain, round as u64, size.calls).await?;
            let with = call_us(&leased, round as u64, size.calls).await?;
            costs.push(with - without);
        }
        keeping.abort();
        let shares: Vec<f64> = costs.iter().map(|cost| cost / request_us).collect();
        let cost_us = median(&costs);
        let notes = format!(
            "{cost_us:.2} µs more a call of the router, against {request_us:.0} µs a request through the servers"
        );
        let goal = Goal::AtMost(SHARE_MAX);
        Ok(Finding::of("lease, share of a request", &shares, goal, notes))
    })
}

fn admission(size: Size) -> anyhow::Result<Finding> {
    let folder = tempfile::tempdir()?;
    let server = ServerProcess::start(serve_command(&caravan_beside()?, folder.path()))?;
    wait_until_ready(server.address())?;
    let shop = Shop::empty(PRODUCTS, judge::together::run_number());
    fill::products(server.address(), &shop)?;
    let admission = Admission::new(&HttpLimits::default());
    let mut unexpected = Unexpected::default();
    let (mut shares, mut costs, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}: a hot product, then the admission alone");
        let hot: Mix = &[(Kind::ProductRead, 1)];
        let callers = Shoppers::on_connections(&shop, hot, CONNECTIONS);
        let (tally, _) = load::closed(server.address(), callers, Some(size.round))?;
        unexpected.add(&tally);
        let request_us = 1e6 / tally.rate();
        let begun = Instant::now();
        for _ in 0..size.calls {
            if std::hint::black_box(&admission)
                .enter(Class::Browsing)
                .is_err()
            {
                bail!("one request alone is refused");
            }
            admission.leave();
        }
        let cost_us = begun.elapsed().as_secs_f64() * 1e6 / size.calls as f64;
        shares.push(cost_us / request_us);
        costs.push(cost_us);
        requests.push(request_us);
    }
    unexpected.judge()?;
    let (cost_us, request_us) = (median(&costs), median(&requests));
    let notes =
        format!("{cost_us:.3} µs of {request_us:.0} µs, a hot product on the embedded engine");
    let goal = Goal::AtMost(SHARE_MAX);
    Ok(Finding::of(
        "admission, share of a request",
        &shares,
        goal,
        notes,
    ))
}

async fn routed(map_view: MapView) -> anyhow::Result<Arc<Router>> {
    let engine = Arc::new(MemoryEngine::new());
    let shard = ShardName::new("memory")?;
    let orders = CollectionMap::on_one_shard("bench", vec![Field::UserId], shard.clone());
    let map = Map::first(BTreeMap::from([(Collection::Orders, orders)]));
    MapKeeper::new(engine.clone()).publish(&map).await?;
    let router = Router::open(RouterConfig {
        shards: BTreeMap::from([(shard, engine.clone() as Arc<dyn Engine>)]),
        control: engine,
        world: Arc::new(RealWorld::new()),
        writer: Writer::numbered(0),
        limits: Limits::default(),
        map_view,
    });
    Ok(router.await?)
}

/// Microseconds that one call takes, half of them creations and half of them reads.
async fn call_us(router: &Router, round: u64, calls: u64) -> anyhow::Result<f64> {
    let begun = Instant::now();
    for number in 0..calls / 2 {
        let order = OrderNumber(round * calls + number);
        router.write(order.creation(), Revision::ZERO).await?;
        if router.get(&order.key()).await?.is_none() {
            bail!("an order that was just created is not there");
        }
        // The lease is renewed beside it.
        tokio::task::consume_budget().await;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / calls as f64)
}
