//! The words of the project as types: the fleet that deploy.toml describes and what was observed of the real one.

mod duration;
mod gateway;
mod hooks;
mod ids;
mod observed;
mod once;
mod sleep;
mod spec;
mod tenant;
mod watched;

pub use duration::{DurationError, LAST_MOMENT, parse_duration, show_duration, show_moment};
pub use gateway::{
    Backend, CertificateFiles, ClientClass, ExternalMetrics, GatewaySpec, HealthPath, HostName, HostSpec, Network,
    NoHost, Traits,
};
pub use hooks::{Hook, HookSpec, Hooks};
pub use ids::{GroupName, ReleaseId, ServerName, ServiceName, TargetId, TargetRef, Zone};
pub use observed::{
    Absence, Beside, Container, ContainerState, FrontView, GroupAttributes, GroupView, Holder, Known, OverrideState,
    ReleaseOnDisk, ServerFacts, ServerView, Snapshot, TargetReason, TargetState, TargetView, Word, front_name,
};
pub use once::{Once, OnceRecord, OnceState, note as note_once};
pub use sleep::{SleepPlace, SleepSpec};
pub use spec::{
    AdminState, Balancer, BalancerKind, Batch, Counter, Drain, DrainBy, DrainFacts, Fleet, Group, HealthCheck,
    HealthSettings, HoldBy, HostKeys, HttpCall, LockSpec, Measure, NodeCount, OnFailure, OnLoss, ReleaseSpec, Rolling,
    RuntimeSocket, Server, Service, Ssh, TargetSpec, Verify, Watchdog,
};
pub use tenant::{
    AdapterSpec, AlarmSpec, ClientSpec, ClusterSpec, ClusterWorkload, EdgeSpec, Mode, Never, ProbeSpec, PrometheusSpec,
    Shared, Tenant, Tenants, Version, WakerSpec, Workload, WorkloadKind,
};
pub use watched::{LastHeal, WatchdogState, Watched};
