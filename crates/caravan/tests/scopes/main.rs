//! What can be moved on real servers while shoppers buy, by the real command line: a shard that comes, one that goes, a
//! tenant, a range. Each there and back and there for good, judged over HTTP by a ledger that is not the shop's.
//!
//! One story a day, or the one that `CARAVAN_SCOPES` names. With `CARAVAN_TESTBED_ALL` set: every one, and up to four shards.

#![allow(clippy::unwrap_used)]

mod away;
mod place;
#[path = "../support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use judge::shop::disturbed::{self, Fleet, Plan};
use layout::{Collection, SLOT_COUNT, ShardKey};
use place::{FREEZE_MS_MAX, Place};
use router::{Cut, ShardName};

const PROCESSES: usize = 2;
const SECONDS_A_DAY: u64 = 24 * 60 * 60;
/// Collections that are cut by slots.
const SLOTTED: [Collection; 3] = [Collection::Carts, Collection::Orders, Collection::Sessions];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    /// Shards are added one after the other, and each gets its share.
    Growing,
    /// A shard is left empty.
    Draining,
    /// The orders of some users go to a shard of their own, and back into the cut.
    HotTenant,
    /// A range is split and shifted to its neighbour.
    Ranges,
}

const STORIES: [(Story, &str); 4] = [
    (Story::Growing, "growing"),
    (Story::Draining, "draining"),
    (Story::HotTenant, "hot-tenant"),
    (Story::Ranges, "ranges"),
];

#[test]
fn what_is_moved_while_shoppers_buy_loses_nothing() {
    let named = std::env::var("CARAVAN_SCOPES").ok();
    let stories: Vec<Story> = match &named {
        Some(named) => {
            let mut known = STORIES.iter();
            vec![known.find(|(_, name)| name == named).unwrap().0]
        }
        None if is_whole() => STORIES.iter().map(|(story, _)| *story).collect(),
        None => {
            let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let day = usize::try_from(today.as_secs() / SECONDS_A_DAY).unwrap();
            vec![STORIES[day % STORIES.len()].0]
        }
    };
    for story in stories {
        tell(story);
    }
}

fn is_whole() -> bool {
    std::env::var_os("CARAVAN_TESTBED_ALL").is_some()
}

fn tell(story: Story) {
    let (shards, servers) = match (story, is_whole()) {
        (Story::Growing, true) => (1, 4),
        (Story::Growing, false) => (1, 3),
        (Story::Draining | Story::HotTenant | Story::Ranges, _) => (2, 2),
    };
    let Some(place) = Place::start(shards, servers, PROCESSES) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let seed = judge::together::run_number();
    println!("{story:?}, seed {seed}");
    let plan = Plan {
        load: Duration::from_secs(1),
        shoppers: 6,
        rest: Duration::ZERO,
        seed,
        ledger: folder.path().join("ledger"),
        patience: Duration::from_secs(12),
        settle: Duration::from_secs(120),
    };
    let told = Told {
        place,
        story,
        servers,
    };
    let verdict = place::block_on(disturbed::run(told, &plan)).unwrap();
    if !verdict.holds() {
        let kept = folder.keep();
        panic!("{story:?}, ledger in {}: {verdict}", kept.display());
    }
}

/// While nobody serves, so that nothing gets on meanwhile: each is refused with its reason, and what stands in the control
/// store is byte for byte what it was.
#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let Some(mut place) = Place::start(2, 3, 1) else {
        return;
    };
    let carts = |what: &'static str, name: &'static str, slots: &'static str, to: &'static str| {
        let keys = [
            "--collection",
            "carts",
            "--slots",
            slots,
            "--from",
            "shard-1",
            "--to",
            to,
        ];
        [
            &["move", what, "--name", name][..],
            &keys,
            &["--freeze-ms-max", FREEZE_MS_MAX],
        ]
        .concat()
    };
    // Completed, so that something is behind us.
    place
        .succeeds(&carts("start", "carts-1", "0-9", "shard-2"))
        .unwrap();
    place
        .bring(["--name", "carts-1"], "cutover", "ready", "settling")
        .unwrap();
    place
        .bring(["--name", "carts-1"], "complete", "settling", "cleaned up")
        .unwrap();
    place.end();
    let refused = |arguments: &[&str], what: &str, remedy: &str| {
        place.is_refused(arguments, what, remedy).unwrap();
    };
    refused(
        &["move", "rollback", "--name", "carts-1"],
        "it is completed",
        "other direction",
    );
    refused(
        &carts("start", "carts-2", "0-99", "shard-2"),
        "not all on shard-1",
        "move that by itself",
    );
    refused(
        &carts("start", "carts-2", "20-99", "shard-3"),
        "has no shard shard-3",
        "caravan shard add",
    );
    place
        .succeeds(&carts("start", "carts-3", "100-199", "shard-2"))
        .unwrap();
    refused(
        &carts("start", "carts-4", "150-250", "shard-2"),
        "move carts-3 has some of the keys",
        "abort it",
    );
    refused(
        &["move", "cutover", "--name", "carts-3"],
        "is not ready",
        "wait",
    );
    refused(
        &["move", "cutover", "--group", "nobody"],
        "no move was started",
        "caravan move list",
    );
    let drain = ["move", "start", "--name", "drain", "--drain", "shard-1"];
    refused(&drain, "move carts-3 has some of the keys", "abort it");
    let elsewhere = "shard-3=mongodb://127.0.0.1:1/?replicaSet=nowhere";
    refused(&added("shard-3", elsewhere), "shard shard-3", "127.0.0.1:1");
    let twice = place.address(1).replace("shard-1=", "shard-3=");
    refused(
        &added("shard-3", &twice),
        "shard-1 is there already",
        "overwrite each other",
    );
    refused(
        &["shard", "add", "--name", "shard-2", "--engine", "mongo"],
        "the layout has a shard shard-2",
        "another name",
    );
    let (own, engine) = (place.address(3), "cassandra");
    let mut wrong = added("shard-3", &own);
    wrong[5] = engine;
    refused(&wrong, "has no engine cassandra", "mongo");
    let foreign = ["shard", "remove", "--name", "shard-3"];
    refused(&foreign, "no shard shard-3 was added", "caravan shard list");
    // Added, while nobody serves; then it is known, and has nothing to give.
    place.succeeds(&added("shard-3", &own)).unwrap();
    let empty = ["move", "start", "--name", "drain", "--drain", "shard-3"];
    refused(&empty, "there is nothing to move", "has no keys");
    let products = [
        "--rebalance",
        "--onto",
        "shard-3",
        "--collection",
        "products",
    ];
    let spread = [&["move", "start", "--name", "spread"][..], &products].concat();
    refused(&spread, "cut by ranges", "--range");
    // A move that has not ended needs both of its sides.
    place
        .succeeds(&carts("start", "carts-5", "300-309", "shard-3"))
        .unwrap();
    refused(&foreign, "move carts-5 has not ended", "abort it");
}

struct Told {
    place: Place,
    story: Story,
    servers: usize,
}

impl Fleet for Told {
    fn addresses(&self) -> Vec<SocketAddr> {
        let members = self.place.members.iter();
        members.map(|(address, _)| *address).collect()
    }

    /// Moves keys instead of breaking things, as long as that takes. One order is sent before, and after every step.
    fn disturb(&mut self, _until: Instant) -> anyhow::Result<()> {
        self.place.put_own_product()?;
        let first = self.place.order("once", "retrying")?;
        match self.story {
            Story::Growing => self.growing()?,
            Story::Draining => self.draining()?,
            Story::HotTenant => self.hot_tenant()?,
            Story::Ranges => self.ranges()?,
        }
        self.is_still(&first)
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        self.place.restart()
    }
}

impl Told {
    /// Sent again, it is the same order, and the only one.
    fn is_still(&self, first: &str) -> anyhow::Result<()> {
        let again = self.place.order("once", "retrying")?;
        ensure!(again == first, "one key made orders {first} and {again}");
        let orders = self.place.orders_of("retrying")?;
        ensure!(orders == 1, "{orders} orders of one key");
        Ok(())
    }

    /// To the target, back, and there for good.
    fn there_and_back_and_there(
        &self,
        kind: &str,
        begin: impl Fn(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let place = &self.place;
        let first = place.order("once", "retrying")?;
        let before = place.map()?;
        begin("first")?;
        place.bring([kind, "first"], "cutover", "ready", "settling")?;
        self.is_still(&first)?;
        ensure!(
            place.map()?.collections != before.collections,
            "nothing was moved"
        );
        place.bring([kind, "first"], "rollback", "settling", "rolled back")?;
        self.is_still(&first)?;
        let after = place.map()?;
        ensure!(
            after.collections == before.collections,
            "{after:?} is not {before:?}"
        );
        self.there_for_good(kind, "second", begin)
    }

    fn there_for_good(
        &self,
        kind: &str,
        name: &str,
        begin: impl Fn(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        begin(name)?;
        self.place
            .bring([kind, name], "cutover", "ready", "settling")?;
        self.place
            .bring([kind, name], "complete", "settling", "cleaned up")
    }

    fn growing(&self) -> anyhow::Result<()> {
        for number in 2..=self.servers {
            self.grow(number)?;
        }
        // The last one goes again, and can be removed when it is empty.
        let last = format!("shard-{}", self.servers);
        let remove = ["shard", "remove", "--name", &last];
        self.place
            .is_refused(&remove, "has carts, orders, sessions", "--drain")?;
        self.there_for_good("--group", "shrink", |name| self.drain(name, &last))?;
        self.place.succeeds(&remove)?;
        let listed = self.place.succeeds(&["shard", "list"])?;
        ensure!(!listed.contains(&last), "{listed}");
        let again = self.place.address(self.servers);
        let again = added(&last, &again);
        self.place
            .is_refused(&again, "there was a shard", "another name")
    }

    fn grow(&self, number: usize) -> anyhow::Result<()> {
        let (place, shard) = (&self.place, format!("shard-{number}"));
        let address = place.address(number);
        let told = place.succeeds(&added(&shard, &address))?;
        ensure!(told.contains("open in 2 processes"), "{told}");
        let mut before = Vec::new();
        for collection in SLOTTED {
            before.push((collection, place.slots(collection)?));
        }
        let begin = |name: &str| self.rebalance(name, &shard);
        match number {
            2 => self.there_and_back_and_there("--group", begin)?,
            _ => self.there_for_good("--group", &format!("grow-{number}"), begin)?,
        }
        let new = ShardName::new(&shard)?;
        for (collection, before) in before {
            let after = place.slots(collection)?;
            let moved = before.iter().zip(&after).filter(|(old, new)| old != new);
            let (mut count, mut elsewhere) = (0u16, 0);
            for (_, owner) in moved {
                count += 1;
                elsewhere += usize::from(*owner != new);
            }
            let share = f64::from(count) / f64::from(SLOT_COUNT);
            place.say(&format!(
                "{collection}: {:.2} % moved onto {shard}",
                share * 100.0
            ));
            let wanted = 1.0 / f64::from(u32::try_from(number)?);
            ensure!((share - wanted).abs() < 0.02, "{collection}: {share}");
            ensure!(
                elsewhere == 0,
                "{elsewhere} slots of {collection} went elsewhere"
            );
        }
        Ok(())
    }

    fn rebalance(&self, name: &str, onto: &str) -> anyhow::Result<()> {
        let moving = |what| {
            let place = ["--freeze-ms-max", FREEZE_MS_MAX];
            [
                &["move", what, "--name", name, "--rebalance", "--onto", onto][..],
                &place,
            ]
            .concat()
        };
        let planned = self.place.succeeds(&moving("plan"))?;
        for text in [
            "carts-shard-1",
            "products stay where they are",
            "nothing stands in their way",
        ] {
            ensure!(planned.contains(text), "{text}: {planned}");
        }
        self.place.say(&planned);
        self.place.succeeds(&moving("start"))?;
        Ok(())
    }

    fn drain(&self, name: &str, shard: &str) -> anyhow::Result<()> {
        let freeze = ["--freeze-ms-max", FREEZE_MS_MAX];
        let drain = ["move", "start", "--name", name, "--drain", shard];
        self.place.succeeds(&[&drain[..], &freeze].concat())?;
        Ok(())
    }

    fn draining(&self) -> anyhow::Result<()> {
        self.there_and_back_and_there("--group", |name| self.drain(name, "shard-2"))?;
        let left = self.place.map()?;
        let drained = ShardName::new("shard-2")?;
        ensure!(!left.shards().contains(&drained), "{left:?}");
        let remove = ["shard", "remove", "--name", "shard-2"];
        self.place
            .is_refused(&remove, "stands in the layout file", "drain it")
    }

    fn hot_tenant(&self) -> anyhow::Result<()> {
        let place = &self.place;
        let half = SLOT_COUNT / 2;
        let users = (0..6).map(|number| format!("judged-{number:03}-0"));
        let users = users.chain(["retrying".to_owned()]);
        let (low, high): (Vec<String>, Vec<String>) =
            users.partition(|user| ShardKey::of_text(user).slot().number() < half);
        let (keys, from, to) = match low.len() >= high.len() {
            true => (low.join(","), "shard-1", "shard-2"),
            false => (high.join(","), "shard-2", "shard-1"),
        };
        let orders = ["--collection", "orders", "--freeze-ms-max", FREEZE_MS_MAX];
        self.there_and_back_and_there("--name", |name| {
            let pin = [
                "move", "start", "--name", name, "--keys", &keys, "--from", from, "--to", to,
            ];
            place.succeeds(&[&pin[..], &orders].concat()).map(drop)
        })?;
        let pinned = place.map()?.collection(Collection::Orders)?.pinned.len();
        ensure!(pinned == keys.split(',').count(), "{pinned} pins");
        // What is pinned inside is in the way of its slots, and the answer says how to go on.
        let drain = ["move", "start", "--name", "stuck", "--drain", from];
        place.is_refused(&drain, "is pinned to", "--unpin")?;
        self.there_for_good("--name", "unpinned", |name| {
            let unpin = ["move", "start", "--name", name, "--unpin", &keys];
            place.succeeds(&[&unpin[..], &orders].concat()).map(drop)
        })?;
        let pinned = place.map()?.collection(Collection::Orders)?.pinned.len();
        ensure!(pinned == 0, "{pinned} pins are left");
        Ok(())
    }

    fn ranges(&self) -> anyhow::Result<()> {
        let place = &self.place;
        let products = ["--collection", "products", "--freeze-ms-max", FREEZE_MS_MAX];
        let shift = |name: &str, range: &str| {
            let between = ["--from", "shard-1", "--to", "shard-2"];
            let shift = ["move", "start", "--name", name, "--range", range];
            let all = [&shift[..], &between, &products].concat();
            place.succeeds(&all).map(drop)
        };
        // The bound between two neighbours goes from m to the middle of the catalogue.
        self.there_and_back_and_there("--name", |name| shift(name, "judged/judged-020..m"))?;
        let starts = self.starts()?;
        ensure!(starts == ["judged,judged-020"], "{starts:?}");
        let at = "judged/judged-010";
        let split = ["map", "split", "--collection", "products", "--at", at];
        let told = place.succeeds(&split)?;
        ensure!(told.contains("nothing has moved"), "{told}");
        place.is_refused(&split, "starts at", "nothing to split")?;
        self.there_for_good("--name", "piece", |name| {
            shift(name, "judged/judged-005..judged/judged-010")
        })?;
        let starts = self.starts()?;
        ensure!(
            starts
                == [
                    "judged,judged-005",
                    "judged,judged-010",
                    "judged,judged-020"
                ],
            "{starts:?}"
        );
        Ok(())
    }

    /// Where the ranges of products start, but for the first.
    fn starts(&self) -> anyhow::Result<Vec<String>> {
        let map = self.place.map()?;
        let Cut::Ranges(ranges) = &map.collection(Collection::Products)?.cut else {
            anyhow::bail!("products are cut by ranges");
        };
        let starts = ranges.iter().skip(1).map(|range| {
            let from = range.from.as_ref().context("only the first has no start")?;
            Ok(from.to_string().replace('"', ""))
        });
        starts.collect()
    }
}

fn added<'a>(shard: &'a str, address: &'a str) -> [&'a str; 8] {
    [
        "shard",
        "add",
        "--name",
        shard,
        "--engine",
        "mongo",
        "--address",
        address,
    ]
}
