use std::sync::Arc;

use engine_api::{Authority, Content, Generation, Header, MoverTerm, Position, Record};
use feed::tenure::Tenured;
use layout::{Collection, Scope};
use mover::{
    Certificate, Direction, Generations, MoveName, MoveState, Moved, Phase, Plan, Proven, Settled,
    Way,
};
use router::{Edit, Map};

use super::check;
use crate::checks::story::{Story, revision, router_context, shard};
use crate::recording::{Published, Recorded};
use crate::scenery::{Marks, cart, cart_header, first_map};

const NAME: &str = "carts-1";

fn plan() -> Plan {
    Plan {
        collection: Collection::Carts,
        moved: Moved::Keys {
            scope: Scope::All,
            source: shard("a"),
            target: shard("b"),
        },
        freeze_ms_max: 100,
    }
}

fn at(number: u8) -> Position {
    Position(vec![number])
}

fn forward() -> Way {
    Way::Forward {
        barrier: Generation(2),
        back_from: at(1),
    }
}

fn settled() -> Settled {
    Settled {
        barrier: Generation(2),
        back_from: at(1),
        generation: Generation(5),
    }
}

fn frozen(proven: Option<u64>) -> Phase {
    Phase::Frozen {
        way: forward(),
        noticed: Generation(3),
        generation: Generation(4),
        proven: proven.map(|generation| Proven {
            generation: Generation(generation),
            seal: at(9),
            records: 1,
            left_root: String::new(),
            entered_root: String::new(),
            looked_again: 0,
            frozen_at_unix_us: 0,
            proven_at_unix_us: 0,
        }),
    }
}

fn certificate() -> Certificate {
    Certificate::of(mover::Content {
        name: MoveName::new(NAME).unwrap(),
        direction: Direction::Cutover,
        term: 1,
        plan: plan(),
        generations: Generations {
            barrier: Generation(2),
            noticed: Generation(3),
            frozen: Generation(4),
            published: Generation(5),
        },
        seal: at(9),
        back_from: at(1),
        records: 1,
        left_root: String::new(),
        entered_root: String::new(),
        looked_again: 0,
        freeze_ms: None,
        freeze_parts: mover::FreezeParts::default(),
        stall: None,
        frozen_at_unix_us: 0,
        proven_at_unix_us: 0,
    })
}

impl Story {
    fn records(&mut self, name: &str, (term, holder): (u64, &str), phase: Phase) {
        let moment = self.history.note("record".to_owned());
        let record = Tenured {
            term,
            holder: Some(holder.to_owned()),
            state: MoveState {
                phase,
                ..MoveState::first(plan())
            },
        };
        let name = name.to_owned();
        let recorded = Recorded {
            moment,
            name,
            record,
        };
        self.history.records.push(recorded);
    }

    fn says(&mut self, phase: Phase) {
        self.records(NAME, (1, "one"), phase);
    }

    fn publishes(&mut self, edits: &[Edit]) {
        let before = self.history.maps.last().map(|last| Arc::clone(&last.map));
        let serving = [shard("a")];
        let before = before.map_or_else(|| first_map(|_| &serving), |map| Map::clone(&map));
        let edits: Vec<_> = edits
            .iter()
            .map(|edit| (Collection::Carts, edit.clone()))
            .collect();
        let map = Arc::new(before.edited(&edits).unwrap());
        let moment = self.history.note("map".to_owned());
        self.history.maps.push(Published { moment, map });
    }

    /// Up to the freeze, which map 4 is.
    fn freezes() -> Story {
        let mut story = Story::begin();
        story.publishes(&[]);
        story.says(Phase::first());
        let barrier = Generation(2);
        story.says(Phase::Planned {
            barrier: Some(barrier),
        });
        story.says(Phase::Backfilling { barrier });
        story.says(Phase::CatchingUp { barrier });
        story.says(Phase::Verifying { barrier });
        story.says(Phase::Ready {
            barrier,
            back_from: at(1),
        });
        story.publishes(&[]);
        story.says(Phase::Noticed {
            way: forward(),
            generation: Generation(3),
        });
        story.says(frozen(None));
        story.publishes(&[freeze()]);
        story
    }

    /// To the end, which map 5 brings.
    fn settles() -> Story {
        let mut story = Story::freezes();
        story.says(frozen(Some(5)));
        story.publishes(&[give(), thaw()]);
        story.says(Phase::Settling { settled: settled() });
        story.history.certificates.push(certificate());
        story
    }

    fn found(&self, expected: &str) {
        let found = check(&self.history);
        assert_eq!(found.len(), 1, "{expected}: {found:?}");
        assert!(found[0].contains(expected), "{expected}: {found:?}");
    }
}

fn freeze() -> Edit {
    Edit::Freeze { scope: Scope::All }
}

fn thaw() -> Edit {
    Edit::Thaw { scope: Scope::All }
}

fn give() -> Edit {
    Edit::Move {
        scope: Scope::All,
        to: shard("b"),
    }
}

#[test]
fn a_move_as_it_should_be_is_found_in_order() {
    assert_eq!(check(&Story::settles().history), Vec::<String>::new());
}

#[test]
fn a_record_that_does_not_follow_is_found() {
    let mut story = Story::settles();
    story.says(Phase::Aborted { why: String::new() });
    let found = check(&story.history);
    assert!(
        found[0].contains("aborted came after settling"),
        "{found:?}"
    );
    let mut story = Story::freezes();
    story.records(NAME, (1, "two"), frozen(None));
    story.found("two had term 1");
    let mut story = Story::freezes();
    story.records(NAME, (0, "one"), frozen(None));
    story.found("term 0 came after term 1");
    let mut story = Story::settles();
    story.records("other", (1, "one"), Phase::first());
    let found = check(&story.history);
    assert!(found[0].contains("has keys of carts-1"), "{found:?}");
}

#[test]
fn a_record_that_says_what_the_map_does_not_is_found() {
    let mut story = Story::freezes();
    story.publishes(&[thaw()]);
    story.says(frozen(Some(5)));
    story.says(Phase::Settling { settled: settled() });
    let found = check(&story.history);
    assert!(found[0].contains("it is settling, and map 5"), "{found:?}");
}

#[test]
fn keys_that_are_given_away_without_a_proof_are_found() {
    let mut story = Story::freezes();
    story.publishes(&[give(), thaw()]);
    story.found("without a proof for it");
    let mut story = Story::freezes();
    story.says(frozen(Some(6)));
    story.publishes(&[give(), thaw()]);
    story.found("without a proof for it");
    let mut story = Story::freezes();
    story.says(frozen(Some(5)));
    story.publishes(&[give()]);
    story.found("leaves them frozen");
    let mut story = Story::begin();
    story.publishes(&[]);
    story.says(Phase::first());
    story.publishes(&[freeze()]);
    story.found("nobody has announced");
}

#[test]
fn a_mover_that_changes_what_is_served_is_found() {
    let mut story = Story::freezes();
    let header = cart_header("ada", "active", &Marks::default());
    let image = Record {
        key: cart("ada"),
        header: Header {
            revision: revision(2),
            cleared: revision(1),
            content: Content::Live(header),
        },
        parts: Default::default(),
    };
    let mut context = router_context(revision(2), 1);
    let move_name = "feed-carts-1-back".to_owned();
    context.authority = Authority::Mover {
        term: MoverTerm { move_name, term: 1 },
    };
    let change = engine_api::Change::PutImage {
        image: image.clone(),
    };
    story.applies(
        change.clone(),
        context.clone(),
        Some(image.clone()),
        Some(image.clone()),
    );
    assert_eq!(check(&story.history), Vec::<String>::new());
    story.applies(change, context, None, Some(image));
    story.found("which serves it");
}

#[test]
fn a_certificate_that_is_missing_or_does_not_hold_is_found() {
    let mut story = Story::settles();
    story.history.certificates.clear();
    story.found("no certificate of map 5");
    let mut story = Story::settles();
    story.history.certificates[0].content.records += 1;
    story.found("does not hold");
    let mut story = Story::settles();
    let mut content = certificate().content;
    content.generations.noticed = Generation(4);
    story.history.certificates = vec![Certificate::of(content)];
    story.found("in another order");
}
