//! A folder is open in one process: moves to a data directory beside a layout on servers wait until no other serves.

use anyhow::ensure;
use judge::server::ServerProcess;

use crate::ends_with;
use crate::place::Place;
use crate::side::{EMBEDDED, MONGO};

#[test]
fn nothing_goes_into_a_directory_while_another_process_serves_without_it() {
    if let Some(place) = Place::start([MONGO, EMBEDDED]) {
        story(&place).unwrap();
    }
}

fn story(place: &Place) -> anyhow::Result<()> {
    // The directory has one process.
    let second = place.serve_in_vain(&place.both())?;
    ends_with(&second, "is in use by another process", "stop it")?;
    // One that serves the old layout alone could not take over a map that names the folder.
    let without = started(place, "without", &place.alone())?;
    is_refused(place)?;
    drop(without);
    // Neither could one with a directory of its own: the same name would mean two places.
    let elsewhere = started(place, "elsewhere", &place.both_in("other"))?;
    is_refused(place)?;
    drop(elsewhere);
    // Who is gone is forgotten when its lease has run out: that is waited for.
    let plan = place.plan()?;
    let moves = plan["moves"].as_array().into_iter().flatten();
    let mut stands = moves.map(|one| &one["stands"]);
    ensure!(stands.all(|it| it == "to be moved"), "{plan:#}");
    place.start_move("sessions")?;
    place.bring("embedded-sessions", "cutover", "ready", "settling")?;
    // From now on the map names the folder: nobody serves without it, or with another one.
    let alone = place.serve_in_vain(&place.alone())?;
    ends_with(&alone, "are kept by layout embedded", "move them")?;
    let other = place.serve_in_vain(&place.both_in("other"))?;
    ends_with(
        &other,
        "sessions are on shard shard-1-",
        "the data directory that has it",
    )?;
    Ok(())
}

fn is_refused(place: &Place) -> anyhow::Result<()> {
    let refused = place.layout("start", &["--collection", "sessions"])?;
    ends_with(
        &refused,
        "is a folder, which one process alone can have open",
        "end process",
    )
}

fn started(place: &Place, process: &str, arguments: &[String]) -> anyhow::Result<ServerProcess> {
    let mut command = place.serving(process, arguments);
    command.args(["--listen", "127.0.0.1:0"]);
    ServerProcess::start(command)
}
