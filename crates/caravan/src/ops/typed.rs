//! Keys as operators type them: slots, single keys, ranges.

use std::collections::BTreeSet;

use anyhow::{Context, Result, anyhow, bail, ensure};
use layout::{Collection, Field, Scope, ShardKey, Slot, SlotRange, Value};
use router::{CollectionMap, ShardName};

/// Keys in one plan: it stands in the list of moves, which everybody reads every second.
const KEYS_MAX: usize = 1_000;

pub fn collection(name: &str) -> Result<Collection> {
    Collection::named(name)
        .ok_or_else(|| anyhow!("--collection {name}: choose carts, orders, products or sessions"))
}

/// `0-1023,2048` as it is typed.
pub fn slots(text: &str) -> Result<Vec<SlotRange>> {
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
pub fn keys(texts: &[String], fields: &[Field]) -> Result<Vec<ShardKey>> {
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

/// `FROM..TO`, either of which may be empty.
pub fn range(text: &str, fields: &[Field]) -> Result<Scope> {
    let write = "write FROM..TO, and leave an end out that is to be open";
    let (from, to) = text
        .split_once("..")
        .with_context(|| format!("--range {text}: {write}"))?;
    ensure!(
        !to.contains(".."),
        "--range {text}: it has two dots in a row more than once, {write}"
    );
    let end = |text: &str| -> Result<Option<ShardKey>> {
        match text.is_empty() {
            true => Ok(None),
            false => bound(text, fields).map(Some),
        }
    };
    let (from, to) = (end(from)?, end(to)?);
    if let (Some(from), Some(to)) = (&from, &to) {
        ensure!(from < to, "--range {text}: the lower end comes first");
    }
    Ok(Scope::Range { from, to })
}

/// Where a range begins or ends. Behind the first value others may be left out: such a
/// bound stands before every key that begins with what it has.
pub fn bound(text: &str, fields: &[Field]) -> Result<ShardKey> {
    let values: Vec<Value> = match fields.len() {
        1 => vec![Value::Text(text.to_owned())],
        _ => text
            .split('/')
            .map(|value| Value::Text(value.to_owned()))
            .collect(),
    };
    let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    ensure!(
        values.len() <= fields.len() && !text.is_empty(),
        "{text:?} is no bound of a range: write {}, the last ones may be left out",
        names.join("/")
    );
    Ok(ShardKey::of(&values)?)
}

/// The shard that has the pinned keys now, and the one that the cut gives them to.
pub fn unpinned(
    collection: Collection,
    map: &CollectionMap,
    keys: &[ShardKey],
) -> Result<(ShardName, ShardName)> {
    let mut pairs = BTreeSet::new();
    for key in keys {
        let pin = map.pinned.get(key).with_context(|| {
            format!("{key} of {collection} is not pinned: caravan map show lists what is")
        })?;
        pairs.insert((pin.clone(), map.owner_by_cut(key).clone()));
    }
    let mut pairs = pairs.into_iter();
    match (pairs.next(), pairs.next()) {
        (Some((source, target)), None) => {
            ensure!(
                source != target,
                "these keys are pinned where the cut has them anyway: there is nothing to move"
            );
            Ok((source, target))
        }
        (Some((source, target)), Some((other_source, other_target))) => bail!(
            "these keys go from {source} to {target} and from {other_source} to {other_target}: unpin them in one move each"
        ),
        (None, _) => bail!("--unpin names no key"),
    }
}

#[cfg(test)]
mod tests {
    use router::Cut;

    use super::*;

    #[test]
    fn a_range_has_two_ends_that_may_be_open_or_begin_a_key() {
        let fields = [Field::Category, Field::ProductId];
        let text = |values: &[&str]| {
            let values: Vec<Value> = values.iter().map(|it| Value::Text((*it).into())).collect();
            Some(ShardKey::of(&values).unwrap())
        };
        for (typed, from, to) in [
            ("cases/C-1..m", text(&["cases", "C-1"]), text(&["m"])),
            ("..m", None, text(&["m"])),
            ("m/P-1..", text(&["m", "P-1"]), None),
            ("..", None, None),
        ] {
            let scope = range(typed, &fields).unwrap();
            assert_eq!(scope, Scope::Range { from, to }, "{typed}");
        }
        for (typed, said) in [
            ("cases", "write FROM..TO"),
            ("m..c", "the lower end comes first"),
            ("a..b..c", "more than once"),
            ("a/b/c..d", "category/product_id"),
        ] {
            let error = range(typed, &fields).unwrap_err().to_string();
            assert!(error.contains(said), "{typed}: {error}");
        }
    }

    #[test]
    fn pinned_keys_go_back_together_only_if_they_go_the_same_way() {
        let shard = |name| ShardName::new(name).unwrap();
        let [one, two, three] = ["1", "2", "3"].map(ShardKey::of_text);
        let cut = Cut::even_slots(&[shard("a")]);
        let mut map = CollectionMap::cut_by("embedded", vec![Field::CartId], cut);
        map.pinned.insert(one.clone(), shard("b"));
        map.pinned.insert(two.clone(), shard("c"));
        let way = |keys: &[ShardKey]| unpinned(Collection::Carts, &map, keys);
        assert_eq!(
            way(std::slice::from_ref(&one)).unwrap(),
            (shard("b"), shard("a"))
        );
        for (keys, said) in [
            (vec![one.clone(), two], "in one move each"),
            (vec![one, three], "is not pinned"),
        ] {
            let error = way(&keys).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

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
