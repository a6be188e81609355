//! A seed is the whole world: lived through twice, the same happens.

use simulation::seed::live;

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..64 {
        let (once, again) = (live(seed).history, live(seed).history);
        assert!(
            once.events.len() > 50,
            "seed {seed} is a world in which little happens"
        );
        assert_eq!(once.digest(), again.digest(), "seed {seed}");
    }
}

#[test]
fn another_seed_is_another_world() {
    assert_ne!(live(1).history.digest(), live(2).history.digest());
}
