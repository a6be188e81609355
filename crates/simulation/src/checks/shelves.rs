//! The stock of the shop's goods: available + reserved + sold = received at every
//! moment, and at the end nothing is reserved, and sold is what the orders say.

use engine_api::{PartKey, Record};
use layout::{Collection, Field, Value};

use super::orders::lines_of;
use super::registers::{Read, Write, judge};
use crate::ledger::Wish;
use crate::recording::{History, Moment};
use crate::scenery::{GOODS, ZONE};

pub fn check(history: &History) -> Vec<String> {
    let applied = history.applied.iter().flat_map(|applied| &applied.images);
    let applied = applied.filter_map(|(_, after)| after.as_ref());
    let all = applied.chain(&history.standing);
    let mut breaches: Vec<String> = all.filter_map(identity).collect();
    for product in GOODS {
        let record = history.standing.iter().find(|record| {
            record.key.collection == Collection::Products && record.key.id.as_str() == product
        });
        match record.and_then(counts) {
            Some(counts) => {
                breaches.extend(settled(history, product, &counts));
                breaches.extend(received(history, product, counts.received));
            }
            None => breaches.push(format!("{product} has no stock any more")),
        }
    }
    breaches
}

struct Counts {
    received: i64,
    available: i64,
    reserved: i64,
    sold: i64,
}

fn counts(record: &Record) -> Option<Counts> {
    let fields = record.part(&PartKey::stock(ZONE, 0))?;
    let count = |field: Field| fields.get(field).and_then(Value::as_int);
    Some(Counts {
        received: count(Field::Received)?,
        available: count(Field::Available)?,
        reserved: count(Field::Reserved)?,
        sold: count(Field::Sold)?,
    })
}

fn identity(record: &Record) -> Option<String> {
    let Counts {
        received,
        available,
        reserved,
        sold,
    } = counts(record)?;
    let holds =
        available >= 0 && reserved >= 0 && sold >= 0 && available + reserved + sold == received;
    (!holds).then(|| {
        format!(
            "{}: {available} available, {reserved} reserved and {sold} sold of {received}",
            record.key
        )
    })
}

fn settled(history: &History, product: &str, counts: &Counts) -> Vec<String> {
    let mut breaches = Vec::new();
    if counts.reserved != 0 {
        breaches.push(format!(
            "{product}: {} stay reserved for nobody",
            counts.reserved
        ));
    }
    let orders = history
        .standing
        .iter()
        .filter(|record| record.key.collection == Collection::Orders);
    let ordered: i64 = orders
        .filter_map(|record| record.header.content.live())
        .filter(|header| {
            let status = header.text(Field::Status).unwrap_or_default();
            matches!(status, "created" | "paid" | "shipped" | "delivered")
        })
        .flat_map(lines_of)
        .filter(|(of, _, _)| of == product)
        .map(|(_, pieces, _)| pieces)
        .sum();
    if counts.sold != ordered {
        breaches.push(format!(
            "{product}: {} are sold, the orders say {ordered}",
            counts.sold
        ));
    }
    breaches
}

/// The number that arrived is what somebody said last.
fn received(history: &History, product: &str, received: i64) -> Option<String> {
    let mut writes = vec![Write::nothing()];
    for deed in &history.deeds {
        match &deed.wish {
            Wish::Receive { product: of, total } if of.as_str() == product => {
                writes.push(Write {
                    value: i64::try_from(*total).ok(),
                    began: deed.invoked,
                    happened: deed.ended.filter(|_| deed.is_acknowledged()),
                    refused: deed.is_refused(),
                });
            }
            _ => {}
        }
    }
    let end = Moment(u64::MAX);
    let read = Read {
        value: Some(received),
        began: end,
        ended: end,
    };
    let what = judge(&read, &writes)?;
    Some(format!("received {product} {what}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use engine_api::{Content, Header, Part};
    use layout::Fields;

    use super::*;
    use crate::checks::story::{Story, revision};
    use crate::ledger::Told;
    use crate::scenery::{noun, order, product};

    fn goods(name: &str, counts: [i64; 4]) -> Record {
        let [received, available, reserved, sold] = counts;
        let fields = Fields::new()
            .with(Field::Received, Value::Int(received))
            .with(Field::Available, Value::Int(available))
            .with(Field::Reserved, Value::Int(reserved))
            .with(Field::Sold, Value::Int(sold));
        let parts = BTreeMap::from([(PartKey::stock(ZONE, 0), Part::live(revision(4), fields))]);
        Record {
            key: product(name),
            header: Header {
                revision: revision(2),
                cleared: revision(1),
                content: Content::Live(Fields::new()),
            },
            parts,
        }
    }

    fn placed(status: &str, pieces: i64) -> Record {
        let line = BTreeMap::from([
            ("product_id".to_owned(), Value::text("mug")),
            ("quantity".to_owned(), Value::Int(pieces)),
            ("price".to_owned(), Value::Decimal(500.into())),
        ]);
        let fields = Fields::new()
            .with(Field::Status, Value::text(status))
            .with(Field::Lines, Value::List(vec![Value::Map(line)]));
        Record {
            key: order("order-1", "dan"),
            header: Header {
                revision: revision(2),
                cleared: revision(1),
                content: Content::Live(fields),
            },
            parts: BTreeMap::new(),
        }
    }

    fn found(mug: [i64; 4], status: &str) -> usize {
        let mut story = Story::begin();
        for product in GOODS {
            let wish = Wish::Receive {
                product: noun(product),
                total: 9,
            };
            story.visits(wish, Told::Done);
        }
        let pen = goods("pen", [9, 9, 0, 0]);
        story.history.standing = vec![goods("mug", mug), pen, placed(status, 2)];
        check(&story.history).len()
    }

    #[test]
    fn sold_is_what_the_orders_say_and_nothing_stays_reserved() {
        assert_eq!(found([9, 7, 0, 2], "created"), 0);
        assert_eq!(found([9, 9, 0, 0], "cancelled"), 0);
        assert_eq!(found([9, 9, 0, 0], "created"), 1);
        assert_eq!(found([9, 7, 0, 2], "aborted"), 1);
        assert_eq!(found([9, 5, 2, 2], "created"), 1);
        assert_eq!(found([9, 8, 0, 2], "created"), 1, "one too many");
        assert_eq!(found([8, 6, 0, 2], "created"), 1, "nobody said 8");
    }
}
