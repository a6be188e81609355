//! What a server may do with a change, judged by the records before and after,
//! without the engine's own rules: the second opinion about every commit.

use engine_api::{
    Authority, Change, Guard, Header, Outcome, PartKey, PriceCondition, Record, Revision,
    StockAction, Timestamp,
};
use layout::{Field, Value};

use crate::checks::revisions::fell;
use crate::recording::{Applied, History, brief};

pub fn check(history: &History) -> Vec<String> {
    let mut breaches = Vec::new();
    for applied in &history.applied {
        let found = refused_but_changed(applied)
            .into_iter()
            .chain(half_applied(applied))
            .chain(
                applied
                    .changes
                    .iter()
                    .zip(&applied.images)
                    .flat_map(|(change, images)| {
                        let (before, after) = (images.0.as_ref(), images.1.as_ref());
                        let unlawful = match before == after {
                            true => None,
                            false => unlawful(applied, change, before)
                                .or_else(|| stopped(history, applied, change)),
                        };
                        unlawful
                            .into_iter()
                            .chain(before.and_then(|before| lost(change, before, after)))
                    }),
            );
        let shown = |breach: String| {
            let changes: Vec<String> = applied.changes.iter().map(brief).collect();
            format!(
                "{} at {}, {}: {breach}",
                applied.shard,
                applied.moment.0,
                changes.join(" + ")
            )
        };
        breaches.extend(found.map(shown));
    }
    breaches.extend(late_fences(history));
    breaches
}

fn is_done(applied: &Applied) -> bool {
    matches!(applied.answer, Ok(Outcome::Done { .. }))
}

fn refused_but_changed(applied: &Applied) -> Option<String> {
    let changed = applied.images.iter().any(|(before, after)| before != after);
    (changed && !is_done(applied)).then(|| "was refused and changed something".to_owned())
}

/// Changes that go together happen together.
fn half_applied(applied: &Applied) -> Option<String> {
    let changed = applied
        .images
        .iter()
        .filter(|(before, after)| before != after)
        .count();
    (changed != 0 && changed != applied.images.len()).then(|| "was applied by half".to_owned())
}

/// Whether the change was not allowed on what it found.
fn unlawful(applied: &Applied, change: &Change, before: Option<&Record>) -> Option<String> {
    let live = before.filter(|record| is_live(record, applied.context.now));
    let says = |what: &str| Some(what.to_owned());
    match change {
        Change::CreateIfAbsent { .. } if live.is_some() => says("replaced a living record"),
        Change::CreateIfAbsent { .. } => None,
        Change::PutImage { .. } => match applied.context.authority {
            Authority::Router { .. } => says("a router put an image"),
            Authority::Mover { .. } => None,
        },
        Change::ChangeIf { expected, .. } | Change::Remove { expected, .. } => match live {
            None => says("changed a dead record"),
            Some(record) if record.header.revision != *expected => says("changed another header"),
            Some(_) => None,
        },
        Change::Patch { guard, .. } => match live {
            None => says("patched a dead record"),
            Some(record) if !holds(guard, &record.header) => says("passed its guard"),
            Some(_) => None,
        },
        Change::Stock { price, action, .. } => match live {
            None => says("moved the stock of a dead record"),
            Some(record) if !price_holds(*price, action, record) => says("sold at another price"),
            Some(_) => None,
        },
    }
}

/// Told again in other words, so that the engine's own rule is judged too (W2, W7).
fn is_live(record: &Record, now: Timestamp) -> bool {
    let expiry = record.parts.get(&PartKey::expiry());
    let expiry = expiry.and_then(|part| part.content.live());
    let end = expiry
        .and_then(|fields| fields.get(Field::ExpiresAt))
        .and_then(Value::as_timestamp);
    record.header.content.live().is_some() && end.is_none_or(|end| now < end)
}

fn holds(guard: &Guard, header: &Header) -> bool {
    let Some(fields) = header.content.live() else {
        return false;
    };
    guard
        .header
        .iter()
        .all(|(field, value)| fields.get(*field) == Some(value))
}

fn price_holds(price: PriceCondition, action: &StockAction, record: &Record) -> bool {
    match (price, action) {
        (PriceCondition::Exactly(seen), StockAction::Take { .. } | StockAction::Sell { .. }) => {
            let header = record.header.content.live();
            header
                .and_then(|header| header.get(Field::Price))
                .and_then(Value::as_decimal)
                == Some(seen)
        }
        _ => true,
    }
}

/// Whether a fence or a higher term stood in the way.
fn stopped(history: &History, applied: &Applied, change: &Change) -> Option<String> {
    match &applied.context.authority {
        Authority::Router { generation } => {
            let fences = match history.by_lease.contains(&applied.shard) {
                false => history.fences.as_slice(),
                true => &[],
            };
            let stops = fences.iter().find(|raised| {
                raised.shard == applied.shard
                    && raised.moment < applied.moment
                    && raised.fence.stops(change.key(), *generation)
            })?;
            Some(format!(
                "passed the fence of {} under {generation}",
                stops.fence.generation
            ))
        }
        Authority::Mover { term } => {
            let higher = history.terms.iter().find(|claimed| {
                claimed.shard == applied.shard
                    && claimed.moment < applied.moment
                    && claimed.term.move_name == term.move_name
                    && claimed.term.term > term.term
            })?;
            Some(format!("{term} wrote after {}", higher.term))
        }
    }
}

/// Fences that a mover raised after its term was over.
fn late_fences(history: &History) -> Vec<String> {
    let late = history.fences.iter().filter(|raised| {
        history.terms.iter().any(|claimed| {
            claimed.shard == raised.shard
                && claimed.moment < raised.moment
                && claimed.term.move_name == raised.term.move_name
                && claimed.term.term > raised.term.term
        })
    });
    late.map(|raised| format!("{} raised a fence after its term", raised.term))
        .collect()
}

/// What the change took away without replacing it: numbers only rise, content
/// changes only with its number, and a change touches what it names.
fn lost(change: &Change, before: &Record, after: Option<&Record>) -> Option<String> {
    if let Some(fell) = fell(before, after) {
        return Some(fell);
    }
    let after = after?;
    let silently = |from: Revision, to: Revision| from == to;
    if silently(before.header.revision, after.header.revision)
        && before.header.content != after.header.content
    {
        return Some("the header changed under its revision".to_owned());
    }
    let parts_changed = before.parts.iter().find_map(|(name, part)| {
        let now = after.parts.get(name)?;
        (silently(part.revision, now.revision) && part.content != now.content)
            .then(|| format!("{name} changed under its revision"))
    });
    parts_changed.or_else(|| touched_others(change, before, after))
}

fn touched_others(change: &Change, before: &Record, after: &Record) -> Option<String> {
    let names = |part: &PartKey| match change {
        Change::Patch { parts, .. } => parts.iter().any(|(of, _)| of == part),
        Change::Stock { part: of, .. } => of == part,
        Change::CreateIfAbsent { .. }
        | Change::ChangeIf { .. }
        | Change::Remove { .. }
        | Change::PutImage { .. } => true,
    };
    let other = before
        .parts
        .iter()
        .find(|(name, part)| !names(name) && after.parts.get(*name) != Some(*part));
    other.map(|(name, _)| format!("{name} was touched, which was not named"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use engine_api::{Content, Fence, Generation, MoverTerm, Part, PartChange};
    use layout::Scope;

    use super::*;
    use crate::checks::story::{Story, revision, router_context, shard};
    use crate::recording::{Claimed, Raised};
    use crate::scenery::{Marks, cart, cart_header, change_if, patch_while_active};

    fn image(header: i64, content: Content, lamp: Option<i64>) -> Option<Record> {
        let header = Header {
            revision: revision(header),
            cleared: revision(1),
            content,
        };
        let lamp = lamp.map(|lamp| (PartKey::line("lamp"), Part::mark(revision(lamp))));
        Some(Record {
            key: cart("ada"),
            header,
            parts: BTreeMap::from_iter(lamp),
        })
    }

    fn with_status(status: &str) -> Content {
        Content::Live(cart_header("ada", status, &Marks::default()))
    }

    fn drop_lamp() -> Change {
        let parts = vec![(PartKey::line("lamp"), PartChange::Remove)];
        patch_while_active(&cart("ada"), parts)
    }

    fn found(change: Change, before: Option<Record>, after: Option<Record>) -> usize {
        let mut story = Story::begin();
        story.applies(change, router_context(revision(6), 1), before, after);
        check(&story.history).len()
    }

    #[test]
    fn a_patch_needs_a_living_header_and_its_guard() {
        let to = |content: Content| image(2, content, Some(6));
        let from = |content: Content| image(2, content, None);
        let (active, ordered) = (with_status("active"), with_status("ordered"));
        assert_eq!(found(drop_lamp(), from(active.clone()), to(active)), 0);
        assert_eq!(found(drop_lamp(), from(ordered.clone()), to(ordered)), 1);
        assert_eq!(
            found(drop_lamp(), from(Content::Removed), to(Content::Removed)),
            1
        );
        assert_eq!(found(drop_lamp(), None, to(with_status("active"))), 1);
    }

    #[test]
    fn a_change_needs_the_header_it_expects() {
        let header = || cart_header("ada", "ordered", &Marks::default());
        let change = |expected| change_if(&cart("ada"), revision(expected), header());
        let before = || image(2, with_status("active"), None);
        let after = || image(6, Content::Live(header()), None);
        assert_eq!(found(change(2), before(), after()), 0);
        assert_eq!(found(change(1), before(), after()), 1);
    }

    #[test]
    fn numbers_do_not_fall_and_marks_stay() {
        let active = || with_status("active");
        assert_eq!(
            found(
                drop_lamp(),
                image(2, active(), Some(8)),
                image(2, active(), Some(6))
            ),
            1
        );
        assert_eq!(
            found(
                drop_lamp(),
                image(2, active(), Some(4)),
                image(2, active(), None)
            ),
            1
        );
    }

    #[test]
    fn fences_stop_routers_and_terms_stop_movers() {
        let mut story = Story::begin();
        let term = |term| MoverTerm {
            move_name: "carts-1".to_owned(),
            term,
        };
        let generation = Generation(3);
        let fence = Fence {
            collection: layout::Collection::Carts,
            scope: Scope::All,
            generation,
        };
        let moment = story.history.note("fence".to_owned());
        story.history.fences.push(Raised {
            moment,
            shard: shard("a"),
            fence,
            term: term(2),
        });
        story.history.terms.push(Claimed {
            moment,
            shard: shard("a"),
            term: term(2),
        });
        let (before, after) = (
            image(2, with_status("active"), None),
            image(2, with_status("active"), Some(6)),
        );
        let context = |generation| router_context(revision(6), generation);
        story.applies(drop_lamp(), context(3), before.clone(), after.clone());
        assert!(check(&story.history).is_empty());
        story.applies(drop_lamp(), context(2), before, after.clone());
        let mut by_mover = context(2);
        by_mover.authority = Authority::Mover { term: term(1) };
        let image = after.clone().unwrap();
        story.applies(Change::PutImage { image }, by_mover, None, after);
        assert_eq!(check(&story.history).len(), 2);
    }
}
