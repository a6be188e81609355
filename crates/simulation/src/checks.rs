//! What must hold of every history, each rule in a file of its own. A check
//! answers what it found in words; nothing found is a history that holds.

mod applied;
mod carts;
mod endings;
mod headers;
mod instants;
mod journal;
mod listings;
mod merges;
mod moves;
mod orders;
mod owners;
mod registers;
mod revisions;
mod sessions;
mod shelves;
mod stock;

#[cfg(test)]
mod story;

use crate::recording::History;

/// Looks at a history and says in words what does not hold.
type Check = fn(&History) -> Vec<String>;

/// Everything that should not have happened.
pub fn judge(history: &History) -> Vec<String> {
    let checks: [(&str, Check); 16] = [
        ("applied", applied::check),
        ("registers", registers::check),
        ("headers", headers::check),
        ("revisions", revisions::check),
        ("stock", stock::check),
        ("owners", owners::check),
        ("moves", moves::check),
        ("journal", journal::check),
        ("listings", listings::check),
        ("endings", endings::check),
        ("orders", orders::check),
        ("shelves", shelves::check),
        ("carts", carts::check),
        ("merges", merges::check),
        ("sessions", sessions::check),
        ("instants", instants::check),
    ];
    let mut breaches = history.breaches.clone();
    for (name, check) in checks {
        breaches.extend(
            check(history)
                .into_iter()
                .map(|breach| format!("{name}: {breach}")),
        );
    }
    breaches
}
