//! `caravan move certificate`: what is kept of a cutover, and whether it still holds.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use mover::{Certificate, Stall};
use ops_api::{Request, Which};

use super::Format;
use super::counter::{Counter, Need};
use crate::arguments::CertificateArguments;
use crate::map_command::scope_text;
use crate::text::columns;

/// A field was changed since the certificate was made.
const EXIT_CHANGED: u8 = 1;

pub async fn show(wish: &CertificateArguments, out: &mut dyn Write) -> Result<ExitCode> {
    let certificate = match (&wish.file, &wish.name) {
        (Some(file), _) => of_file(file)?,
        (None, Some(name)) => kept(wish, name).await?,
        (None, None) => return Err(anyhow!("no certificate is named: give --name or --file")),
    };
    let holds = certificate.verify();
    match Format::of(&wish.json) {
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(&certificate)?)?,
        Format::Text => write!(out, "{}", text_of(&certificate, holds))?,
    }
    Ok(match (wish.verify, holds) {
        (true, false) => ExitCode::from(EXIT_CHANGED),
        (true, true) | (false, _) => ExitCode::SUCCESS,
    })
}

fn of_file(file: &Path) -> Result<Certificate> {
    let shown = file.display();
    let bytes =
        fs::read(file).map_err(|error| anyhow!("{shown} cannot be read ({error}): name a file"))?;
    serde_json::from_slice(&bytes).map_err(|error| {
        anyhow!(
            "{shown} is no certificate ({error}): save one with caravan move certificate --json"
        )
    })
}

async fn kept(wish: &CertificateArguments, name: &str) -> Result<Certificate> {
    let which = match wish.rollback {
        true => Which::Rollback,
        false => Which::Cutover,
    };
    let counter = Counter::open(&wish.place, Need::Look).await?;
    let name = name.to_owned();
    let kept = counter.ask(Request::Certificate { name, which }).await?;
    Ok(serde_json::from_value(kept)?)
}

fn text_of(certificate: &Certificate, holds: bool) -> String {
    let content = &certificate.content;
    let (plan, generations) = (&content.plan, &content.generations);
    let entered = content.direction.entered();
    let [left, entered] = [entered.other(), entered].map(|end| plan.called(end));
    let freeze = match content.freeze_ms {
        Some(ms) => format!("{ms} ms of {} at most", plan.freeze_ms_max),
        None => "of unknown length: the process died behind it".to_owned(),
    };
    let verdict = match holds {
        true => "nothing was changed since it was made",
        false => "A FIELD WAS CHANGED since it was made",
    };
    let rows = [
        ("move", content.name.to_string()),
        (
            "keys",
            format!("{} of {}", scope_text(plan.scope()), plan.collection),
        ),
        ("from, to", format!("{left}, {entered}")),
        (
            "generations",
            format!(
                "barrier {}, noticed {}, frozen {}, published {}",
                generations.barrier, generations.noticed, generations.frozen, generations.published
            ),
        ),
        ("records", content.records.to_string()),
        ("looked again", content.looked_again.to_string()),
        (
            "roots",
            format!("{} and {}", content.left_root, content.entered_root),
        ),
        ("freeze", freeze),
        ("of which", content.freeze_parts.to_string()),
        ("clients saw", stall_text(content.stall.as_ref())),
        ("digest", certificate.digest.clone()),
        ("verdict", verdict.to_owned()),
    ];
    columns(&rows.map(|(what, text)| [what.to_owned(), text]))
}

fn stall_text(stall: Option<&Stall>) -> String {
    let Some(stall) = stall else {
        return "nobody knows: the process died behind the freeze".to_owned();
    };
    let ms = |us: u64| Duration::from_micros(us).as_secs_f64() * 1e3;
    let held = &stall.all;
    let silent = match stall.silent.as_slice() {
        [] => String::new(),
        silent => format!("; {} did not tell", silent.join(", ")),
    };
    format!(
        "{} requests held by {} processes: p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms, at most {:.1} ms{silent}",
        held.requests,
        stall.processes.len(),
        ms(held.p50_us),
        ms(held.p99_us),
        ms(held.p999_us),
        ms(held.max_us),
    )
}
