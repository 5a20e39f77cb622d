//! What a process says, as it said it (2.6.12, columns that are not read left out), and what is made of it.

use super::stats::{Fault, Look, Process, Row, merge, read, refusal};
use crate::fleet::model::{AdminState, TargetReason, TargetState, TargetView};
use std::time::Duration;

const HEAD: &str = "# pxname,svname,qcur,scur,status,weight,act,bck,lastchg,throttle,check_status,check_code,check_rise,\
                    check_fall,addr,cookie,uweight,last_chk,type,\n";
const INFO: &str = "Name: HAProxy\nVersion: 2.6.12-1+deb12u4\nNbproc: 1\nPid: 71\nUptime_sec: 60\n\n";
const DELAY: Duration = Duration::from_secs(30);

fn stat(lines: &[&str]) -> String {
    format!("{INFO}{HEAD}{}\n\n", lines.join("\n"))
}

fn look(lines: &[&str]) -> Look {
    read(&stat(lines)).expect("an answer")
}

fn line(status: &str, check: &str, code: &str) -> String {
    format!("api,web-1,0,0,{status},1,1,0,6,,{check},{code},2,3,127.0.0.1:9601,a,1,,2,")
}

fn view(line: &str, lets_go: Option<AdminState>) -> TargetView {
    look(&[line]).rows[0].view(8080, lets_go, DELAY)
}

#[test]
fn every_status_has_its_state_and_a_server_is_in_only_after_a_check_of_its_own() {
    use TargetState::{Draining, Healthy, Initial, Other, Unavailable, Unhealthy};
    let rows = [
        ("UP", "L7OK", "200", Healthy, None),
        ("UP", "* L7OK", "200", Healthy, None),
        ("UP 1/3", "L7STS", "503", Healthy, None),
        ("UP 1/3", "L7OK", "200", Initial, None),
        ("UP", "INI", "", Initial, None),
        ("UP", "", "", Initial, None),
        ("DOWN", "L7STS", "503", Unhealthy, Some(TargetReason::ResponseCodeMismatch)),
        ("DOWN 1/2", "L7OK", "200", Unhealthy, Some(TargetReason::Other("L7OK".into()))),
        ("DOWN", "L4CON", "", Unhealthy, Some(TargetReason::FailedHealthChecks)),
        ("DOWN", "L4TOUT", "", Unhealthy, Some(TargetReason::Timeout)),
        ("DOWN", "L7TOUT", "", Unhealthy, Some(TargetReason::Timeout)),
        ("DOWN (agent)", "L7OK", "200", Unhealthy, Some(TargetReason::Other("L7OK".into()))),
        ("MAINT", "", "", Draining, None),
        ("DRAIN", "L7OK", "200", Draining, None),
        ("NOLB", "L7OKC", "404", Other("nolb".into()), None),
        ("no check", "", "", Unavailable, None),
    ];
    for (status, check, code, state, reason) in rows {
        let seen = view(&line(status, check, code), None);
        assert_eq!((seen.state, seen.reason), (state, reason), "{status} {check}");
        assert_eq!((seen.id.as_str(), seen.port), ("web-1", 9601));
    }
}

#[test]
fn let_go_means_idle_or_the_delay_is_over_and_anybody_elses_maintenance_is_not_ours() {
    let with = |status: &str, sessions: u32, since: u32| {
        format!("api,web-1,0,{sessions},{status},1,1,0,{since},,,,,,127.0.0.1:9601,,1,,2,")
    };
    let rows = [
        ("MAINT", 0, 0, TargetState::Unused),
        ("MAINT", 2, 29, TargetState::Draining),
        ("MAINT", 2, 30, TargetState::Unused),
        ("DRAIN", 0, 90, TargetState::Draining),
        ("MAINT (via api/web-9)", 0, 90, TargetState::Draining),
        ("MAINT (resolution)", 0, 90, TargetState::Draining),
        ("DRAIN (agent)", 0, 90, TargetState::Draining),
    ];
    for (status, sessions, since, state) in rows {
        let seen = view(&with(status, sessions, since), Some(AdminState::Maint));
        assert_eq!(seen.state, state, "{status} with {sessions} sessions after {since} s");
    }
    for (status, sessions, state) in [
        ("DRAIN", 0, TargetState::Unused),
        ("DRAIN", 1, TargetState::Draining),
        ("MAINT", 0, TargetState::Unused),
        ("DRAIN (agent)", 0, TargetState::Draining),
    ] {
        let seen = view(&with(status, sessions, 5), Some(AdminState::Drain));
        assert_eq!(seen.state, state, "told to drain: {status} with {sessions} sessions");
    }
    let seen = view(&with("DRAIN", 2, 5), Some(AdminState::Drain));
    assert_eq!(seen.description.as_deref(), Some("DRAIN, 2 sessions"), "what is waited for is said");
}

#[test]
fn a_server_that_takes_no_full_share_of_the_traffic_does_not_count_as_healthy() {
    for (what, line) in [
        ("weight 0", "api,web-1,0,0,UP,1,1,0,6,,L7OK,200,2,3,127.0.0.1:9601,,0,,2,"),
        ("backup", "api,web-1,0,0,UP,1,0,1,6,,L7OK,200,2,3,127.0.0.1:9601,,1,,2,"),
        ("slow start", "api,web-1,0,0,UP,1,1,0,6,63,L7OK,200,2,3,127.0.0.1:9601,,1,,2,"),
    ] {
        assert_eq!(view(line, None).state, TargetState::Other(what.into()));
    }
}

#[test]
fn columns_are_found_by_name_in_any_order_and_quotes_keep_commas() {
    let text = format!(
        "{INFO}# pxname,status,svname,new_one,check_status,last_chk,weight,addr,type,bck,scur,qcur,\n\
         api,UP,web-1,9,L7OK,\"a, \"\"b\"\"\",1,[fd00::1]:81,2,0,0,0,\napi,UP,BACKEND,,,,,,1,,,,\n\n"
    );
    let look = read(&text).expect("an answer");
    assert_eq!(look.backends, ["api"]);
    let row = &look.rows[0];
    assert_eq!((row.last.as_str(), row.port, row.rise), ("a, \"b\"", Some(81), None));
    assert_eq!(row.view(80, None, DELAY).state, TargetState::Healthy);
}

#[test]
fn an_answer_that_is_cut_off_anywhere_is_never_a_shorter_list() {
    let whole = stat(&[&line("UP", "L7OK", "200"), "api,BACKEND,0,0,UP,1,1,0,6,,,,,,,SRV,1,,1,"]);
    assert_eq!(read(&whole).map(|look| look.cookies["api"].clone()), Ok("SRV".into()));
    for end in 0..whole.len() {
        let cut = read(&whole[..end]);
        assert!(cut.is_err(), "cut at {end}: {cut:?}");
    }
}

#[test]
fn what_is_not_said_is_not_taken_for_nothing() {
    let whole = stat(&[&line("MAINT", "", "")]);
    for column in ["type", "status", "scur", "qcur", "weight", "bck", "check_status"] {
        let without = whole.replacen(&format!(",{column},"), ",new,", 1);
        match read(&without) {
            Err(Fault::Final(text)) => assert!(text.contains(&format!("`{column}`")), "{text}"),
            other => panic!("{column}: {other:?}"),
        }
    }
    for counts in ["0,,", ",0,", "0,many,", "-1,0,"] {
        let unclear = read(&whole.replacen("web-1,0,0,", &format!("web-1,{counts}"), 1));
        assert!(matches!(unclear, Err(Fault::Unclear(_))), "{counts}: {unclear:?}");
    }
}

#[test]
fn a_listening_socket_that_is_called_like_a_server_is_none() {
    let socket = "api,web-1,,0,OPEN,,,,,,,,,,127.0.0.1:80,,,,3,";
    let look = look(&[socket, &line("UP", "L7OK", "200")]);
    assert_eq!(look.rows.len(), 1);
    assert_eq!(look.rows[0].status, "UP");
}

#[test]
fn a_process_is_another_one_by_its_number_or_because_it_began_later() {
    let process = |pid, seconds| Process { pid, uptime: Duration::from_secs(seconds) };
    let seen = process(8, 3600);
    assert!(!process(8, 3600).came_after(seen) && !process(8, 3605).came_after(seen));
    assert!(process(9, 4000).came_after(seen), "another number");
    assert!(process(8, 2).came_after(seen), "the same number in a container that began anew");
}

#[test]
fn versions_and_processes_that_are_not_understood_are_refused_by_name() {
    let with = |from: &str, to: &str| read(&stat(&[&line("UP", "L7OK", "200")]).replace(from, to));
    for version in ["2.4.0", "2.6.12", "3.5-dev5", "2.10.1"] {
        assert_eq!(with("2.6.12-1+deb12u4", version).map(|look| look.process.pid), Ok(71), "{version}");
    }
    let finally = |result: Result<Look, Fault>| match result {
        Err(Fault::Final(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(finally(with("2.6.12-1+deb12u4", "2.2.9")).contains("HAProxy 2.2.9 is too old: 2.4"));
    assert!(finally(with("Nbproc: 1", "Nbproc: 4")).contains("nbproc"));
    assert!(matches!(with("Pid: 71", "Pid: 71\nStopping: 1"), Err(Fault::Unclear(_))));
    assert!(matches!(with("Version: 2.6.12-1+deb12u4", "Version: ?"), Err(Fault::Unclear(_))));
}

#[test]
fn what_haproxy_says_instead_of_an_answer_is_told_with_the_way_out() {
    let said = |text: &str| refusal(text).to_string();
    assert!(said("Permission denied\n\n").contains("level admin"));
    assert_eq!(refusal("No such server.\n"), Fault::Final("No such server.".into()));
    assert!(matches!(refusal(""), Fault::Unclear(_)));
    assert!(matches!(refusal("what is that\x1b[2J"), Fault::Unclear(text) if !text.contains('\x1b')));
}

#[test]
fn one_view_of_many_is_only_what_all_of_them_say() {
    use TargetState::{Draining, Healthy, Initial, Other, Unhealthy, Unused};
    let differs = || Other("different from node to node".into());
    let rows = [
        (Healthy, Healthy, Healthy),
        (Healthy, Unhealthy, differs()),
        (Healthy, Initial, Initial),
        (Healthy, Unused, differs()),
        (Unused, Unhealthy, Unhealthy),
        (Unused, Draining, Draining),
        (Unused, Unused, Unused),
        (Healthy, Draining, differs()),
    ];
    for (first, second, merged) in rows {
        let of = |state: &TargetState| TargetView { state: state.clone(), ..view(&line("UP", "L7OK", "200"), None) };
        for pair in [[&first, &second], [&second, &first]] {
            let views = vec![("lb-1".into(), vec![of(pair[0])]), ("lb-2".into(), vec![of(pair[1])])];
            assert_eq!(merge(views)[0].state, merged, "{pair:?}");
        }
    }
    let healthy = view(&line("UP", "L7OK", "200"), None);
    let one_lacks_it = merge(vec![("lb-1".into(), vec![healthy.clone()]), ("lb-2".into(), vec![])]);
    assert_eq!(one_lacks_it[0].state, differs(), "one node still sends");
    let said = one_lacks_it[0].description.clone().unwrap_or_default();
    assert!(said.contains("lb-1: UP, L7OK 200") && said.contains("lb-2: not there"), "{said}");
}

#[test]
fn of_two_reasons_the_one_that_is_not_our_503_is_told() {
    let down = |check: &str| view(&line("DOWN", check, "503"), None);
    let merged = merge(vec![("lb-1".into(), vec![down("L7STS")]), ("lb-2".into(), vec![down("L4CON")])]);
    assert_eq!(merged[0].reason, Some(TargetReason::FailedHealthChecks));
    let merged = merge(vec![("lb-1".into(), vec![down("L7STS")]), ("lb-2".into(), vec![down("L7STS")])]);
    assert_eq!(merged[0].reason, Some(TargetReason::ResponseCodeMismatch));
}

#[test]
fn a_check_that_only_connects_sees_no_503() {
    let row = |check: &str| -> Row { look(&[&line("UP", check, "")]).rows.remove(0) };
    assert!(!row("L4OK").checks_answers() && !row("L6OK").checks_answers());
    assert!(row("L7OK").checks_answers() && row("L7STS").checks_answers());
}
