//! Places in a layout file, so that a finding can point at its line.
//!
//! A finding names a place by the keys that lead to it, because a checked
//! layout has forgotten its text. [`Place::locate`] finds the keys again in
//! the text, or as many of them as stand there.

use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The keys that lead to a value of a layout file; elements of a list by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(Vec<String>);

/// Line and column, counted from one, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

/// Where in the text a place stands: on one line, at least one character long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub start: Position,
    pub width: usize,
}

impl Place {
    pub fn new<const N: usize>(keys: [&str; N]) -> Place {
        Place(keys.map(str::to_owned).to_vec())
    }

    pub fn keys(&self) -> &[String] {
        &self.0
    }

    #[must_use]
    pub fn then(mut self, key: impl ToString) -> Place {
        self.0.push(key.to_string());
        self
    }

    /// The same place, counted from where `base` begins.
    #[must_use]
    pub fn under(self, base: &Place) -> Place {
        let mut keys = base.0.clone();
        keys.extend(self.0);
        Place(keys)
    }

    /// The value of the last key that stands in the text; the key itself where
    /// its value is a table or nothing follows. `None` if the text is no TOML.
    pub fn locate(&self, text: &str) -> Option<Extent> {
        let document = DeTable::parse(text).ok()?;
        let mut span = 0..0;
        let mut tables = Some(document.get_ref());
        let mut list: Option<&[Spanned<DeValue<'_>>]> = None;
        for key in &self.0 {
            let found = match (tables, list) {
                (Some(table), _) => entry(table, key),
                (None, Some(list)) => key.parse().ok().and_then(|at: usize| {
                    let value = list.get(at)?;
                    Some((value.span(), value))
                }),
                (None, None) => None,
            };
            let Some((key_span, value)) = found else {
                break;
            };
            tables = value.get_ref().as_table();
            list = value.get_ref().as_array().map(|list| &list[..]);
            // A table may reach over many lines; its name does not.
            span = if tables.is_some() && !key_span.is_empty() {
                key_span
            } else {
                value.span()
            };
        }
        Some(extent(text, span))
    }
}

fn entry<'t, 'i>(
    table: &'t DeTable<'i>,
    key: &str,
) -> Option<(Range<usize>, &'t Spanned<DeValue<'i>>)> {
    let (name, value) = table
        .iter()
        .find(|(name, _)| name.get_ref().as_ref() == key)?;
    Some((name.span(), value))
}

impl Extent {
    /// One character at a position that a reader of the file has reported.
    pub fn at(line: usize, column: usize) -> Extent {
        Extent {
            start: Position { line, column },
            width: 1,
        }
    }
}

/// Cut off at the end of its first line.
fn extent(text: &str, span: Range<usize>) -> Extent {
    let start = position(text, span.start);
    let spanned = text.get(span).unwrap_or_default();
    let width = spanned.lines().next().unwrap_or_default().chars().count();
    Extent {
        start,
        width: width.max(1),
    }
}

pub(crate) fn position(text: &str, offset: usize) -> Position {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Position {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "name = \"я\"\n\n[tables.carts]\nkey = [\"a\",\n  \"b\"]\nonly = { x = 1 }\n";

    #[test]
    fn a_place_is_found_as_far_as_it_stands_in_the_text() {
        fn check(keys: &[&str], line: usize, column: usize, width: usize) {
            let place = keys
                .iter()
                .fold(Place::default(), |place, key| place.then(key));
            let start = Position { line, column };
            assert_eq!(place.locate(TEXT), Some(Extent { start, width }), "{place}");
        }
        check(&["name"], 1, 8, 3);
        check(&["tables", "carts"], 3, 9, 5);
        check(&["tables", "carts", "key"], 4, 7, 5);
        check(&["tables", "carts", "key", "1"], 5, 3, 3);
        check(&["tables", "carts", "key", "7"], 4, 7, 5);
        check(&["tables", "carts", "only", "x"], 6, 14, 1);
        check(&["tables", "carts", "absent", "x"], 3, 9, 5);
        check(&["absent"], 1, 1, 1);
        assert_eq!(Place::new(["name"]).locate("name = "), None);
    }

    #[test]
    fn positions_count_characters_and_lines_from_one() {
        fn check(text: &str, offset: usize, line: usize, column: usize) {
            assert_eq!(
                position(text, offset),
                Position { line, column },
                "{text:?} {offset}"
            );
        }
        check("", 0, 1, 1);
        check("я = 1\nyz", 7, 2, 1);
        check("яя = 1", 4, 1, 3);
        check("a", 99, 1, 2);
    }
}
