//! `caravan map`: the map as an operator reads it, the processes that serve under
//! it, and what was published before.

mod splitting;
mod watching;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use engine_api::{ControlStore, RealWorld, World};
use layout::Scope;
use router::{CollectionMap, Cut, LeaseJudge, LeaseSeen, Map, MapHistory, MapKeeper, Standing};

use crate::config::Config;
use crate::shards::{self, Shards};
use crate::text::columns;

pub use splitting::split;

pub fn show(config: &Config, out: &mut dyn Write) -> Result<()> {
    shards::runtime()?.block_on(async {
        let control = Shards::control(config).await?;
        write!(out, "{}", describe(&*standing(&control).await?))?;
        let (leases, watched) = observed(config, control).await?;
        write!(out, "{}", describe_leases(&leases, watched))?;
        Ok(())
    })
}

pub fn history(config: &Config, out: &mut dyn Write) -> Result<()> {
    shards::runtime()?.block_on(async {
        let control = Shards::control(config).await?;
        let map = standing(&control).await?;
        let mut rows = vec![["generation", "published", "reason"].map(str::to_owned)];
        for entry in MapHistory::new(control).entries(&map).await? {
            let (at, reason) = match entry.note {
                Some(note) => (note.at().to_string(), note.reason),
                None => ("-".to_owned(), "-".to_owned()),
            };
            rows.push([entry.generation.to_string(), at, reason]);
        }
        write!(out, "{}", columns(&rows))?;
        Ok(())
    })
}

pub fn watch(config: &Config, out: &mut dyn Write) -> Result<()> {
    ensure!(
        !shards::keeps_map_in_directory(config)?,
        "a data directory lets one process in, and nothing changes beside it: watch a layout's shop with --layout FILE"
    );
    shards::runtime()?.block_on(async {
        let control = Shards::control(config).await?;
        watching::run(config, control, out).await
    })
}

pub async fn standing(control: &Arc<dyn ControlStore>) -> Result<Arc<Map>> {
    let map = MapKeeper::new(control.clone()).load().await?;
    map.ok_or_else(|| anyhow!("there is no map yet: open the shop with caravan serve"))
}

/// The leases after a look of one renewal and a half: who did not renew meanwhile is silent.
async fn observed(
    config: &Config,
    control: Arc<dyn ControlStore>,
) -> Result<(Vec<LeaseSeen>, Duration)> {
    let world = Arc::new(RealWorld::new());
    let judge = LeaseJudge::new(control, world.clone(), &config.router);
    let first = judge.look().await?;
    if first.iter().all(|lease| lease.standing != Standing::Live) {
        return Ok((Vec::new(), Duration::ZERO));
    }
    let watched = Duration::from_millis(config.router.lease_renew_ms).mul_f32(1.5);
    world.sleep(watched).await;
    let mut leases = judge.look().await?;
    leases.retain(|lease| lease.standing == Standing::Live);
    Ok((leases, watched))
}

fn describe_leases(leases: &[LeaseSeen], watched: Duration) -> String {
    if leases.is_empty() {
        return String::new();
    }
    let head = ["process", "writer", "term", "acknowledged", "lease"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(leases.iter().map(|lease| {
        let age = match lease.age {
            Duration::ZERO => format!("renewed in the last {:.1} s", watched.as_secs_f32()),
            age => format!("silent for {:.1} s", age.as_secs_f32()),
        };
        [
            lease.process.clone(),
            lease.writer.number().to_string(),
            lease.term.to_string(),
            format!("generation {}", lease.generation),
            age,
        ]
    }));
    format!("\n{}", columns(&rows))
}

/// The generation, then a line per collection and piece.
fn describe(map: &Map) -> String {
    let mut rows = vec![["collection", "layout", "shard key", "keys", "shard"].map(str::to_owned)];
    for (collection, collection_map) in &map.collections {
        let fields: Vec<&str> = collection_map
            .shard_key
            .iter()
            .map(|field| field.name())
            .collect();
        for (keys, shard) in pieces(collection_map) {
            rows.push([
                collection.to_string(),
                collection_map.layout.clone(),
                fields.join(", "),
                keys,
                shard,
            ]);
        }
    }
    format!("generation {}\n{}", map.generation, columns(&rows))
}

/// What the cut says, then what overrides it.
pub fn pieces(map: &CollectionMap) -> Vec<(String, String)> {
    let mut pieces: Vec<(String, String)> = match &map.cut {
        Cut::Slots(runs) => runs
            .iter()
            .map(|run| {
                let (first, last) = (run.slots.first.number(), run.slots.last.number());
                (format!("slots {first}-{last}"), run.shard.to_string())
            })
            .collect(),
        Cut::Ranges(ranges) => ranges
            .iter()
            .map(|range| {
                let from = range.from.as_ref();
                let from = from.map_or("the beginning".to_owned(), ToString::to_string);
                (format!("range from {from}"), range.shard.to_string())
            })
            .collect(),
    };
    let pinned = map.pinned.iter();
    pieces.extend(pinned.map(|(key, shard)| (format!("pinned {key}"), shard.to_string())));
    let frozen = map.frozen.iter();
    pieces.extend(frozen.map(|scope| (format!("frozen {}", scope_text(scope)), "-".to_owned())));
    let buckets = map.buckets.iter();
    pieces.extend(
        buckets.map(|(table, count)| (format!("{count} buckets in {table}"), "-".to_owned())),
    );
    pieces
}

pub fn scope_text(scope: &Scope) -> String {
    match scope {
        Scope::All => "all keys".to_owned(),
        Scope::Slots(ranges) => {
            let ranges = ranges.iter();
            let texts =
                ranges.map(|range| format!("{}-{}", range.first.number(), range.last.number()));
            format!("slots {}", texts.collect::<Vec<_>>().join(", "))
        }
        Scope::Range { from, to } => {
            let from = from
                .as_ref()
                .map_or("the beginning".to_owned(), ToString::to_string);
            let to = to
                .as_ref()
                .map_or("the end".to_owned(), ToString::to_string);
            format!("from {from} to {to}")
        }
        Scope::Keys(keys) => {
            let texts: Vec<String> = keys.iter().map(ToString::to_string).collect();
            format!("keys {}", texts.join(" "))
        }
    }
}
