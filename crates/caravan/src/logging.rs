//! Logs on standard error: lines for people or JSON for programs.

use std::fmt;
use std::io::{self, IsTerminal};
use std::str::FromStr;

use anyhow::{Context, Result};
use serde::Deserialize;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt as lines};

use crate::text::colours_wanted;

/// What these say is told by the engines in their own words; who wants to hear them
/// names them, as in `plain/info,scylla=debug`.
const DRIVERS: [&str; 1] = ["scylla"];

/// How logs look and how much of them there is, as in `plain/info` or `json/info,router=debug`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct LogWish {
    format: Format,
    filter: Targets,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Plain,
    Json,
}

impl FromStr for LogWish {
    type Err = String;

    fn from_str(text: &str) -> Result<LogWish, String> {
        let refusal = || {
            format!(
                "{text:?} says not how to log: give plain or json, a slash and a level, as in plain/info"
            )
        };
        let (format, filter) = text.split_once('/').ok_or_else(refusal)?;
        Ok(LogWish {
            format: match format {
                "plain" => Format::Plain,
                "json" => Format::Json,
                _ => return Err(refusal()),
            },
            filter: checked(filter).ok_or_else(refusal)?,
            text: text.to_owned(),
        })
    }
}

/// A bare word that is no level would be taken for the name of a target.
fn checked(filter: &str) -> Option<Targets> {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let known = |part: &str| {
        let level = part.split_once('=').map_or(part, |(_, level)| level);
        levels.contains(&level.to_lowercase().as_str())
    };
    filter.split(',').all(known).then(|| filter.parse().ok())?
}

impl TryFrom<String> for LogWish {
    type Error = String;

    fn try_from(text: String) -> Result<LogWish, String> {
        text.parse()
    }
}

impl Default for LogWish {
    fn default() -> LogWish {
        "plain/info".parse().expect("the default is a log wish")
    }
}

impl fmt::Display for LogWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// From now on everything that is logged goes to standard error.
pub fn start(wish: &LogWish) -> Result<()> {
    let layer = lines::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && colours_wanted());
    let layer = match wish.format {
        Format::Plain => layer.boxed(),
        Format::Json => layer.json().flatten_event(true).boxed(),
    };
    let unnamed = DRIVERS.iter().filter(|name| !wish.text.contains(**name));
    let filter = unnamed.fold(wish.filter.clone(), |filter, name| {
        filter.with_target(*name, LevelFilter::OFF)
    });
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .try_init()
        .context("logging was started twice")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_names_format_and_level() {
        for good in [
            "plain/info",
            "json/debug",
            "plain/warn,router=trace",
            "plain/off",
        ] {
            assert_eq!(good.parse::<LogWish>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "info",
            "plain",
            "plain/",
            "plain/loud",
            "xml/info",
            "plain/router=loud",
        ] {
            let refusal = bad.parse::<LogWish>().unwrap_err();
            assert!(refusal.contains("plain/info"), "{refusal}");
        }
    }
}
