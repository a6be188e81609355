//! `caravan shard`: shards that come and go. Of a layout on servers the command changes the roster in the control store
//! and ends; the processes that serve open what is new. A data directory gets its next shard from the process that
//! serves it.

mod directory;
mod leaving;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use engine_api::{ControlStore, Engine, RealWorld, Scan, World};
use layout::Scope;
use router::{LeaseJudge, Map, MapKeeper, ShardName, Standing};
use serde_json::json;

use crate::arguments::{AddedShard, PlaceArguments, ShardCommand};
use crate::config::Config;
use crate::move_command::{self, Format};
use crate::secrets;
use crate::shards::{self, Deployment, Listed, Roster, Spot};
use crate::text::columns;

/// How long the processes are waited for after a shard was added; they look every second.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(200);

pub fn run(command: &ShardCommand, out: &mut dyn Write) -> Result<()> {
    move_command::runtime()?.block_on(async {
        match command {
            ShardCommand::List { place, json } => {
                let config = Config::load(&place.settings())?;
                let on_servers = !shards::keeps_map_in_directory(&config)?;
                match (on_servers, json) {
                    (true, false) => list(place, out).await,
                    (true, true) => list_json(place, out).await,
                    (false, json) => directory::list(place, Format::of(json), out).await,
                }
            }
            ShardCommand::Add(wish) => match (&wish.name, &wish.engine) {
                (Some(name), Some(engine)) => add(wish, name, engine, out).await,
                _ => directory::add(wish, out).await,
            },
            ShardCommand::Remove(wish) => leaving::remove(wish, out).await,
        }
    })
}

/// One layout on servers, as its control store has it.
struct Desk {
    config: Config,
    deployment: Deployment,
    control: Arc<dyn ControlStore>,
}

impl Desk {
    async fn open(place: &PlaceArguments) -> Result<Desk> {
        let config = Config::load(&place.settings())?;
        ensure!(
            !config.is_directory_alone(),
            "shards are named where a layout has them on servers: name one with --layout FILE"
        );
        let file = config.here().to_owned();
        let deployment = Deployment::open(&config, &file).await?;
        let control = deployment.control.store.clone();
        Ok(Desk {
            config,
            deployment,
            control,
        })
    }

    async fn roster(&self) -> Result<Roster> {
        Roster::load(self.control.as_ref()).await
    }

    async fn map(&self) -> Result<Option<Arc<Map>>> {
        Ok(MapKeeper::new(self.control.clone()).load().await?)
    }

    fn judge(&self) -> LeaseJudge {
        let world = Arc::new(RealWorld::new());
        LeaseJudge::new(self.control.clone(), world, &self.config.router)
    }

    /// Every shard with its engine and its place.
    async fn all(&self) -> Result<Vec<(ShardName, Listed, Origin)>> {
        let mut all = Vec::new();
        for plan in &self.deployment.plans {
            for (name, engine) in &plan.shards {
                let address = plan.address(name).unwrap_or_default();
                let listed = Listed {
                    layout: plan.layout.name.clone(),
                    engine: engine.clone(),
                    address: secrets::with_credentials(&address, None),
                };
                all.push((plan.called(name), listed, Origin::Layout));
            }
        }
        let in_files = self.deployment.names();
        for (name, listed) in self.roster().await?.shards() {
            if !in_files.contains(name) {
                all.push((name.clone(), listed.clone(), Origin::Added));
            }
        }
        Ok(all)
    }
}

/// Who says that there is such a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Layout,
    Added,
}

impl Origin {
    fn name(self) -> &'static str {
        match self {
            Origin::Layout => "layout",
            Origin::Added => "added",
        }
    }
}

async fn list(place: &PlaceArguments, out: &mut dyn Write) -> Result<()> {
    let desk = Desk::open(place).await?;
    let (map, leases) = (desk.map().await?, desk.judge().look().await?);
    let head = ["shard", "engine", "from", "address", "keys of", "open in"];
    let mut rows = vec![head.map(str::to_owned)];
    for (name, listed, origin) in desk.all().await? {
        let keys: Vec<&str> = keys_of(map.as_deref(), &name);
        let live = leases.iter().filter(|it| it.standing == Standing::Live);
        let open = live.filter(|lease| lease.shards.contains(&name));
        let open: Vec<&str> = open.map(|lease| lease.process.as_str()).collect();
        let or_none = |names: Vec<&str>| match names.is_empty() {
            true => "-".to_owned(),
            false => names.join(", "),
        };
        rows.push([
            name.to_string(),
            listed.engine,
            origin.name().to_owned(),
            secrets::masked(&listed.address),
            or_none(keys),
            or_none(open),
        ]);
    }
    write!(out, "{}", columns(&rows))?;
    Ok(())
}

async fn list_json(place: &PlaceArguments, out: &mut dyn Write) -> Result<()> {
    let desk = Desk::open(place).await?;
    let (map, leases) = (desk.map().await?, desk.judge().look().await?);
    let mut all = Vec::new();
    for (name, listed, origin) in desk.all().await? {
        let live = leases.iter().filter(|it| it.standing == Standing::Live);
        let open = live.filter(|lease| lease.shards.contains(&name));
        all.push(json!({
            "shard": name,
            "engine": listed.engine,
            "from": origin.name(),
            "address": secrets::masked(&listed.address),
            "keys_of": keys_of(map.as_deref(), &name),
            "open_in": open.map(|lease| &lease.process).collect::<Vec<_>>(),
        }));
    }
    writeln!(out, "{:#}", serde_json::Value::from(all))?;
    Ok(())
}

/// The collections that the map gives it keys of.
fn keys_of(map: Option<&Map>, shard: &ShardName) -> Vec<&'static str> {
    let collections = map.into_iter().flat_map(|map| &map.collections);
    let has_keys = collections.filter(|(_, map)| map.shards().contains(shard));
    has_keys.map(|(collection, _)| collection.name()).collect()
}

async fn add(wish: &AddedShard, name: &str, engine: &str, out: &mut dyn Write) -> Result<()> {
    let name = ShardName::new(name)?;
    let (address, place) = own_address(&name, &wish.place)?;
    let desk = Desk::open(&place).await?;
    let here = desk.deployment.here();
    let kind = here.kind(engine)?;
    ensure!(
        !desk.deployment.names().contains(&name),
        "the layout has a shard {name} itself: choose another name"
    );
    let listed = Listed {
        layout: here.layout.name.clone(),
        engine: engine.to_owned(),
        address: secrets::with_credentials(&address, None),
    };
    ensure!(
        secrets::masked(&listed.address) == listed.address,
        "the address of {name} has a secret among its options, which would be kept in the open: leave it out there, and give it to the processes by their own settings"
    );
    desk.roster().await?.with(&name, &listed)?;
    let spot = Spot::of(kind, &listed.address);
    for (other, known, _) in desk.all().await? {
        let same = other != name && desk.deployment.share_tables(&known, &listed);
        ensure!(
            !(same && Spot::of(kind, &known.address).meets(&spot)),
            "{other} is there already: two shards in one place would overwrite each other"
        );
    }
    let opened = here.open_at(&name, engine, &address).await?;
    is_empty(&name, opened.engine.as_ref()).await?;
    let control = desk.control.as_ref();
    Roster::change(control, |roster| roster.with(&name, &listed)).await?;
    writeln!(out, "{name}: added")?;
    out.flush()?;
    told_by_everybody(&desk, &name, out).await
}

/// The address of the new shard among the others, and the place without it.
fn own_address(name: &ShardName, place: &PlaceArguments) -> Result<(String, PlaceArguments)> {
    let prefix = format!("{name}=");
    let (own, others): (Vec<String>, Vec<String>) = place
        .address
        .iter()
        .cloned()
        .partition(|address| address.starts_with(&prefix));
    let [own] = own.as_slice() else {
        bail!("give the address of {name} once, as --address {name}=ADDRESS");
    };
    let address = own[prefix.len()..].to_owned();
    let place = PlaceArguments {
        address: others,
        ..place.clone()
    };
    Ok((address, place))
}

/// What is there would be taken for keys that were moved there.
async fn is_empty(name: &ShardName, engine: &dyn Engine) -> Result<()> {
    for collection in &engine.capabilities().collections {
        let scan = Scan {
            collection: *collection,
            scope: Scope::All,
            after: None,
            until: None,
            limit: 1,
        };
        let page = engine.scan(&scan).await?;
        ensure!(
            page.images.is_empty(),
            "{name} has {collection} already: a new shard begins empty, choose another place or drop what is there"
        );
    }
    Ok(())
}

/// Waits a moment for the processes that serve, and says who has it open.
async fn told_by_everybody(desk: &Desk, name: &ShardName, out: &mut dyn Write) -> Result<()> {
    let world = RealWorld::new();
    let judge = desk.judge();
    loop {
        let mut leases = judge.look().await?;
        leases.retain(|lease| lease.standing == Standing::Live);
        let lacking: Vec<&str> = leases
            .iter()
            .filter(|lease| lease.lacks(name))
            .map(|lease| lease.process.as_str())
            .collect();
        if lacking.is_empty() {
            writeln!(out, "{name}: open in {} processes", leases.len())?;
            return Ok(());
        }
        if world.elapsed() >= PATIENCE {
            writeln!(
                out,
                "{name}: not open yet in {}; no move onto it begins before (see their readiness)",
                lacking.join(", ")
            )?;
            return Ok(());
        }
        world.sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_new_shard_is_found_among_the_others() {
        let name = ShardName::new("shard-3").unwrap();
        let place = |addresses: &[&str]| PlaceArguments {
            address: addresses.iter().map(|it| (*it).to_owned()).collect(),
            directory: crate::arguments::DirectoryArguments {
                data: None,
                config: None,
            },
            layout: None,
            control: None,
        };
        let both = place(&["shard-1=mongodb://a", "shard-3=mongodb://b/?x=y"]);
        let (own, rest) = own_address(&name, &both).unwrap();
        assert_eq!(own, "mongodb://b/?x=y");
        assert_eq!(rest.address, ["shard-1=mongodb://a"]);
        for wrong in [place(&["shard-1=a"]), place(&["shard-3=a", "shard-3=b"])] {
            assert!(own_address(&name, &wrong).is_err());
        }
    }
}
