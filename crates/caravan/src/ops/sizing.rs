//! How much a move would copy, and how long that may take: read from the source before anything begins.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine_api::{ControlStore, Engine, PAGE_RECORDS_MAX, Record, Scan};
use feed::tenure::Tenured;
use layout::{Collection, Fields, Scope, ShardKey, Slot, SlotRange, Value};
use mover::{KnownBy, MoveName, MoveState, Moved, Plan, ToCopy};
use router::{CollectionMap, Cut, ShardName};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

/// Slots that are counted, of as many as there are: a hash spreads keys well enough.
const SLOTS_COUNTED_MAX: usize = 64;
/// Records that are read for an answer, at most.
const RECORDS_READ_MAX: u64 = 20_000;

const READS_PER_RECORD: f64 = 4.0;

/// Who starts moves does not wait for longer than this to have their sizes noted.
const NOTED_WITHIN: Duration = Duration::from_secs(10);

/// What stands in the scope at the source, marks included: they are copied as well.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Size {
    pub records: u64,
    /// Of keys, names and values; engines keep more around them.
    pub bytes: u64,
    pub known_by: KnownBy,
    /// How fast they were read for this.
    pub read_per_s: f64,
}

impl Size {
    /// How long copying and comparing may take: each record is read and written once, and read once more on both sides.
    pub fn forecast(&self, records_per_s_max: Option<u32>) -> Duration {
        let most = records_per_s_max.map_or(f64::INFINITY, f64::from);
        let pace = (self.read_per_s / READS_PER_RECORD).min(most).max(1.0);
        Duration::from_secs_f64(self.records as f64 / pace)
    }

    /// Of two shards. One after the other is read as fast as both together were.
    fn and(self, other: Size) -> Size {
        let records = self.records + other.records;
        let took = |size: Size| size.records as f64 / size.read_per_s.max(1.0);
        Size {
            records,
            bytes: self.bytes + other.bytes,
            known_by: self.known_by.max(other.known_by),
            read_per_s: records as f64 / (took(self) + took(other)).max(0.001),
        }
    }
}

/// How long the freezes of moves took that were cut over here before, the longest first; none before the first.
pub fn freezes(moves: &[(MoveName, Option<Tenured<MoveState>>)]) -> Vec<u64> {
    let records = moves.iter().filter_map(|(_, record)| record.as_ref());
    let mut freezes: Vec<u64> = records
        .filter_map(|record| record.state.shown.freeze_ms)
        .collect();
    freezes.sort_unstable_by(|one, other| other.cmp(one));
    freezes
}

/// What to expect of the freeze.
pub fn freeze_text(freeze_ms_max: u64, before: &[u64]) -> String {
    let budget = format!("freeze: at most {freeze_ms_max} ms, or the cutover is given up");
    match before {
        [] => format!("{budget}; nothing was cut over here yet"),
        [longest, ..] => {
            let count = before.len();
            format!("{budget}; of {count} cutovers here the longest took {longest} ms")
        }
    }
}

/// What each shard of the source has of the plan.
pub async fn size(shards: &mover::Shards, plan: &Plan) -> Result<Size> {
    let pieces = match &plan.moved {
        Moved::Keys { scope, source, .. } => vec![(source, scope.clone())],
        Moved::Whole { source, .. } => pieces(source),
    };
    let mut all: Option<Size> = None;
    for (name, scope) in pieces {
        let shard = shards.get(name);
        let shard =
            shard.with_context(|| format!("there is no shard {name}: choose one that is there"))?;
        let size = size_in(shard.as_ref(), plan.collection, &scope).await?;
        all = Some(all.map_or(size, |all| all.and(size)));
    }
    all.context("the collection is on no shard")
}

/// Keeps for those who watch how much the moves that were begun have to copy. They go on as well without.
pub async fn note(control: &dyn ControlStore, shards: &mover::Shards, moves: &[(MoveName, Plan)]) {
    let noting = async {
        for (name, plan) in moves {
            if let Err(error) = note_one(control, shards, name, plan).await {
                let name = name.as_str();
                tracing::info!(name, %error, "nobody knows how much a move has to copy");
            }
        }
    };
    if timeout(NOTED_WITHIN, noting).await.is_err() {
        tracing::info!("how much moves have to copy takes too long to find out");
    }
}

async fn note_one(
    control: &dyn ControlStore,
    shards: &mover::Shards,
    name: &MoveName,
    plan: &Plan,
) -> Result<()> {
    let Size {
        records, known_by, ..
    } = size(shards, plan).await?;
    let to_copy = ToCopy { records, known_by };
    Ok(mover::set_to_copy(control, name, to_copy).await?)
}

/// What a placement gives each of its shards: one scope each, and one for its pinned keys.
fn pieces(placement: &CollectionMap) -> Vec<(&ShardName, Scope)> {
    let mut pieces = Vec::new();
    match &placement.cut {
        Cut::Slots(runs) => {
            let mut of_shard: BTreeMap<&ShardName, Vec<SlotRange>> = BTreeMap::new();
            for run in runs {
                of_shard.entry(&run.shard).or_default().push(run.slots);
            }
            pieces.extend(
                of_shard
                    .into_iter()
                    .map(|(shard, runs)| (shard, Scope::Slots(runs))),
            );
        }
        Cut::Ranges(ranges) => {
            for (index, range) in ranges.iter().enumerate() {
                let to = ranges.get(index + 1).and_then(|next| next.from.clone());
                let from = range.from.clone();
                pieces.push((&range.shard, Scope::Range { from, to }));
            }
        }
    }
    let mut pinned: BTreeMap<&ShardName, Vec<ShardKey>> = BTreeMap::new();
    for (key, shard) in &placement.pinned {
        pinned.entry(shard).or_default().push(key.clone());
    }
    pieces.extend(
        pinned
            .into_iter()
            .map(|(shard, keys)| (shard, Scope::Keys(keys))),
    );
    pieces
}

async fn size_in(source: &dyn Engine, collection: Collection, scope: &Scope) -> Result<Size> {
    let slots = match scope {
        Scope::Slots(ranges) => ranges.clone(),
        Scope::All => vec![all_slots()],
        Scope::Range { .. } | Scope::Keys(_) => Vec::new(),
    };
    let slots: Vec<Slot> = Slot::all()
        .filter(|slot| slots.iter().any(|range| range.contains(*slot)))
        .collect();
    let began = Instant::now();
    if slots.len() <= SLOTS_COUNTED_MAX {
        let (records, bytes, all) = count(source, collection, scope.clone()).await?;
        let known_by = if all {
            KnownBy::Counting
        } else {
            KnownBy::AtLeast
        };
        return Ok(sized(records, bytes, known_by, began.elapsed(), records));
    }
    let every = slots.len() as f64 / SLOTS_COUNTED_MAX as f64;
    let picked = (0..SLOTS_COUNTED_MAX).map(|index| {
        let slot = slots[(index as f64 * every) as usize];
        SlotRange {
            first: slot,
            last: slot,
        }
    });
    let (records, bytes, all) = count(source, collection, Scope::Slots(picked.collect())).await?;
    let known_by = if all {
        KnownBy::Estimate
    } else {
        KnownBy::AtLeast
    };
    let scaled = |count: u64| (count as f64 * every).round() as u64;
    Ok(sized(
        scaled(records),
        scaled(bytes),
        known_by,
        began.elapsed(),
        records,
    ))
}

fn all_slots() -> SlotRange {
    let mut slots = Slot::all();
    let first = slots.next().expect("there are slots");
    let last = slots.last().expect("there are slots");
    SlotRange { first, last }
}

fn sized(records: u64, bytes: u64, known_by: KnownBy, took: Duration, read: u64) -> Size {
    let read_per_s = read as f64 / took.as_secs_f64().max(0.001);
    Size {
        records,
        bytes,
        known_by,
        read_per_s,
    }
}

/// Records, bytes, and whether these are all.
async fn count(
    source: &dyn Engine,
    collection: Collection,
    scope: Scope,
) -> Result<(u64, u64, bool)> {
    let (mut records, mut bytes) = (0, 0);
    let mut scan = Scan {
        collection,
        scope,
        after: None,
        until: None,
        limit: PAGE_RECORDS_MAX,
    };
    loop {
        let page = source.scan(&scan).await?;
        records += page.images.len() as u64;
        bytes += page.images.iter().map(weight).sum::<u64>();
        match page.next {
            None => return Ok((records, bytes, true)),
            Some(_) if records >= RECORDS_READ_MAX => return Ok((records, bytes, false)),
            after => scan.after = after,
        }
    }
}

fn weight(record: &Record) -> u64 {
    let key = record.key.id.as_str().len() + record.key.shard_key.as_bytes().len();
    let header = record.header.content.live().map_or(0, fields);
    let parts = record.live_parts().map(|(part, values)| {
        let path: usize = part.path().iter().map(String::len).sum();
        path + fields(values)
    });
    (key + header + parts.sum::<usize>()) as u64
}

fn fields(fields: &Fields) -> usize {
    let field = |(field, it): (layout::Field, &Value)| field.name().len() + value(it);
    fields.iter().map(field).sum()
}

fn value(of: &Value) -> usize {
    match of {
        Value::Text(text) => text.len(),
        Value::Blob(bytes) => bytes.len(),
        Value::Map(map) => map.iter().map(|(key, it)| key.len() + value(it)).sum(),
        Value::List(list) => list.iter().map(value).sum(),
        Value::Int(_) | Value::Decimal(_) | Value::Timestamp(_) | Value::Inet(_) => 8,
    }
}
