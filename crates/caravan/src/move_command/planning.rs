//! `caravan move plan` and `start`: what is to be moved, and whether it can be.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use engine_api::ControlStore;
use layout::{Collection, Field, Scope, ShardKey, Slot, SlotRange, Value};
use mover::{MoveName, Plan, Throttle};
use router::{Map, ShardName};
use serde_json::json;

use super::{Format, config_of};
use crate::arguments::Moved;
use crate::map_command;
use crate::shards::Shards;
use crate::text::columns;

/// Keys in one plan: it stands in the list of moves, which everybody reads every second.
const KEYS_MAX: usize = 1_000;

/// What a plan is judged by.
struct Desk {
    control: Arc<dyn ControlStore>,
    shards: mover::Shards,
    map: Arc<Map>,
    name: MoveName,
    plan: Plan,
}

pub async fn plan(moved: &Moved, format: Format, out: &mut dyn Write) -> Result<()> {
    let desk = Desk::open(moved).await?;
    let checked = mover::check(&desk.control, &desk.shards, &desk.name, &desk.plan).await;
    let pieces = map_command::pieces(desk.map.collection(desk.plan.collection)?);
    match format {
        Format::Json => {
            let owners = pieces
                .iter()
                .map(|(keys, shard)| json!({"keys": keys, "shard": shard}));
            let value = json!({
                "move": desk.name,
                "plan": desk.plan,
                "generation": desk.map.generation,
                "owners": owners.collect::<Vec<_>>(),
                "refused": checked.as_ref().err().map(ToString::to_string),
            });
            writeln!(out, "{value:#}")?;
        }
        Format::Text => {
            let collection = desk.plan.collection;
            writeln!(out, "{collection} at generation {}:", desk.map.generation)?;
            let rows: Vec<[String; 2]> = pieces
                .into_iter()
                .map(|(keys, shard)| [keys, shard])
                .collect();
            write!(out, "{}", columns(&rows))?;
            if checked.is_ok() {
                writeln!(out, "\n{}: nothing stands in its way", told(&desk))?;
            }
        }
    }
    out.flush()?;
    Ok(checked?)
}

pub async fn start(moved: &Moved, out: &mut dyn Write) -> Result<()> {
    let desk = Desk::open(moved).await?;
    mover::start(&desk.control, &desk.shards, &desk.name, &desk.plan).await?;
    if let Some(most) = moved.records_per_s {
        let throttle = Throttle {
            records_per_second_max: Some(most),
            reason: "so it was started".to_owned(),
        };
        mover::set_throttle(desk.control.as_ref(), &desk.name, throttle).await?;
    }
    writeln!(
        out,
        "{}: begun; caravan move status shows how far it is",
        told(&desk)
    )?;
    Ok(())
}

impl Desk {
    async fn open(moved: &Moved) -> Result<Desk> {
        let name = MoveName::new(&moved.named.name)?;
        let collection = Collection::named(&moved.collection).ok_or_else(|| {
            anyhow!(
                "--collection {}: choose carts, orders, products or sessions",
                moved.collection
            )
        })?;
        let slots = moved.keys.slots.as_deref().map(slots).transpose()?;
        let source = ShardName::new(&moved.from)?;
        let target = ShardName::new(&moved.to)?;
        let config = config_of(&moved.named.place)?;
        let (control, shards) = Shards::for_a_move(&config, [&source, &target]).await?;
        let map = map_command::standing(&control).await?;
        let scope = match slots {
            Some(slots) => Scope::Slots(slots),
            None if moved.keys.all => Scope::All,
            None => {
                let fields = &map.collection(collection)?.shard_key;
                Scope::Keys(keys(&moved.keys.keys, fields)?)
            }
        };
        let plan = Plan {
            collection,
            scope,
            source,
            target,
            freeze_ms_max: moved.freeze_ms_max,
        };
        Ok(Desk {
            control,
            shards,
            map,
            name,
            plan,
        })
    }
}

fn told(desk: &Desk) -> String {
    let plan = &desk.plan;
    format!(
        "{}: {} of {} from {} to {}",
        desk.name,
        map_command::scope_text(&plan.scope),
        plan.collection,
        plan.source,
        plan.target
    )
}

/// `0-1023,2048` as it is typed.
fn slots(text: &str) -> Result<Vec<SlotRange>> {
    let slot = |text: &str| -> Result<Slot> {
        let number: u16 = text
            .trim()
            .parse()
            .with_context(|| format!("--slots {text}: write slots as in 0-1023,2048-2100"))?;
        Ok(Slot::try_from(number)?)
    };
    let range = |piece: &str| -> Result<SlotRange> {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let (first, last) = (slot(first)?, slot(last)?);
        ensure!(
            first <= last,
            "--slots {piece}: the first slot comes first, as in 0-1023"
        );
        Ok(SlotRange { first, last })
    };
    text.split(',').map(range).collect()
}

/// Shard keys by the values that make them, in the order of the map.
fn keys(texts: &[String], fields: &[Field]) -> Result<Vec<ShardKey>> {
    ensure!(
        texts.len() <= KEYS_MAX,
        "--keys: {} of them, at most {KEYS_MAX} go in one move: move slots, or several times",
        texts.len()
    );
    let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    let key = |text: &String| -> Result<ShardKey> {
        let values: Vec<Value> = match fields.len() {
            1 => vec![Value::Text(text.clone())],
            _ => text
                .split('/')
                .map(|value| Value::Text(value.to_owned()))
                .collect(),
        };
        let whole = values.len() == fields.len() && !text.is_empty();
        ensure!(whole, "--keys {text}: write each as {}", names.join("/"));
        Ok(ShardKey::of(&values)?)
    };
    texts.iter().map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_as_they_are_typed_and_bad_ones_are_named() {
        let ranges = slots("0-1023,2048, 4000-4095").unwrap();
        let pairs: Vec<(u16, u16)> = ranges
            .iter()
            .map(|range| (range.first.number(), range.last.number()))
            .collect();
        assert_eq!(pairs, [(0, 1023), (2048, 2048), (4000, 4095)]);
        for (text, said) in [
            ("", "write slots as in"),
            ("a-b", "write slots as in"),
            ("9-3", "the first slot comes first"),
            ("0-4096", "slots go from 0 to 4095"),
        ] {
            let error = slots(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn keys_have_as_many_values_as_the_map_says() {
        let one = keys(&["a/b".to_owned()], &[Field::CartId]).unwrap();
        assert_eq!(one, [ShardKey::of_text("a/b")]);
        let fields = [Field::Category, Field::ProductId];
        let two = keys(&["cases/C-1".to_owned()], &fields).unwrap();
        let values = ["cases", "C-1"].map(|text| Value::Text(text.to_owned()));
        assert_eq!(two[0].values(), values);
        let error = keys(&["cases".to_owned()], &fields).unwrap_err();
        assert!(error.to_string().contains("category/product_id"), "{error}");
    }
}
