//! Batches within the servers' limit.

use scylla::value::CqlValue;

use super::{Bound, Cells};

/// The servers refuse a batch of 50 KiB; this leaves room for what they add.
const BATCH_BYTES_MAX: usize = 40 * 1024;
/// What a cell costs beside its text: its length, its timestamp, its number.
const CELL_BYTES: usize = 20;

/// Cuts statements into batches that the servers take.
pub(super) fn pieces(bound: Vec<Bound<'_>>) -> Vec<Vec<Bound<'_>>> {
    let (mut pieces, mut bytes): (Vec<Vec<Bound<'_>>>, usize) = (Vec::new(), 0);
    for statement in bound {
        let own = bytes_of(&statement.1);
        match pieces.last_mut() {
            Some(piece) if bytes + own <= BATCH_BYTES_MAX => {
                piece.push(statement);
                bytes += own;
            }
            _ => {
                pieces.push(vec![statement]);
                bytes = own;
            }
        }
    }
    pieces
}

/// An estimate from above, for cells of the kinds that we write.
fn bytes_of(cells: &Cells) -> usize {
    fn of(cell: &CqlValue) -> usize {
        CELL_BYTES
            + match cell {
                CqlValue::Text(text) => text.len(),
                CqlValue::Blob(blob) => blob.len(),
                CqlValue::List(cells) => cells.iter().map(of).sum(),
                CqlValue::UserDefinedType { fields, .. } => fields
                    .iter()
                    .map(|(_, cell)| cell.as_ref().map_or(CELL_BYTES, of))
                    .sum(),
                _ => CELL_BYTES,
            }
    }
    let cell = |cell: &Option<CqlValue>| cell.as_ref().map_or(CELL_BYTES, of);
    cells.iter().map(cell).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_weigh_more_and_nested_ones_too() {
        let text = |length: usize| Some(CqlValue::Text("x".repeat(length)));
        assert!(bytes_of(&vec![text(1000)]) > 1000);
        let list = CqlValue::List(text(1000).into_iter().chain(text(1000)).collect());
        assert!(bytes_of(&vec![Some(list)]) > 2000);
        assert!(bytes_of(&vec![None]) > 0);
    }
}
