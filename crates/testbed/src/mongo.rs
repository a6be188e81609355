//! MongoDB 6.0.5 replica sets of one or three members on 127.0.0.1.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::instance::{Instance, Plan, remove_folder};
use crate::mongo_wire::{self, Value, document};
use crate::names::Label;
use crate::processes::Condition;
use crate::shared::{ANSWER_MAX, IDLE_LIMIT, Lease, Place, find_or_start};
use crate::{Exclusive, ExclusiveMongoSet, Unavailable, install, names, ports, say};

const SET_NAME: &str = "rs0";
/// The fail point that holds up the thread which applies what the primary did.
const APPLY_STOP: &str = "rsSyncApplyStop";
const ELECTION_TIMEOUT_MS: i32 = 2_000;
const HEARTBEAT_INTERVAL_MS: i32 = 500;
/// Seen: 1.7 s for one member, 3.7 s for three, on an idle machine of two cores.
const READY_MAX: Duration = Duration::from_secs(90);
const MAJORITY_WRITE_MAX_MS: i32 = 2_000;

/// How long a secondary may take to finish what it is applying and stand still.
const STILL_MAX_MS: i32 = 4_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Members {
    One,
    Three,
}

/// Whether the servers form a replica set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Formation {
    ReplicaSet,
    /// One server on its own, which has no journal and no majority.
    Alone,
}

impl Members {
    fn count(self) -> usize {
        match self {
            Members::One => 1,
            Members::Three => 3,
        }
    }
}

/// A shared replica set. It stays up while this value lives, and some minutes longer.
#[derive(Debug)]
pub struct MongoSet {
    addresses: Vec<SocketAddr>,
    lease: Lease,
}

impl MongoSet {
    /// A set that belongs to the caller, who may break it; ended on drop.
    pub fn exclusive(members: Members) -> Result<ExclusiveMongoSet, Unavailable> {
        let root = install::cache_folder()?;
        let plan = MongoPlan::new(&root, members, Formation::ReplicaSet)?;
        Exclusive::start(&root, "mongo", plan)
    }

    /// One server that is no replica set, for those who must refuse it.
    pub fn standalone() -> Result<ExclusiveMongoSet, Unavailable> {
        let root = install::cache_folder()?;
        let plan = MongoPlan::new(&root, Members::One, Formation::Alone)?;
        Exclusive::start(&root, "mongo", plan)
    }

    pub fn uri(&self) -> String {
        uri(&self.addresses)
    }

    /// A name that no other test uses; the database comes into being with its first write.
    pub fn database(&self, prefix: &str) -> String {
        names::unique(prefix)
    }

    /// The version that the first member says it has, such as `6.0.5`.
    pub fn version(&self) -> Option<String> {
        let question = document([("buildInfo", Value::Int(1))]);
        let answer = mongo_wire::run(self.addresses[0], question).ok()?;
        mongo_wire::text(&answer, "version").map(str::to_owned)
    }

    /// How many documents the collection holds, asked of the first member without any driver.
    pub fn count_documents(&self, database: &str, collection: &str) -> Option<i32> {
        let count = Value::Text(collection.to_owned());
        let count = document([("count", count)]);
        let answer = mongo_wire::run_in(self.addresses[0], database, count).ok()?;
        mongo_wire::number(&answer, "n")
    }

    /// Keeps the set up for `time`, even when this process ends.
    pub fn keep_for(&self, time: Duration) -> Result<(), Unavailable> {
        self.lease.extend(time)
    }

    pub(crate) fn shared(
        root: &Path,
        members: Members,
        label: Option<&Label>,
    ) -> Result<MongoSet, Unavailable> {
        let place = Place::new(root, "mongo", members.count(), label.map(Label::as_str));
        let has_primary = |instance: &Instance| {
            instance
                .await_answer(&[], ANSWER_MAX, || primary(&instance.addresses()))
                .is_ok()
        };
        let shared = find_or_start(&place, IDLE_LIMIT, has_primary, || {
            MongoPlan::new(root, members, Formation::ReplicaSet)
        })?;
        Ok(MongoSet {
            addresses: shared.addresses,
            lease: shared.lease,
        })
    }
}

impl Exclusive<MongoPlan> {
    pub fn uri(&self) -> String {
        match self.plan.formation {
            Formation::ReplicaSet => uri(&self.plan.addresses),
            Formation::Alone => format!("mongodb://{}/", self.plan.addresses[0]),
        }
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.plan.addresses.clone()
    }

    pub fn database(&self, prefix: &str) -> String {
        names::unique(prefix)
    }

    /// Which member takes writes now, if one does.
    pub fn primary(&self) -> Option<usize> {
        primary(&self.plan.addresses)
    }

    /// A secondary goes on answering, but from now on applies nothing new.
    /// Returns when it has finished what it was at.
    pub fn hold_still(&self, index: usize) -> Result<(), Unavailable> {
        let before = self.fail_point(index, "alwaysOn")?;
        let entered = document([
            ("waitForFailPoint", Value::Text(APPLY_STOP.to_owned())),
            ("timesEntered", Value::Int(before + 1)),
            ("maxTimeMS", Value::Int(STILL_MAX_MS)),
        ]);
        self.ask(index, entered).map(|_| ())
    }

    /// It catches up again.
    pub fn go_on(&self, index: usize) -> Result<(), Unavailable> {
        self.fail_point(index, "off").map(|_| ())
    }

    /// Answers how often the fail point was met so far.
    fn fail_point(&self, index: usize, mode: &str) -> Result<i32, Unavailable> {
        let command = document([
            ("configureFailPoint", Value::Text(APPLY_STOP.to_owned())),
            ("mode", Value::Text(mode.to_owned())),
        ]);
        let answer = self.ask(index, command)?;
        Ok(mongo_wire::number(&answer, "count").unwrap_or(0))
    }

    fn ask(
        &self,
        index: usize,
        command: mongo_wire::Document,
    ) -> Result<mongo_wire::Document, Unavailable> {
        let address = self.plan.addresses[index];
        mongo_wire::run(address, command).map_err(|refusal| Unavailable::Refused {
            what: format!("the server for {address}"),
            code: refusal.code,
        })
    }
}

#[derive(Debug)]
pub struct MongoPlan {
    mongod: PathBuf,
    addresses: Vec<SocketAddr>,
    formation: Formation,
}

impl MongoPlan {
    fn new(root: &Path, members: Members, formation: Formation) -> Result<MongoPlan, Unavailable> {
        let mongod = install::mongod(root)?;
        let ports = ports::free_ports(members.count())?;
        if members == Members::Three {
            say("starting MongoDB, 3 members …");
        }
        let addresses = ports
            .into_iter()
            .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            .collect();
        Ok(MongoPlan {
            mongod,
            addresses,
            formation,
        })
    }

    fn initiate(&self) -> Result<Option<()>, mongo_wire::Refusal> {
        let member = |(index, address): (usize, &SocketAddr)| {
            let priority = if index == 0 { 2 } else { 1 };
            Value::Document(document([
                ("_id", Value::Int(index as i32)),
                ("host", Value::Text(address.to_string())),
                ("priority", Value::Int(priority)),
            ]))
        };
        let settings = document([
            ("electionTimeoutMillis", Value::Int(ELECTION_TIMEOUT_MS)),
            ("heartbeatIntervalMillis", Value::Int(HEARTBEAT_INTERVAL_MS)),
        ]);
        let config = document([
            ("_id", Value::Text(SET_NAME.to_owned())),
            ("settings", Value::Document(settings)),
            (
                "members",
                Value::Array(self.addresses.iter().enumerate().map(member).collect()),
            ),
        ]);
        mongo_wire::run(
            self.addresses[0],
            document([("replSetInitiate", Value::Document(config))]),
        )
        .map(|_| Some(()))
    }

    /// Waits for a write that `witnesses` members have.
    fn await_write(&self, instance: &Instance, witnesses: Value) -> Result<(), Unavailable> {
        let running = self.running(instance);
        instance.await_answer(&running, READY_MAX, || {
            let primary = primary(&self.addresses)?;
            mongo_wire::run(self.addresses[primary], note(witnesses.clone())).ok()
        })?;
        Ok(())
    }

    fn running(&self, instance: &Instance) -> Vec<usize> {
        let runs = |index: &usize| instance.process(*index).condition() == Condition::Running;
        (0..self.addresses.len()).filter(runs).collect()
    }
}

impl Plan for MongoPlan {
    fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    fn prepare(&self, folder: &Path) -> Result<(), Unavailable> {
        for index in 0..self.addresses.len() {
            let records = records_folder(folder, index);
            remove_folder(&records)?;
            fs::create_dir_all(&records).map_err(Unavailable::io("create", &records))?;
        }
        Ok(())
    }

    fn command(&self, folder: &Path, index: usize) -> Command {
        let mut command = Command::new(&self.mongod);
        command
            .arg("--dbpath")
            .arg(records_folder(folder, index))
            .args(["--bind_ip", "127.0.0.1", "--nounixsocket"])
            .args(["--port", &self.addresses[index].port().to_string()])
            .args(["--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "64"])
            .args(["--setParameter", "ttlMonitorSleepSecs=1"])
            .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
            // Lets a test hold a secondary still with a fail point.
            .args(["--setParameter", "enableTestCommands=1"]);
        if self.formation == Formation::ReplicaSet {
            command.args(["--replSet", SET_NAME]);
        }
        command
    }

    fn await_all(&self, instance: &Instance) -> Result<(), Unavailable> {
        let all: Vec<usize> = (0..self.addresses.len()).collect();
        instance.await_answer(&all, READY_MAX, || {
            self.addresses
                .iter()
                .all(|address| mongo_wire::hello(*address).is_some())
                .then_some(())
        })?;
        if self.formation == Formation::Alone {
            return Ok(());
        }
        // Asked again on refusal: a member that answers may not be ready to be heard by the others yet.
        instance.await_answer(&all, READY_MAX, || {
            self.initiate().unwrap_or_else(already_initiated)
        })?;
        self.await_write(instance, Value::Int(all.len() as i32))
    }

    fn await_one(&self, instance: &Instance, index: usize) -> Result<(), Unavailable> {
        instance.await_answer(&[index], READY_MAX, || {
            mongo_wire::hello(self.addresses[index])
                .filter(|hello| hello.is_primary || hello.is_secondary)
        })?;
        let has_majority = self.running(instance).len() * 2 > self.addresses.len();
        if has_majority && self.formation == Formation::ReplicaSet {
            self.await_write(instance, Value::Text("majority".to_owned()))?;
        }
        Ok(())
    }
}

fn uri(addresses: &[SocketAddr]) -> String {
    let hosts: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    format!("mongodb://{}/?replicaSet={SET_NAME}", hosts.join(","))
}

fn primary(addresses: &[SocketAddr]) -> Option<usize> {
    addresses
        .iter()
        .position(|address| mongo_wire::hello(*address).is_some_and(|hello| hello.is_primary))
}

/// A write that no collection and no change stream sees.
fn note(witnesses: Value) -> mongo_wire::Document {
    let concern = document([
        ("w", witnesses),
        ("wtimeout", Value::Int(MAJORITY_WRITE_MAX_MS)),
    ]);
    document([
        ("appendOplogNote", Value::Int(1)),
        (
            "data",
            Value::Document(document([("testbed", Value::Text("ready".to_owned()))])),
        ),
        ("writeConcern", Value::Document(concern)),
    ])
}

/// The answer to the first try may have been lost.
fn already_initiated(refusal: mongo_wire::Refusal) -> Option<()> {
    const ALREADY_INITIALIZED: i32 = 23;
    (refusal.code == Some(ALREADY_INITIALIZED)).then_some(())
}

fn records_folder(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("member{}", index + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::required_or_skip;

    #[test]
    fn a_secondary_that_stands_still_misses_writes_until_it_goes_on() {
        let Some(set) = required_or_skip(MongoSet::exclusive(Members::Three), "MongoDB") else {
            return;
        };
        let primary = set.primary().unwrap();
        let still = (primary + 1) % 3;
        // A busy machine may take longer than one write waits.
        let arrives = |witnesses| set.plan.await_write(&set.instance(), witnesses).is_ok();
        assert!(arrives(Value::Int(3)));
        set.hold_still(still).unwrap();
        let missed = mongo_wire::run(set.addresses()[primary], note(Value::Int(3)));
        assert!(missed.is_err(), "one member must miss it");
        assert!(arrives(Value::Text("majority".to_owned())));
        assert!(
            mongo_wire::hello(set.addresses()[still]).is_some_and(|hello| hello.is_secondary),
            "it still answers"
        );
        set.go_on(still).unwrap();
        assert!(arrives(Value::Int(3)));
    }
}
