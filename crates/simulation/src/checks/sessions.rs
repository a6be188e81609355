//! Sessions: closed is final, and a closed session leaves no active cart.

use layout::{Collection, Field};

use crate::ledger::{Deed, Told, Wish};
use crate::recording::History;

pub fn check(history: &History) -> Vec<String> {
    let mut breaches = Vec::new();
    let closings = history
        .deeds
        .iter()
        .filter(|deed| deed.is_acknowledged())
        .filter_map(|deed| match &deed.wish {
            Wish::CloseSession { session } => Some((deed, session)),
            _ => None,
        });
    for (closing, session) in closings {
        let later = |deed: &&Deed| closing.is_before(deed) && deed.is_acknowledged();
        for deed in history.deeds.iter().filter(later) {
            if matches!(&deed.wish, Wish::TouchSession { session: of } if of == session) {
                breaches.push(format!("{session} was touched after it was closed"));
            }
        }
        let text = session.as_str();
        let record = history.standing.iter().find(|record| {
            record.key.collection == Collection::Sessions && record.key.id.as_str() == text
        });
        let header = record.and_then(|record| record.header.content.live());
        if header.and_then(|header| header.text(Field::Status)) != Some("closed") {
            breaches.push(format!("{session} was closed and is not"));
        }
        let carts = history
            .standing
            .iter()
            .filter(|record| record.key.collection == Collection::Carts)
            .filter_map(|record| record.header.content.live());
        let mut own = carts.filter(|header| header.text(Field::SessionId) == Some(text));
        // Somebody who dies while it opens a cart leaves it to its expiry.
        let died = history.deeds.iter().any(|deed| {
            matches!(&deed.wish, Wish::OpenCart { owner: model::CartOwner::Guest(of) } if of == session)
                && matches!(deed.told, Told::Nothing | Told::Unknown { .. })
        });
        if !died && own.any(|header| header.text(Field::Status) == Some("active")) {
            breaches.push(format!("{session} was closed and its cart is active"));
        }
    }
    for deed in &history.deeds {
        if let (Wish::OpenSession, Told::Session { session }) = (&deed.wish, &deed.told) {
            let there = |record: &engine_api::Record| {
                record.key.collection == Collection::Sessions
                    && record.key.id.as_str() == session.as_str()
                    && record.header.content.live().is_some()
            };
            if !history.standing.iter().any(there) {
                breaches.push(format!("{session} was opened and is not there"));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use engine_api::{Content, Header, Record};
    use layout::{Fields, Value};

    use super::*;
    use crate::checks::story::{Story, revision};
    use crate::scenery::{cart, noun, session};

    fn live(key: engine_api::RecordKey, fields: Fields) -> Record {
        Record {
            key,
            header: Header {
                revision: revision(2),
                cleared: revision(1),
                content: Content::Live(fields),
            },
            parts: Default::default(),
        }
    }

    fn found(status: &str, cart_status: &str, touches: bool) -> usize {
        let mut story = Story::begin();
        let id: model::ShopperSessionId = noun("s-9");
        let opened = Told::Session {
            session: id.clone(),
        };
        story.visits(Wish::OpenSession, opened.clone());
        let wish = Wish::CloseSession {
            session: id.clone(),
        };
        story.visits(wish, Told::Done);
        if touches {
            let wish = Wish::TouchSession { session: id };
            story.visits(wish, opened);
        }
        let text = |field, text: &str| Fields::new().with(field, Value::text(text));
        let cart_fields =
            text(Field::SessionId, "s-9").with(Field::Status, Value::text(cart_status));
        story.history.standing = vec![
            live(session("s-9"), text(Field::Status, status)),
            live(cart("x"), cart_fields),
        ];
        check(&story.history).len()
    }

    #[test]
    fn a_closed_session_stays_closed_and_leaves_no_active_cart() {
        assert_eq!(found("closed", "abandoned", false), 0);
        assert_eq!(found("active", "abandoned", false), 1);
        assert_eq!(found("closed", "active", false), 1);
        assert_eq!(found("closed", "abandoned", true), 1);
    }
}
