//! Every cutover has its certificate, and every certificate its cutover.

use engine_api::Generation;
use mover::{Certificate, Direction, Phase};

use super::standing;
use crate::recording::{History, Moment};

pub fn check(history: &History) -> Vec<String> {
    let certificates = history.certificates.iter();
    let wrong = certificates.filter_map(|certificate| wrong(history, certificate));
    wrong.chain(missing(history)).collect()
}

fn wrong(history: &History, certificate: &Certificate) -> Option<String> {
    let content = &certificate.content;
    let says = |what: &str| Some(format!("the certificate of {} {what}", content.name));
    if !certificate.verify() {
        return says("does not hold");
    }
    let of = &content.generations;
    if !(of.barrier < of.noticed && of.noticed < of.frozen && of.frozen < of.published) {
        return says("tells maps in another order");
    }
    let owner_after = |generation: Generation| {
        let mut maps = history.maps.iter();
        let map = maps.find(|published| published.map.generation == generation)?;
        let collection = map.map.collection(content.plan.collection).ok()?;
        Some((collection.cut.clone(), collection.pinned.clone()))
    };
    let before = Generation(of.published.0 - 1);
    (owner_after(of.published) == owner_after(before))
        .then(|| says("tells of a map that gave nothing away"))
        .flatten()
}

fn missing(history: &History) -> Vec<String> {
    let mut breaches = Vec::new();
    for recorded in standing(history, Moment(u64::MAX)).into_values() {
        let expected = match &recorded.record.state.phase {
            Phase::Settling { settled }
            | Phase::Resting { settled, .. }
            | Phase::Cleaning { settled }
            | Phase::Cleaned { settled }
            | Phase::Completed { settled } => {
                vec![(Direction::Cutover, settled.generation)]
            }
            Phase::RolledBack {
                settled,
                generation,
            } => vec![
                (Direction::Cutover, settled.generation),
                (Direction::Rollback, *generation),
            ],
            Phase::Planned { .. }
            | Phase::Backfilling { .. }
            | Phase::CatchingUp { .. }
            | Phase::Verifying { .. }
            | Phase::Ready { .. }
            | Phase::Noticed { .. }
            | Phase::Frozen { .. }
            | Phase::Aborted { .. } => continue,
        };
        for (direction, generation) in expected {
            let is_it = |certificate: &&Certificate| {
                let content = &certificate.content;
                content.name.as_str() == recorded.name
                    && content.direction == direction
                    && content.generations.published == generation
            };
            if history.certificates.iter().find(is_it).is_none() {
                let name = &recorded.name;
                breaches.push(format!("{name}: no certificate of map {generation}"));
            }
        }
    }
    breaches
}
