//! Names that no other test uses, so that tests share a server without meeting.

use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Unavailable;

/// Keyspace names end at 48 characters, database names at 63 bytes; the unique
/// tail takes at most 26.
const PREFIX_CHARS_MAX: usize = 20;

const LABEL_CHARS_MAX: usize = 16;

/// Tells shared sets of one size apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label(String);

impl Label {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Label {
    type Err = Unavailable;

    /// It becomes part of a folder's name.
    fn from_str(label: &str) -> Result<Label, Unavailable> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if label.is_empty() || label.len() > LABEL_CHARS_MAX || !label.chars().all(plain) {
            return Err(Unavailable::BadLabel {
                label: label.to_owned(),
            });
        }
        Ok(Label(label.to_owned()))
    }
}

/// `prefix` made fit for a name, and a tail from time, process and a counter.
pub(crate) fn unique(prefix: &str) -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let micros = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is past 1970")
        .as_micros();
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!(
        "{}_{}_{}_{}",
        fit(prefix),
        base36(micros as u64),
        base36(u64::from(std::process::id())),
        base36(u64::from(count))
    )
}

fn fit(prefix: &str) -> String {
    let kept = prefix.chars().map(|c| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    });
    // Both databases take a leading letter; neither takes every other leading character.
    let name: String = std::iter::once('t')
        .filter(|_| !prefix.starts_with(|c: char| c.is_ascii_alphabetic()))
        .chain(kept)
        .collect();
    name[..name.len().min(PREFIX_CHARS_MAX)].to_owned()
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(
            char::from_digit((number % 36) as u32, 36).expect("a remainder of 36 is a digit"),
        );
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_safe_in_a_folder_name() {
        assert_eq!("shard2".parse::<Label>().unwrap().as_str(), "shard2");
        for bad in ["", "../x", "a b", "Shard", "seventeen17charsx"] {
            assert!(bad.parse::<Label>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_fit_for_both_databases_and_never_repeat() {
        let prefixes = [
            "carts",
            "",
            "9 Lives!",
            "Ünïcode",
            "a_very_long_prefix_that_would_break_a_keyspace",
        ];
        let mut seen = std::collections::HashSet::new();
        for prefix in prefixes.iter().cycle().take(1_000) {
            let name = unique(prefix);
            assert!(
                name.len() <= 48 && name.starts_with(|c: char| c.is_ascii_lowercase()),
                "{name}"
            );
            assert!(
                name.chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'),
                "{name}"
            );
            assert!(seen.insert(name));
        }
    }
}
