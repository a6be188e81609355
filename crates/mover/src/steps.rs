//! What a move does, as a list to be read before it begins.
//!
//! Not derived from the runner: it says what was promised, and a test holds the two together.

use crate::plan::{End, Plan};

/// One step, and the phase in which it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub phase: &'static str,
    pub what: String,
}

/// From the start to the end of a move that is cut over and completed.
pub fn steps(plan: &Plan) -> Vec<Step> {
    let Plan {
        collection,
        freeze_ms_max,
        ..
    } = plan;
    let [source, target] = [End::Source, End::Target].map(|end| plan.called(end));
    let step = |phase, what: String| Step { phase, what };
    vec![
        step(
            "planned",
            "publish a map that changes nothing; every process acknowledges it".to_owned(),
        ),
        step(
            "backfilling",
            format!("copy the {collection} from {source} to {target}"),
        ),
        step(
            "catching up",
            format!("follow the journal of {source} to its end"),
        ),
        step(
            "verifying",
            "compare both sides until nothing differs, and rehearse the way back".to_owned(),
        ),
        step(
            "ready",
            format!("keep {target} up to date and compared, until the cutover is asked for"),
        ),
        step(
            "noticed",
            "publish another map that changes nothing; every process acknowledges it".to_owned(),
        ),
        step(
            "frozen",
            format!(
                "hold writes to these keys for at most {freeze_ms_max} ms: fence {source}, copy the rest, prove that both \
                 sides are the same, publish the map that gives the keys to {target}"
            ),
        ),
        step(
            "settling",
            format!(
                "{target} serves, {source} is kept up to date: it can be rolled back until it is completed"
            ),
        ),
        step(
            "completed",
            format!(
                "{target} keeps the keys; after a grace the next steps follow, unless somebody wants them not to"
            ),
        ),
        step(
            "cleaning up",
            format!(
                "remove from {source} what it does not own any more, once nobody can read it there"
            ),
        ),
        step(
            "cleaned up",
            format!("{source} holds nothing of what was moved"),
        ),
    ]
}
