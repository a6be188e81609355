//! Seeds that must hold, and enough of them to see that the world is eventful.

use simulation::report::{After, EVENTS, survey};

#[test]
fn everything_that_can_happen_does_and_all_of_it_holds() {
    let (all, failing) = survey(200, After::GoOn);
    assert_eq!(failing, vec![], "{all}");
    assert!(
        all.acknowledged > 3_000 && all.refused > 300 && all.unknown > 150,
        "{all}"
    );
    assert!(all.listings > 300 && all.moves_done > 100, "{all}");
    assert!(all.moves_given_up > 30 && all.crashes > 30, "{all}");
    let never: Vec<&str> = EVENTS
        .into_iter()
        .filter(|event| all.events.get(event).is_none_or(|times| *times == 0))
        .collect();
    assert_eq!(never, Vec::<&str>::new(), "{all}");
}
