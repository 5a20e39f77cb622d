//! Whole logs: what is read, counted and told, whatever stands in them.

use super::*;
use crate::event::Requests;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use std::io::Write;
use std::path::{Path, PathBuf};

const ALL: &str = include_str!("../../../tests/it/fixtures/access-log/all.log");

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(text).expect("packed");
    packer.finish().expect("packed")
}

/// Reads these bytes as one file.
fn count(bytes: &[u8], rules: Rules) -> (Tally, Reading) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.log");
    std::fs::write(&path, bytes).expect("written");
    let mut tally = Tally::new(rules);
    let reading = read(&[Input::File(path)], &mut tally);
    (tally, reading)
}

fn moment(text: &str) -> Option<i64> {
    Some(time::parse(text.as_bytes()).expect("a moment"))
}

fn sum(requests: Requests) -> u64 {
    let Requests { served, app_errors, nowhere, cut_short, drain_signals, client_gone, .. } = requests;
    served + app_errors + nowhere + cut_short + drain_signals + client_gone
}

#[test]
fn packed_in_many_members_a_log_says_the_same() {
    let (half, rest) = ALL.split_at(ALL.len() / 2);
    let packed = [gzip(half.as_bytes()), gzip(b""), gzip(rest.as_bytes())].concat();
    let ((plain, plain_read), (packed, packed_read)) =
        (count(ALL.as_bytes(), Rules::default()), count(&packed, Rules::default()));
    assert_eq!(plain.sums(), packed.sums());
    assert_eq!((packed_read.lines(), packed_read.broken(), &packed_read.files[0].error), (24, 0, &None));
    assert_eq!((plain.records, plain_read.broken()), (24, 0));
}

#[test]
fn packed_data_that_ends_too_early_is_an_error_wherever_it_ends() {
    let packed = gzip(ALL.as_bytes());
    for length in 2..packed.len() {
        let (_, reading) = count(&packed[..length], Rules::default());
        assert!(reading.files[0].error.is_some(), "{length} of {} bytes", packed.len());
    }
    let (_, reading) = count(&[&packed[..], b"\0rubbish"].concat(), Rules::default());
    assert!(reading.files[0].error.is_some());
}

#[test]
fn a_line_of_megabytes_is_one_broken_line_and_the_next_ones_count() {
    let huge = "x".repeat(3 << 20);
    let mut lines: Vec<&str> = ALL.lines().collect();
    lines.insert(1, &huge);
    lines.push(&huge);
    let (tally, reading) = count(lines.join("\n").as_bytes(), Rules::default());
    assert_eq!((tally.records, reading.broken()), (24, 2));
    let places: Vec<u64> = reading.shown.iter().map(|one| one.line).collect();
    assert_eq!(places, [2, 26]);
    assert_eq!(reading.shown[0].what, "longer than 262144 bytes");
}

#[test]
fn line_ends_of_both_kinds_blank_lines_and_a_missing_last_end_change_nothing() {
    let (wanted, _) = count(ALL.as_bytes(), Rules::default());
    for text in
        [ALL.replace('\n', "\r\n"), ALL.replace('\n', "\n\n"), ALL.trim_end().to_owned(), ALL.replace('\n', " \n")]
    {
        let (tally, reading) = count(text.as_bytes(), Rules::default());
        assert_eq!((tally.sums(), reading.lines(), reading.broken()), (wanted.sums(), 24, 0));
    }
}

#[test]
fn the_window_holds_its_first_moment_and_not_its_last() {
    let at = "2026-11-29T12:00:00.000000Z";
    let line = ALL.lines().find(|line| line.contains("/first")).expect("a line");
    let inside = |from: Option<&str>, to: Option<&str>| {
        let window = Window { from: from.and_then(moment), to: to.and_then(moment) };
        count(line.as_bytes(), Rules { window, ..Rules::default() }).0.sums().0.requests.total == 1
    };
    assert!(inside(Some(at), None) && inside(None, None) && inside(Some(at), Some("2026-11-29T12:00:00.000001Z")));
    assert!(!inside(Some("2026-11-29T12:00:00.000001Z"), None) && !inside(None, Some(at)));
    assert!(inside(Some("2026-11-29T14:00:00+02:00"), None) && !inside(None, Some("2026-11-29T14:00:00+02:00")));
}

#[test]
fn the_first_hundred_losses_are_those_that_came_first_in_whatever_order_they_are_read() {
    let line = ALL.lines().find(|line| line.contains("/first")).expect("a line");
    let at = |n: u64| line.replace(" 2026-11-29T12:00:00.000000Z", &format!(" 2026-11-29T12:00:00.{n:06}Z"));
    let all: Vec<String> = (0..300).rev().map(at).collect();
    let (tally, _) = count(all.join("\n").as_bytes(), Rules::default());
    let kept: Vec<i64> = tally.losses().iter().map(|loss| loss.at % 1_000_000).collect();
    assert_eq!(kept, (0..100).collect::<Vec<i64>>());
    assert_eq!(tally.losses()[0].request, "GET /first", "no query string");
}

#[test]
fn so_many_targets_as_no_balancer_has_are_counted_together() {
    let line = ALL.lines().next().expect("a line");
    let all: String = (0..20_000)
        .map(|n| line.replace("198.51.100.1:8080 0", &format!("198.51.{}.{}:8080 0", n / 256, n % 256)) + "\n")
        .collect();
    let (tally, _) = count(all.as_bytes(), Rules::default());
    assert_eq!((tally.targets().len(), tally.sums().0.requests.total), (10_000, 20_000));
    assert!(tally.targets().iter().any(|one| one.target.as_deref() == Some("others")));
}

fn named(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(&path, bytes).expect("written");
    path
}

const AWS: &str =
    "111122223333_elasticloadbalancing_eu-central-1_app.shop.0123456789abcdef_20261129T1205Z_203.0.113.8_1a2b3c4d.log";

#[test]
fn what_is_named_twice_is_read_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = named(dir.path(), &format!("29/{AWS}.gz"), &gzip(ALL.as_bytes()));
    let unpacked = named(dir.path(), &format!("30/{AWS}"), ALL.as_bytes());
    let link = dir.path().join("link.log");
    std::os::unix::fs::symlink(&first, &link).expect("a link");
    named(dir.path(), "29/conn_log.app.log.gz", b"");
    named(dir.path(), "29/ELBAccessLogTestFile", b"");
    let found = inputs(&[dir.path().to_owned(), first.clone(), link, "-".into(), "-".into()]).expect("found");
    assert_eq!(found.files, [Input::File(first), Input::Stdin]);
    assert_eq!(found.left_out.len(), 7, "{:?}", found.left_out);
    assert!(found.left_out.iter().any(|what| what.starts_with(&clean_path(&unpacked))), "{:?}", found.left_out);
}

#[test]
fn files_of_other_names_that_overlap_are_noticed_by_their_first_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let a = named(dir.path(), "a.log", ALL.as_bytes());
    let b = named(dir.path(), "b.log", &gzip(ALL.as_bytes()));
    let mut tally = Tally::new(Rules::default());
    let reading = read(&[Input::File(a), Input::File(b)], &mut tally);
    assert_eq!(reading.overlaps.len(), 1);
    assert_eq!(tally.records, 48, "told, not guessed away");
}

#[test]
fn the_nodes_are_known_by_the_names_of_the_files() {
    let dir = tempfile::tempdir().expect("a folder");
    let name = |node: &str| AWS.replace("203.0.113.8", node);
    let names =
        [AWS.to_owned(), name("172.160.001.192"), name("999.0.113.8"), name("2001:db8::8"), "a_b_c.log".to_owned()];
    let files: Vec<Input> = names.iter().map(|name| Input::File(named(dir.path(), name, b""))).collect();
    let reading = read(&files, &mut Tally::new(Rules::default()));
    assert_eq!(reading.nodes.into_iter().collect::<Vec<_>>(), ["172.160.1.192", "2001:db8::8", "203.0.113.8"]);
}

#[test]
fn everything_that_is_missing_is_told_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let missing =
        inputs(&["/nowhere/a".into(), dir.path().to_owned(), "/nowhere/\u{1b}b".into()]).expect_err("missing");
    assert_eq!(missing.len(), 3);
    assert!(
        missing[1].ends_with("no *.log or *.gz in it") && missing[2].starts_with("/nowhere/\\u{1b}b: "),
        "{missing:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_line_is_counted_once_in_one_class_or_as_broken(
        changes in proptest::collection::vec((0usize..24, 0usize..400, any::<u8>(), any::<bool>()), 0..30),
        raw in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut bytes = ALL.as_bytes().to_vec();
        for (line, at, byte, cut) in changes {
            let mut text = ALL.lines().nth(line).expect("a line").as_bytes().to_vec();
            let at = at % text.len();
            text[at] = byte;
            if cut {
                text.truncate(at);
            }
            bytes.extend(text);
            bytes.push(b'\n');
        }
        bytes.extend(raw);
        let window = Window { from: moment("2026-11-29T12:00:00Z"), to: moment("2026-11-29T12:05:00Z") };
        let (tally, reading) = count(&bytes, Rules { window, health_paths: vec!["/health".into()] });
        let blank = |line: &&[u8]| !line.trim_ascii().is_empty();
        prop_assert_eq!(reading.lines(), bytes.split(|byte| *byte == b'\n').filter(blank).count() as u64);
        prop_assert_eq!(reading.lines(), tally.records + reading.broken());
        let (inside, outside) = tally.sums();
        prop_assert_eq!(inside.requests.total + outside.requests.total, tally.records);
        for side in [inside, outside] {
            prop_assert_eq!(side.requests.total, sum(side.requests));
            prop_assert_eq!(side.requests.lost(), side.causes.iter().sum::<u64>());
        }
        let printable = |text: &str| text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        prop_assert!(reading.shown.iter().all(|one| printable(&one.what)));
        prop_assert!(tally.losses().iter().all(|one| printable(&one.request)));
        prop_assert!(tally.targets().iter().filter_map(|one| one.target.as_deref()).all(printable));
    }
}
