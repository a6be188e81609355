//! The table of what each engine declares.

use crate::capability::Capabilities;

/// What an engine declares of one capability.
type Declared = fn(&Capabilities) -> String;

/// A Markdown table, a row per capability and a column per engine.
pub fn capability_table(engines: &[&Capabilities]) -> String {
    let rows: [(&str, Declared); 9] = [
        ("collections", |engine| {
            engine
                .collections
                .iter()
                .map(|collection| collection.name())
                .collect::<Vec<_>>()
                .join(", ")
        }),
        ("together", |engine| format!("{:?}", engine.together)),
        ("guard", |engine| format!("{:?}", engine.guard)),
        ("fence", |engine| format!("{:?}", engine.fence)),
        ("journal", |engine| format!("{:?}", engine.journal)),
        ("stock", |engine| format!("{:?}", engine.stock)),
        ("terms", |engine| format!("{:?}", engine.terms)),
        ("expiry", |engine| format!("{:?}", engine.expiry)),
        ("durability", |engine| format!("{:?}", engine.durability)),
    ];
    let line = |first: &str, cells: Vec<String>| format!("| {first} | {} |\n", cells.join(" | "));
    let mut table = line(
        "capability",
        engines
            .iter()
            .map(|engine| engine.engine.to_owned())
            .collect(),
    );
    table.push_str(&line(
        "---",
        engines.iter().map(|_| "---".to_owned()).collect(),
    ));
    for (name, declared) in rows {
        table.push_str(&line(
            name,
            engines.iter().map(|engine| declared(engine)).collect(),
        ));
    }
    table
}
