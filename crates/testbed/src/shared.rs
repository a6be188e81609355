//! Servers that every test process of a machine shares. The first process that
//! asks starts them, under a lock; the others find them by the state file. A
//! lease file that users keep touching tells the guardian that somebody cares.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::instance::{Instance, Plan, Watch, remove_folder};
use crate::lock::FileLock;
use crate::{Running, Unavailable};

/// Servers that nobody has used for this long are ended.
pub(crate) const IDLE_LIMIT: Duration = Duration::from_secs(15 * 60);
const TOUCH_EVERY: Duration = Duration::from_secs(20);
/// A server that runs but does not answer is given this long before it is replaced.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Which shared set or cluster, and where.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// As a person writes it: `mongo:3`, `cassandra:1@carts`.
    name: String,
    folder: PathBuf,
    lock: PathBuf,
}

/// Keeps shared servers up for as long as it lives.
#[derive(Debug)]
pub(crate) struct Lease {
    path: PathBuf,
    _stop: mpsc::Sender<()>,
}

/// Shared servers in use.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) lease: Lease,
}

impl Place {
    pub(crate) fn new(root: &Path, kind: &str, count: usize, label: Option<&str>) -> Place {
        let label = label.map(|label| format!("@{label}")).unwrap_or_default();
        Place::named(root, &format!("{kind}:{count}{label}"))
    }

    fn named(root: &Path, name: &str) -> Place {
        let file_name = name.replacen(':', "-", 1);
        let shared = root.join("shared");
        Place {
            name: name.to_owned(),
            folder: shared.join(&file_name),
            lock: shared.join(format!("{file_name}.lock")),
        }
    }

    /// Every place that was ever used, by name. Its lock stays when its servers end.
    fn all(root: &Path) -> Result<Vec<Place>, Unavailable> {
        let shared = root.join("shared");
        let entries = match fs::read_dir(&shared) {
            Ok(entries) => entries,
            Err(reason) if reason.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(reason) => return Err(Unavailable::io("read", &shared)(reason)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let file_name = entry.map_err(Unavailable::io("read", &shared))?.file_name();
            let file_name = file_name.to_string_lossy();
            names.extend(
                file_name
                    .strip_suffix(".lock")
                    .map(|name| name.replacen('-', ":", 1)),
            );
        }
        names.sort();
        Ok(names.iter().map(|name| Place::named(root, name)).collect())
    }
}

/// The servers at `place` if they are whole and `answer`, else new ones by `plan`.
pub(crate) fn find_or_start<P: Plan>(
    place: &Place,
    idle_limit: Duration,
    answer: impl Fn(&Instance) -> bool,
    plan: impl FnOnce() -> Result<P, Unavailable>,
) -> Result<Shared, Unavailable> {
    let watch = Watch::Lease {
        lock: place.lock.clone(),
        idle_limit,
    };
    let _lock = FileLock::acquire(&place.lock)?;
    let found = Instance::load(&place.folder);
    let instance = match found {
        Some(mut instance) if instance.is_whole() && answer(&instance) => {
            instance.ensure_guardian(&watch)?;
            instance
        }
        dead => {
            clear(place, dead)?;
            Instance::start(&place.folder, &plan()?, &watch)?
        }
    };
    // Taken before the lock is let go: the guardian cannot end the servers in between.
    let lease = Lease::take(instance.lease())?;
    Ok(Shared {
        addresses: instance.addresses(),
        lease,
    })
}

pub(crate) fn running(root: &Path) -> Result<Vec<Running>, Unavailable> {
    let whole = |place: &Place| {
        let instance = Instance::load(&place.folder).filter(Instance::is_whole)?;
        Some(describe(place, &instance))
    };
    Ok(Place::all(root)?.iter().filter_map(whole).collect())
}

pub(crate) fn end_all(root: &Path) -> Result<Vec<Running>, Unavailable> {
    let mut ended = Vec::new();
    for place in Place::all(root)? {
        let _lock = FileLock::acquire(&place.lock)?;
        let found = Instance::load(&place.folder);
        ended.extend(
            found
                .as_ref()
                .filter(|instance| instance.is_whole())
                .map(|instance| describe(&place, instance)),
        );
        clear(&place, found)?;
    }
    remove_remains(root)?;
    Ok(ended)
}

/// Folders of exclusive servers that went down with the machine, guardian and all.
fn remove_remains(root: &Path) -> Result<(), Unavailable> {
    let Ok(entries) = fs::read_dir(root.join("exclusive")) else {
        return Ok(());
    };
    for folder in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        if Instance::load(&folder).is_some_and(|instance| instance.is_dead()) {
            remove_folder(&folder)?;
        }
    }
    Ok(())
}

impl Lease {
    fn take(path: PathBuf) -> Result<Lease, Unavailable> {
        touch(&path, SystemTime::now()).map_err(Unavailable::io("touch", &path))?;
        let (stop, stopped) = mpsc::channel::<()>();
        let touched = path.clone();
        thread::Builder::new()
            .name("testbed-lease".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(TOUCH_EVERY) == Err(RecvTimeoutError::Timeout) {
                    // Without the file the servers were ended on purpose; there is nothing to keep.
                    if touch(&touched, SystemTime::now()).is_err() {
                        break;
                    }
                }
            })
            .map_err(Unavailable::io("start a thread for", &path))?;
        Ok(Lease { path, _stop: stop })
    }

    /// Keeps the servers up for `time` even when this process ends.
    pub(crate) fn extend(&self, time: Duration) -> Result<(), Unavailable> {
        touch(&self.path, SystemTime::now() + time).map_err(Unavailable::io("touch", &self.path))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The servers may have been ended on purpose meanwhile.
        let _ = touch(&self.path, SystemTime::now());
    }
}

/// Sets the time of last use, but never back: a person's longer stay holds.
fn touch(path: &Path, used: SystemTime) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    if file.metadata()?.modified()? < used {
        file.set_modified(used)?;
    }
    Ok(())
}

fn clear(place: &Place, found: Option<Instance>) -> Result<(), Unavailable> {
    match found {
        Some(instance) => instance.end(),
        None => remove_folder(&place.folder),
    }
}

fn describe(place: &Place, instance: &Instance) -> Running {
    Running {
        name: place.name.clone(),
        addresses: instance.addresses(),
        pids: instance.processes().map(|process| process.pid).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;
    use crate::processes::{Condition, Process};

    const VANISH_MAX: Duration = Duration::from_secs(20);

    /// Servers that only sleep: this file is about finding and ending, not answering.
    struct Sleepers([SocketAddr; 2]);

    impl Plan for Sleepers {
        fn addresses(&self) -> &[SocketAddr] {
            &self.0
        }
        fn prepare(&self, _: &Path) -> Result<(), Unavailable> {
            Ok(())
        }
        fn command(&self, _: &Path, _: usize) -> Command {
            let mut command = Command::new("sleep");
            command.arg("600");
            command
        }
        fn await_all(&self, _: &Instance) -> Result<(), Unavailable> {
            Ok(())
        }
        fn await_one(&self, _: &Instance, _: usize) -> Result<(), Unavailable> {
            Ok(())
        }
    }

    fn sleepers() -> Result<Sleepers, Unavailable> {
        Ok(Sleepers([
            SocketAddr::from(([127, 0, 0, 1], 1)),
            SocketAddr::from(([127, 0, 0, 1], 2)),
        ]))
    }

    fn use_place(place: &Place, idle_limit: Duration) -> (Shared, Vec<Process>) {
        let shared = find_or_start(place, idle_limit, |_| true, sleepers).unwrap();
        let processes = Instance::load(&place.folder).unwrap().processes().collect();
        (shared, processes)
    }

    fn await_gone(processes: &[Process]) {
        let start = Instant::now();
        while processes
            .iter()
            .any(|process| process.condition() != Condition::Gone)
        {
            assert!(start.elapsed() < VANISH_MAX, "still running: {processes:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn everyone_who_asks_at_once_gets_the_same_servers() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::named(root.path(), "mongo:1");
        let seen: Vec<Vec<Process>> = thread::scope(|scope| {
            let asking: Vec<_> = (0..6)
                .map(|_| scope.spawn(|| use_place(&place, IDLE_LIMIT).1))
                .collect();
            asking
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(seen.iter().all(|processes| *processes == seen[0]));
        assert_eq!(running(root.path()).unwrap().len(), 1);
        assert_eq!(end_all(root.path()).unwrap().len(), 1);
        await_gone(&seen[0]);
        assert!(!place.folder.exists());
        assert!(end_all(root.path()).unwrap().is_empty());
    }

    #[test]
    fn a_dead_state_file_is_recovered_and_survivors_are_ended() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::named(root.path(), "mongo:3");
        let (_shared, before) = use_place(&place, IDLE_LIMIT);
        before[0].kill().unwrap();
        let (_shared, after) = use_place(&place, IDLE_LIMIT);
        await_gone(&before);
        fs::write(place.folder.join("state.json"), "{ half").unwrap();
        for process in &after {
            process.kill().unwrap();
        }
        let (_shared, third) = use_place(&place, IDLE_LIMIT);
        assert!(
            third
                .iter()
                .all(|process| process.condition() == Condition::Running)
        );
        end_all(root.path()).unwrap();
    }

    #[test]
    fn servers_that_do_not_answer_are_replaced() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::named(root.path(), "cassandra:1");
        let (_shared, before) = use_place(&place, IDLE_LIMIT);
        find_or_start(&place, IDLE_LIMIT, |_| false, sleepers).unwrap();
        await_gone(&before);
        end_all(root.path()).unwrap();
    }

    #[test]
    fn the_guardian_ends_servers_that_nobody_uses() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::named(root.path(), "mongo:1");
        let (shared, processes) = use_place(&place, Duration::from_millis(400));
        drop(shared);
        await_gone(&processes);
        let start = Instant::now();
        while place.folder.exists() {
            assert!(start.elapsed() < VANISH_MAX);
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn the_guardian_ends_what_a_dead_starter_left() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::named(root.path(), "mongo:1");
        let (_shared, processes) = use_place(&place, Duration::from_secs(2));
        let state = place.folder.join("state.json");
        let unfinished = fs::read_to_string(&state)
            .unwrap()
            .replace("ready", "starting");
        let lock = FileLock::acquire(&place.lock).unwrap();
        fs::write(&state, unfinished).unwrap();
        drop(lock);
        await_gone(&processes);
    }

    #[test]
    fn a_lost_guardian_is_replaced_and_a_long_stay_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::named(root.path(), "mongo:1");
        let (shared, before) = use_place(&place, IDLE_LIMIT);
        let guardian = || -> Process {
            let text = fs::read(place.folder.join("state.json")).unwrap();
            let state: serde_json::Value = serde_json::from_slice(&text).unwrap();
            serde_json::from_value(state["guardian"].clone()).unwrap()
        };
        guardian().kill().unwrap();
        shared.lease.extend(Duration::from_secs(3_600)).unwrap();
        let (_shared, after) = use_place(&place, IDLE_LIMIT);
        assert_eq!(before, after);
        assert_eq!(guardian().condition(), Condition::Running);
        assert!(
            fs::metadata(place.folder.join("lease"))
                .unwrap()
                .modified()
                .unwrap()
                > SystemTime::now()
        );
        end_all(root.path()).unwrap();
    }

    #[test]
    fn the_guardian_ends_exclusive_servers_when_their_owner_is_killed() {
        let root = tempfile::tempdir().unwrap();
        let owner =
            Process::spawn(Command::new("sleep").arg("600"), Path::new("/dev/null")).unwrap();
        let folder = root.path().join("exclusive/one");
        let instance =
            Instance::start(&folder, &sleepers().unwrap(), &Watch::Owner(owner)).unwrap();
        owner.kill().unwrap();
        await_gone(&instance.processes().collect::<Vec<_>>());
    }
}
