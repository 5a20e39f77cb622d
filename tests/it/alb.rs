//! The real client against the pretended API: what it reads, and what it makes of every fault.

use handover::adapters::alb::Alb;
use handover::fleet::model::{GroupName, TargetRef, TargetState};
use handover::lab::balancer::{Fault, FaultKind, Standalone, StandaloneSpec, standalone};
use handover::rollout::port::{Balancer, BalancerError};
use std::time::Duration;

async fn balancer() -> (Standalone, Alb, GroupName) {
    let spec = serde_json::json!({"groups": [{"name": "api", "port": 8080, "path": "/health", "interval": 5, "timeout": 2, "unhealthy": 2,
        "healthy": 3, "deregistration_delay": 20, "cross_zone": false, "fail_open_percent": 30,
        "targets": [{"id": "i-1", "address": "127.0.0.1:9", "zone": "a"}, {"id": "i-1", "port": 8081, "address": "127.0.0.1:9", "zone": "a"}]}]});
    let spec: StandaloneSpec = serde_json::from_value(spec).expect("a spec");
    let lab = standalone(spec).await.expect("a balancer");
    let alb = Alb::lab(&lab.balancer.endpoint());
    // The API lags behind the nodes, as AWS's does.
    tokio::time::sleep(Duration::from_millis(800)).await;
    (lab, alb, GroupName::new("api"))
}

#[tokio::test]
async fn every_number_of_a_group_is_read() {
    let (_lab, alb, group) = balancer().await;
    let view = alb.observe(&group).await.expect("a group");
    assert_eq!(view.path, "/health");
    assert_eq!((view.settings.interval, view.settings.timeout), (Duration::from_secs(5), Duration::from_secs(2)));
    assert_eq!((view.settings.unhealthy, view.settings.healthy), (2, 3));
    assert!(!view.attributes.cross_zone);
    assert_eq!((view.attributes.fail_open_count, view.attributes.fail_open_percent), (1, Some(30)));
    assert_eq!(view.attributes.deregistration_delay, Duration::from_secs(20));
    assert_eq!(view.targets.len(), 2, "one id on two ports is two targets");
    let by_arn = alb.observe(&GroupName::new(view.id.clone())).await.expect("by ARN");
    assert_eq!(by_arn.id, view.id);
}

#[tokio::test]
async fn only_the_port_that_is_meant_is_deregistered() {
    let (_lab, alb, group) = balancer().await;
    let target = TargetRef { group: group.clone(), id: "i-1".into(), port: 8081 };
    alb.deregister(std::slice::from_ref(&target)).await.expect("deregistered");
    tokio::time::sleep(Duration::from_millis(700)).await;
    let seen = alb.health(&group).await.expect("health");
    let state = |port| seen.iter().find(|view| view.port == port).map(|view| view.state.clone());
    assert_eq!(state(8081), Some(TargetState::Draining));
    assert_ne!(state(8080), Some(TargetState::Draining));
    alb.register(&[target]).await.expect("registered");
}

#[tokio::test]
async fn what_says_nothing_is_unknown_and_what_is_final_is_refused() {
    let rows = [
        (FaultKind::Throttle, true, "Rate exceeded"),
        (FaultKind::HealthUnavailable, true, "HealthUnavailable"),
        (FaultKind::Truncated, true, "ends in the middle"),
        (FaultKind::AccessDenied, false, "AccessDenied"),
        (FaultKind::ExpiredToken, false, "ExpiredToken"),
    ];
    let (lab, alb, group) = balancer().await;
    alb.health(&group).await.expect("no fault yet");
    for (kind, unknown, word) in rows {
        lab.balancer.faults().clear();
        lab.balancer.faults().add(Fault { kind, action: Some("DescribeTargetHealth".into()), times: None });
        let error = alb.health(&group).await.expect_err(word);
        assert_eq!(error.is_unknown(), unknown, "{kind:?}: {error:?}");
        assert!(error.to_string().contains(word), "{kind:?}: {error}");
        assert!(error.to_string().len() < 500, "too long to read: {error}");
    }
    lab.balancer.faults().clear();
    alb.health(&group).await.expect("the faults are gone");
}

#[tokio::test]
async fn an_api_that_hangs_or_is_not_there_is_unknown() {
    let (lab, alb, group) = balancer().await;
    lab.balancer.faults().add(Fault { kind: FaultKind::Hang, action: None, times: None });
    let error = alb.health(&group).await.expect_err("it hangs");
    assert!(error.is_unknown(), "{error:?}");
    let nobody = Alb::lab("http://127.0.0.1:9");
    assert!(nobody.health(&group).await.expect_err("nobody listens").is_unknown());
}

#[tokio::test]
async fn a_group_that_is_not_there_is_refused_by_name() {
    let (_lab, alb, _) = balancer().await;
    let error = alb.observe(&GroupName::new("nobody")).await.expect_err("no such group");
    assert!(matches!(&error, BalancerError::Refused(text) if text.contains("TargetGroupNotFound")), "{error:?}");
}

/// `handover check --live` as a user runs it, with servers that cannot be reached.
#[tokio::test(flavor = "multi_thread")]
async fn a_live_check_reads_the_balancers_own_numbers_and_says_what_it_could_not_learn() {
    let spec = serde_json::json!({"groups": [{"name": "mythex-api", "port": 8080, "path": "/health", "interval": 30, "timeout": 2,
        "unhealthy": 2, "healthy": 2, "deregistration_delay": 30, "targets": []}]});
    let spec: StandaloneSpec = serde_json::from_value(spec).expect("a spec");
    let lab = standalone(spec).await.expect("a balancer");
    let endpoint = format!("endpoint = {:?}\n\n[[balancer.group]]", lab.balancer.endpoint());
    let mut text = include_str!("../../deploy.toml").replace("[[balancer.group]]", &endpoint);
    for n in 1..=3 {
        text = text.replace(&format!("\"deploy@web-{n}\""), &format!("\"deploy@127.0.0.{n}\""));
    }
    let dir = tempfile::tempdir().expect("a folder");
    for (name, text) in
        [("deploy.toml", text.as_str()), ("ssh", "Host *\n  Port 9\n"), ("compose.yaml", "services: {}\n")]
    {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    let folder = dir.path().to_owned();
    let ran = tokio::task::spawn_blocking(move || {
        std::process::Command::new(env!("CARGO_BIN_EXE_handover"))
            .args(["check", "--live", "--output", "json"])
            .current_dir(folder)
            .envs([
                ("HANDOVER_SSH_CONFIG", "ssh"),
                ("AWS_ACCESS_KEY_ID", "x"),
                ("AWS_SECRET_ACCESS_KEY", "x"),
                ("NO_PROXY", "*"),
            ])
            .stdin(std::process::Stdio::null())
            .output()
            .expect("it runs")
    });
    let output = ran.await.expect("it ends");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let json: serde_json::Value = serde_json::from_str(out.lines().last().unwrap_or_default()).expect("a summary");
    assert_eq!(json["exit"], 4, "{json}");
    let differences = json["live"]["differences"].as_array().cloned().unwrap_or_default();
    let told: Vec<_> =
        differences.iter().map(|row| (row["key"].as_str(), row["file"].as_str(), row["live"].as_str())).collect();
    assert_eq!(told, [(Some("balancer.group.mythex-api.health.interval"), Some("5s"), Some("30s"))], "{json}");
    let serve = json["invariants"].as_array().and_then(|rows| rows.iter().find(|row| row["id"] == "serve-covers-out"));
    assert_eq!(
        serve.map(|row| (&row["holds"], &row["left_seconds"])),
        Some((&false.into(), &60.0.into())),
        "live numbers count"
    );
    let unknown = json["live"]["unknown"].as_array().map(Vec::len);
    assert_eq!(unknown, Some(3), "no server could be reached, and that is said: {json}");
}
