//! What the page says, and that gauges come back to where they were.

use super::*;

#[test]
fn every_series_is_there_before_the_first_request() {
    let metrics = Metrics::default();
    let host = metrics.host("cms.example.org");
    *host.sleep.lock().expect("whole") = Some(SleepFigures::default());
    let page = metrics.page(false);
    for (name, kind, labels, _) in TABLE {
        assert!(page.contains(&format!("# TYPE {name} {kind}\n")), "{name}");
        let sample = if kind == "histogram" { format!("{name}_count") } else { name.to_owned() };
        let first = labels.split(", ").next().filter(|label| !label.is_empty());
        let sample = first.map_or(format!("{sample} "), |label| format!("{sample}{{{label}="));
        assert!(page.lines().any(|line| line.starts_with(&sample) && line.ends_with(" 0")), "{sample}\n{page}");
    }
    for outcome in Outcome::ALL {
        assert!(page.contains(&format!("outcome=\"{}\"}} 0\n", outcome.word())));
        assert_eq!(Outcome::ALL[outcome as usize], outcome);
    }
    assert!(Turned::ALL.iter().enumerate().all(|(at, why)| *why as usize == at));
}

/// The rows of docs/gateway.md.
fn documented() -> String {
    let mut rows = String::new();
    for (name, kind, labels, help) in TABLE {
        let _ = writeln!(rows, "| `{name}` | {kind} | {labels} | {help} |");
    }
    let words: Vec<String> = Outcome::ALL.iter().map(|outcome| format!("`{}`", outcome.word())).collect();
    let _ = write!(rows, "\nOutcomes: {}.\n", words.join(", "));
    rows
}

#[test]
fn every_metric_stands_in_the_documentation_as_it_is() {
    assert!(include_str!("../../../docs/gateway.md").contains(&documented()), "it should say\n{}", documented());
}

#[test]
fn a_gauge_is_where_it_was_whatever_ends_a_request() {
    let metrics = Arc::new(Metrics::default());
    let host = metrics.host("a");
    let guards: Vec<_> = (0..3).map(|_| Counted::new(Held(Arc::clone(&host)))).collect();
    assert_eq!(host.held.get(), 3);
    drop(guards);
    assert_eq!((host.held.get(), metrics.under_way()), (0, 0));
    let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = Counted::new(Active(Arc::clone(&host)));
        panic!("on purpose");
    }));
    assert!(held.is_err());
    assert_eq!(host.active.get(), 0);
}

#[test]
fn a_histogram_adds_up() {
    let histogram = Histogram::default();
    for millis in [0, 1, 2, 70_000] {
        histogram.take(Duration::from_millis(millis));
    }
    let mut page = String::new();
    histogram.write("x", "a", &mut page);
    for line in [
        "x_bucket{host=\"a\",le=\"0.001\"} 2",
        "le=\"60\"} 3",
        "le=\"+Inf\"} 4",
        "x_sum{host=\"a\"} 70.003",
        "x_count{host=\"a\"} 4",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}
