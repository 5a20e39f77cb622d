//! deploy.toml says, the balancer says: for people.

use super::table;
use crate::fleet::provision::{At, Row};

/// A table for each place in which something differs, and what could not be learnt.
#[must_use]
pub fn provision_text(rows: &[Row], unknown: &[String]) -> String {
    let mut places: Vec<&At> = Vec::new();
    for row in rows {
        if !places.contains(&&row.at) {
            places.push(&row.at);
        }
    }
    let mut out = String::new();
    for at in places {
        let own = || rows.iter().filter(|row| row.at == *at);
        out.push_str(&format!("{at}\n"));
        if own().any(Row::differs) {
            let head = ["", "deploy.toml says", "the balancer says", ""].map(ToOwned::to_owned).to_vec();
            let lines = own().filter(|row| row.differs()).map(|row| {
                let file = if row.named { row.file.to_string() } else { format!("({})", row.file) };
                let what = if row.named { "to be changed" } else { "left alone" };
                vec![row.setting.key().to_owned(), file, row.live.to_string(), what.to_owned()]
            });
            out.push_str(&indented(&table(&std::iter::once(head).chain(lines).collect::<Vec<_>>())));
        }
        let same: Vec<String> =
            own().filter(|row| !row.differs()).map(|row| format!("{} {}", row.setting.key(), row.file)).collect();
        if !same.is_empty() {
            out.push_str(&format!("  the same: {}\n", same.join(", ")));
        }
    }
    if rows.iter().any(|row| row.differs() && !row.named) {
        out.push_str("in brackets: a default that deploy.toml does not name; what it does not name is left alone\n");
    }
    for unknown in unknown {
        out.push_str(&format!("not learnt: {unknown}\n"));
    }
    let wanted = rows.iter().filter(|row| row.is_wanted()).count();
    out.push_str(&match wanted {
        0 => "nothing is to be changed\n".to_owned(),
        1 => "one setting is to be changed\n".to_owned(),
        many => format!("{many} settings are to be changed\n"),
    });
    out
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
