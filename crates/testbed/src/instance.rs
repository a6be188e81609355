//! One set or cluster that runs: its folder, the state file in it, and the
//! guardian that ends its servers when nobody is left to do so.
//!
//! The state file is rewritten after every start of a server and before anyone
//! waits for it, so that a starter that dies leaves no server unknown.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Unavailable;
use crate::processes::{Condition, POLL, Process};

const GUARDIAN: &str = include_str!("../files/guardian.py");
const STATE_FILE: &str = "state.json";
const TAIL_BYTES_MAX: u64 = 2 * 1024;

/// How to start the servers of a set or cluster, and how to tell that they are ready.
pub trait Plan {
    fn addresses(&self) -> &[SocketAddr];
    /// Folders and settings of an empty set or cluster.
    fn prepare(&self, folder: &Path) -> Result<(), Unavailable>;
    fn command(&self, folder: &Path, index: usize) -> Command;
    /// Once after a start with empty folders: forms the set and waits until it takes writes.
    fn await_all(&self, instance: &Instance) -> Result<(), Unavailable>;
    /// After a restart of one server.
    fn await_one(&self, instance: &Instance, index: usize) -> Result<(), Unavailable>;
}

/// When the guardian ends the servers.
#[derive(Debug, Clone)]
pub(crate) enum Watch {
    /// When the lease file has not been touched for `idle_limit`.
    Lease { lock: PathBuf, idle_limit: Duration },
    /// When this process is gone.
    Owner(Process),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Phase {
    Starting,
    Ready,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Server {
    process: Process,
    address: SocketAddr,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct State {
    phase: Phase,
    guardian: Process,
    servers: Vec<Server>,
}

#[derive(Debug)]
pub struct Instance {
    folder: PathBuf,
    state: State,
}

impl Instance {
    /// Starts every server of the plan in an empty folder and waits until they
    /// are ready. On failure nothing is left running.
    pub(crate) fn start(
        folder: &Path,
        plan: &impl Plan,
        watch: &Watch,
    ) -> Result<Instance, Unavailable> {
        fs::create_dir_all(folder).map_err(Unavailable::io("create", folder))?;
        let lease = lease_path(folder);
        fs::write(&lease, "").map_err(Unavailable::io("write", &lease))?;
        let guardian = start_guardian(folder, watch)?;
        let state = State {
            phase: Phase::Starting,
            guardian,
            servers: Vec::new(),
        };
        let mut instance = Instance {
            folder: folder.to_owned(),
            state,
        };
        match instance.save().and_then(|()| instance.fill(plan)) {
            Ok(()) => Ok(instance),
            Err(reason) => {
                instance.end()?;
                Err(reason)
            }
        }
    }

    /// What the state file of `folder` says; `None` without a readable one.
    pub(crate) fn load(folder: &Path) -> Option<Instance> {
        let text = fs::read(folder.join(STATE_FILE)).ok()?;
        let state = serde_json::from_slice(&text).ok()?;
        Some(Instance {
            folder: folder.to_owned(),
            state,
        })
    }

    /// Throws everything away and starts the same servers, empty.
    pub(crate) fn start_afresh(&mut self, plan: &impl Plan) -> Result<(), Unavailable> {
        for process in self.processes() {
            process.kill()?;
        }
        self.state.servers.clear();
        self.state.phase = Phase::Starting;
        self.save()?;
        self.fill(plan)
    }

    pub(crate) fn restart(&mut self, plan: &impl Plan, index: usize) -> Result<(), Unavailable> {
        self.process(index).kill()?;
        self.state.servers[index].process = self.spawn(plan, index)?;
        self.save()?;
        plan.await_one(self, index)
    }

    /// Ends servers and guardian and removes the folder.
    pub(crate) fn end(&self) -> Result<(), Unavailable> {
        for process in self.processes() {
            process.kill()?;
        }
        self.state.guardian.kill()?;
        remove_folder(&self.folder)
    }

    /// Started to the end by somebody, and every server still runs.
    pub(crate) fn is_whole(&self) -> bool {
        self.state.phase == Phase::Ready
            && self
                .processes()
                .all(|process| process.condition() == Condition::Running)
    }

    /// Neither a server nor the guardian is left.
    pub(crate) fn is_dead(&self) -> bool {
        let gone = |process: Process| process.condition() == Condition::Gone;
        gone(self.state.guardian) && self.processes().all(gone)
    }

    pub(crate) fn ensure_guardian(&mut self, watch: &Watch) -> Result<(), Unavailable> {
        if self.state.guardian.condition() != Condition::Gone {
            return Ok(());
        }
        self.state.guardian = start_guardian(&self.folder, watch)?;
        self.save()
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.state
            .servers
            .iter()
            .map(|server| server.address)
            .collect()
    }

    pub(crate) fn process(&self, index: usize) -> Process {
        self.state.servers[index].process
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = Process> {
        self.state.servers.iter().map(|server| server.process)
    }

    pub(crate) fn lease(&self) -> PathBuf {
        lease_path(&self.folder)
    }

    /// Asks `answer` until it is `Some`, while the servers `watched` live and for at most `limit`.
    pub(crate) fn await_answer<T>(
        &self,
        watched: &[usize],
        limit: Duration,
        mut answer: impl FnMut() -> Option<T>,
    ) -> Result<T, Unavailable> {
        let start = Instant::now();
        loop {
            if let Some(answer) = answer() {
                return Ok(answer);
            }
            let describe =
                |index: &usize| format!("the server for {}", self.state.servers[*index].address);
            let log_tail = |index: &usize| tail(&self.log(*index));
            if let Some(index) = watched
                .iter()
                .find(|index| self.process(**index).condition() == Condition::Gone)
            {
                return Err(Unavailable::Died {
                    what: describe(index),
                    log_tail: log_tail(index),
                });
            }
            if start.elapsed() > limit {
                let what = watched
                    .iter()
                    .map(describe)
                    .collect::<Vec<_>>()
                    .join(" and ");
                let log_tail = watched.iter().map(log_tail).collect::<Vec<_>>().join("\n");
                return Err(Unavailable::Silent {
                    what,
                    waited_s: limit.as_secs(),
                    log_tail,
                });
            }
            thread::sleep(POLL);
        }
    }

    fn fill(&mut self, plan: &impl Plan) -> Result<(), Unavailable> {
        plan.prepare(&self.folder)?;
        for (index, address) in plan.addresses().iter().enumerate() {
            let process = self.spawn(plan, index)?;
            self.state.servers.push(Server {
                process,
                address: *address,
            });
            self.save()?;
        }
        plan.await_all(self)?;
        self.state.phase = Phase::Ready;
        self.save()
    }

    fn spawn(&self, plan: &impl Plan, index: usize) -> Result<Process, Unavailable> {
        Process::spawn(&mut plan.command(&self.folder, index), &self.log(index))
    }

    fn log(&self, index: usize) -> PathBuf {
        self.folder.join(format!("server{}.log", index + 1))
    }

    fn save(&self) -> Result<(), Unavailable> {
        let text = serde_json::to_vec_pretty(&self.state)
            .expect("the state holds only numbers and addresses");
        let (draft, path) = (
            self.folder.join("state.draft"),
            self.folder.join(STATE_FILE),
        );
        fs::write(&draft, text).map_err(Unavailable::io("write", &draft))?;
        fs::rename(&draft, &path).map_err(Unavailable::io("rename", &draft))
    }
}

/// Fine when it is not there.
pub(crate) fn remove_folder(folder: &Path) -> Result<(), Unavailable> {
    match fs::remove_dir_all(folder) {
        Err(reason) if reason.kind() != std::io::ErrorKind::NotFound => {
            Err(Unavailable::io("remove", folder)(reason))
        }
        _ => Ok(()),
    }
}

/// The end of a log, for an error message.
pub(crate) fn tail(log: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = fs::File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES_MAX)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    };
    read().unwrap_or_else(|reason| format!("(no log at {}: {reason})", log.display()))
}

fn lease_path(folder: &Path) -> PathBuf {
    folder.join("lease")
}

fn start_guardian(folder: &Path, watch: &Watch) -> Result<Process, Unavailable> {
    let mut command = Command::new("python3");
    command.args(["-c", GUARDIAN]).arg(folder);
    match watch {
        Watch::Lease { lock, idle_limit } => command
            .arg("lease")
            .arg(lock)
            .arg(idle_limit.as_millis().to_string()),
        Watch::Owner(owner) => command.args([
            "owner".to_owned(),
            owner.pid.to_string(),
            owner.started().to_string(),
        ]),
    };
    Process::spawn(&mut command, &folder.join("guardian.log")).map_err(|reason| match reason {
        Unavailable::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Unavailable::ToolMissing {
                tool: "python3",
                package: "python3",
            }
        }
        other => other,
    })
}
