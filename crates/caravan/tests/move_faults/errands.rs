//! In which order the cells are gone through, and how each move ends: between two engines every cell comes once from each.

use std::collections::VecDeque;

use crate::cell::{Cell, End};
use crate::pair::Pair;

pub struct Errands {
    ways: Ways,
    /// By the side that the records are on when the move starts.
    left: [VecDeque<Cell>; 2],
    given: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// Both sides are the same kind of engine: any direction will do.
    Either,
    Each,
}

impl Errands {
    pub fn new(pair: &Pair, cells: &[Cell]) -> Errands {
        let from = |side: usize| -> VecDeque<Cell> {
            let is_there = |cell: &&Cell| cell.victim().is_none_or(|it| pair.has(it, side));
            cells.iter().filter(is_there).copied().collect()
        };
        let back = match pair.ways() {
            Ways::Either => VecDeque::new(),
            Ways::Each => from(1),
        };
        Errands {
            ways: pair.ways(),
            left: [from(0), back],
            given: 0,
        }
    }

    /// The next cell for records that are on this side, and how its move is to end.
    pub fn next(&mut self, from: usize) -> Option<(Cell, End)> {
        let own = self.list(from);
        let cell = match self.left[own].pop_front() {
            Some(cell) => cell,
            None if self.left.iter().all(VecDeque::is_empty) => return None,
            None => Cell::Undisturbed,
        };
        self.given += 1;
        let stays = match self.ways {
            Ways::Either => !self.given.is_multiple_of(2),
            // As much is left on either side: ends alternate, and so do directions.
            Ways::Each => self.left[1 - own].len() <= self.left[own].len(),
        };
        let proposed = match stays {
            true => End::RolledBack,
            false => End::Completed,
        };
        Some((cell, cell.end(proposed)))
    }

    /// It killed nobody.
    pub fn again(&mut self, from: usize, cell: Cell) {
        let own = self.list(from);
        self.left[own].push_front(cell);
    }

    fn list(&self, from: usize) -> usize {
        match self.ways {
            Ways::Either => 0,
            Ways::Each => from,
        }
    }
}
