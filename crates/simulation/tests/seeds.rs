//! Seeds that must hold: those that once failed, with what they taught, and
//! enough others to see that the world is eventful.

use simulation::report::Tally;
use simulation::seed::live;

fn holds(seed: u64) -> Tally {
    let lived = live(seed);
    assert_eq!(lived.breaches, Vec::<String>::new(), "seed {seed}");
    let mut tally = Tally::default();
    tally.add(&lived);
    tally
}

/// A copy of a change that was refused arrived later and was applied: a server
/// may repeat only what it has done.
#[test]
fn what_was_refused_does_not_come_again() {
    for seed in [68, 136, 138, 154, 277, 667] {
        holds(seed);
    }
}

/// Without a fence in the store, a straggling commit of an order and its stock
/// landed by half where only the stock had moved: such servers take no commits
/// over two records.
#[test]
fn a_straggler_does_not_sell_what_has_moved() {
    for seed in [94, 291, 753, 856] {
        holds(seed);
    }
}

#[test]
fn much_happens_and_all_of_it_holds() {
    let mut all = Tally::default();
    for seed in 0..60 {
        let tally = holds(seed);
        all.acknowledged += tally.acknowledged;
        all.refused += tally.refused;
        all.unknown += tally.unknown;
        all.listings += tally.listings;
        all.moves_done += tally.moves_done;
        all.moves_given_up += tally.moves_given_up;
        all.crashes += tally.crashes;
    }
    assert!(
        all.acknowledged > 1_000 && all.refused > 100 && all.unknown > 50,
        "{all}"
    );
    assert!(all.listings > 100 && all.moves_done > 30, "{all}");
    assert!(all.moves_given_up > 10 && all.crashes > 10, "{all}");
}
