//! `caravan move watch`: a picture that is drawn anew on a terminal, a line per change elsewhere.

mod course;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mover::MoveState;
use serde_json::{Value, json};

use super::counter::{Counter, Need};
use super::{Format, seen, showing};
use crate::arguments::WatchArguments;
use crate::canvas::Canvas;
use crate::ops::{Seen, StandingMove};
use crate::text::{bar, columns, step_bar};
use course::{Course, Progress};

/// Between two looks at a terminal; elsewhere a line a second is enough.
const REDRAW_EVERY: Duration = Duration::from_millis(250);
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Of the bar of what is copied.
const BAR_CELLS: usize = 20;

/// The move ended, and not where it was watched for.
const EXIT_ENDED_OTHERWISE: u8 = 1;

/// In the order that a move goes through them.
const STEPS: [&str; 9] = [
    "planned",
    "backfilling",
    "catching up",
    "verifying",
    "ready",
    "settling",
    "completed",
    "cleaning up",
    "cleaned up",
];

enum View {
    Picture(Canvas),
    /// What was last told, so that nothing is told twice.
    Lines {
        last: String,
    },
    Json {
        last: Value,
    },
}

pub async fn run(wish: &WatchArguments, out: &mut dyn Write) -> Result<ExitCode> {
    let named = &wish.named;
    let counter = Counter::open(&named.place, Need::Look).await?;
    let mut view = match Format::of(&named.json) {
        Format::Json => View::Json { last: Value::Null },
        Format::Text if io::stdout().is_terminal() => View::Picture(Canvas::default()),
        Format::Text => View::Lines {
            last: String::new(),
        },
    };
    let began = Instant::now();
    let mut course = Course::default();
    loop {
        let seen = seen(&counter, &named.name).await?;
        let record = seen.record.as_ref();
        let record =
            record.with_context(|| format!("{} was never begun: start it again", seen.name))?;
        course.note(began.elapsed(), &record.state);
        view.show(&seen, record, &course, out)?;
        out.flush()?;
        let phase = record.state.phase.name();
        let reached = wish.until.as_deref() == Some(phase);
        if reached || record.state.phase.is_over() {
            return Ok(match (&wish.until, reached) {
                (Some(_), false) => ExitCode::from(EXIT_ENDED_OTHERWISE),
                (Some(_), true) | (None, _) => ExitCode::SUCCESS,
            });
        }
        tokio::time::sleep(view.pause()).await;
    }
}

impl View {
    fn pause(&self) -> Duration {
        match self {
            View::Picture(_) => REDRAW_EVERY,
            View::Lines { .. } | View::Json { .. } => LINE_EVERY,
        }
    }

    fn show(
        &mut self,
        seen: &Seen,
        record: &StandingMove,
        course: &Course,
        out: &mut dyn Write,
    ) -> Result<()> {
        match self {
            View::Picture(canvas) => canvas.draw(&picture(seen, record, course), out)?,
            View::Lines { last } => {
                let line = line(seen, record, course);
                let told = told(record);
                if told != *last {
                    writeln!(out, "{line}")?;
                    *last = told;
                }
            }
            View::Json { last } => {
                let mut value = seen.to_json();
                if value != *last {
                    last.clone_from(&value);
                    value["copied_per_s"] = json!(course.copied_per_s());
                    let progress = Progress::of(&record.state);
                    value["copied_percent"] = json!(progress.and_then(|it| it.percent));
                    let expected = course.expected(&record.state);
                    value["expected_s"] = json!(expected.seconds());
                    value["expected"] = json!(expected.to_string());
                    writeln!(out, "{value}")?;
                }
            }
        }
        Ok(())
    }
}

/// What makes another line worth reading. How old the lag is changes all the time, and alone says nothing.
fn told(record: &StandingMove) -> String {
    let state = &record.state;
    format!(
        "{} {} {} {} {:?} {:?} {:?}",
        showing::phase_text(state),
        showing::copied(state),
        state.shown.lag_entries,
        showing::throttle(state),
        state.given_up,
        // The grace goes by in between, and that alone says nothing.
        (state.shown.records_removed, &state.shown.in_use),
        state.shown.trouble
    )
}

fn line(seen: &Seen, record: &StandingMove, course: &Course) -> String {
    let state = &record.state;
    let mut parts = vec![
        showing::phase_text(state),
        format!("copied {}", copied(state, course)),
        format!("lag {}", showing::lag(state)),
        format!("throttle {}", showing::throttle(state)),
        format!("left: {}", course.expected(state)),
    ];
    if let Some(cleaned) = showing::cleaned(state) {
        parts.push(format!("source: {cleaned}"));
    }
    if let Some(given_up) = &state.given_up {
        parts.push(format!("given up: {}", showing::given_up_text(given_up)));
    }
    if let Some(trouble) = &state.shown.trouble {
        parts.push(format!("trouble: {trouble}"));
    }
    format!("{}: {}", seen.name, parts.join("; "))
}

fn picture(seen: &Seen, record: &StandingMove, course: &Course) -> String {
    let state = &record.state;
    let phase = state.phase.name();
    // Phases of the cutover, and those that end early, stand at the step they came from.
    let step = match phase {
        "noticed" | "frozen" => "ready",
        "aborted" => "planned",
        "rolled back" => "settling",
        phase => phase,
    };
    let step = STEPS.iter().position(|name| *name == step).unwrap_or(0);
    let mut rows = vec![
        ["move".to_owned(), seen.name.to_string()],
        [
            "phase".to_owned(),
            format!(
                "{} {}",
                step_bar(step, STEPS.len()),
                showing::phase_text(state)
            ),
        ],
        ["copied".to_owned(), copied_picture(state, course)],
        [
            "lag".to_owned(),
            format!("{}  {}", showing::lag(state), course.lag_picture()),
        ],
        ["throttle".to_owned(), showing::throttle(state)],
        [
            "differences".to_owned(),
            state.shown.differences.to_string(),
        ],
        ["left".to_owned(), course.expected(state).to_string()],
    ];
    if let Some(cleaned) = showing::cleaned(state) {
        rows.push(["source".to_owned(), cleaned]);
    }
    if let Some(given_up) = &state.given_up {
        rows.push(["given up".to_owned(), showing::given_up_text(given_up)]);
    }
    if let Some(trouble) = &state.shown.trouble {
        rows.push(["trouble".to_owned(), trouble.clone()]);
    }
    columns(&rows)
}

fn copied(state: &MoveState, course: &Course) -> String {
    let progress = Progress::of(state);
    let progress = progress.map_or(String::new(), |progress| format!(" {progress}"));
    format!("{}{progress}{}", showing::copied(state), rate(course))
}

fn copied_picture(state: &MoveState, course: &Course) -> String {
    let copied = copied(state, course);
    match Progress::of(state).and_then(|progress| progress.percent) {
        Some(percent) => format!("{} {copied}", bar(percent, 100, BAR_CELLS)),
        None => copied,
    }
}

fn rate(course: &Course) -> String {
    let rate = course.copied_per_s().filter(|rate| *rate > 0);
    rate.map_or(String::new(), |rate| format!(" ({rate}/s)"))
}
