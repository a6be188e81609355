//! Places of a side: one position of all its journals, and how far its scan is. Pure.

use engine_api::{EngineError, JournalEntry, JournalPage, Position, ScanPosition};

/// The positions of several journals as one, each with its length in front.
pub(super) fn joined(positions: &[Position]) -> Position {
    let mut bytes = Vec::new();
    for position in positions {
        let length = u32::try_from(position.0.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&position.0);
    }
    Position(bytes)
}

/// The positions of `count` journals. What is not one of ours is lost (W28).
pub(super) fn parted(position: &Position, count: usize) -> Result<Vec<Position>, EngineError> {
    let mut bytes = position.0.as_slice();
    let mut positions = Vec::with_capacity(count);
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let (own, rest) = rest
            .split_at_checked(length)
            .ok_or(EngineError::PositionLost)?;
        positions.push(Position(own.to_vec()));
        bytes = rest;
    }
    match bytes.is_empty() && positions.len() == count {
        true => Ok(positions),
        false => Err(EngineError::PositionLost),
    }
}

/// The pages of several journals as one of at most `limit` entries, and of `limit` if there are more: whoever reads a
/// page that is not full has read to the end. A journal with much to say leaves the others their share.
pub(super) fn merged(from: &[Position], pages: Vec<JournalPage>, limit: usize) -> JournalPage {
    let shares = shares(
        &pages
            .iter()
            .map(|page| page.entries.len())
            .collect::<Vec<_>>(),
        limit,
    );
    let mut at = from.to_vec();
    let mut entries = Vec::new();
    for (place, (mut page, share)) in pages.into_iter().zip(shares).enumerate() {
        let is_whole = share == page.entries.len();
        page.entries.truncate(share);
        for entry in page.entries {
            at[place] = entry.position;
            entries.push(JournalEntry {
                position: joined(&at),
                ..entry
            });
        }
        if is_whole {
            at[place] = page.next;
        }
    }
    JournalPage {
        entries,
        next: joined(&at),
    }
}

/// Who has little gets all of it, the others the same.
fn shares(lengths: &[usize], limit: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|place| lengths[*place]);
    let mut shares = vec![0; lengths.len()];
    let mut left = limit;
    for (done, place) in order.iter().enumerate() {
        let rest = lengths.len() - done;
        // Whoever has most comes last and gets all that is left.
        shares[*place] = lengths[*place].min(left / rest);
        left -= shares[*place];
    }
    shares
}

/// The shards are read one after the other: which one, and how far.
pub(super) fn scan_place(shard: usize, after: Option<&ScanPosition>) -> ScanPosition {
    let mut bytes = u32::try_from(shard)
        .unwrap_or(u32::MAX)
        .to_be_bytes()
        .to_vec();
    if let Some(after) = after {
        bytes.push(1);
        bytes.extend_from_slice(&after.0);
    }
    ScanPosition(bytes)
}

pub(super) fn scan_parts(
    place: &ScanPosition,
) -> Result<(usize, Option<ScanPosition>), EngineError> {
    let foreign = || EngineError::Invalid {
        reason: "the scan was begun elsewhere".to_owned(),
    };
    let (shard, after) = place.0.split_first_chunk::<4>().ok_or_else(foreign)?;
    let after = match after.split_first() {
        None => None,
        Some((1, after)) => Some(ScanPosition(after.to_vec())),
        Some(_) => return Err(foreign()),
    };
    Ok((u32::from_be_bytes(*shard) as usize, after))
}

#[cfg(test)]
mod tests {
    use engine_api::{JournalEvent, Timestamp};
    use layout::{Collection, Scope};
    use proptest::prelude::*;

    use super::*;

    fn page(numbers: std::ops::Range<u8>) -> JournalPage {
        let next = Position(vec![numbers.end]);
        let entries = numbers.map(|number| JournalEntry {
            position: Position(vec![number + 1]),
            written_at: Timestamp::from_unix_micros(0),
            event: JournalEvent::Fenced {
                fence: engine_api::Fence {
                    collection: Collection::Carts,
                    scope: Scope::All,
                    generation: engine_api::Generation(u64::from(number)),
                },
            },
        });
        JournalPage {
            entries: entries.collect(),
            next,
        }
    }

    proptest! {
        #[test]
        fn positions_come_back_and_nothing_else_does(
            positions in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 1..5),
            garbage in prop::collection::vec(any::<u8>(), 0..12),
        ) {
            let positions: Vec<Position> = positions.into_iter().map(Position).collect();
            let one = joined(&positions);
            prop_assert_eq!(parted(&one, positions.len()).unwrap(), positions.clone());
            prop_assert!(parted(&one, positions.len() + 1).is_err());
            let _ = parted(&Position(garbage), 2);
        }

        /// A page is full exactly when something is left, and whoever reads on misses nothing.
        #[test]
        fn pages_are_merged_without_a_gap(lengths in prop::collection::vec(0u8..9, 1..4), limit in 1usize..12) {
            let mut at: Vec<Position> = lengths.iter().map(|_| Position(vec![0])).collect();
            let total: usize = lengths.iter().map(|it| usize::from(*it)).sum();
            let mut read = 0;
            loop {
                let pages = at.iter().zip(&lengths).map(|(at, length)| page(at.0[0]..*length)).collect();
                let merged = merged(&at, pages, limit);
                prop_assert!(merged.entries.len() <= limit);
                prop_assert_eq!(merged.entries.len(), limit.min(total - read));
                if let Some(last) = merged.entries.last() {
                    // Reading from an entry gives what came after it.
                    let after = parted(&last.position, lengths.len()).unwrap();
                    let left: usize = after.iter().zip(&lengths).map(|(at, length)| usize::from(*length - at.0[0])).sum();
                    prop_assert_eq!(left, total - read - merged.entries.len());
                }
                read += merged.entries.len();
                at = parted(&merged.next, lengths.len()).unwrap();
                if merged.entries.len() < limit {
                    break;
                }
            }
            prop_assert_eq!(read, total);
        }
    }

    #[test]
    fn a_quiet_journal_is_not_kept_waiting_by_a_busy_one() {
        assert_eq!(shares(&[100, 2, 100], 10), [4, 2, 4]);
        assert_eq!(shares(&[1, 2], 10), [1, 2]);
        assert_eq!(shares(&[5, 5, 5], 1).iter().sum::<usize>(), 1);
    }

    #[test]
    fn a_place_of_a_scan_comes_back_as_it_was() {
        for (shard, after) in [
            (0, None),
            (3, Some(ScanPosition(vec![]))),
            (9, Some(ScanPosition(vec![1, 0]))),
        ] {
            let place = scan_place(shard, after.as_ref());
            assert_eq!(scan_parts(&place).unwrap(), (shard, after));
        }
        assert!(scan_parts(&ScanPosition(vec![0, 0])).is_err());
        assert!(scan_parts(&ScanPosition(vec![0, 0, 0, 0, 9])).is_err());
    }
}
