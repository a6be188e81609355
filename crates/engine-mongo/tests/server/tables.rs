//! The tables that the tests of this crate open.

use engine_api::layout::{Collection, Direction, Field, KeyColumn, Role, Table, TableOptions};

pub fn all() -> Vec<Table> {
    use Collection::{Carts, Orders, Products, Sessions};
    let active = Some((Field::Status, "active".to_owned()));
    let newest_first = vec![(KeyColumn::Field(Field::CreatedAt), Direction::Descending)];
    let cheapest_first = vec![(KeyColumn::Field(Field::Price), Direction::Ascending)];
    let mut tables: Vec<Table> = Collection::ALL.into_iter().map(authority).collect();
    tables.extend([
        Table {
            only: active.clone(),
            ..derived("active_carts_by_user", Carts, &[Field::UserId])
        },
        Table {
            only: active,
            ..derived("active_carts_by_session", Carts, &[Field::SessionId])
        },
        Table {
            clustering: newest_first.clone(),
            ..derived("orders_by_user", Orders, &[Field::UserId])
        },
        Table {
            clustering: newest_first.clone(),
            ..derived("orders_by_period", Orders, &[])
        },
        Table {
            clustering: cheapest_first,
            ..derived("products_by_category", Products, &[Field::Category])
        },
        Table {
            clustering: newest_first,
            ..derived("sessions_by_user", Sessions, &[Field::UserId])
        },
    ]);
    tables
}

pub fn authority(collection: Collection) -> Table {
    Table {
        role: Role::Authority,
        ..derived(collection.name(), collection, &[collection.id_field()])
    }
}

pub fn derived(name: &str, collection: Collection, partition: &[Field]) -> Table {
    Table {
        name: name.to_owned(),
        collection,
        role: Role::Derived,
        partition: partition
            .iter()
            .map(|field| KeyColumn::Field(*field))
            .collect(),
        clustering: Vec::new(),
        only: None,
        options: TableOptions::default(),
    }
}
