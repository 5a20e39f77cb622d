//! Small tables: the first column to the left, the others to the right.

/// Lays rows out; the first one is the head.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let fill = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            let cell = if column == 0 { format!("{cell}{fill}") } else { format!("  {fill}{cell}") };
            line.push_str(&cell);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_under_each_other() {
        let rows = [vec!["server", "out"], vec!["web-1", "10.4"], vec!["w", "9"]];
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
        assert_eq!(table(&rows), "server   out\nweb-1   10.4\nw          9\n");
    }
}
