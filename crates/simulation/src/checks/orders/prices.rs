//! Pieces are taken at the price of their order.

use engine_api::{Change, StockAction};
use layout::Field;
use rust_decimal::Decimal;

use super::{OrderShown, was_placed};
use crate::recording::{Applied, History};

/// Every piece was taken at a moment when the product had the order's price.
pub(super) fn at_another_price(history: &History, order: &OrderShown<'_>) -> Vec<String> {
    let mut breaches = Vec::new();
    for (product, _, price) in &order.lines {
        let takes = history
            .applied
            .iter()
            .flat_map(|applied| takes(applied, order.record.key.id.as_str(), product));
        let mut taken = false;
        for now in takes {
            taken = true;
            if now != Some(*price) {
                breaches.push(format!(
                    "{} took {product} for {price} when it cost {now:?}",
                    order.record.key
                ));
            }
        }
        if !taken && was_placed(order.status) {
            breaches.push(format!("{} never took its {product}", order.record.key));
        }
    }
    breaches
}

/// The product's price at each moment when pieces were taken for the order.
fn takes(applied: &Applied, order: &str, product: &str) -> Vec<Option<Decimal>> {
    let creates = applied.changes.iter().any(
        |change| matches!(change, Change::CreateIfAbsent { key, .. } if key.id.as_str() == order),
    );
    let changed = applied.changes.iter().zip(&applied.images);
    let changed = changed.filter(|(_, (before, after))| before != after);
    changed
        .filter(|(change, _)| change.key().id.as_str() == product)
        .filter(|(change, _)| match change {
            Change::Stock {
                action: StockAction::Take { order: of, .. },
                ..
            } => of == order,
            Change::Stock {
                action: StockAction::Sell { .. },
                ..
            } => creates,
            _ => false,
        })
        .map(|(_, (before, _))| {
            let header = before.as_ref()?.header.content.live()?;
            header.get(Field::Price)?.as_decimal()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::stage::{acknowledged, order, record, takes_at, wish};
    use crate::checks::orders::check;
    use crate::checks::story::Story;
    use crate::ledger::Wish;

    #[test]
    fn pieces_are_taken_at_the_price_of_the_order() {
        let placed = order(1, 7);
        let mut story = Story::begin();
        story.visits(Wish::PlaceOrder(wish(1)), acknowledged(&placed));
        story.history.standing = vec![record(&placed, "created")];
        assert_eq!(check(&story.history).len(), 1, "nothing was taken");
        takes_at(&mut story, &placed, 500);
        assert!(check(&story.history).is_empty());
        takes_at(&mut story, &placed, 600);
        assert_eq!(check(&story.history).len(), 1);
    }
}
