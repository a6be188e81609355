//! `caravan reconcile`: looks at every record, mends what the records decide, names the rest.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use engine_api::RealWorld;
use serde_json::{Value, json};
use shop_service::{Kind, Place, ReconcileLimits, Report, Step, Wish};

use crate::arguments::ReconcileArguments;
use crate::config::Config;
use crate::progress::Progress;
use crate::serve::signals;
use crate::shards::Shards;
use crate::text::columns;

/// Something is left, or not everything was looked at.
const EXIT_LEFT: u8 = 1;

/// How it ended: `next` is where it was stopped.
struct Course {
    report: Report,
    next: Option<Place>,
}

pub fn run(config: &Config, wish: &ReconcileArguments, out: &mut dyn Write) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the program cannot start its threads: check the limits of this user")?;
    let course = runtime.block_on(async {
        // Nobody reconciles a directory by making it.
        let mut shards = match config.is_directory_alone() {
            false => Shards::open(config).await?,
            true => Shards::open_existing(&config.data).await?,
        };
        let course = reconcile(config, wish, &shards).await;
        shards.leave().await;
        course
    })?;
    match wish.json {
        true => writeln!(out, "{:#}", json_of(&course))?,
        false => write!(out, "{}", text_of(&course, wish))?,
    }
    Ok(
        match course.next.is_none() && course.report.left_count() == 0 {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(EXIT_LEFT),
        },
    )
}

async fn reconcile(config: &Config, wish: &ReconcileArguments, shards: &Shards) -> Result<Course> {
    let mut stop = signals::listen()?;
    let shop = shards.shop(Arc::new(RealWorld::new()), config.shop.clone());
    let limits = ReconcileLimits {
        records_per_s: wish.records_per_s,
        ..ReconcileLimits::default()
    };
    let care = match wish.dry_run {
        true => Wish::LookOnly,
        false => Wish::Mend,
    };
    let mut reconciler = shop.reconciler(care, limits, wish.from.clone())?;
    let mut progress = Progress::counting("looked at");
    let stopped = loop {
        let step = tokio::select! {
            step = reconciler.step() => step?,
            () = stop.asked() => break true,
        };
        if let Some(place) = reconciler.place() {
            progress.reach(reconciler.report().looked_at(), place.round.name());
        }
        if step == Step::Ended {
            break false;
        }
    };
    progress.finish();
    Ok(Course {
        report: reconciler.report().clone(),
        next: reconciler.place().filter(|_| stopped).cloned(),
    })
}

fn text_of(course: &Course, wish: &ReconcileArguments) -> String {
    let report = &course.report;
    let head = ["what", "looked at", "found", "mended", "left"];
    let mut rows = vec![head.map(str::to_owned)];
    for kind in Kind::ALL {
        let tally = report.tally(kind);
        let counts = [tally.looked_at, tally.found, tally.mended, tally.left];
        let [looked_at, found, mended, left] = counts.map(|count| count.to_string());
        rows.push([kind.to_string(), looked_at, found, mended, left]);
    }
    let mut text = columns(&rows);
    let named = report.left_named();
    if !named.is_empty() {
        let mut rows = vec![["left", "key", "what is wrong"].map(str::to_owned)];
        let row = |left: &shop_service::Left| {
            [left.kind.to_string(), left.key.clone(), left.what.clone()]
        };
        rows.extend(named.iter().map(row));
        text += "\n";
        text += &columns(&rows);
    }
    let unnamed = report.left_count().saturating_sub(named.len() as u64);
    if unnamed > 0 {
        text += &format!("and {unnamed} more\n");
    }
    let unjudged = report.tally(Kind::Shelf).unjudged;
    if unjudged > 0 {
        text += &format!(
            "\n{unjudged} shelves changed faster than they could be counted: run it again when it is calmer\n"
        );
    }
    if wish.dry_run {
        text += "\nnothing was mended: this was a dry run\n";
    }
    if let Some(next) = &course.next {
        text += &format!("\nstopped: go on with --from {next}\n");
    }
    text
}

fn json_of(course: &Course) -> Value {
    let report = &course.report;
    let kinds = Kind::ALL.map(|kind| {
        let tally = report.tally(kind);
        json!({"kind": kind.name(), "looked_at": tally.looked_at, "found": tally.found,
            "mended": tally.mended, "left": tally.left, "unjudged": tally.unjudged})
    });
    let left = report.left_named().iter();
    let left =
        left.map(|left| json!({"kind": left.kind.name(), "key": left.key, "what": left.what}));
    json!({
        "records": report.looked_at(),
        "kinds": kinds,
        "left": left.collect::<Vec<_>>(),
        "left_count": report.left_count(),
        "stopped_at": course.next.as_ref().map(ToString::to_string),
    })
}
