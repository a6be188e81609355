//! A table's options as Cassandra takes them behind `WITH`.

use crate::table::Table;

/// `compaction = {…}`, `read_repair = '…'` and so on, one a line of the layout.
/// No `default_time_to_live`: every write says its own TTL (W7).
pub fn cql_options(table: &Table) -> Vec<String> {
    let options = &table.options;
    let compaction = options.compaction.as_ref().map(|class| {
        let inner = std::iter::once(("class", class.as_str()));
        let further = options.compaction_options.iter();
        let all: Vec<String> = inner
            .chain(further.map(|(name, value)| (name.as_str(), value.as_str())))
            .map(|(name, value)| format!("'{name}': {}", text(value)))
            .collect();
        format!("compaction = {{{}}}", all.join(", "))
    });
    let repair = options.read_repair.as_ref();
    let grace = options.gc_grace_seconds;
    let known = [
        compaction,
        repair.map(|repair| format!("read_repair = {}", text(repair))),
        grace.map(|seconds| format!("gc_grace_seconds = {seconds}")),
    ];
    let further = options.server_options.iter();
    known
        .into_iter()
        .flatten()
        .chain(further.map(|(name, value)| format!("{name} = {}", scalar(value))))
        .collect()
}

/// Numbers and truth values stand as they are.
fn scalar(value: &str) -> String {
    let number = value.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let number = number && value.parse::<f64>().is_ok();
    let plain = number || matches!(value, "true" | "false");
    if plain { value.to_owned() } else { text(value) }
}

fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Layout;

    #[test]
    fn options_are_written_as_cassandra_takes_them() {
        let table = "[collections.sessions.tables.sessions_by_user]";
        let with = format!(
            "{table}\ncompaction = \"TimeWindowCompactionStrategy\"\n\
             compaction_options = {{ compaction_window_unit = \"DAYS\", compaction_window_size = 1 }}\n\
             read_repair = \"NONE\"\ngc_grace_seconds = 3600\n\
             options = {{ bloom_filter_fp_chance = 0.1, cdc = true, comment = \"the user's\" }}"
        );
        let text = include_str!("../../tests/divided.toml").replace(table, &with);
        let layout = Layout::parse(&text, "divided.toml").unwrap();
        let sessions = layout.collection(crate::Collection::Sessions);
        assert_eq!(
            cql_options(sessions.table("sessions_by_user").unwrap()),
            [
                "compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_size': '1', 'compaction_window_unit': 'DAYS'}",
                "read_repair = 'NONE'",
                "gc_grace_seconds = 3600",
                "bloom_filter_fp_chance = 0.1",
                "cdc = true",
                "comment = 'the user''s'",
            ]
        );
        assert!(cql_options(sessions.table("sessions_by_id").unwrap()).is_empty());
    }
}
