//! What AWS must allow each command. One table; a test compares it with what the commands really ask a balancer.

use crate::fleet::model::{DrainBy, Fleet, GroupName};
use serde_json::{Value, json};

/// A command that speaks to the balancer. `verify`, `lock`, `measure` and `rehearse` do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Command {
    /// `handover plan`.
    Plan,
    /// `handover check --live`.
    CheckLive,
    /// `handover deploy`.
    Deploy,
    /// `handover provision`.
    Provision,
    /// `handover provision --apply`.
    ProvisionApply,
}

impl Command {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Plan, Self::CheckLive, Self::Deploy, Self::Provision, Self::ProvisionApply];

    /// As one types it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::CheckLive => "check --live",
            Self::Deploy => "deploy",
            Self::Provision => "provision",
            Self::ProvisionApply => "provision --apply",
        }
    }
}

/// What an action is about, which says which resources it can be held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// It only reads; AWS knows no resource for it.
    Reading,
    /// A target group.
    Group,
    /// A load balancer.
    Front,
}

use Command::{CheckLive, Deploy, Plan, Provision, ProvisionApply};

/// Every action, what it is about, and who needs it.
const ACTIONS: [(&str, About, &[Command]); 9] = [
    ("DescribeTargetGroups", About::Reading, &Command::ALL),
    ("DescribeTargetGroupAttributes", About::Reading, &Command::ALL),
    ("DescribeTargetHealth", About::Reading, &[Plan, CheckLive, Deploy, Provision, ProvisionApply]),
    ("DescribeLoadBalancerAttributes", About::Reading, &[CheckLive, Provision, ProvisionApply]),
    ("RegisterTargets", About::Group, &[Deploy]),
    ("DeregisterTargets", About::Group, &[Deploy]),
    ("ModifyTargetGroup", About::Group, &[ProvisionApply]),
    ("ModifyTargetGroupAttributes", About::Group, &[ProvisionApply]),
    ("ModifyLoadBalancerAttributes", About::Front, &[ProvisionApply]),
];

/// The actions that a command needs for this fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// They only read.
    pub reads: Vec<&'static str>,
    /// They change target groups.
    pub groups: Vec<&'static str>,
    /// They change load balancers.
    pub fronts: Vec<&'static str>,
}

/// What a command needs; `idle_timeout` says whether the file names `balancer.idle_timeout`.
#[must_use]
pub fn needs(fleet: &Fleet, command: Command, idle_timeout: bool) -> Needs {
    let of = |about: About| {
        let own = ACTIONS.iter().filter(|(_, of, commands)| *of == about && commands.contains(&command));
        own.map(|(action, ..)| *action).filter(|action| is_used(action, fleet, idle_timeout)).collect()
    };
    Needs { reads: of(About::Reading), groups: of(About::Group), fronts: of(About::Front) }
}

fn is_used(action: &str, fleet: &Fleet, idle_timeout: bool) -> bool {
    match action {
        "RegisterTargets" | "DeregisterTargets" => fleet.drain.by == DrainBy::Deregister,
        "ModifyLoadBalancerAttributes" => idle_timeout,
        _ => true,
    }
}

/// The IAM policy of a command.
#[must_use]
pub fn policy(fleet: &Fleet, command: Command, idle_timeout: bool) -> Value {
    let needs = needs(fleet, command, idle_timeout);
    let actions = |names: &[&str]| names.iter().map(|name| format!("elasticloadbalancing:{name}")).collect::<Vec<_>>();
    let mut statements = vec![json!({
        "Sid": "HandoverReads", "Effect": "Allow", "Action": actions(&needs.reads), "Resource": "*",
    })];
    let region = fleet.balancer.region.as_deref().unwrap_or("*");
    if !needs.groups.is_empty() {
        let groups: Vec<String> = fleet.balancer.groups.iter().map(|group| arn(&group.name, region)).collect();
        statements.push(json!({
            "Sid": "HandoverChangesGroups", "Effect": "Allow", "Action": actions(&needs.groups), "Resource": groups,
        }));
    }
    if !needs.fronts.is_empty() {
        let every = format!("arn:{}:elasticloadbalancing:{region}:*:loadbalancer/app/*", partition(region));
        statements.push(json!({
            "Sid": "HandoverChangesLoadBalancers", "Effect": "Allow", "Action": actions(&needs.fronts), "Resource": every,
        }));
    }
    json!({"Version": "2012-10-17", "Statement": statements})
}

/// A group that is called by its name has an ARN whose end AWS chose.
fn arn(group: &GroupName, region: &str) -> String {
    let name = group.as_str();
    if name.starts_with("arn:") {
        return name.to_owned();
    }
    format!("arn:{}:elasticloadbalancing:{region}:*:targetgroup/{name}/*", partition(region))
}

/// AWS's own worlds (AWS general reference: ARNs).
fn partition(region: &str) -> &'static str {
    match region {
        region if region.starts_with("cn-") => "aws-cn",
        region if region.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    }
}
