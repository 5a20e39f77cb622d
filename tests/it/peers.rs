//! Our client against an ELBv2 API by somebody else; `tests/peers/run.sh` starts it and prepares a group.

use handover::adapters::alb::Alb;
use handover::fleet::model::{GroupName, TargetRef};
use handover::rollout::port::{Balancer, BalancerError};
use std::time::Duration;

#[tokio::test]
#[ignore = "needs moto, which tests/peers/run.sh starts"]
async fn our_client_reads_what_moto_answers() {
    let endpoint = std::env::var("HANDOVER_MOTO").expect("tests/peers/run.sh sets it");
    let alb = Alb::connect(Some("eu-central-1"), Some(&endpoint)).await;
    let group = GroupName::new("peers");
    let view = alb.observe(&group).await.expect("a group");
    assert_eq!(
        (view.path.as_str(), view.settings.interval, view.settings.unhealthy),
        ("/health", Duration::from_secs(5), 2)
    );
    assert!(view.attributes.cross_zone && view.attributes.fail_open_count == 1);
    let target = view.targets.first().expect("a target").clone();
    let target = TargetRef { group: group.clone(), id: target.id, port: target.port };
    alb.deregister(std::slice::from_ref(&target)).await.expect("deregistered");
    alb.register(std::slice::from_ref(&target)).await.expect("registered");
    assert!(alb.health(&group).await.expect("health").iter().any(|view| view.id == target.id));
    let by_arn = alb.observe(&GroupName::new(view.id.clone())).await.expect("by ARN");
    assert_eq!(by_arn.id, view.id);
    let missing = alb.observe(&GroupName::new("nobody")).await.expect_err("no such group");
    assert!(matches!(&missing, BalancerError::Refused(text) if text.contains("TargetGroupNotFound")), "{missing:?}");
}
