//! The words of a fault point.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, anyhow, ensure};
use layout::Collection;

const POINT_VARIABLE: &str = "CARAVAN_FAULT_POINT";
const ALLOWED_VARIABLE: &str = "CARAVAN_FAULT_ALLOWED";
const ALLOWED: &str = "this-process-may-die";

/// Where the process ends or stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPoint {
    pub side: Side,
    pub kind: Kind,
    /// The how-many-th of its kind.
    pub nth: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
    /// Right after it, and not for ever.
    Pause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A write of the shop.
    Write {
        collection: Collection,
        write: &'static str,
    },
    /// The record of a move enters this step.
    Move { step: &'static str },
    /// A mover publishes such a map.
    Map { change: &'static str },
}

pub const WRITES: [&str; 11] = [
    "create", "change", "patch", "remove", "receive", "take", "claim", "give", "return", "sell",
    "unsell",
];

/// Phases of a move, told apart where the record alone does not say what is under way.
pub const STEPS: [&str; 18] = [
    "planned",
    "barrier",
    "backfilling",
    "catching-up",
    "verifying",
    "ready",
    "noticed",
    "frozen",
    "proven",
    "settling",
    "noticed-back",
    "frozen-back",
    "proven-back",
    "rolled-back",
    "completed",
    "cleaning",
    "cleaned",
    "aborted",
];

pub const MAP_CHANGES: [&str; 4] = ["notice", "freeze", "cutover", "thaw"];

/// What the environment asks for.
pub fn asked() -> Result<Option<FaultPoint>> {
    let variable = |name| std::env::var(name).ok();
    point(variable(POINT_VARIABLE), variable(ALLOWED_VARIABLE))
}

fn point(point: Option<String>, allowed: Option<String>) -> Result<Option<FaultPoint>> {
    let Some(text) = point else {
        return Ok(None);
    };
    ensure!(
        allowed.as_deref() == Some(ALLOWED),
        "{POINT_VARIABLE}={text} ends this process in the middle of a write: unset it, or set {ALLOWED_VARIABLE}={ALLOWED} where that is wanted"
    );
    text.parse().map(Some).map_err(|why| {
        anyhow!("{POINT_VARIABLE}={text} {why}: write it as after:orders:create:1 or after:move:frozen:1")
    })
}

impl FromStr for FaultPoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<FaultPoint, &'static str> {
        let words: Vec<&str> = text.split(':').collect();
        let [side, of, what, nth] = words[..] else {
            return Err("has not four words");
        };
        let known = |words: &[&'static str]| words.iter().copied().find(|known| *known == what);
        let side = match side {
            "before" => Side::Before,
            "after" => Side::After,
            "pause" => Side::Pause,
            _ => return Err("begins neither with before nor with after nor with pause"),
        };
        let kind = match of {
            "move" => Kind::Move {
                step: known(&STEPS).ok_or("names no step of a move")?,
            },
            "map" => Kind::Map {
                change: known(&MAP_CHANGES).ok_or("names no change of the map")?,
            },
            _ => Kind::Write {
                collection: Collection::ALL
                    .into_iter()
                    .find(|known| known.to_string() == of)
                    .ok_or("names no collection, nor move, nor map")?,
                write: known(&WRITES).ok_or("names no kind of write")?,
            },
        };
        let nth = nth.parse().ok().filter(|nth| *nth > 0);
        Ok(FaultPoint {
            side,
            kind,
            nth: nth.ok_or("does not end with a number above 0")?,
        })
    }
}

impl fmt::Display for FaultPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Before => "before",
            Side::After => "after",
            Side::Pause => "pause",
        };
        match &self.kind {
            Kind::Write { collection, write } => write!(f, "{side}:{collection}:{write}")?,
            Kind::Move { step } => write!(f, "{side}:move:{step}")?,
            Kind::Map { change } => write!(f, "{side}:map:{change}")?,
        }
        write!(f, ":{}", self.nth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str, allowed: Option<&str>) -> Result<Option<FaultPoint>> {
        point(Some(text.to_owned()), allowed.map(str::to_owned))
    }

    #[test]
    fn a_point_needs_a_second_word_and_four_of_its_own() {
        assert_eq!(point(None, Some(ALLOWED.to_owned())).unwrap(), None);
        for allowed in [None, Some("yes")] {
            let refusal = asked("after:orders:create:1", allowed).unwrap_err();
            assert!(refusal.to_string().contains(ALLOWED), "{refusal}");
        }
        for text in [
            "before:products:claim:2",
            "after:move:catching-up:1",
            "pause:move:frozen-back:3",
            "before:map:cutover:1",
        ] {
            let point = asked(text, Some(ALLOWED)).unwrap().unwrap();
            assert_eq!(point.to_string(), text);
        }
        for (wrong, why) in [
            ("", "four words"),
            ("after:orders", "four words"),
            ("at:orders:create:1", "begins neither"),
            ("after:x:create:1", "no collection"),
            ("after:orders:x:1", "no kind of write"),
            ("after:move:create:1", "no step"),
            ("after:map:frozen:1", "no change"),
            ("after:orders:create:x", "above 0"),
            ("after:orders:create:0", "above 0"),
        ] {
            let refusal = asked(wrong, Some(ALLOWED)).unwrap_err().to_string();
            assert!(refusal.contains("after:orders:create:1"), "{refusal}");
            assert!(refusal.contains(why), "{refusal}");
        }
    }
}
