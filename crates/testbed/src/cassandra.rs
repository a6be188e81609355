//! Apache Cassandra 5.0.8 with one or three nodes. Every cluster has loopback
//! addresses of its own, 127.0.N.1–3, because its nodes must share a CQL port.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cassandra_wire;
use crate::instance::{Instance, Plan, remove_folder};
use crate::ports::{self, AddressClaim, CQL_PORT, FirstChoice, SSL_STORAGE_PORT, STORAGE_PORT};
use crate::settings::{CassandraSettings, Purpose};
use crate::shared::{ANSWER_MAX, IDLE_LIMIT, Lease, Place, find_or_start};
use crate::{Exclusive, ExclusiveCassandraCluster, Unavailable, install, names, say};

const SETTINGS: &str = include_str!("../files/cassandra.yaml");
const JVM_ARGUMENTS: &str = include_str!("../files/jvm17.args");
const LOGBACK: &str = include_str!("../files/logback.xml");

/// Even pieces of the token ring. With tokens of their own no node waits for a bootstrap.
const TOKENS: [&str; 3] = ["-6148914691236517206", "0", "6148914691236517205"];
/// Seen: 11 s for one node, 26 s for three, on an idle machine of two cores.
const READY_MAX: Duration = Duration::from_secs(240);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    One,
    Three,
}

impl Nodes {
    fn count(self) -> usize {
        match self {
            Nodes::One => 1,
            Nodes::Three => 3,
        }
    }

    fn heap(self) -> &'static str {
        match self {
            Nodes::One => "768M",
            Nodes::Three => "512M",
        }
    }
}

/// A shared cluster. It stays up while this value lives, and some minutes longer.
#[derive(Debug)]
pub struct CassandraCluster {
    addresses: Vec<SocketAddr>,
    lease: Lease,
}

impl CassandraCluster {
    /// A cluster that belongs to the caller, who may break it; ended on drop.
    pub fn exclusive(nodes: Nodes) -> Result<ExclusiveCassandraCluster, Unavailable> {
        CassandraCluster::exclusive_with(nodes, CassandraSettings::default())
    }

    /// The same with settings of its own.
    pub fn exclusive_with(
        nodes: Nodes,
        settings: CassandraSettings,
    ) -> Result<ExclusiveCassandraCluster, Unavailable> {
        CassandraCluster::exclusive_with_lines(nodes, settings, &[])
    }

    /// The same with other lines in `cassandra.yaml`: names and values.
    pub fn exclusive_with_lines(
        nodes: Nodes,
        settings: CassandraSettings,
        lines: &[(&str, &str)],
    ) -> Result<ExclusiveCassandraCluster, Unavailable> {
        let root = install::cache_folder()?;
        let mut plan = CassandraPlan::new(&root, nodes, settings, FirstChoice::Random)?;
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        plan.own_lines = lines.iter().map(owned).collect();
        Exclusive::start(&root, "cassandra", plan)
    }

    pub fn contact_points(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    /// A name that no other test uses; the test creates the keyspace.
    pub fn keyspace(&self, prefix: &str) -> String {
        names::unique(prefix)
    }

    /// The version that the first server says it has, such as `5.0.8`.
    pub fn version(&self) -> std::io::Result<String> {
        cassandra_wire::version(self.addresses[0])
    }

    /// How many rows the statement answers, asked of the first server without any driver.
    pub fn count_rows(&self, statement: &str) -> std::io::Result<usize> {
        cassandra_wire::count_rows(self.addresses[0], statement)
    }

    /// Keeps the cluster up for `time`, even when this process ends.
    pub fn keep_for(&self, time: Duration) -> Result<(), Unavailable> {
        self.lease.extend(time)
    }

    pub(crate) fn shared(
        root: &Path,
        nodes: Nodes,
        purpose: Purpose,
    ) -> Result<CassandraCluster, Unavailable> {
        let place = Place::new(root, "cassandra", nodes.count(), purpose.label());
        let all_serve = |instance: &Instance| {
            let addresses = instance.addresses();
            let serve = || {
                addresses
                    .iter()
                    .all(|address| cassandra_wire::serves(*address))
                    .then_some(())
            };
            instance.await_answer(&[], ANSWER_MAX, serve).is_ok()
        };
        let plan = || CassandraPlan::new(root, nodes, purpose.settings(), FirstChoice::Usual);
        let shared = find_or_start(&place, IDLE_LIMIT, all_serve, plan)?;
        Ok(CassandraCluster {
            addresses: shared.addresses,
            lease: shared.lease,
        })
    }
}

impl Exclusive<CassandraPlan> {
    pub fn contact_points(&self) -> Vec<SocketAddr> {
        self.plan.addresses.clone()
    }

    pub fn keyspace(&self, prefix: &str) -> String {
        names::unique(prefix)
    }

    /// Runs `nodetool` against one node, and answers what it printed.
    pub fn nodetool(&self, index: usize, arguments: &[String]) -> Result<String, Unavailable> {
        let opened = JVM_ARGUMENTS
            .lines()
            .filter(|line| line.starts_with("--add-"))
            .flat_map(str::split_whitespace);
        let output = Command::new("java")
            .args(opened)
            // It keeps a history of its calls in the home folder.
            .arg(format!("-Duser.home={}", std::env::temp_dir().display()))
            .args(["-cp", &format!("{}/*", self.plan.jars.display())])
            .arg("org.apache.cassandra.tools.NodeTool")
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &self.plan.jmx_ports[index].to_string(),
            ])
            .args(arguments)
            .output()
            .map_err(Unavailable::io("start", Path::new("java")))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(Unavailable::ToolFailed {
                tool: "nodetool",
                detail: text(&output.stdout) + &text(&output.stderr),
            }),
        }
    }
}

#[derive(Debug)]
pub struct CassandraPlan {
    jars: PathBuf,
    memory_agent: PathBuf,
    addresses: Vec<SocketAddr>,
    jmx_ports: Vec<u16>,
    heap: &'static str,
    settings: CassandraSettings,
    /// Lines of `cassandra.yaml` that are not the usual ones.
    own_lines: Vec<(String, String)>,
    _claim: AddressClaim,
}

impl CassandraPlan {
    fn new(
        root: &Path,
        nodes: Nodes,
        settings: CassandraSettings,
        first: FirstChoice,
    ) -> Result<CassandraPlan, Unavailable> {
        let jars = install::cassandra_jars(root)?;
        let memory_agent = memory_agent(&jars)?;
        let claim = ports::claim_addresses(root, nodes.count(), first)?;
        say(&format!(
            "starting Cassandra, {} …",
            if nodes == Nodes::One {
                "1 node"
            } else {
                "3 nodes"
            }
        ));
        Ok(CassandraPlan {
            jars,
            memory_agent,
            addresses: claim
                .addresses
                .iter()
                .map(|address| SocketAddr::from((*address, CQL_PORT)))
                .collect(),
            jmx_ports: ports::free_ports(nodes.count())?,
            heap: nodes.heap(),
            settings,
            own_lines: Vec::new(),
            _claim: claim,
        })
    }

    fn settings_file(&self, node: &Path, index: usize) -> String {
        let hosts: Vec<String> = self
            .addresses
            .iter()
            .map(|address| address.ip().to_string())
            .collect();
        let settings = SETTINGS
            .replace("@CLUSTER_SETTINGS@", &self.settings.lines())
            .replace("@SUBNET@", &hosts[0])
            .replace("@TOKEN@", TOKENS[index])
            .replace("@ADDRESS@", &hosts[index])
            .replace("@SSL_STORAGE_PORT@", &SSL_STORAGE_PORT.to_string())
            .replace("@STORAGE_PORT@", &STORAGE_PORT.to_string())
            .replace("@NATIVE_PORT@", &CQL_PORT.to_string())
            .replace("@SEEDS@", &hosts.join(","))
            .replace("@FOLDER@", &node.display().to_string().replace('\'', "''"));
        with_own(&settings, &self.own_lines)
    }

    fn await_node(&self, instance: &Instance, index: usize) -> Result<(), Unavailable> {
        instance.await_answer(&[index], READY_MAX, || {
            cassandra_wire::serves(self.addresses[index]).then_some(())
        })
    }
}

impl Plan for CassandraPlan {
    fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    fn prepare(&self, folder: &Path) -> Result<(), Unavailable> {
        let write = |path: PathBuf, text: &str| {
            fs::write(&path, text).map_err(Unavailable::io("write", &path))
        };
        for index in 0..self.addresses.len() {
            let node = node_folder(folder, index);
            remove_folder(&node)?;
            for part in ["conf", "tmp", "triggers"] {
                let path = node.join(part);
                fs::create_dir_all(&path).map_err(Unavailable::io("create", &path))?;
            }
            write(
                node.join("conf/cassandra.yaml"),
                &self.settings_file(&node, index),
            )?;
            write(node.join("conf/logback.xml"), LOGBACK)?;
            write(node.join("conf/jvm.args"), JVM_ARGUMENTS)?;
        }
        Ok(())
    }

    fn command(&self, folder: &Path, index: usize) -> Command {
        let node = node_folder(folder, index);
        let node = node.display();
        let jars = self.jars.display();
        let mut command = Command::new("java");
        command
            .env("MALLOC_ARENA_MAX", "2")
            .arg(format!("@{node}/conf/jvm.args"))
            .args([format!("-Xms{}", self.heap), format!("-Xmx{}", self.heap)])
            .arg(format!("-javaagent:{}", self.memory_agent.display()))
            .arg(format!("-XX:ErrorFile={node}/java_error_%p.log"))
            // The system's own temporary folder may be mounted noexec, which breaks native calls.
            .args([
                format!("-Djava.io.tmpdir={node}/tmp"),
                format!("-Djna.tmpdir={node}/tmp"),
            ])
            .arg(format!(
                "-Dcassandra.config={}",
                file_url(&format!("{node}/conf/cassandra.yaml"))
            ))
            .args([
                format!("-Dcassandra.storagedir={node}"),
                format!("-Dcassandra.logdir={node}"),
            ])
            .arg(format!("-Dcassandra.triggers_dir={node}/triggers"))
            .arg(format!(
                "-Dlogback.configurationFile={node}/conf/logback.xml"
            ))
            .arg(format!(
                "-Dcassandra.jmx.local.port={}",
                self.jmx_ports[index]
            ))
            .arg("-Dcom.sun.management.jmxremote.authenticate=false")
            .args([
                "-Dcassandra.skip_wait_for_gossip_to_settle=0",
                "-Dcassandra.ring_delay_ms=5000",
            ])
            .args([
                "-Dcassandra.available_processors=2",
                "-Dcassandra.libjemalloc=-",
            ])
            .arg("-Dcassandra-foreground=yes")
            .args(["-cp", &format!("{node}/conf:{jars}/*")])
            .arg("org.apache.cassandra.service.CassandraDaemon");
        command
    }

    fn await_all(&self, instance: &Instance) -> Result<(), Unavailable> {
        let all: Vec<usize> = (0..self.addresses.len()).collect();
        all.iter()
            .try_for_each(|index| self.await_node(instance, *index))?;
        if all.len() == 1 {
            return Ok(());
        }
        // A change of tables on a node that does not know the others yet would split the schema.
        instance.await_answer(&all, READY_MAX, || {
            let knows_others =
                |address: &SocketAddr| cassandra_wire::peers(*address).ok() == Some(all.len() - 1);
            self.addresses.iter().all(knows_others).then_some(())
        })
    }

    fn await_one(&self, instance: &Instance, index: usize) -> Result<(), Unavailable> {
        self.await_node(instance, index)
    }
}

/// Top-level lines of a settings file, replaced or added.
fn with_own(settings: &str, own: &[(String, String)]) -> String {
    let is_own = |line: &&str| {
        own.iter().any(|(name, _)| {
            line.strip_prefix(name.as_str())
                .is_some_and(|rest| rest.starts_with(':'))
        })
    };
    let mut lines: Vec<String> = settings
        .lines()
        .filter(|line| !is_own(line))
        .map(str::to_owned)
        .collect();
    lines.extend(own.iter().map(|(name, value)| format!("{name}: {value}")));
    lines.join("\n") + "\n"
}

/// `jamm` measures memory for Cassandra; its version differs between releases.
fn memory_agent(jars: &Path) -> Result<PathBuf, Unavailable> {
    let entries = fs::read_dir(jars).map_err(Unavailable::io("read", jars))?;
    entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("jamm-"))
        })
        .ok_or_else(|| Unavailable::FetchFailed {
            what: "Cassandra 5.0.8",
            detail: format!(
                "jamm-*.jar is missing: remove {} and install again",
                jars.display()
            ),
        })
}

fn node_folder(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("node{}", index + 1))
}

/// Cassandra takes its settings by URL alone.
fn file_url(path: &str) -> String {
    format!(
        "file://{}",
        path.replace('%', "%25")
            .replace(' ', "%20")
            .replace('#', "%23")
            .replace('?', "%3F")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_settings_replace_the_usual_ones_and_add_to_them() {
        let own = [("a", "2"), ("c", "3")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(
            with_own("a: 1\nab: 1\nb:\n  a: 1\n", &own),
            "ab: 1\nb:\n  a: 1\na: 2\nc: 3\n"
        );
    }
}
