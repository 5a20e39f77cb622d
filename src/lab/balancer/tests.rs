//! The balancer over real sockets: each failure gives the status that an ALB gives, and the log says why.

use super::*;
use crate::lab::fetch::{Ask, fetch};
use hyper::Method;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How a target behaves to a request that is no health check.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Answers(&'static str),
    ClosesUnanswered,
    Silent,
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A target whose health is always fine, whatever else it does.
async fn target(manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(stream, manner));
        }
    });
    address
}

async fn converse(mut stream: TcpStream, manner: Manner) {
    let mut buffer = vec![0; 4096];
    loop {
        let Ok(count @ 1..) = stream.read(&mut buffer).await else { return };
        let head = String::from_utf8_lossy(&buffer[..count]).into_owned();
        if head.contains("ELB-HealthChecker/2.0") {
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await);
            return;
        }
        match manner {
            Manner::Answers(answer) => {
                drop(stream.write_all(answer.as_bytes()).await);
                if !answer.ends_with("ok") {
                    return;
                }
            }
            Manner::ClosesUnanswered => return,
            Manner::Silent => std::future::pending().await,
        }
    }
}

fn spec(targets: &[(&str, SocketAddr)]) -> StandaloneSpec {
    let targets = targets
        .iter()
        .map(|(id, address)| serde_json::json!({ "id": id, "address": address.to_string(), "zone": "a" }));
    let group = serde_json::json!({
        "name": "shop", "port": 80, "path": "/health", "interval": 1.0, "timeout": 0.5, "unhealthy": 2, "healthy": 2,
        "deregistration_delay": 30.0, "targets": targets.collect::<Vec<_>>(),
    });
    serde_json::from_value(serde_json::json!({ "groups": [group], "speed": 10.0, "seed": 3 })).expect("a spec")
}

async fn balancer(targets: &[(&str, SocketAddr)]) -> Balancer {
    let balancer = standalone(spec(targets)).await.expect("a balancer").balancer;
    assert!(balancer.wait_healthy(Duration::from_secs(10)).await);
    balancer
}

async fn get(at: SocketAddr, path: &str) -> (u16, String) {
    let ask = Ask { at, method: &Method::GET, path, host: "shop.example", agent: "test", from: None };
    let (status, body) = fetch(ask, Duration::from_secs(20)).await.expect("an answer");
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// The raw answer, as far as it comes.
async fn raw(at: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(at).await.expect("the node");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    drop(tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await);
    answer
}

const CLOSE: &str = "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n";

/// The log learns of a request a moment after its client does.
async fn truth(balancer: &Balancer, total: u64) -> Truth {
    for _ in 0..200 {
        if balancer.truth().total >= total {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    balancer.truth()
}

#[tokio::test]
async fn an_answer_passes_unchanged_and_the_target_sees_who_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, mut heads) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = vec![0; 4096];
            let count = stream.read(&mut buffer).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&buffer[..count]).into_owned();
            if !head.contains("ELB-HealthChecker") {
                drop(sender.send(head));
            }
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nX-App: yes\r\nContent-Length: 2\r\n\r\nok").await);
        }
    });
    let balancer = balancer(&[("i-1", address)]).await;
    let answer = raw(balancer.nodes()[0], CLOSE).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.contains("x-app: yes") && answer.ends_with("ok"),
        "{answer}"
    );
    let head = heads.recv().await.expect("a request").to_lowercase();
    for wanted in [
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: http",
        "x-forwarded-port:",
        "x-amzn-trace-id: root=1-",
        "host: shop.example",
    ] {
        assert!(head.contains(wanted), "{wanted} in {head}");
    }
    let truth = truth(&balancer, 1).await;
    assert_eq!((truth.total, truth.classes.served), (1, 1));
}

#[tokio::test]
async fn a_5xx_of_the_app_is_the_app_s_own() {
    let address = target(Manner::Answers("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")).await;
    let balancer = balancer(&[("i-1", address)]).await;
    assert!(!raw(balancer.nodes()[0], CLOSE).await.contains("awselb"));
    assert_eq!(truth(&balancer, 1).await.classes.app_errors, 1);
}

#[tokio::test]
async fn nobody_registered_is_503() {
    let balancer = balancer(&[]).await;
    let answer = raw(balancer.nodes()[0], CLOSE).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("server: awselb/2.0"), "{answer}");
    assert!(answer.contains("<h1>503 Service Temporarily Unavailable</h1>"), "{answer}");
    assert_eq!(truth(&balancer, 1).await.causes.keys().collect::<Vec<_>>(), ["503 no target"]);
}

#[tokio::test]
async fn a_closed_port_is_502_at_once() {
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = gone.local_addr().expect("an address");
    drop(gone);
    let balancer = standalone(spec(&[("i-1", address)])).await.expect("a balancer").balancer;
    assert_eq!(get(balancer.nodes()[0], "/").await.0, 502);
    let truth = truth(&balancer, 1).await;
    assert_eq!(truth.causes.keys().collect::<Vec<_>>(), ["502 the target refused the connection"]);
    assert_eq!(truth.fail_open, 1, "no check has passed, so it is sent there all the same");
}

#[tokio::test]
async fn a_target_that_closes_with_the_request_outstanding_is_502() {
    let balancer = balancer(&[("i-1", target(Manner::ClosesUnanswered).await)]).await;
    assert_eq!(get(balancer.nodes()[0], "/").await.0, 502);
    assert_eq!(truth(&balancer, 1).await.nowhere, 1);
}

#[tokio::test]
async fn what_is_no_http_is_502() {
    let balancer = balancer(&[("i-1", target(Manner::Answers("HELO\r\n\r\n")).await)]).await;
    assert_eq!(get(balancer.nodes()[0], "/").await.0, 502);
}

#[tokio::test]
async fn a_silent_target_is_504_after_the_idle_timeout() {
    let balancer = balancer(&[("i-1", target(Manner::Silent).await)]).await;
    let began = std::time::Instant::now();
    assert_eq!(get(balancer.nodes()[0], "/").await.0, 504);
    assert!(began.elapsed() >= Duration::from_millis(5900), "60 s of fleet time at speed 10: {:?}", began.elapsed());
}

#[tokio::test]
async fn a_machine_that_is_not_there_is_504_after_the_connect_timeout() {
    let balancer = balancer(&[]).await;
    balancer.with_model(|model| {
        model.register(&"shop".into(), TargetId::from("i-9"), None, None, crate::clock::Stamp::ZERO);
    });
    let began = std::time::Instant::now();
    assert_eq!(get(balancer.nodes()[0], "/").await.0, 504);
    assert!(began.elapsed() >= Duration::from_millis(950), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_body_that_breaks_off_breaks_off() {
    let balancer =
        balancer(&[("i-1", target(Manner::Answers("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")).await)]).await;
    let answer = raw(balancer.nodes()[0], CLOSE).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("half"), "{answer}");
    assert_eq!(truth(&balancer, 1).await.classes.cut_short, 1);
}

#[tokio::test]
async fn a_client_that_goes_away_is_460_and_lost_to_nobody() {
    let balancer = balancer(&[("i-1", target(Manner::Silent).await)]).await;
    let mut stream = TcpStream::connect(balancer.nodes()[0]).await.expect("the node");
    stream.write_all(CLOSE.as_bytes()).await.expect("sent");
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(stream);
    let truth = truth(&balancer, 1).await;
    assert_eq!((truth.classes.client_gone, truth.nowhere), (1, 0));
}

#[tokio::test]
async fn a_request_in_flight_is_cut_when_the_deregistration_delay_is_over() {
    let balancer = balancer(&[("i-1", target(Manner::Silent).await)]).await;
    let node = balancer.nodes()[0];
    let asked = tokio::spawn(async move { get(node, "/").await.0 });
    tokio::time::sleep(Duration::from_millis(100)).await;
    balancer.core.deregister(&"shop".into(), &TargetId::from("i-1"), None);
    let began = std::time::Instant::now();
    assert_eq!(asked.await.expect("asked"), 502);
    assert!(began.elapsed() >= Duration::from_millis(2900), "30 s of fleet time at speed 10: {:?}", began.elapsed());
    assert_eq!(truth(&balancer, 1).await.causes.keys().collect::<Vec<_>>(), ["502 the deregistration delay was over"]);
}

#[tokio::test]
async fn connections_to_a_target_are_kept_and_one_that_was_closed_is_not_used() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let opened = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&opened);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = std::sync::Arc::clone(&count);
            tokio::spawn(async move {
                let (mut buffer, mut answered) = (vec![0; 4096], 0);
                // Two answers, then it closes while idle.
                while answered < 2 {
                    let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
                    if !String::from_utf8_lossy(&buffer[..read]).contains("ELB-HealthChecker") && answered == 0 {
                        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    }
                    drop(stream.write_all(OK.as_bytes()).await);
                    answered += 1;
                }
            });
        }
    });
    let balancer = balancer(&[("i-1", address)]).await;
    for _ in 0..6 {
        assert_eq!(get(balancer.nodes()[0], "/").await.0, 200);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    assert_eq!(opened.load(std::sync::atomic::Ordering::SeqCst), 3);
    assert_eq!(truth(&balancer, 6).await.nowhere, 0);
}

async fn call(balancer: &Balancer, body: &str) -> String {
    let at: SocketAddr = balancer.endpoint().trim_start_matches("http://").parse().expect("an address");
    raw(at, &format!("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
        .await
}

fn arn(answer: &str) -> String {
    let from = answer.find("<TargetGroupArn>").expect("an ARN") + "<TargetGroupArn>".len();
    answer[from..].split('<').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_api_says_what_the_nodes_think() {
    let address = target(Manner::Answers(OK)).await;
    let balancer = balancer(&[("i-1", address)]).await;
    let groups = call(&balancer, "Action=DescribeTargetGroups&Version=2015-12-01&Names.member.1=shop").await;
    assert!(
        groups.starts_with("HTTP/1.1 200") && groups.contains("<HealthCheckPort>traffic-port</HealthCheckPort>"),
        "{groups}"
    );
    let arn = arn(&groups);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let health = call(&balancer, &format!("Action=DescribeTargetHealth&TargetGroupArn={arn}")).await;
    let wanted = "<member><Target><Id>i-1</Id><Port>80</Port></Target><HealthCheckPort>80</HealthCheckPort><TargetHealth><State>healthy</State></TargetHealth>";
    assert!(health.contains(wanted), "{health}");
    let other =
        call(&balancer, &format!("Action=DescribeTargetHealth&TargetGroupArn={arn}&Targets.member.1.Id=i-2")).await;
    assert!(other.contains("<State>unused</State><Reason>Target.NotRegistered</Reason>"), "{other}");
    let unknown = call(&balancer, "Action=DescribeTargetGroups&Names.member.1=other").await;
    assert!(unknown.starts_with("HTTP/1.1 400") && unknown.contains("<Code>TargetGroupNotFound</Code>"), "{unknown}");
}

#[tokio::test]
async fn deregistering_with_the_wrong_port_does_nothing_and_says_nothing() {
    let balancer = balancer(&[("i-1", target(Manner::Answers(OK)).await)]).await;
    let arn = arn(&call(&balancer, "Action=DescribeTargetGroups").await);
    let wrong = call(
        &balancer,
        &format!("Action=DeregisterTargets&TargetGroupArn={arn}&Targets.member.1.Id=i-1&Targets.member.1.Port=81"),
    )
    .await;
    assert!(wrong.starts_with("HTTP/1.1 200"), "{wrong}");
    let health = async || call(&balancer, &format!("Action=DescribeTargetHealth&TargetGroupArn={arn}")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(health().await.contains("<State>healthy</State>"));
    call(&balancer, &format!("Action=DeregisterTargets&TargetGroupArn={arn}&Targets.member.1.Id=i-1")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(health().await.contains("<State>draining</State><Reason>Target.DeregistrationInProgress</Reason>"));
}

#[tokio::test]
async fn settings_change_within_aws_s_own_rules() {
    let balancer = balancer(&[("i-1", target(Manner::Answers(OK)).await)]).await;
    let arn = arn(&call(&balancer, "Action=DescribeTargetGroups").await);
    let modify =
        async |what: &str| call(&balancer, &format!("Action=ModifyTargetGroup&TargetGroupArn={arn}&{what}")).await;
    for (what, message) in [
        (
            "HealthCheckTimeoutSeconds=10&HealthCheckIntervalSeconds=10",
            "Health check timeout &apos;10&apos; must be smaller than the interval &apos;10&apos;",
        ),
        ("Matcher.HttpCode=503", "must be within &apos;200-499&apos; inclusive"),
        ("UnhealthyThresholdCount=1", "must be between 2 and 10"),
    ] {
        let answer = modify(what).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("<Code>ValidationError</Code>"), "{answer}");
        assert!(answer.contains(message) || answer.contains(&message.replace("&apos;", "'")), "{answer}");
    }
    let answer = modify("HealthCheckIntervalSeconds=15&HealthCheckTimeoutSeconds=5&HealthyThresholdCount=3").await;
    assert!(answer.contains("<HealthCheckIntervalSeconds>15</HealthCheckIntervalSeconds>"), "{answer}");
    assert!(balancer.all_healthy(), "what the nodes think stays");
    let key = "load_balancing.cross_zone.enabled";
    let answer = call(&balancer, &format!("Action=ModifyTargetGroupAttributes&TargetGroupArn={arn}&Attributes.member.1.Key={key}&Attributes.member.1.Value=false")).await;
    assert!(answer.contains(&format!("<Key>{key}</Key><Value>false</Value>")), "{answer}");
}

#[tokio::test]
async fn the_api_is_throttled_and_fails_as_ordered() {
    let balancer = balancer(&[]).await;
    let mut throttled = 0;
    for _ in 0..150 {
        throttled += u32::from(
            call(&balancer, "Action=DescribeTargetGroups")
                .await
                .contains("<Code>Throttling</Code><Message>Rate exceeded"),
        );
    }
    assert!(throttled > 0, "40 at once and 100 a second at speed 10");
    for (kind, status, code) in [
        (FaultKind::AccessDenied, 403, "AccessDenied"),
        (FaultKind::ExpiredToken, 403, "ExpiredToken"),
        (FaultKind::HealthUnavailable, 500, "HealthUnavailable"),
    ] {
        balancer.faults().add(Fault { kind, action: None, times: Some(1) });
        let answer = call(&balancer, "Action=DescribeTargetGroups").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(code), "{answer}");
    }
    balancer.faults().add(Fault { kind: FaultKind::Truncated, action: None, times: Some(1) });
    let answer = call(&balancer, "Action=DescribeTargetGroups").await;
    assert!(!answer.contains("</DescribeTargetGroupsResponse>"), "{answer}");
}

#[tokio::test]
async fn the_access_log_has_the_thirty_fields_of_an_alb() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("access.log");
    let spec = StandaloneSpec { access_log: Some(file.clone()), ..spec(&[("i-1", target(Manner::Answers(OK)).await)]) };
    let mut balancer = standalone(spec).await.expect("a balancer").balancer;
    assert!(balancer.wait_healthy(Duration::from_secs(10)).await);
    get(balancer.nodes()[0], "/a?b=c").await;
    truth(&balancer, 1).await;
    balancer.stop();
    let log = std::fs::read_to_string(file).expect("a log");
    let line = log.lines().next().expect("a line");
    let fields = line
        .split('"')
        .enumerate()
        .map(|(at, part)| if at % 2 == 1 { 1 } else { part.split_whitespace().count() })
        .sum::<usize>();
    assert_eq!(fields, 30, "{line}");
    assert!(line.contains(" 200 200 ") && line.contains("\"GET http://shop.example/a?b=c HTTP/1.1\""), "{line}");
}
