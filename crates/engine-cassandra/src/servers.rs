//! What the servers are and how they are set, judged before anything is kept
//! there: refused where acknowledged orders could be lost, warned of otherwise.

mod warning;

use std::collections::BTreeMap;

use engine_api::Durability;
use layout::engine::GC_GRACE_SECONDS;
use layout::{Collection, WriteLevel};

use crate::config::OpenError;
use crate::keyspace::Keyspace;
pub use warning::Warning;

/// From this factor on a majority survives the loss of one server.
const COPIES_MIN: u32 = 3;

/// Lightweight transactions of the second kind came with it.
const VERSION_MIN: (u32, u32) = (4, 1);
/// Unified compaction came with it.
const VERSION_UNIFIED_MIN: (u32, u32) = (5, 0);
const UNIFIED: &str = "UnifiedCompactionStrategy";

/// The settings that are read.
pub(crate) const SETTINGS: [&str; 4] = [
    "commitlog_sync",
    "paxos_variant",
    "hinted_handoff_enabled",
    "max_hint_window",
];

/// One server as it describes itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub name: String,
    pub version: String,
    pub settings: BTreeMap<String, String>,
    /// How far its clock is from ours at the least, whatever the way took.
    pub clock_off_ms: u64,
}

/// Judges every server; the first that cannot be used is an error.
pub(crate) fn judge(
    keyspace: &Keyspace,
    servers: &[Server],
    clock_off_ms_max: u64,
) -> Result<Vec<Warning>, OpenError> {
    let mut warnings = Vec::new();
    for server in servers {
        judge_version(keyspace, server)?;
        if server.clock_off_ms > clock_off_ms_max {
            return Err(OpenError::Clock {
                server: server.name.clone(),
                off_ms: server.clock_off_ms,
                max_ms: clock_off_ms_max,
            });
        }
        warnings.extend(judge_commit_log(keyspace, server)?);
        warnings.extend(judge_settings(keyspace, server));
    }
    let copies = keyspace.copies_min();
    if copies < COPIES_MIN {
        warnings.push(Warning::FewCopies { copies });
    }
    warnings.extend(judge_grace(keyspace, servers));
    Ok(warnings)
}

/// What an acknowledged write survives; the weakest of the collections speaks for all.
pub(crate) fn durability(keyspace: &Keyspace, warnings: &[Warning]) -> Durability {
    let periodic = warnings
        .iter()
        .any(|warning| matches!(warning, Warning::CommitLogPeriodic { .. }));
    let by_one = keyspace
        .stores
        .iter()
        .flat_map(|kept| kept.store.consistency.policies())
        .any(|(_, policy)| policy.write == WriteLevel::One);
    match (keyspace.copies_min() >= COPIES_MIN && !by_one, periodic) {
        (true, _) => Durability::Majority,
        (false, false) => Durability::Disk,
        (false, true) => Durability::Process,
    }
}

fn judge_version(keyspace: &Keyspace, server: &Server) -> Result<(), OpenError> {
    let too_old = |need: String, least| OpenError::TooOld {
        server: server.name.clone(),
        found: server.version.clone(),
        need,
        least,
    };
    let version = version(&server.version);
    if version < Some(VERSION_MIN) {
        return Err(too_old("lightweight transactions v2".to_owned(), "4.1"));
    }
    let unified = keyspace
        .tables()
        .find(|table| table.options.compaction.as_deref() == Some(UNIFIED));
    match unified {
        Some(table) if version < Some(VERSION_UNIFIED_MIN) => Err(too_old(
            format!("the compaction of table {}", table.name),
            "5.0",
        )),
        _ => Ok(()),
    }
}

fn judge_commit_log(keyspace: &Keyspace, server: &Server) -> Result<Option<Warning>, OpenError> {
    let found = setting(server, "commitlog_sync");
    if found == "batch" || found == "group" {
        return Ok(None);
    }
    let (server, found) = (server.name.clone(), found.to_owned());
    if keyspace.keeps(Collection::Orders) {
        return Err(OpenError::CommitLog { server, found });
    }
    Ok(Some(Warning::CommitLogPeriodic { server, found }))
}

fn judge_settings(keyspace: &Keyspace, server: &Server) -> Vec<Warning> {
    let name = || server.name.clone();
    let mut warnings = Vec::new();
    let paxos = setting(server, "paxos_variant");
    if paxos != "v2" {
        warnings.push(Warning::PaxosVariant {
            server: name(),
            found: paxos.to_owned(),
        });
    }
    if setting(server, "hinted_handoff_enabled") == "false" {
        warnings.push(Warning::HintsOff { server: name() });
    }
    if let (Some(found_seconds), Some(declared_seconds)) = (
        hint_window_seconds(server),
        keyspace.settings.hint_window_seconds,
    ) && found_seconds != declared_seconds
    {
        warnings.push(Warning::HintWindow {
            server: name(),
            found_seconds,
            declared_seconds,
        });
    }
    warnings
}

/// Deletions are forgotten after the grace; whoever missed one must have heard of it by then.
fn judge_grace(keyspace: &Keyspace, servers: &[Server]) -> Vec<Warning> {
    let window = servers.iter().filter_map(hint_window_seconds).max();
    let others = [
        ("the hint window", window),
        (
            "the repair interval",
            keyspace.settings.repair_interval_seconds,
        ),
    ];
    let mut warnings = Vec::new();
    for table in keyspace.tables() {
        let grace_seconds = table.options.gc_grace_seconds.unwrap_or(GC_GRACE_SECONDS);
        for (other, seconds) in others {
            if let Some(other_seconds) = seconds.filter(|seconds| grace_seconds <= *seconds) {
                warnings.push(Warning::Grace {
                    table: table.name.clone(),
                    grace_seconds,
                    other,
                    other_seconds,
                });
            }
        }
    }
    warnings
}

fn setting<'a>(server: &'a Server, name: &str) -> &'a str {
    server
        .settings
        .get(name)
        .map_or("not reported", String::as_str)
}

fn hint_window_seconds(server: &Server) -> Option<u64> {
    duration_seconds(server.settings.get("max_hint_window")?)
}

/// `3h`, `10800s`, `10800000ms`: how the servers write durations.
fn duration_seconds(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(number / 1000),
        "s" => Some(number),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(3600),
        "d" => number.checked_mul(86_400),
        _ => None,
    }
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use layout::Layout;

    use super::*;

    const CARTS: &str = include_str!("../tests/layouts/small.toml");

    fn keyspace(with_orders: bool) -> Keyspace {
        let layout = Layout::parse(CARTS, "small.toml").unwrap();
        let mut keyspace = Keyspace::of(&layout, "cassandra").unwrap();
        keyspace
            .stores
            .retain(|kept| with_orders || kept.collection() != Collection::Orders);
        keyspace
    }

    fn server(changes: &[(&str, &str)]) -> Server {
        let usual = [
            ("commitlog_sync", "group"),
            ("paxos_variant", "v2"),
            ("hinted_handoff_enabled", "true"),
            ("max_hint_window", "3h"),
        ];
        let settings = usual
            .iter()
            .chain(changes)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Server {
            name: "127.0.0.1:9042".to_owned(),
            version: "5.0.8".to_owned(),
            settings: settings.collect(),
            clock_off_ms: 0,
        }
    }

    fn judged(keyspace: &Keyspace, server: Server) -> Result<Vec<Warning>, OpenError> {
        judge(keyspace, &[server], 500)
    }

    #[test]
    fn a_good_server_is_taken_without_a_word() {
        assert_eq!(judged(&keyspace(true), server(&[])).unwrap(), []);
    }

    #[test]
    fn orders_are_not_kept_where_a_crash_loses_them_and_carts_are_with_a_warning() {
        let periodic = || server(&[("commitlog_sync", "periodic")]);
        let error = judged(&keyspace(true), periodic()).unwrap_err().to_string();
        assert!(
            error.contains("set commitlog_sync to group or batch"),
            "{error}"
        );
        let warnings = judged(&keyspace(false), periodic()).unwrap();
        assert!(matches!(&warnings[..], [Warning::CommitLogPeriodic { .. }]));
    }

    #[test]
    fn old_servers_and_wrong_clocks_are_refused() {
        let refused = |version: &str, clock_off_ms| {
            let server = Server {
                version: version.to_owned(),
                clock_off_ms,
                ..server(&[])
            };
            judged(&keyspace(true), server).unwrap_err().to_string()
        };
        assert!(refused("3.11.4", 0).contains("upgrade to 4.1"));
        assert!(refused("4.1.3", 0).contains("upgrade to 5.0"));
        assert!(refused("nonsense", 0).contains("upgrade to 4.1"));
        assert!(refused("5.0-beta1", 501).contains("off by 501 ms"));
    }

    #[test]
    fn hints_and_grace_are_held_against_each_other() {
        let mut keyspace = keyspace(true);
        keyspace.settings.repair_interval_seconds = Some(GC_GRACE_SECONDS);
        let changed = [
            ("hinted_handoff_enabled", "false"),
            ("max_hint_window", "10801000ms"),
            ("paxos_variant", "v1"),
        ];
        let warnings = judged(&keyspace, server(&changed)).unwrap();
        assert!(warnings.iter().all(|warning| !warning.remedy().is_empty()));
        let found = |wanted: fn(&Warning) -> bool| warnings.iter().any(wanted);
        assert!(found(|warning| matches!(warning, Warning::HintsOff { .. })));
        assert!(found(|warning| matches!(
            warning,
            Warning::PaxosVariant { .. }
        )));
        assert!(found(|warning| matches!(
            warning,
            Warning::HintWindow {
                found_seconds: 10_801,
                ..
            }
        )));
        assert!(found(|warning| matches!(
            warning,
            Warning::Grace {
                other: "the repair interval",
                ..
            }
        )));
    }

    #[test]
    fn the_weakest_promise_is_the_one_declared() {
        let mut keyspace = keyspace(false);
        let periodic = [Warning::CommitLogPeriodic {
            server: String::new(),
            found: String::new(),
        }];
        assert_eq!(durability(&keyspace, &periodic), Durability::Majority);
        keyspace
            .replication
            .values_mut()
            .for_each(|copies| *copies = 1);
        assert_eq!(durability(&keyspace, &[]), Durability::Disk);
        assert_eq!(durability(&keyspace, &periodic), Durability::Process);
    }
}
