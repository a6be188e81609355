//! Where an owner's active cart was last seen by this process.
//!
//! Only a hint: carts are numbered, and the cart read under the number decides. It
//! saves the question to every shard where carts are cut by their own id (C2), and the
//! search for a user's next number.

use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, MutexGuard};

use model::CartOwner;

/// Owners remembered in each of the two halves.
const HALF_OWNERS_MAX: usize = 50_000;

/// Two halves: when the younger is full it becomes the older one, whose owners are
/// forgotten unless somebody asked for them since.
#[derive(Debug)]
pub(crate) struct CartHints {
    half_owners_max: usize,
    halves: Mutex<Halves>,
}

#[derive(Debug, Default)]
struct Halves {
    younger: HashMap<CartOwner, u64>,
    older: HashMap<CartOwner, u64>,
}

impl CartHints {
    pub(super) fn get(&self, owner: &CartOwner) -> Option<u64> {
        let mut halves = self.lock();
        if let Some(ordinal) = halves.younger.get(owner) {
            return Some(*ordinal);
        }
        let (owner, ordinal) = halves.older.remove_entry(owner)?;
        halves.put(owner, ordinal, self.half_owners_max);
        Some(ordinal)
    }

    pub(super) fn put(&self, owner: &CartOwner, ordinal: u64) {
        let mut halves = self.lock();
        halves.older.remove(owner);
        halves.put(owner.clone(), ordinal, self.half_owners_max);
    }

    fn lock(&self) -> MutexGuard<'_, Halves> {
        self.halves
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

impl Default for CartHints {
    fn default() -> CartHints {
        CartHints {
            half_owners_max: HALF_OWNERS_MAX,
            halves: Mutex::default(),
        }
    }
}

impl Halves {
    fn put(&mut self, owner: CartOwner, ordinal: u64, half_owners_max: usize) {
        if self.younger.len() >= half_owners_max && !self.younger.contains_key(&owner) {
            self.older = mem::take(&mut self.younger);
        }
        self.younger.insert(owner, ordinal);
    }
}

#[cfg(test)]
mod tests {
    use model::UserId;

    use super::*;

    fn owner(number: u64) -> CartOwner {
        CartOwner::User(UserId::parse(&format!("u-{number}")).unwrap())
    }

    #[test]
    fn owners_who_are_asked_for_stay_and_the_number_of_all_is_bounded() {
        let hints = CartHints {
            half_owners_max: 4,
            ..CartHints::default()
        };
        hints.put(&owner(0), 7);
        for number in 1..100 {
            hints.put(&owner(number), number);
            assert_eq!(hints.get(&owner(0)), Some(7));
            assert_eq!(hints.get(&owner(number)), Some(number));
        }
        assert_eq!(hints.get(&owner(1)), None);
        let halves = hints.lock();
        assert!(halves.younger.len() + halves.older.len() <= 8);
    }

    #[test]
    fn the_last_number_put_is_the_one_remembered() {
        let hints = CartHints {
            half_owners_max: 1,
            ..CartHints::default()
        };
        hints.put(&owner(1), 1);
        hints.put(&owner(2), 1);
        hints.put(&owner(1), 2);
        hints.put(&owner(2), 2);
        assert_eq!(hints.get(&owner(1)), Some(2));
    }
}
