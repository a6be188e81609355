//! `caravan layout check`: findings as a compiler shows them, or as JSON.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use layout::report::{Paint, SourceText, report, unreadable};
use layout::{Finding, Layout, ParseError};

use super::{json, refusal, text_of};
use crate::secrets::masked;
use crate::text::colours_wanted;

/// What became of one file.
pub(super) enum Checked {
    Layout {
        text: String,
        findings: Vec<Finding>,
    },
    NoLayout {
        text: String,
        error: ParseError,
    },
    NoText {
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

/// Says of every file whether it can be used; fails if one of them cannot.
pub fn check(files: &[PathBuf], format: Format, out: &mut dyn Write) -> Result<()> {
    let checked: Vec<(&Path, Checked)> = files
        .iter()
        .map(|file| (file.as_path(), look(file)))
        .collect();
    match format {
        Format::Text => {
            for (file, checked) in &checked {
                write!(out, "{}", masked(&shown(file, checked, paint())))?;
            }
        }
        Format::Json => writeln!(out, "{}", json::report(&checked)?)?,
    }
    let refusals: Vec<String> = checked
        .iter()
        .filter_map(|(file, checked)| checked.refusal(file))
        .collect();
    match refusals.as_slice() {
        [] => Ok(()),
        [refusal] => bail!("{refusal}"),
        [first, ..] => bail!(
            "{} of {} layouts cannot be used, the first one because {first}",
            refusals.len(),
            files.len()
        ),
    }
}

fn look(file: &Path) -> Checked {
    let text = match text_of(file) {
        Ok(text) => text,
        Err(error) => {
            return Checked::NoText {
                reason: error.to_string(),
            };
        }
    };
    match Layout::parse(&text, &file.display().to_string()) {
        Ok(layout) => Checked::Layout {
            findings: layout::check(&layout),
            text,
        },
        Err(error) => Checked::NoLayout { text, error },
    }
}

impl Checked {
    fn refusal(&self, file: &Path) -> Option<String> {
        match self {
            Checked::Layout { findings, .. } => refusal(file, findings),
            Checked::NoLayout { error, .. } => Some(error.to_string()),
            Checked::NoText { reason } => Some(reason.clone()),
        }
    }
}

fn shown(file: &Path, checked: &Checked, paint: Paint) -> String {
    let origin = file.display().to_string();
    let source = |text| SourceText {
        origin: &origin,
        text,
    };
    match checked {
        Checked::Layout { text, findings } => report(findings, source(text), paint),
        Checked::NoLayout { text, error } => {
            let shown = unreadable(error, source(text), paint);
            format!("{shown}\n{origin}: refused\n")
        }
        Checked::NoText { .. } => format!("{origin}: refused\n"),
    }
}

fn paint() -> Paint {
    if std::io::stdout().is_terminal() && colours_wanted() {
        Paint::Coloured
    } else {
        Paint::Plain
    }
}
