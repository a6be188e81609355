//! Edits: how one map becomes the next.
//!
//! Several edits make one next map, so that a cutover (move and thaw) is a
//! single generation and a single compare-and-set.

use layout::{Collection, Scope, ShardKey, Slot, SlotRange};

use super::{CollectionMap, Cut, Map, MapError, RangeStart, ShardName, SlotRun};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Gives the scope to another shard: slots and ranges by the cut, single
    /// keys by pinning, or by taking the pin away where the cut gives them to that
    /// shard anyway. Keys pinned inside moved slots or ranges stay pinned;
    /// moving all unpins them.
    Move {
        scope: Scope,
        to: ShardName,
    },
    /// Makes a split point; both sides stay where they are.
    Split {
        at: ShardKey,
    },
    Pin {
        key: ShardKey,
        shard: ShardName,
    },
    Unpin {
        key: ShardKey,
    },
    /// From this generation on nobody writes the scope.
    Freeze {
        scope: Scope,
    },
    Thaw {
        scope: Scope,
    },
    /// Divides the partitions of a table into so many buckets.
    Divide {
        table: String,
        buckets: u32,
    },
    /// Gives the whole collection another layout, shard key and cut at once, pins and
    /// buckets included. What is frozen stays frozen.
    Place {
        placement: CollectionMap,
    },
}

impl Map {
    /// The next map: these edits in order, one generation higher, checked.
    pub fn edited(&self, edits: &[(Collection, Edit)]) -> Result<Map, MapError> {
        let mut next = self.clone();
        next.generation = self.generation.next();
        next.note = None;
        next.followed_soon = false;
        for (collection, edit) in edits {
            let map = next
                .collections
                .get_mut(collection)
                .ok_or(MapError::NoCollection {
                    collection: *collection,
                })?;
            map.apply(*collection, edit)?;
        }
        next.check_shape()?;
        Ok(next)
    }

    pub fn move_slots(
        &self,
        collection: Collection,
        ranges: &[SlotRange],
        to: &ShardName,
    ) -> Result<Map, MapError> {
        let scope = Scope::Slots(ranges.to_vec());
        self.edited(&[(
            collection,
            Edit::Move {
                scope,
                to: to.clone(),
            },
        )])
    }

    pub fn split_range(&self, collection: Collection, at: ShardKey) -> Result<Map, MapError> {
        self.edited(&[(collection, Edit::Split { at })])
    }

    pub fn pin(
        &self,
        collection: Collection,
        key: ShardKey,
        shard: &ShardName,
    ) -> Result<Map, MapError> {
        self.edited(&[(
            collection,
            Edit::Pin {
                key,
                shard: shard.clone(),
            },
        )])
    }

    pub fn freeze(&self, collection: Collection, scope: Scope) -> Result<Map, MapError> {
        self.edited(&[(collection, Edit::Freeze { scope })])
    }

    pub fn thaw(&self, collection: Collection, scope: Scope) -> Result<Map, MapError> {
        self.edited(&[(collection, Edit::Thaw { scope })])
    }
}

impl CollectionMap {
    fn apply(&mut self, collection: Collection, edit: &Edit) -> Result<(), MapError> {
        match edit {
            Edit::Move { scope, to } => self.give(collection, scope, to),
            Edit::Split { at } => self.split(collection, at),
            Edit::Pin { key, shard } => {
                self.pinned.insert(key.clone(), shard.clone());
                Ok(())
            }
            Edit::Unpin { key } => match self.pinned.remove(key) {
                Some(_) => Ok(()),
                None => Err(MapError::NotPinned {
                    collection,
                    key: key.to_string(),
                }),
            },
            Edit::Freeze { scope } => {
                if self.frozen.contains(scope) {
                    return Err(MapError::AlreadyFrozen { collection });
                }
                self.frozen.push(scope.clone());
                Ok(())
            }
            Edit::Thaw { scope } => {
                let place = self.frozen.iter().position(|frozen| frozen == scope);
                self.frozen
                    .remove(place.ok_or(MapError::NotFrozen { collection })?);
                Ok(())
            }
            Edit::Divide { table, buckets } => {
                self.buckets.insert(table.clone(), *buckets);
                Ok(())
            }
            Edit::Place { placement } => {
                let frozen = std::mem::take(&mut self.frozen);
                *self = CollectionMap {
                    frozen,
                    ..placement.clone()
                };
                Ok(())
            }
        }
    }

    fn give(
        &mut self,
        collection: Collection,
        scope: &Scope,
        to: &ShardName,
    ) -> Result<(), MapError> {
        match scope {
            Scope::All => {
                self.pinned.clear();
                match &mut self.cut {
                    Cut::Slots(runs) => *runs = runs_of(vec![to.clone(); Slot::all().count()]),
                    Cut::Ranges(ranges) => {
                        ranges.iter_mut().for_each(|range| range.shard = to.clone());
                    }
                }
                Ok(())
            }
            Scope::Slots(moved) => self.give_slots(collection, moved, to),
            Scope::Range { from, to: until } => {
                self.give_range(collection, from.as_ref(), until.as_ref(), to)
            }
            Scope::Keys(keys) if keys.is_empty() => Err(MapError::EmptyScope { collection }),
            Scope::Keys(keys) => {
                for key in keys {
                    // A pin that says what the cut says would only be in the way of the next move.
                    match self.cut.shard_of(key) == to {
                        true => self.pinned.remove(key),
                        false => self.pinned.insert(key.clone(), to.clone()),
                    };
                }
                Ok(())
            }
        }
    }

    fn give_slots(
        &mut self,
        collection: Collection,
        moved: &[SlotRange],
        to: &ShardName,
    ) -> Result<(), MapError> {
        if moved.is_empty() || moved.iter().any(|range| range.last < range.first) {
            return Err(MapError::EmptyScope { collection });
        }
        let Cut::Slots(runs) = &mut self.cut else {
            return Err(MapError::OtherCut {
                collection,
                wanted: "slots",
            });
        };
        let owner = |slot: Slot| {
            if moved.iter().any(|range| range.contains(slot)) {
                return to.clone();
            }
            runs[runs.partition_point(|run| run.slots.last < slot)]
                .shard
                .clone()
        };
        *runs = runs_of(Slot::all().map(owner).collect());
        Ok(())
    }

    /// Splits at both bounds where no range starts yet, gives what lies between, and joins
    /// it with a neighbour of the same shard. Split points inside it stay: somebody made them.
    fn give_range(
        &mut self,
        collection: Collection,
        from: Option<&ShardKey>,
        until: Option<&ShardKey>,
        to: &ShardName,
    ) -> Result<(), MapError> {
        if let (Some(from), Some(until)) = (from, until)
            && until <= from
        {
            return Err(MapError::EmptyScope { collection });
        }
        for bound in [from, until].into_iter().flatten() {
            match self.split(collection, bound) {
                Ok(()) | Err(MapError::AlreadySplit { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let Cut::Ranges(ranges) = &mut self.cut else {
            return Err(MapError::OtherCut {
                collection,
                wanted: "ranges",
            });
        };
        for range in ranges.iter_mut() {
            let before_end = match (range.from.as_ref(), until) {
                (Some(start), Some(until)) => start < until,
                (None, _) | (_, None) => true,
            };
            if range.from.as_ref() >= from && before_end {
                range.shard = to.clone();
            }
        }
        for bound in [from, until].into_iter().flatten() {
            join(ranges, bound);
        }
        Ok(())
    }

    fn split(&mut self, collection: Collection, at: &ShardKey) -> Result<(), MapError> {
        let Cut::Ranges(ranges) = &mut self.cut else {
            return Err(MapError::OtherCut {
                collection,
                wanted: "ranges",
            });
        };
        if ranges.iter().any(|range| range.from.as_ref() == Some(at)) {
            return Err(MapError::AlreadySplit {
                collection,
                at: at.to_string(),
            });
        }
        let after =
            ranges.partition_point(|range| range.from.as_ref().is_none_or(|from| from < at));
        let shard = ranges[after - 1].shard.clone();
        ranges.insert(
            after,
            RangeStart {
                from: Some(at.clone()),
                shard,
            },
        );
        Ok(())
    }
}

/// Takes away the range that starts there, if the one before it has the same shard.
fn join(ranges: &mut Vec<RangeStart>, at: &ShardKey) {
    let place = ranges.iter().position(|it| it.from.as_ref() == Some(at));
    if let Some(place) = place.filter(|place| *place > 0)
        && ranges[place - 1].shard == ranges[place].shard
    {
        ranges.remove(place);
    }
}

/// Run-length form of the owners of all slots, in order.
pub(super) fn runs_of(owners: Vec<ShardName>) -> Vec<SlotRun> {
    let mut runs: Vec<SlotRun> = Vec::new();
    for (slot, shard) in Slot::all().zip(owners) {
        match runs.last_mut() {
            Some(run) if run.shard == shard => run.slots.last = slot,
            _ => runs.push(SlotRun {
                slots: SlotRange {
                    first: slot,
                    last: slot,
                },
                shard,
            }),
        }
    }
    runs
}
