//! The statements generated from each layout that uses Cassandra.

mod shop;

use engine_cassandra::{Keyspace, OpenError, schema};
use layout::{Collection, Field, KeyColumn, Role};

#[test]
fn every_layout_has_its_statements() {
    for name in shop::SHIPPED.into_iter().chain(["small"]) {
        let layout = shop::layout(name);
        for engine in shop::engines(&layout) {
            let keyspace = Keyspace::of(&layout, engine).unwrap();
            let mut text: String = schema::statements(&keyspace)
                .iter()
                .map(|statement| format!("{statement};\n"))
                .collect();
            text += &format!(
                "\nnodetool {}\n",
                schema::repair_arguments(&keyspace).join(" ")
            );
            insta::assert_snapshot!(format!("{name}_{engine}"), text);
        }
    }
}

#[test]
fn what_cannot_be_kept_here_is_refused_with_the_reason() {
    let layout = shop::layout("small");
    let refused = |change: fn(&mut layout::Layout)| {
        let mut layout = layout.clone();
        change(&mut layout);
        Keyspace::of(&layout, "cassandra").unwrap_err()
    };
    fn orders(layout: &mut layout::Layout) -> &mut layout::Store {
        &mut layout
            .collections
            .get_mut(&Collection::Orders)
            .unwrap()
            .live
    }
    fn products(layout: &mut layout::Layout) -> &mut layout::Store {
        &mut layout
            .collections
            .get_mut(&Collection::Products)
            .unwrap()
            .live
    }
    let error = refused(|layout| products(layout).engine = "cassandra".to_owned());
    assert!(matches!(error, OpenError::Collection { .. }), "{error}");
    let error = refused(|layout| orders(layout).tables[1].role = Role::Authority);
    assert!(
        matches!(error, OpenError::Authorities { count: 2, .. }),
        "{error}"
    );
    let error = refused(|layout| {
        orders(layout).tables[0].partition = vec![KeyColumn::Field(Field::UserId)];
    });
    assert!(matches!(error, OpenError::AuthorityKey { .. }), "{error}");
    let error = refused(|layout| {
        orders(layout).tables[1].options.read_repair = Some("'; DROP".to_owned());
    });
    assert!(matches!(error, OpenError::Table { .. }), "{error}");
    let error = refused(|layout| orders(layout).tables[2].partition.clear());
    assert!(error.to_string().contains("divide it"), "{error}");
    let elsewhere = Keyspace::of(&layout, "elsewhere").unwrap_err();
    assert!(
        matches!(elsewhere, OpenError::NoSuchEngine { .. }),
        "{elsewhere}"
    );
}
