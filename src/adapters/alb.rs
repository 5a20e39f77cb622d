//! The balancer port on the real ELBv2 API: the only module that names the AWS SDK.
//!
//! Our own polling owns every retry: the SDK's would be hidden, and not in fleet time.

mod settings;

use crate::fleet::model::{
    FrontView, GroupName, GroupView, OverrideState, TargetReason, TargetRef, TargetState, TargetView, Word, Zone,
};
use crate::fleet::provision::{At, Change, Order};
use crate::rollout::port::{Balancer, BalancerError};
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_elasticloadbalancingv2::Client;
use aws_sdk_elasticloadbalancingv2::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeDeserializationInterceptorContextMut,
};
use aws_sdk_elasticloadbalancingv2::config::{ConfigBag, Credentials, Intercept, RuntimeComponents};
use aws_sdk_elasticloadbalancingv2::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_elasticloadbalancingv2::types::{TargetDescription, TargetGroup, TargetHealthDescription, TargetTypeEnum};
use aws_smithy_types::body::SdkBody;
use http_body_util::Limited;
use settings::Attributes;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// One try of one question (the SDK has no limit of its own).
const ATTEMPT: Duration = Duration::from_secs(5);
/// One question, everything included: credentials too.
const OPERATION: Duration = Duration::from_secs(15);

/// An account has no more target groups than these pages hold (AWS quotas: 3000 a region).
const PAGES: usize = 20;

/// A group of a thousand targets says less than a megabyte.
const LONGEST: usize = 16 * 1024 * 1024;

/// Codes that say: nothing was learnt, ask again (AWS API reference and user reports; both spellings occur).
const ASK_AGAIN: [&str; 12] = [
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "TooManyRequestsException",
    "RequestLimitExceeded",
    "HealthUnavailable",
    "PriorRequestNotComplete",
    "ServiceUnavailable",
    "InternalFailure",
    "InternalError",
];

/// An Application Load Balancer's API.
#[derive(Debug)]
pub struct Alb {
    client: Client,
    arns: Mutex<BTreeMap<GroupName, String>>,
}

impl Alb {
    /// Connects the way the AWS tools do: environment, profiles, web identity, instance role.
    pub async fn connect(region: Option<&str>, endpoint: Option<&str>) -> Self {
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts());
        if let Some(region) = region {
            loader = loader.region(Region::new(region.to_owned()));
        }
        if let Some(endpoint) = endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        let config =
            aws_sdk_elasticloadbalancingv2::config::Builder::from(&loader.load().await).interceptor(WholeAnswers);
        Self::with(Client::from_conf(config.build()))
    }

    /// Connects to a lab: no credentials of the user's are used, and no proxy.
    #[must_use]
    pub fn lab(endpoint: &str) -> Self {
        #[expect(deprecated, reason = "newer behaviour versions send even loopback through HTTP_PROXY")]
        let behaviour = BehaviorVersion::v2025_01_17();
        let config = aws_sdk_elasticloadbalancingv2::Config::builder()
            .behavior_version(behaviour)
            .region(Region::new("lab-1"))
            .credentials_provider(Credentials::new("lab", "lab", None, None, "lab"))
            .endpoint_url(endpoint)
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts())
            .interceptor(WholeAnswers)
            .build();
        Self::with(Client::from_conf(config))
    }

    fn with(client: Client) -> Self {
        Self { client, arns: Mutex::new(BTreeMap::new()) }
    }

    /// Every target group of the account and region that takes traffic on a port, with that port.
    ///
    /// # Errors
    /// When AWS says no, or nothing.
    pub async fn groups(&self) -> Result<BTreeMap<GroupName, u16>, BalancerError> {
        let (mut found, mut marker) = (BTreeMap::new(), None);
        for _ in 0..PAGES {
            let question = self.client.describe_target_groups().set_marker(marker);
            let answer = question.send().await.map_err(|error| told("DescribeTargetGroups", &error))?;
            for group in answer.target_groups() {
                let port = group.port().and_then(|port| u16::try_from(port).ok());
                found.extend(group.target_group_name().map(GroupName::new).zip(port));
            }
            marker = answer.next_marker().map(ToOwned::to_owned);
            if marker.is_none() {
                break;
            }
        }
        Ok(found)
    }

    async fn group(&self, name: &GroupName) -> Result<TargetGroup, BalancerError> {
        let question = self.client.describe_target_groups();
        let question = if name.as_str().starts_with("arn:") {
            question.target_group_arns(name.as_str())
        } else {
            question.names(name.as_str())
        };
        let answer = question.send().await.map_err(|error| told("DescribeTargetGroups", &error))?;
        let group = answer.target_groups.unwrap_or_default().into_iter().next();
        let group = group
            .ok_or_else(|| BalancerError::Refused(format!("TargetGroupNotFound: there is no target group {name}")))?;
        if let Some(arn) = group.target_group_arn() {
            self.arns().insert(name.clone(), arn.to_owned());
        }
        Ok(group)
    }

    fn arns(&self) -> std::sync::MutexGuard<'_, BTreeMap<GroupName, String>> {
        self.arns.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn arn(&self, name: &GroupName) -> Result<String, BalancerError> {
        if name.as_str().starts_with("arn:") {
            return Ok(name.to_string());
        }
        let known = self.arns().get(name).cloned();
        match known {
            Some(arn) => Ok(arn),
            None => {
                let group = self.group(name).await?;
                group
                    .target_group_arn()
                    .map(ToOwned::to_owned)
                    .ok_or_else(|| BalancerError::Unknown(format!("{name} came without an ARN")))
            }
        }
    }

    async fn register_in(&self, group: &GroupName, targets: Vec<TargetDescription>) -> Result<(), BalancerError> {
        let arn = self.arn(group).await?;
        let order = self.client.register_targets().target_group_arn(arn).set_targets(Some(targets));
        order.send().await.map_err(|error| told("RegisterTargets", &error))?;
        Ok(())
    }

    async fn attributes(&self, arn: &str) -> Result<Attributes, BalancerError> {
        let question = self.client.describe_target_group_attributes().target_group_arn(arn);
        let answer = question.send().await.map_err(|error| told("DescribeTargetGroupAttributes", &error))?;
        Attributes::of_group(answer.attributes())
    }
}

/// Refuses answers that are longer than any, and answers whose XML ends in the middle: the SDK's parser takes them for shorter lists, and a target that is not
/// in the list looks like one that is out.
#[derive(Debug)]
struct WholeAnswers;

impl Intercept for WholeAnswers {
    fn name(&self) -> &'static str {
        "WholeAnswers"
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), aws_sdk_elasticloadbalancingv2::error::BoxError> {
        let body = context.response_mut().body_mut();
        let whole = std::mem::replace(body, SdkBody::taken());
        *body = SdkBody::from_body_1_x(Limited::new(whole, LONGEST));
        Ok(())
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), aws_sdk_elasticloadbalancingv2::error::BoxError> {
        match context.response().body().bytes() {
            Some(body) if !body.trim_ascii_end().ends_with(b"Response>") => Err("the answer ends in the middle".into()),
            _ => Ok(()),
        }
    }
}

fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .operation_attempt_timeout(ATTEMPT)
        .operation_timeout(OPERATION)
        .connect_timeout(ATTEMPT)
        .build()
}

impl Balancer for Alb {
    async fn observe(&self, name: &GroupName) -> Result<GroupView, BalancerError> {
        let group = self.group(name).await?;
        let arn = self.arn(name).await?;
        let attributes = self.attributes(&arn).await?;
        Ok(GroupView {
            id: arn,
            path: group.health_check_path().unwrap_or("/").to_owned(),
            health_port: settings::health_port(name, &group)?,
            settings: settings::health(name, &group)?,
            attributes: attributes.own()?,
            beside: attributes.beside()?,
            fronts: group.load_balancer_arns().to_vec(),
            by_address: group.target_type() == Some(&TargetTypeEnum::Ip),
            word: Word::Merged,
            targets: self.health(name).await?,
            notes: Vec::new(),
        })
    }

    /// The whole group is asked for and matched here: whether a filter without a port finds override ports is not documented.
    async fn health(&self, name: &GroupName) -> Result<Vec<TargetView>, BalancerError> {
        let arn = self.arn(name).await?;
        let answer = self.client.describe_target_health().target_group_arn(arn).send().await;
        let answer = answer.map_err(|error| told("DescribeTargetHealth", &error))?;
        answer.target_health_descriptions().iter().map(view).collect()
    }

    /// The way back into rotation: a group that refuses does not keep the others from being registered.
    async fn register(&self, targets: &[TargetRef]) -> Result<(), BalancerError> {
        let mut worst = Ok(());
        for (group, targets) in by_group(targets) {
            let registered = self.register_in(&group, targets).await;
            if registered.is_err() && (worst.is_ok() || matches!(registered, Err(BalancerError::Refused(_)))) {
                worst = registered;
            }
        }
        worst
    }

    /// Always with the port: without it a registration at another port is silently left alone (user reports).
    async fn deregister(&self, targets: &[TargetRef]) -> Result<(), BalancerError> {
        for (group, targets) in by_group(targets) {
            let arn = self.arn(&group).await?;
            let order = self.client.deregister_targets().target_group_arn(arn).set_targets(Some(targets));
            order.send().await.map_err(|error| told("DeregisterTargets", &error))?;
        }
        Ok(())
    }

    async fn front(&self, id: &str) -> Result<FrontView, BalancerError> {
        let question = self.client.describe_load_balancer_attributes().load_balancer_arn(id);
        let answer = question.send().await.map_err(|error| told("DescribeLoadBalancerAttributes", &error))?;
        Attributes::of_front(answer.attributes())?.front(id)
    }

    async fn apply(&self, change: &Change) -> Result<(), BalancerError> {
        let arn = match &change.at {
            At::Group(name) => self.arn(name).await?,
            At::Front(id) => id.clone(),
        };
        match change.order {
            Order::Health => {
                let order = settings::health_order(self.client.modify_target_group().target_group_arn(arn), change)?;
                order.send().await.map_err(|error| told("ModifyTargetGroup", &error))?;
            }
            Order::Attributes => {
                let order = self.client.modify_target_group_attributes().target_group_arn(arn);
                let order = order.set_attributes(Some(settings::group_attributes(change)));
                order.send().await.map_err(|error| told("ModifyTargetGroupAttributes", &error))?;
            }
            Order::Front => {
                let order = self.client.modify_load_balancer_attributes().load_balancer_arn(arn);
                let order = order.set_attributes(Some(settings::front_attributes(change)));
                order.send().await.map_err(|error| told("ModifyLoadBalancerAttributes", &error))?;
            }
        }
        Ok(())
    }
}

fn by_group(targets: &[TargetRef]) -> BTreeMap<GroupName, Vec<TargetDescription>> {
    let mut groups: BTreeMap<GroupName, Vec<TargetDescription>> = BTreeMap::new();
    for target in targets {
        let description = TargetDescription::builder().id(target.id.as_str()).port(i32::from(target.port)).build();
        groups.entry(target.group.clone()).or_default().push(description);
    }
    groups
}

/// Turns an SDK error into *unknown* or *refused*: what is not known to be final is unknown.
fn told<E, R>(operation: &str, error: &SdkError<E, R>) -> BalancerError
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug,
{
    let metadata = error.as_service_error().map(ProvideErrorMetadata::meta);
    if let Some(code) = metadata.and_then(|meta| meta.code()) {
        let message = metadata.and_then(|meta| meta.message()).unwrap_or("no message");
        let text = format!("{operation}: {code}: {message}");
        return if ASK_AGAIN.contains(&code) { BalancerError::Unknown(text) } else { BalancerError::Refused(text) };
    }
    let text = format!("{operation}: {}", DisplayErrorContext(error));
    let hopeless = matches!(error, SdkError::ConstructionFailure(_))
        || text.contains("no providers in chain provided credentials");
    if hopeless { BalancerError::Refused(first_causes(&text)) } else { BalancerError::Unknown(first_causes(&text)) }
}

/// The SDK's whole debug output does not help anybody: its sentences do.
fn first_causes(text: &str) -> String {
    text.split(" (").next().unwrap_or(text).chars().take(400).collect()
}

fn view(description: &TargetHealthDescription) -> Result<TargetView, BalancerError> {
    let incomplete = || BalancerError::Unknown("a target came without its id, port or state".into());
    let target = description.target().ok_or_else(incomplete)?;
    let health = description.target_health().ok_or_else(incomplete)?;
    let port = target.port().and_then(|port| u16::try_from(port).ok()).ok_or_else(incomplete)?;
    Ok(TargetView {
        id: target.id().ok_or_else(incomplete)?.into(),
        port,
        zone: target.availability_zone().filter(|zone| *zone != "all").map(Zone::from),
        state: state(health.state().ok_or_else(incomplete)?.as_str()),
        reason: health.reason().map(|reason| self::reason(reason.as_str())),
        description: health.description().map(ToOwned::to_owned),
        shift: description
            .administrative_override()
            .and_then(|o| o.state())
            .map_or(OverrideState::None, |s| shift(s.as_str())),
    })
}

/// Compared as text: the SDK knows new words later than AWS does.
fn state(word: &str) -> TargetState {
    match word {
        "initial" => TargetState::Initial,
        "healthy" => TargetState::Healthy,
        "unhealthy" => TargetState::Unhealthy,
        "unused" => TargetState::Unused,
        "draining" => TargetState::Draining,
        "unavailable" => TargetState::Unavailable,
        other => TargetState::Other(other.to_owned()),
    }
}

fn reason(word: &str) -> TargetReason {
    match word {
        "Target.ResponseCodeMismatch" => TargetReason::ResponseCodeMismatch,
        "Target.Timeout" => TargetReason::Timeout,
        "Target.FailedHealthChecks" => TargetReason::FailedHealthChecks,
        other => TargetReason::Other(other.to_owned()),
    }
}

/// `unknown` is the service's word for "no shift is known"; only an active one takes traffic away.
fn shift(word: &str) -> OverrideState {
    if word.starts_with("zonal_shift") { OverrideState::Shifted(word.to_owned()) } else { OverrideState::None }
}
