//! Text for people: aligned columns, colours only where they are wanted.

/// Whether the user has not asked for plain text. A terminal must be there besides.
pub fn colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
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

/// A part of a whole, as in `████████░░░░`.
pub fn bar(part: u64, whole: u64, width: usize) -> String {
    let cells = u64::try_from(width).unwrap_or(u64::MAX);
    let filled = (part.min(whole) * cells + whole / 2).checked_div(whole);
    let filled = usize::try_from(filled.unwrap_or(0)).unwrap_or(width);
    "█".repeat(filled) + &"░".repeat(width - filled)
}

/// Steps done and to come, as in `■■■▣□□□`: the marked one is under way.
pub fn step_bar(step: usize, steps: usize) -> String {
    let cell = |number: usize| match number.cmp(&step) {
        std::cmp::Ordering::Less => '■',
        std::cmp::Ordering::Equal => '▣',
        std::cmp::Ordering::Greater => '□',
    };
    (0..steps).map(cell).collect()
}

/// Numbers as a small picture, the largest as high as a line is.
pub fn spark_line(numbers: &[u64]) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = numbers.iter().copied().max().unwrap_or(0);
    let level = |number: &u64| {
        let level = (number * 7).checked_div(most).unwrap_or(0);
        LEVELS[usize::try_from(level).unwrap_or(7).min(7)]
    };
    numbers.iter().map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_pictures() {
        assert_eq!(bar(1, 2, 4), "██░░");
        assert_eq!(bar(9, 2, 4), "████");
        assert_eq!(bar(0, 0, 4), "░░░░");
        assert_eq!(step_bar(1, 3), "■▣□");
        assert_eq!(spark_line(&[0, 7, 14]), "▁▄█");
        assert_eq!(spark_line(&[0, 0]), "▁▁");
    }

    #[test]
    fn columns_stand_under_each_other() {
        let rows = [["a", "bb"], ["ccc", "d"]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), "a    bb\nccc  d\n");
    }
}
