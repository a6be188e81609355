//! The real program as a child process, and a client for what it serves.

#![allow(dead_code, clippy::unwrap_used)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use ureq::Agent;
use ureq::http::Request;

/// How long anything in these tests may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(20);

/// A build for tests is slow, and its machine busy: nobody is to be refused for that.
pub const UNHURRIED: (&str, &str) = ("CARAVAN_HTTP_QUEUE_MS_MAX", "5000");

/// The program in the folder, without settings from the environment of the test.
pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_caravan"));
    command.current_dir(folder);
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARAVAN_"))
        {
            command.env_remove(name);
        }
    }
    command
}

/// The shipped layout, with a database of its own, in the folder.
pub fn own_layout(folder: &Path, name: &str, database: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
    let text = std::fs::read_to_string(root.join(format!("{name}.toml"))).unwrap();
    let own = text
        .lines()
        .map(|line| match line.strip_prefix("keyspace = ") {
            Some(_) => format!("keyspace = \"{database}\"\n"),
            None => format!("{line}\n"),
        });
    let file = folder.join(format!("{name}.toml"));
    std::fs::write(&file, own.collect::<String>()).unwrap();
    file.to_str().unwrap().to_owned()
}

pub fn caravan(folder: &Path, arguments: &[&str]) -> Output {
    command(folder).args(arguments).output().unwrap()
}

#[track_caller]
pub fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output = caravan(folder, arguments);
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    assert_eq!(complaint, "");
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code 2 and one line that holds both texts.
#[track_caller]
pub fn is_refused(folder: &Path, arguments: &[&str], what: &str, remedy: &str) {
    is_one_sentence(&caravan(folder, arguments), what, remedy);
}

#[track_caller]
pub fn is_one_sentence(output: &Output, what: &str, remedy: &str) {
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.starts_with("caravan: "), "{complaint}");
    assert!(!complaint.contains('\x1b'), "{complaint:?}");
    assert!(complaint.contains(what), "{complaint}");
    assert!(complaint.contains(remedy), "{complaint}");
}

/// A shop that serves; killed if the test lets go of it.
pub struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    log: File,
    agent: Agent,
    /// What it printed when it opened.
    pub line: String,
    /// As in `http://127.0.0.1:1234`.
    pub url: String,
}

pub struct Answer {
    pub status: u16,
    pub text: String,
    headers: ureq::http::HeaderMap,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Server {
    /// Serves the folder's `caravan-data` at a free port.
    pub fn start(folder: &Path, arguments: &[&str]) -> Server {
        Server::start_with(folder, arguments, &[])
    }

    /// The same, with these variables in its environment.
    pub fn start_with(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Server {
        let mut log = tempfile::tempfile().unwrap();
        let mut child = command(folder)
            .env(UNHURRIED.0, UNHURRIED.1)
            .envs(variables.iter().copied())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().unwrap())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let url = line
            .strip_prefix("caravan is open at ")
            .and_then(|rest| rest.split(' ').next());
        let Some(url) = url.map(str::to_owned) else {
            let _ = child.kill();
            panic!("{arguments:?}: {line:?} {}", text_of(&mut log));
        };
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .proxy(None)
            .build();
        Server {
            child,
            output,
            log,
            agent: agent.into(),
            line,
            url,
        }
    }

    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "")
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, &[], body)
    }

    pub fn put(&self, path: &str, body: &Value) -> Answer {
        let answer = self.send("PUT", path, &[], &body.to_string());
        assert!(answer.status < 300, "{path}: {}", answer.text);
        answer
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.attempt(method, path, headers, body).unwrap()
    }

    /// The same of a server that may not live to answer.
    pub fn attempt(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Answer, ureq::Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = if body.is_empty() {
            self.agent.run(request.body(()).unwrap())
        } else {
            let request = request.header("content-type", "application/json");
            self.agent.run(request.body(body.to_owned()).unwrap())
        };
        let mut response = response?;
        Ok(Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            text: response.body_mut().read_to_string()?,
        })
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end. Its log, and that it printed no second line.
    pub fn ended(mut self) -> (ExitStatus, String) {
        let began = Instant::now();
        while self.is_running() {
            assert!(
                began.elapsed() < PATIENCE,
                "it does not end: {}",
                text_of(&mut self.log)
            );
            std::thread::sleep(PAUSE);
        }
        let mut more = String::new();
        self.output.read_to_string(&mut more).unwrap();
        assert_eq!(more, "", "one line is promised");
        (self.child.wait().unwrap(), text_of(&mut self.log))
    }

    /// Asks for an end in peace and waits for it.
    #[track_caller]
    pub fn stop(self) -> String {
        self.signal(Signal::TERM);
        let (status, log) = self.ended();
        assert!(status.success(), "{status}: {log}");
        log
    }

    /// As a power cut would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks until the answer is as wanted.
    pub fn wait_for(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let began = Instant::now();
        loop {
            let answer = self.get(path);
            if wanted(&answer) {
                return answer;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{path}: {} {}",
                answer.status,
                answer.text
            );
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text_of(log: &mut File) -> String {
    let mut text = String::new();
    log.rewind().unwrap();
    log.read_to_string(&mut text).unwrap();
    text
}
