//! Lines of a catalogue: numbered, bounded, and read as products.

use std::collections::BTreeMap;
use std::io::BufRead;

use anyhow::{Result, anyhow};
use model::{
    Attributes, CategoryName, Description, Image, Money, ProductId, ProductName, Received, ZoneName,
};
use serde::Deserialize;

/// The longest line: as much as one request may have.
const LINE_BYTES_MAX: usize = http_api::BODY_BYTES_MAX;

/// A product as the catalogue offers it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    pub product_id: ProductId,
    pub category: CategoryName,
    pub name: ProductName,
    pub price: Money,
    pub image: Option<Image>,
    pub description: Option<Description>,
    #[serde(default)]
    pub attributes: Attributes,
    /// All pieces that ever arrived, by zone.
    #[serde(default)]
    pub stock: BTreeMap<ZoneName, Received>,
}

/// A line that is not blank.
#[derive(Debug)]
pub struct Line {
    /// Counted from 1, blank lines included.
    pub number: u64,
    /// Or why there is no product in it.
    pub offer: Result<Offer, String>,
}

#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    number: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub fn of(reader: R) -> Lines<R> {
        Lines {
            reader,
            number: 0,
            buffer: Vec::new(),
        }
    }

    /// The next line is in the buffer, as far as it may be kept. `None` at the end.
    fn advance(&mut self) -> Result<Option<Length>> {
        self.buffer.clear();
        let mut length = Length::Fits;
        let mut began = false;
        loop {
            let number = self.number;
            let bytes = self.reader.fill_buf().map_err(|error| {
                anyhow!("the file cannot be read on after line {number} ({error}): check its disk")
            })?;
            if bytes.is_empty() {
                break;
            }
            began = true;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.buffer.len() + part.len() > LINE_BYTES_MAX {
                length = Length::TooLong;
            } else {
                self.buffer.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                break;
            }
        }
        self.number += 1;
        Ok(began.then_some(length))
    }
}

enum Length {
    Fits,
    TooLong,
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Line>;

    fn next(&mut self) -> Option<Result<Line>> {
        loop {
            let offer = match self.advance() {
                Err(error) => return Some(Err(error)),
                Ok(None) => return None,
                Ok(Some(Length::TooLong)) => Err(format!(
                    "it is longer than {LINE_BYTES_MAX} bytes: shorten it"
                )),
                Ok(Some(Length::Fits)) if self.buffer.trim_ascii().is_empty() => continue,
                Ok(Some(Length::Fits)) => read(&self.buffer),
            };
            let number = self.number;
            return Some(Ok(Line { number, offer }));
        }
    }
}

fn read(line: &[u8]) -> Result<Offer, String> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let offer = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let reason = without_place(&error.into_inner());
        match path.as_str() {
            "." => reason,
            field => format!("{field}: {reason}"),
        }
    })?;
    json.end().map_err(|error| without_place(&error))?;
    Ok(offer)
}

/// The line is named already; every one is line 1 to the JSON reader.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line 1 column ") {
        Some((reason, column)) if error.is_syntax() || error.is_eof() => {
            format!("{reason} at column {column}")
        }
        Some((reason, _)) => reason.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"product_id":"P1","category":"c","name":"Чехол","price":"9.90"}"#;

    fn only(text: &str) -> Result<Offer, String> {
        let mut lines = Lines::of(text.as_bytes());
        let line = lines.next().unwrap().unwrap();
        assert!(lines.next().is_none());
        line.offer
    }

    #[test]
    fn a_line_is_a_product_with_what_it_says() {
        let offer = only(GOOD).unwrap();
        assert_eq!((offer.name.as_str(), offer.image), ("Чехол", None));
        let full = GOOD.replace(
            '}',
            r#","image":"/p1.webp","description":"d","attributes":{"k":"v"},"stock":{"moscow":5}}"#,
        );
        let offer = only(&full).unwrap();
        assert_eq!(offer.stock.into_iter().next().unwrap().1.pieces(), 5);
    }

    #[test]
    fn a_bad_line_says_what_is_wrong_with_it() {
        fn check(text: &str, expected: &str) {
            let reason = only(text).unwrap_err();
            assert!(reason.contains(expected), "{reason}");
        }
        check("{", "EOF");
        check("[]", "");
        check(&GOOD.replace("9.90", "cheap"), "price: ");
        check(
            &GOOD.replace("\"9.90\"", "9.9"),
            "price: invalid type: floating point `9.9`, expected an amount as text",
        );
        check(
            &GOOD.replace("\"c\"", "\"\""),
            "category: the category name is empty",
        );
        check(&GOOD.replace("name", "title"), "unknown field `title`");
        check(
            &GOOD.replace(",\"price\":\"9.90\"", ""),
            "missing field `price`",
        );
        check(&format!("{GOOD} {GOOD}"), "trailing characters");
        check(
            &GOOD.replace('}', ",\"stock\":{\"moscow\":-1}}"),
            "stock.moscow: choose a whole number from 0 to 1000000000000, not -1",
        );
        check(&"x".repeat(LINE_BYTES_MAX + 1), "longer than 65536 bytes");
    }

    #[test]
    fn lines_are_counted_with_the_blank_ones() {
        let text = format!(
            "\n{GOOD}\r\n   \n{}\n{GOOD}",
            "y".repeat(LINE_BYTES_MAX * 2)
        );
        let lines: Vec<_> = Lines::of(text.as_bytes()).map(Result::unwrap).collect();
        let found: Vec<_> = lines
            .iter()
            .map(|line| (line.number, line.offer.is_ok()))
            .collect();
        assert_eq!(found, [(2, true), (4, false), (5, true)]);
    }
}
