//! Marks of whoever deploys while `measure` runs: lines on stdin, or signals. It knows nothing of requests.

use crate::diag::{Exit, Problem};
use std::io::IsTerminal;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// No label is as long as this.
const LONGEST: u64 = 1024;
/// So many marks may wait to be looked at.
const WAITING: usize = 64;

/// What somebody said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// A deploy began, under this label.
    Begin(Option<String>),
    /// It ended.
    End,
    /// Something else.
    Unknown(String),
}

/// Reads a line; empty ones say nothing.
pub(super) fn parse(line: &str) -> Option<Said> {
    // A label is shown on terminals.
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = line.trim();
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let label = Some(rest.trim().to_owned()).filter(|label| !label.is_empty());
    match (word, &label) {
        ("", _) => None,
        ("begin", _) => Some(Said::Begin(label)),
        ("end", None) => Some(Said::End),
        _ => Some(Said::Unknown(line.to_owned())),
    }
}

/// Listens from now on: SIGUSR1 begins, SIGUSR2 ends, and stdin says so by lines where it is no terminal. The end of stdin
/// ends nothing.
pub(super) fn listen() -> Result<mpsc::Receiver<Said>, Problem> {
    let no = |error| Problem::new(Exit::Failed, format!("signals cannot be listened for: {error}"));
    let mut begin = signal(SignalKind::user_defined1()).map_err(no)?;
    let mut end = signal(SignalKind::user_defined2()).map_err(no)?;
    let (sender, marks) = mpsc::channel(WAITING);
    if !std::io::stdin().is_terminal() {
        tokio::spawn(read(tokio::io::stdin(), sender.clone()));
    }
    tokio::spawn(async move {
        loop {
            let said = tokio::select! {
                _ = begin.recv() => Said::Begin(None),
                _ = end.recv() => Said::End,
            };
            if sender.send(said).await.is_err() {
                break;
            }
        }
    });
    Ok(marks)
}

async fn read(from: impl AsyncRead + Unpin, marks: mpsc::Sender<Said>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    // Bounded: whatever is piped in by mistake must not fill the memory.
    while let Ok(1..) = (&mut from).take(LONGEST).read_until(b'\n', &mut line).await {
        if let Some(said) = parse(&String::from_utf8_lossy(&line))
            && marks.send(said).await.is_err()
        {
            break;
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_marks_or_told_as_none() {
        let begin = |label: &str| Some(Said::Begin(Some(label.to_owned())));
        let unknown = |line: &str| Some(Said::Unknown(line.to_owned()));
        let rows = [
            ("begin\n", Some(Said::Begin(None))),
            ("begin v1.2.3\n", begin("v1.2.3")),
            ("  begin   the big one \r\n", begin("the big one")),
            ("begin\tv2", begin("v2")),
            ("begin \u{1b}[31mred", begin("[31mred")),
            ("end\n", Some(Said::End)),
            ("end v2", unknown("end v2")),
            ("beginning", unknown("beginning")),
            ("", None),
            ("   \n", None),
        ];
        for (line, said) in rows {
            assert_eq!(parse(line), said, "{line:?}");
        }
    }

    #[tokio::test]
    async fn lines_come_one_by_one_and_a_flood_without_lines_is_cut() {
        let (sender, mut marks) = mpsc::channel(WAITING);
        let text = format!("begin a\n{}\nend", "x".repeat(3000));
        read(text.as_bytes(), sender).await;
        let mut said = Vec::new();
        while let Some(one) = marks.recv().await {
            said.push(one);
        }
        assert_eq!((said.first(), said.last()), (Some(&Said::Begin(Some("a".into()))), Some(&Said::End)));
        assert!(said.iter().all(|one| !matches!(one, Said::Unknown(line) if line.len() > 1024)));
    }
}
