//! Chance, drawn from the seed: splitmix64, whose streams are told apart by name.

/// A stream of numbers that is the same in every run of a seed.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed ^ 0x6A09_E667_F3BC_C908)
    }

    /// A stream of its own, so that one actor's draws do not shift another's.
    pub fn stream(&self, name: &str) -> Chance {
        let mut chance = Chance(self.0 ^ fnv(name.as_bytes()));
        chance.number();
        chance
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to `bound`, excluded.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// Both ends included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.below(from.len() as u64);
        &from[usize::try_from(index).expect("the index is below a length")]
    }
}

/// FNV-1a, for names and for the digest of a trace.
pub fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_repeats_itself_and_differs_from_its_neighbours() {
        let draws = |seed, name: &str| {
            let mut chance = Chance::new(seed).stream(name);
            [chance.number(), chance.number(), chance.number()]
        };
        assert_eq!(draws(1, "a"), draws(1, "a"));
        assert_ne!(draws(1, "a"), draws(1, "b"));
        assert_ne!(draws(1, "a"), draws(2, "a"));
    }

    #[test]
    fn draws_keep_to_their_bounds() {
        let mut chance = Chance::new(7);
        for _ in 0..1000 {
            assert!((3..=5).contains(&chance.between(3, 5)));
            assert!(chance.below(1) == 0 && !chance.percent(0) && chance.percent(100));
        }
    }
}
