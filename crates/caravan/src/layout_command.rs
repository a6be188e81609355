//! `caravan layout`: check, explain, compare and list layouts, and print what their
//! servers need, without touching any data.

mod check;

mod json;

mod schema;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use layout::checker::is_usable;
use layout::{Finding, Layout, Load, Severity};

use crate::text::columns;

pub use check::{Format, check};
pub use schema::schema;

/// The longest layout file. The longest that ships has less than a hundredth of it.
const LAYOUT_BYTES_MAX: u64 = 1024 * 1024;

/// Where `list` looks for files.
const LAYOUTS_FOLDER: &str = "layouts";

pub fn explain(file: &Path, load: &Load, out: &mut dyn Write) -> Result<()> {
    let layout = read(file)?;
    write!(out, "{}", layout::explain::explain(&layout, load))?;
    match refusal(file, &layout::check(&layout)) {
        Some(refusal) => bail!("{refusal}"),
        None => Ok(()),
    }
}

/// Layouts that cannot be used are compared too: that may be why one asks.
pub fn diff(from: &Path, to: &Path, out: &mut dyn Write) -> Result<()> {
    write!(out, "{}", layout::diff::diff(&read(from)?, &read(to)?))?;
    Ok(())
}

/// A file that cannot be used is listed as such: listing judges nobody.
pub fn list(out: &mut dyn Write) -> Result<()> {
    let headings = ["file", "name", "verdict", "description"].map(str::to_owned);
    let mut rows = vec![headings, row("built in", &layout::embedded())];
    for file in layout_files(Path::new(LAYOUTS_FOLDER))? {
        let shown = file.display().to_string();
        rows.push(match read(&file) {
            Ok(layout) => row(&shown, &layout),
            Err(error) => [
                shown,
                "-".to_owned(),
                "refused".to_owned(),
                error.to_string(),
            ],
        });
    }
    write!(out, "{}", columns(&rows))?;
    Ok(())
}

fn row(origin: &str, layout: &Layout) -> [String; 4] {
    let verdict = if is_usable(&layout::check(layout)) {
        "usable"
    } else {
        "refused"
    };
    let description = layout.description.split_whitespace().collect::<Vec<_>>();
    [
        origin.to_owned(),
        layout.name.clone(),
        verdict.to_owned(),
        description.join(" "),
    ]
}

/// A layout that may be served from.
pub fn usable(file: &Path) -> Result<Layout> {
    let layout = read(file)?;
    match refusal(file, &layout::check(&layout)) {
        Some(refusal) => bail!("{refusal}"),
        None => Ok(layout),
    }
}

fn read(file: &Path) -> Result<Layout> {
    Ok(Layout::parse(&text_of(file)?, &file.display().to_string())?)
}

fn text_of(file: &Path) -> Result<String> {
    let shown = file.display();
    let unreadable = |reason: String| format!("the layout {shown} cannot be read ({reason})");
    let open = |file: &Path| -> std::io::Result<String> {
        let mut text = String::new();
        fs::File::open(file)?
            .take(LAYOUT_BYTES_MAX + 1)
            .read_to_string(&mut text)?;
        Ok(text)
    };
    let text = open(file).map_err(|error| {
        let reason = unreadable(error.to_string());
        anyhow::anyhow!("{reason}: name a text file that this user may read")
    })?;
    ensure!(
        text.len() as u64 <= LAYOUT_BYTES_MAX,
        "{}: name a layout file of at most {LAYOUT_BYTES_MAX} bytes",
        unreadable("it is too long".to_owned())
    );
    Ok(text)
}

/// The first reason not to use the layout, on one line.
fn refusal(file: &Path, findings: &[Finding]) -> Option<String> {
    let mut refused = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Refused);
    let first = refused.next()?;
    let more = match refused.count() {
        0 => String::new(),
        count => format!(" (and {count} more)"),
    };
    let Finding { message, fix, .. } = first;
    Some(format!("{}: {message}: {fix}{more}", file.display()))
}

/// Layout files of a folder by name; none where there is no such folder.
fn layout_files(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).context("the folder ./layouts cannot be listed")?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut files: Vec<PathBuf> = paths.collect::<std::io::Result<_>>()?;
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    });
    files.sort();
    Ok(files)
}
