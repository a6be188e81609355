//! Two sides, the processes between them, and the real command line.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use judge::server::ServerProcess;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::side::{Servers, Side};
use crate::support;

/// How long one step of a move may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(240);
const PAUSE: Duration = Duration::from_millis(250);
/// Generous: what is judged here is the outcome, on whatever machine.
const FREEZE_MS_MAX: &str = "8000";

/// A build for tests on a busy machine is not to hold its own moves back.
const P99_MS_MAX: &str = "60000";

/// On a busy machine nobody gives up before the answer: of a request that was cut off the ledger learns nothing.
const SETTINGS: [&str; 6] = [
    "http.request_ms_max=50000",
    "shop.sweep_after_s=10",
    "router.lease_ms=5000",
    "router.lease_renew_ms=300",
    "router.lease_look_ms=20",
    "router.hold_ms_max=9000",
];

/// The data directory of a place.
const DATA: &str = "data";

const OWN_PRODUCT: &str = "own-1";

pub struct Place {
    _servers: Servers,
    folder: tempfile::TempDir,
    pub from: Side,
    pub to: Side,
    /// What processes are started with.
    serving: Vec<String>,
    pub members: Vec<(SocketAddr, Option<ServerProcess>)>,
    began: Instant,
}

impl Place {
    /// The processes serve `from`, and know where it is to go.
    pub fn start(sides: [&'static str; 2]) -> Option<Place> {
        let servers = Servers::start(sides)?;
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = sides.map(|name| servers.side(name, folder.path()));
        // A directory lets one process in.
        let processes = match from.is_directory() || to.is_directory() {
            true => 1,
            false => 2,
        };
        let mut place = Place {
            _servers: servers,
            folder,
            serving: Vec::new(),
            from,
            to,
            members: Vec::new(),
            began: Instant::now(),
        };
        place.serving = place.both();
        for number in 0..processes {
            let any = "127.0.0.1:0".parse().unwrap();
            let process = ServerProcess::start(place.command(number, any)).unwrap();
            place.members.push((process.address(), Some(process)));
        }
        Some(place)
    }

    fn directory(&self) -> [String; 2] {
        self.directory_called(DATA)
    }

    fn directory_called(&self, name: &str) -> [String; 2] {
        let path = self.folder.path().join(name);
        ["--data".to_owned(), path.to_str().unwrap().to_owned()]
    }

    fn addresses(&self) -> Vec<String> {
        let told = self.from.addresses.iter().chain(&self.to.addresses);
        told.flat_map(|it| ["--address".to_owned(), it.clone()])
            .collect()
    }

    /// Served from one side, toward the other.
    pub fn both(&self) -> Vec<String> {
        self.both_in(DATA)
    }

    /// The same, with another data directory.
    pub fn both_in(&self, directory: &str) -> Vec<String> {
        let mut both = self.from.as_layout();
        both.extend(["--toward".to_owned(), self.to.as_word()]);
        both.extend(self.directory_called(directory));
        both.extend(self.addresses());
        both
    }

    /// The old side alone, by somebody who knows nothing of the other.
    pub fn alone(&self) -> Vec<String> {
        let mut alone = self.from.as_layout();
        let addresses = self.from.addresses.iter();
        alone.extend(addresses.flat_map(|it| ["--address".to_owned(), it.clone()]));
        alone
    }

    /// The new side alone; the map stays where it was.
    pub fn left(&self) -> Vec<String> {
        let mut left = self.to.as_layout();
        left.extend(["--control".to_owned(), self.from.as_word()]);
        left.extend(self.directory());
        left.extend(self.addresses());
        left
    }

    fn command(&self, number: usize, listen: SocketAddr) -> Command {
        let mut command = self.serving(&format!("member-{number}"), &self.serving);
        command.args(["--listen", &listen.to_string()]);
        command
    }

    /// A process of that name, served with these; whoever starts it says where it listens.
    pub fn serving(&self, process: &str, arguments: &[String]) -> Command {
        let mut command = support::command(self.folder.path());
        command.env(support::UNHURRIED.0, support::UNHURRIED.1);
        command.args(["serve", "--set", &format!("process={process}")]);
        for setting in SETTINGS {
            command.args(["--set", setting]);
        }
        command.args(arguments);
        command
    }

    /// What `caravan serve` says with these, which it refuses to serve with.
    pub fn serve_in_vain(&self, arguments: &[String]) -> anyhow::Result<Output> {
        let mut command = support::command(self.folder.path());
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        Ok(command.args(arguments).output()?)
    }

    pub fn restart_with(&mut self, serving: Vec<String>) -> anyhow::Result<()> {
        self.serving = serving;
        for number in 0..self.members.len() {
            if let Some(process) = self.members[number].1.take() {
                let pid = Pid::from_raw(i32::try_from(process.id())?).context("it has a number")?;
                kill_process(pid, Signal::TERM)?;
                process.wait()?;
            }
            self.start_one(number)?;
        }
        Ok(())
    }

    /// As a power cut would, and up again.
    pub fn kill_and_restart(&mut self) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            self.members[number].1 = None;
            self.start_one(number)?;
        }
        Ok(())
    }

    fn start_one(&mut self, number: usize) -> anyhow::Result<()> {
        let process = ServerProcess::start(self.command(number, self.members[number].0))?;
        self.members[number].1 = Some(process);
        self.say(&format!("process {number} serves again"));
        Ok(())
    }

    pub fn say(&self, what: &str) {
        println!("{:6.1} s: {what}", self.began.elapsed().as_secs_f64());
    }

    /// Asks where the map is: at the process that has the directory, or on the servers of the old layout.
    pub fn caravan(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = support::command(self.folder.path());
        command.args(arguments);
        match self.from.is_directory() {
            true => command.args(self.directory()),
            false => command.args(self.from.as_layout()).args(self.addresses()),
        };
        Ok(command.output()?)
    }

    pub fn succeeds(&self, arguments: &[&str]) -> anyhow::Result<String> {
        told_by(arguments, self.caravan(arguments)?)
    }

    /// `caravan move layout`, which has to know both sides.
    pub fn layout(&self, verb: &str, more: &[&str]) -> anyhow::Result<Output> {
        let mut command = support::command(self.folder.path());
        command.args(["move", "layout", verb, "--freeze-ms-max", FREEZE_MS_MAX]);
        command.args(["--p99-ms-max", P99_MS_MAX]);
        Ok(command.args(more).args(self.both()).output()?)
    }

    pub fn start_move(&self, collection: &str) -> anyhow::Result<String> {
        let begun = told_by(
            &["start"],
            self.layout("start", &["--collection", collection])?,
        )?;
        let name = begun.split(':').next().context("a name")?.to_owned();
        self.say(begun.trim());
        Ok(name)
    }

    pub fn plan(&self) -> anyhow::Result<Value> {
        let text = told_by(&["plan"], self.layout("plan", &["--json"])?)?;
        Ok(serde_json::from_str(&text)?)
    }

    pub fn status(&self, name: &str) -> anyhow::Result<Value> {
        let text = self.succeeds(&["move", "status", "--json", "--name", name])?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Asks as soon as it stands at `from`, again if it was given up, until it has come to `to`.
    pub fn bring(&self, name: &str, wish: &str, from: &str, to: &str) -> anyhow::Result<Value> {
        let began = Instant::now();
        loop {
            let status = self.status(name)?;
            if status["phase"] == to {
                self.say(&format!("{name}: {to}, {}", status["shown"]));
                return Ok(status);
            }
            ensure!(began.elapsed() < PATIENCE, "{name} is not {to}: {status:#}");
            if status["phase"] == from && status["wish"].is_null() {
                if let Some(why) = status["given_up"]["why"].as_str() {
                    self.say(&format!("{name}: was given up before: {why}"));
                }
                // Refused if it is not ready any more since we looked.
                // Nobody waits for a grace here.
                let grace = ["--grace", "0s"].into_iter().filter(|_| wish == "complete");
                let asked = ["move", wish, "--name", name];
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

    /// The same order, sent again to every process: what it is called, however often.
    pub fn order(&self, key: &str, user: &str) -> anyhow::Result<String> {
        let body = json!({"user_id": user, "geo_zone": "moscow", "address": "Tverskaya 1",
            "payment_method": "card",
            "lines": [{"product_id": OWN_PRODUCT, "category": "judged", "quantity": 1, "price": "100"}]});
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let agent = ureq::Agent::from(agent);
        let mut ids = Vec::new();
        for (address, _) in &self.members {
            let began = Instant::now();
            ids.push(loop {
                let mut answer = agent
                    .post(format!("http://{address}/v1/orders"))
                    .header("Idempotency-Key", key)
                    .header("content-type", "application/json")
                    .send(body.to_string())?;
                let (status, text) = (answer.status(), answer.body_mut().read_to_string()?);
                if status.is_success() {
                    let order: Value = serde_json::from_str(&text)?;
                    let id = order["order_id"].as_str();
                    break id.context("an order has an id")?.to_owned();
                }
                // A shop that is about to cut over may ask to come again; nothing else may happen.
                ensure!(status.as_u16() >= 500, "{status}: {text}");
                ensure!(began.elapsed() < PATIENCE, "{status}: {text}");
                thread::sleep(PAUSE);
            });
        }
        ids.dedup();
        ensure!(ids.len() == 1, "one key, several orders: {ids:?}");
        Ok(ids.remove(0))
    }

    /// How many orders the user has.
    pub fn orders_of(&self, user: &str) -> anyhow::Result<usize> {
        let url = format!("http://{}/v1/users/{user}/orders", self.members[0].0);
        let text = ureq::get(url).call()?.body_mut().read_to_string()?;
        let page: Value = serde_json::from_str(&text)?;
        Ok(page["orders"].as_array().context("a page of orders")?.len())
    }
}

fn told_by(arguments: &[&str], output: Output) -> anyhow::Result<String> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {complaint}");
    Ok(String::from_utf8(output.stdout)?)
}
