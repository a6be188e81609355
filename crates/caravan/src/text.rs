//! Text for people: headings, aligned columns, colours only where a terminal shows them.

use std::io::IsTerminal;

/// A heading, bold on a terminal unless the user wants no colours.
pub fn heading(title: &str) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if plain || !std::io::stdout().is_terminal() {
        return title.to_owned();
    }
    format!("\x1b[1m{title}\x1b[0m")
}

/// Rows in columns two spaces apart; the last column is as wide as it likes.
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        if column + 1 == N {
            0
        } else {
            cells.max().unwrap_or(0)
        }
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text += line.join("  ").trim_end();
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let rows = [["a", "bb"], ["ccc", "d"]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), "a    bb\nccc  d\n");
    }
}
