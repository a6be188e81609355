//! `caravan map watch`: a line for every change, as it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use engine_api::{ControlStore, Generation, RealWorld, World};
use router::{LeaseJudge, LeaseSeen, Map, MapKeeper, Standing, Term};

use super::pieces;
use crate::config::Config;

const LOOK: Duration = Duration::from_millis(250);

pub async fn run(
    config: &Config,
    control: Arc<dyn ControlStore>,
    out: &mut dyn Write,
) -> Result<()> {
    let world = Arc::new(RealWorld::new());
    let keeper = MapKeeper::new(control.clone());
    let judge = LeaseJudge::new(control, world.clone(), &config.router);
    let mut before = Seen::default();
    let mut reachable = true;
    loop {
        match look(&keeper, &judge).await {
            Ok(now) => {
                for line in before.changes(&now) {
                    writeln!(out, "{line}")?;
                }
                before = now;
                reachable = true;
            }
            // Told once: the servers may come back, and then the watch goes on.
            Err(error) if reachable => {
                writeln!(out, "nothing can be seen now: {error}")?;
                reachable = false;
            }
            Err(_) => {}
        }
        out.flush()?;
        world.sleep(LOOK).await;
    }
}

async fn look(keeper: &MapKeeper, judge: &LeaseJudge) -> Result<Seen> {
    let leases = judge.look().await?;
    Ok(Seen {
        map: keeper.load().await?,
        leases: leases
            .into_iter()
            .map(|lease| (lease.term, lease))
            .collect(),
    })
}

/// What one look showed.
#[derive(Debug, Default)]
struct Seen {
    map: Option<Arc<Map>>,
    leases: BTreeMap<Term, LeaseSeen>,
}

impl Seen {
    fn changes(&self, now: &Seen) -> Vec<String> {
        let mut lines = self.changes_of_map(now);
        for (term, lease) in &now.leases {
            lines.extend(changes_of_lease(self.leases.get(term), lease));
        }
        lines
    }

    /// The generation and its reason, then what it takes away and what it adds.
    fn changes_of_map(&self, now: &Seen) -> Vec<String> {
        let Some(map) = &now.map else {
            return Vec::new();
        };
        let generation = |map: &Arc<Map>| map.generation;
        if self.map.as_ref().map(generation) == Some(map.generation) {
            return Vec::new();
        }
        let reason = map
            .note
            .as_ref()
            .map_or("no reason given", |note| &note.reason);
        let mut lines = vec![format!("generation {}: {reason}", map.generation)];
        let Some(before) = &self.map else {
            return lines;
        };
        let (before, after) = (all_pieces(before), all_pieces(map));
        lines.extend(before.difference(&after).map(|piece| format!("- {piece}")));
        lines.extend(after.difference(&before).map(|piece| format!("+ {piece}")));
        lines
    }
}

fn changes_of_lease(before: Option<&LeaseSeen>, now: &LeaseSeen) -> Option<String> {
    let who = format!(
        "{} (writer {}, term {})",
        now.process,
        now.writer.number(),
        now.term
    );
    let change = match (before.map(|lease| lease.standing), now.standing) {
        (Some(Standing::RunOut | Standing::GivenUp), _) => return None,
        (_, Standing::RunOut) => "has run out".to_owned(),
        (_, Standing::GivenUp) => "was given up".to_owned(),
        (None, Standing::Live) if now.generation == Generation(0) => "was taken".to_owned(),
        (_, Standing::Live) => {
            if before.is_some_and(|before| before.generation == now.generation) {
                return None;
            }
            format!("has acknowledged generation {}", now.generation)
        }
    };
    Some(format!("lease of {who} {change}"))
}

fn all_pieces(map: &Map) -> BTreeSet<String> {
    let of_collection = |(collection, map)| {
        let pieces = pieces(map).into_iter();
        pieces.map(move |(keys, shard)| format!("{collection}: {keys} on {shard}"))
    };
    map.collections.iter().flat_map(of_collection).collect()
}

#[cfg(test)]
mod tests {
    use engine_api::{Timestamp, Writer};
    use layout::{Collection, Field, Scope};
    use router::{CollectionMap, Edit, ShardName};

    use super::*;

    fn seen(map: &Map, leases: &[LeaseSeen]) -> Seen {
        Seen {
            map: Some(Arc::new(map.clone())),
            leases: leases
                .iter()
                .map(|lease| (lease.term, lease.clone()))
                .collect(),
        }
    }

    fn lease(generation: u64, standing: Standing) -> LeaseSeen {
        LeaseSeen {
            process: "shop-1".to_owned(),
            writer: Writer::numbered(3),
            term: Term(7),
            generation: Generation(generation),
            shards: BTreeSet::new(),
            standing,
            age: Duration::ZERO,
            stalls: Vec::new(),
        }
    }

    #[test]
    fn a_change_of_the_map_says_what_goes_and_what_comes() {
        let shard = |name: &str| ShardName::new(name).unwrap();
        let carts = CollectionMap::on_one_shard("embedded", vec![Field::CartId], shard("a"));
        let first = Map::first(BTreeMap::from([(Collection::Carts, carts)]));
        let moved = Edit::Move {
            scope: Scope::All,
            to: shard("b"),
        };
        let next = first.edited(&[(Collection::Carts, moved)]).unwrap();
        let next = next.noted(Timestamp::from_unix_micros(0), "move of carts");
        let before = seen(&first, &[]);
        assert_eq!(
            Seen::default().changes(&before),
            ["generation 1: no reason given"]
        );
        assert_eq!(before.changes(&seen(&first, &[])), Vec::<String>::new());
        let expected = [
            "generation 2: move of carts",
            "- carts: slots 0-4095 on a",
            "+ carts: slots 0-4095 on b",
        ];
        assert_eq!(before.changes(&seen(&next, &[])), expected);
    }

    #[test]
    fn a_lease_is_told_when_it_is_taken_acknowledges_and_ends() {
        fn check(before: Option<LeaseSeen>, now: LeaseSeen, expected: Option<&str>) {
            let line = expected.map(|what| format!("lease of shop-1 (writer 3, term 7) {what}"));
            assert_eq!(changes_of_lease(before.as_ref(), &now), line);
        }
        let live = |generation| lease(generation, Standing::Live);
        check(None, live(0), Some("was taken"));
        check(None, live(4), Some("has acknowledged generation 4"));
        check(
            Some(live(0)),
            live(4),
            Some("has acknowledged generation 4"),
        );
        check(Some(live(4)), live(4), None);
        let (run_out, given_up) = (lease(4, Standing::RunOut), lease(4, Standing::GivenUp));
        check(Some(live(4)), run_out.clone(), Some("has run out"));
        check(Some(run_out.clone()), run_out, None);
        check(Some(live(4)), given_up.clone(), Some("was given up"));
        check(Some(given_up.clone()), given_up, None);
    }
}
