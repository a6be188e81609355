//! A server as a child process: started on a directory, found by the address it prints, killed without warning.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};

/// Opening a large directory after a kill is part of the start.
const START_SECONDS_MAX: u64 = 120;
/// What is kept of the server's output, for the message when it fails.
const TAIL_LINES: usize = 30;

/// Something that serves the shop and can be killed at any moment, keeping what it made durable.
pub trait Host {
    fn start(&mut self) -> anyhow::Result<SocketAddr>;
    /// Ends the server as a power cut would. An error if it had ended by itself.
    fn kill(&mut self) -> anyhow::Result<()>;
}

/// The real server on a directory.
#[derive(Debug)]
pub struct Caravan {
    binary: PathBuf,
    data: PathBuf,
    /// As in `--set http.slow_ms=5`.
    settings: Vec<String>,
    running: Option<ServerProcess>,
}

impl Caravan {
    pub fn new(binary: &Path, data: &Path) -> Caravan {
        Caravan {
            binary: binary.to_owned(),
            data: data.to_owned(),
            settings: Vec::new(),
            running: None,
        }
    }

    /// The same server with one more setting.
    #[must_use]
    pub fn set(mut self, setting: &str) -> Caravan {
        self.settings.push(setting.to_owned());
        self
    }
}

impl Host for Caravan {
    fn start(&mut self) -> anyhow::Result<SocketAddr> {
        let mut command = serve_command(&self.binary, &self.data);
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        let server = ServerProcess::start(command)?;
        Ok(self.running.insert(server).address())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.running
            .take()
            .context("there is no server to kill")?
            .kill()
    }
}

/// The one place that knows how the product is started.
pub fn serve_command(binary: &Path, data: &Path) -> Command {
    let mut command = Command::new(binary);
    command.arg("serve").arg("--data").arg(data);
    command.args(["--listen", "127.0.0.1:0"]);
    command
}

/// Killed when dropped.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    address: SocketAddr,
    tail: Tail,
}

impl ServerProcess {
    /// Returns when the server has printed where it listens.
    pub fn start(mut command: Command) -> anyhow::Result<ServerProcess> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{program} does not start"))?;
        let tail = Tail::default();
        let (found, addresses) = channel();
        if let Some(output) = child.stdout.take() {
            follow(output, tail.clone(), found.clone());
        }
        if let Some(output) = child.stderr.take() {
            follow(output, tail.clone(), found);
        }
        match first_address(&addresses) {
            Ok(address) => Ok(ServerProcess {
                child,
                address,
                tail,
            }),
            Err(why) => {
                child.kill()?;
                let status = child.wait()?;
                bail!(
                    "{program} {why} ({status}); its last words:\n{}",
                    tail.text()
                )
            }
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// For one that was asked to end: an error if it does not end in peace.
    pub fn wait(mut self) -> anyhow::Result<()> {
        let status = self.child.wait()?;
        if !status.success() {
            bail!(
                "the server ended with {status}; its last words:\n{}",
                self.tail.text()
            );
        }
        Ok(())
    }

    /// SIGKILL. A server that had ended before was not killed but failed.
    pub fn kill(mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!(
                "the server ended by itself ({status}); its last words:\n{}",
                self.tail.text()
            );
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both fail only for a process that has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Debug, Default)]
struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines
            .iter()
            .fold(String::new(), |text, line| text + line + "\n")
    }
}

/// Reads on after the address is found: a full pipe would stop the server.
fn follow(output: impl Read + Send + 'static, tail: Tail, found: Sender<SocketAddr>) {
    std::thread::spawn(move || {
        let mut waiting = Some(found);
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { return };
            if let (Some(address), Some(found)) = (address_in(&line), &waiting) {
                // Both outputs may print it; the second one finds nobody waiting.
                let _ = found.send(address);
                waiting = None;
            }
            tail.push(line);
        }
    });
}

fn first_address(addresses: &Receiver<SocketAddr>) -> Result<SocketAddr, String> {
    match addresses.recv_timeout(Duration::from_secs(START_SECONDS_MAX)) {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(address) => Err(format!(
            "listens on {address}, which is not this machine's own"
        )),
        Err(RecvTimeoutError::Disconnected) => Err("ended without saying where it listens".into()),
        Err(RecvTimeoutError::Timeout) => Err(format!(
            "printed no line with http://ADDRESS:PORT for {START_SECONDS_MAX} s"
        )),
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("http://")?;
    let end = rest
        .find(|letter: char| !matches!(letter, '0'..='9' | '.' | ':'))
        .unwrap_or(rest.len());
    rest[..end].trim_end_matches(['.', ':']).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_address_is_found_in_a_sentence() {
        let check = |line: &str, port: Option<u16>| {
            assert_eq!(
                address_in(line).map(|address| address.port()),
                port,
                "{line}"
            );
        };
        check("listening on http://127.0.0.1:4321", Some(4321));
        check(
            "the shop is open at http://127.0.0.1:80/, docs beside it",
            Some(80),
        );
        check("open http://127.0.0.1:81.", Some(81));
        check("see http://example for more", None);
        check("starting", None);
    }

    #[test]
    fn a_server_that_ends_by_itself_is_not_taken_for_killed() {
        let ended = ServerProcess::start(shell("echo full disk >&2; exit 3")).unwrap_err();
        assert!(ended.to_string().contains("full disk"), "{ended}");

        let running =
            ServerProcess::start(shell("echo http://127.0.0.1:9; exec sleep 60")).unwrap();
        assert_eq!(running.address().port(), 9);
        running.kill().unwrap();

        let mut failed = ServerProcess::start(shell("echo http://127.0.0.1:9; exit 3")).unwrap();
        failed.child.wait().unwrap();
        assert!(failed.kill().is_err());
    }
}
