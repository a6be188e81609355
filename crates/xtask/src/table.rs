//! Tables in Markdown, padded so that they read well on a terminal too.

pub fn markdown<const COLUMNS: usize>(head: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let mut widths = head.map(width);
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            widths[column] = widths[column].max(width(&escaped(cell)));
        }
    }
    let mut table = line(&head.map(str::to_owned), &widths);
    table.push_str(&line(
        &std::array::from_fn(|column| "-".repeat(widths[column])),
        &widths,
    ));
    for row in rows {
        table.push_str(&line(row, &widths));
    }
    table
}

fn line<const COLUMNS: usize>(cells: &[String; COLUMNS], widths: &[usize; COLUMNS]) -> String {
    let mut line = String::from("|");
    for (cell, cell_width) in cells.iter().zip(widths) {
        let cell = escaped(cell);
        let padding = " ".repeat(cell_width.saturating_sub(width(&cell)));
        line.push_str(&format!(" {cell}{padding} |"));
    }
    line.push('\n');
    line
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn escaped(cell: &str) -> String {
    cell.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_bars_are_escaped() {
        let rows = [
            ["a|b".to_owned(), "1".to_owned()],
            ["≥ 0.45".to_owned(), "2".to_owned()],
        ];
        let expected = "| id     | n |\n| ------ | - |\n| a\\|b   | 1 |\n| ≥ 0.45 | 2 |\n";
        assert_eq!(markdown(["id", "n"], &rows), expected);
    }
}
