//! `mongo-sharded` over as many replica sets as a story needs, two processes, and the real command line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use engine_api::ControlStore;
use engine_mongo::{MongoConfig, MongoEngine};
use judge::server::ServerProcess;
use layout::{Collection, Layout, SLOT_COUNT};
use router::{Cut, Map, MapKeeper, ShardName};
use serde_json::{Value, json};
use testbed::{Members, MongoSet, required_or_skip};

use crate::support::{self, is_one_sentence};

/// How long one step of a move may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(240);
const PAUSE: Duration = Duration::from_millis(200);
/// Generous: what is judged here is the outcome, on whatever machine.
pub const FREEZE_MS_MAX: &str = "8000";

const SETTINGS: [&str; 4] = [
    "shop.sweep_after_s=10",
    "router.lease_ms=5000",
    "router.lease_renew_ms=300",
    "router.lease_look_ms=20",
];

const OWN_PRODUCT: &str = "own-1";

/// Servers that are not the first one.
const LABELS: [&str; 3] = ["second", "third", "fourth"];

pub struct Place {
    sets: Vec<MongoSet>,
    folder: tempfile::TempDir,
    database: String,
    where_it_is: Vec<String>,
    pub members: Vec<(SocketAddr, Option<ServerProcess>)>,
    began: Instant,
}

impl Place {
    /// The layout has so many shards; there are servers for more.
    pub fn start(shards: usize, servers: usize, processes: usize) -> Option<Place> {
        let mut sets = vec![required_or_skip(testbed::mongo(Members::One), "MongoDB")?];
        for label in LABELS.iter().take(servers - 1) {
            let label = label.parse().unwrap();
            let set = testbed::mongo_labelled(Members::One, &label);
            sets.push(required_or_skip(set, "MongoDB")?);
        }
        let folder = tempfile::tempdir().unwrap();
        let database = sets[0].database("scopes");
        let mut where_it_is = vec![
            "--layout".to_owned(),
            own_layout(folder.path(), &database, shards),
        ];
        for (number, set) in (1..=shards).zip(&sets) {
            where_it_is.push("--address".to_owned());
            where_it_is.push(format!("shard-{number}={}", set.uri()));
        }
        let mut place = Place {
            sets,
            folder,
            database,
            where_it_is,
            members: Vec::new(),
            began: Instant::now(),
        };
        for number in 0..processes {
            let any = "127.0.0.1:0".parse().unwrap();
            let process = ServerProcess::start(place.serving(number, any)).unwrap();
            place.members.push((process.address(), Some(process)));
        }
        Some(place)
    }

    fn serving(&self, number: usize, listen: SocketAddr) -> Command {
        let mut command = support::command(self.folder.path());
        command.env(support::UNHURRIED.0, support::UNHURRIED.1);
        command.args(["serve", "--listen", &listen.to_string()]);
        command.args(["--set", &format!("process=member-{number}")]);
        for setting in SETTINGS {
            command.args(["--set", setting]);
        }
        command.args(&self.where_it_is);
        command
    }

    pub fn restart(&mut self) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            self.members[number].1 = None;
            let address = self.members[number].0;
            let process = ServerProcess::start(self.serving(number, address))?;
            self.members[number].1 = Some(process);
        }
        Ok(())
    }

    /// Nobody serves any more; what was under way is given up.
    pub fn end(&mut self) {
        for (_, process) in &mut self.members {
            *process = None;
        }
    }

    /// The place of the shard of that number, as `shard add` wants it.
    pub fn address(&self, number: usize) -> String {
        format!("shard-{number}={}", self.sets[number - 1].uri())
    }

    pub fn say(&self, what: &str) {
        println!("{:6.1} s: {what}", self.began.elapsed().as_secs_f64());
    }

    /// What the command line answers, whatever it is.
    pub fn caravan(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = support::command(self.folder.path());
        Ok(command.args(arguments).args(&self.where_it_is).output()?)
    }

    pub fn succeeds(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.caravan(arguments)?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {complaint}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// One sentence, and map, moves, shards and records are byte for byte what they were.
    pub fn is_refused(&self, arguments: &[&str], what: &str, remedy: &str) -> anyhow::Result<()> {
        let before = self.stored()?;
        is_one_sentence(&self.caravan(arguments)?, what, remedy);
        ensure!(self.stored()? == before, "{arguments:?} changed something");
        Ok(())
    }

    /// What stands in the control store: the map, the list of moves, the shards. And while nobody serves the record of each
    /// move, which its holder changes all the time.
    fn stored(&self) -> anyhow::Result<BTreeMap<String, Option<Vec<u8>>>> {
        let mut names = vec!["map".to_owned(), "moves".to_owned(), "shards".to_owned()];
        let serves = self.members.iter().any(|(_, process)| process.is_some());
        block_on(async {
            let control = self.control().await?;
            if !serves {
                let moves = mover::list(control.as_ref()).await?;
                names.extend(moves.iter().map(|(name, _)| format!("move-{name}")));
            }
            let mut stored = BTreeMap::new();
            for name in names {
                let value = control.control_get(&name).await?;
                stored.insert(name, value.map(|value| value.bytes));
            }
            Ok(stored)
        })
    }

    async fn control(&self) -> anyhow::Result<Arc<dyn ControlStore>> {
        let text = std::fs::read_to_string(self.folder.path().join("mongo-sharded.toml"))?;
        let layout = Layout::parse(&text, "mongo-sharded.toml").unwrap();
        let uri = self.sets[0].uri();
        let config = MongoConfig::of_layout(&layout, "mongo", uri, &*self.database);
        Ok(Arc::new(MongoEngine::open(config).await?))
    }

    pub fn map(&self) -> anyhow::Result<Arc<Map>> {
        block_on(async {
            let keeper = MapKeeper::new(self.control().await?);
            keeper.load().await?.context("there is a map")
        })
    }

    /// The owner of every slot.
    pub fn slots(&self, collection: Collection) -> anyhow::Result<Vec<ShardName>> {
        let map = self.map()?;
        let Cut::Slots(runs) = &map.collection(collection)?.cut else {
            anyhow::bail!("{collection} are not cut by slots");
        };
        let mut owners = Vec::with_capacity(usize::from(SLOT_COUNT));
        for run in runs {
            let count = run.slots.last.number() - run.slots.first.number() + 1;
            owners.extend(std::iter::repeat_n(run.shard.clone(), usize::from(count)));
        }
        Ok(owners)
    }

    /// All moves of the group, or the one.
    pub fn statuses(&self, which: [&str; 2]) -> anyhow::Result<Vec<Value>> {
        let text = self.succeeds(&["move", "status", "--json", which[0], which[1]])?;
        Ok(match serde_json::from_str(&text)? {
            Value::Array(all) => all,
            one => vec![one],
        })
    }

    /// Asks as soon as one stands at `from`, again if it was given up, until all have come to `to`.
    pub fn bring(&self, which: [&str; 2], wish: &str, from: &str, to: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let statuses = self.statuses(which)?;
            if statuses.iter().all(|status| status["phase"] == to) {
                for status in &statuses {
                    let (name, shown) = (&status["move"], &status["shown"]);
                    self.say(&format!("{name}: {to}, {shown}"));
                }
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{which:?} is not {to}: {statuses:#?}"
            );
            let stands = |status: &&Value| status["phase"] == from && status["wish"].is_null();
            if let Some(status) = statuses.iter().find(stands) {
                if let Some(why) = status["given_up"]["why"].as_str() {
                    self.say(&format!("{}: was given up before: {why}", status["move"]));
                }
                // Refused if it is not ready any more since we looked.
                let asked = ["move", wish, which[0], which[1]];
                // Nobody waits for a grace here.
                let grace = ["--grace", "0s"].into_iter().filter(|_| wish == "complete");
                self.caravan(&asked.into_iter().chain(grace).collect::<Vec<_>>())?;
            }
            thread::sleep(PAUSE);
        }
    }

    /// A product that the ledger of the shoppers knows nothing of.
    pub fn put_own_product(&self) -> anyhow::Result<()> {
        let own = format!("http://{}/v1/products/{OWN_PRODUCT}", self.members[0].0);
        let page = json!({"category": "judged", "name": OWN_PRODUCT, "price": "100"});
        for (url, body) in [
            (own.clone(), page),
            (format!("{own}/stock/moscow"), json!({"received": 10})),
        ] {
            let put = ureq::put(url).header("content-type", "application/json");
            put.send(body.to_string())?;
        }
        Ok(())
    }

    /// The same order, sent again: what it is called, however often.
    pub fn order(&self, key: &str, user: &str) -> anyhow::Result<String> {
        let body = json!({"user_id": user, "geo_zone": "moscow", "address": "Tverskaya 1",
            "payment_method": "card",
            "lines": [{"product_id": OWN_PRODUCT, "category": "judged", "quantity": 1, "price": "100"}]});
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let agent = ureq::Agent::from(agent);
        let began = Instant::now();
        loop {
            for (address, _) in &self.members {
                let mut answer = agent
                    .post(format!("http://{address}/v1/orders"))
                    .header("Idempotency-Key", key)
                    .header("content-type", "application/json")
                    .send(body.to_string())?;
                let (status, text) = (answer.status(), answer.body_mut().read_to_string()?);
                if status.is_success() {
                    let order: Value = serde_json::from_str(&text)?;
                    let id = order["order_id"].as_str();
                    return Ok(id.context("an order has an id")?.to_owned());
                }
                // A shop that is about to cut over may ask to come again; nothing else may happen.
                ensure!(status.as_u16() >= 500, "{status}: {text}");
                ensure!(began.elapsed() < PATIENCE, "{status}: {text}");
            }
            thread::sleep(PAUSE);
        }
    }

    /// How many requests the shop asked to come again later, or lost.
    pub fn sent_away(&self) -> anyhow::Result<u64> {
        let mut count = 0;
        for (address, _) in &self.members {
            let answer = ureq::get(format!("http://{address}/metrics")).call();
            let text = answer?.body_mut().read_to_string()?;
            let requests = "caravan_http_requests_total";
            ensure!(text.contains(requests), "the counter has another name");
            let counted = text.lines().filter(|line| line.starts_with(requests));
            for line in counted.filter(|line| line.contains(r#"status="5"#)) {
                let number = line.rsplit(' ').next().context("a counter has a number")?;
                count += number.parse::<u64>()?;
            }
        }
        Ok(count)
    }

    /// How many orders the user has.
    pub fn orders_of(&self, user: &str) -> anyhow::Result<usize> {
        let url = format!("http://{}/v1/users/{user}/orders", self.members[0].0);
        let text = ureq::get(url).call()?.body_mut().read_to_string()?;
        let page: Value = serde_json::from_str(&text)?;
        Ok(page["orders"].as_array().context("a page of orders")?.len())
    }
}

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work)
}

/// The layout that ships, in a database of this run, on one shard or on two.
fn own_layout(folder: &Path, database: &str, shards: usize) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
    let text = std::fs::read_to_string(root.join("mongo-sharded.toml")).unwrap();
    let mut own = String::new();
    for line in text.lines() {
        if line.starts_with("keyspace = ") {
            writeln!(own, "keyspace = \"{database}\"").unwrap();
        } else if shards == 1 && line.contains("from = [\"m\"]") {
            // All products in one range.
        } else if shards == 1 {
            let line = line.replace("\"shard-1\", \"shard-2\"", "\"shard-1\"");
            writeln!(
                own,
                "{}",
                line.replace("shard-1 = [], shard-2 = []", "shard-1 = []")
            )
            .unwrap();
        } else {
            writeln!(own, "{line}").unwrap();
        }
    }
    let file = folder.join("mongo-sharded.toml");
    std::fs::write(&file, own).unwrap();
    file.to_str().unwrap().to_owned()
}
