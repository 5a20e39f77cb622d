//! The gateway in the cluster: what it reads, its pods, how it is reached, and how the HPA comes to ask it.
//!
//! Its certificate is cert-manager's; whom it must be asked by is the cluster's own, in a ConfigMap that docs/kubernetes.md says how to make.

use super::super::yaml::{self, Yaml, map, text, texts};
use super::{NotRendered, WRITTEN, time};
use crate::fleet::model::{Tenant, Tenants, WakerSpec};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

/// What its objects are called.
const NAME: &str = "handover-gateway";
/// Where it listens: for clients, for Prometheus, for the API server.
const PORTS: [(&str, u64); 3] = [("http", 8000), ("metrics", 9180), ("api", 6443)];
/// The ConfigMap with the front proxy's authority.
const FRONT_PROXY: &str = "handover-front-proxy-ca";
/// An answer after the hold.
const TO_ANSWER: Duration = Duration::from_secs(30);
/// For a pod to end after its gateway has ended.
const TO_END: Duration = Duration::from_secs(10);

/// Whether the gateway wakes by itself what it holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wakes {
    /// It does.
    Itself,
    /// Its HPA alone does.
    ByHpa,
}

impl From<bool> for Wakes {
    fn from(itself: bool) -> Self {
        if itself { Self::Itself } else { Self::ByHpa }
    }
}

/// Where Prometheus asks it.
pub(super) fn metrics(tenants: &Tenants) -> String {
    format!("{NAME}.{}.svc:{}", tenants.shared.waker.namespace, PORTS[1].1)
}

/// All of its objects.
pub(super) fn manifests(tenants: &Tenants, wakes: Wakes) -> Result<String, NotRendered> {
    let waker = &tenants.shared.waker;
    let image = waker.image.as_deref().ok_or(NotRendered::NoImage)?;
    if let Some(tenant) = tenants.tenants.iter().find(|tenant| tenant.tls) {
        return Err(NotRendered::NoAuthority(tenant.name.clone()));
    }
    let mut documents = vec![
        map([
            ("apiVersion", text("v1")),
            ("kind", text("Namespace")),
            ("metadata", map([("name", text(waker.namespace.as_str()))])),
        ]),
        map([("apiVersion", text("v1")), ("kind", text("ServiceAccount")), ("metadata", metadata(waker))]),
        map([
            ("apiVersion", text("v1")),
            ("kind", text("ConfigMap")),
            ("metadata", metadata(waker)),
            ("data", Yaml::Named(vec![("gateway.toml".to_owned(), text(configuration(tenants, wakes)))])),
        ]),
        issuer(waker),
        certificate(waker),
        deployment(waker, image, stop(tenants), wakes),
        service(waker),
        api_service(waker),
        role(),
        binding(),
    ];
    if wakes == Wakes::Itself {
        documents.extend(tenants.tenants.iter().flat_map(|tenant| scales(waker, tenant)));
    }
    let comment = format!(
        "{WRITTEN}\nOne gateway asks for the backends that it holds requests for; of two, the HPA would ask only one at a time."
    );
    Ok(yaml::file(&comment, &documents))
}

/// How long a stop waits: for the longest hold, and the answer after it.
fn stop(tenants: &Tenants) -> Duration {
    tenants.tenants.iter().map(|tenant| tenant.hold).max().unwrap_or_default() + TO_ANSWER
}

fn labels() -> Yaml {
    Yaml::Named(vec![
        ("app.kubernetes.io/managed-by".to_owned(), text("handover")),
        ("app.kubernetes.io/name".to_owned(), text(NAME)),
    ])
}

fn metadata(waker: &WakerSpec) -> Yaml {
    map([("name", text(NAME)), ("namespace", text(waker.namespace.as_str())), ("labels", labels())])
}

/// `gateway.toml`.
fn configuration(tenants: &Tenants, wakes: Wakes) -> String {
    let waker = &tenants.shared.waker;
    let list = |all: Vec<String>| {
        let all: Vec<String> = all.into_iter().map(|one| format!("\"{one}\"")).collect();
        format!("[{}]", all.join(", "))
    };
    let mut out = format!(
        "[gateway]\nlisten = \"0.0.0.0:{}\"\nmetrics = \"0.0.0.0:{}\"\nwatch = \"10s\"\nshutdown = \"{}\"\n",
        PORTS[0].1,
        PORTS[1].1,
        time(stop(tenants)),
    );
    if !waker.trusted_proxies.is_empty() {
        let all = waker.trusted_proxies.iter().map(ToString::to_string).collect();
        let _ = writeln!(out, "trusted_proxies = {}", list(all));
    }
    let _ = write!(
        out,
        "\n[gateway.external_metrics]\nlisten = \"0.0.0.0:{}\"\ncert = \"/etc/handover/tls/tls.crt\"\nkey = \"/etc/handover/tls/tls.key\"\nclient_ca = \"/etc/handover/front-proxy/ca.crt\"\nlatch = \"{}\"\n",
        PORTS[2].1,
        time(waker.latch),
    );
    tenants.tenants.iter().for_each(|tenant| host(waker, tenant, wakes, &list, &mut out));
    let paths: BTreeSet<&str> =
        tenants.tenants.iter().flat_map(|tenant| &tenant.probes).map(|probe| probe.path.as_str()).collect();
    for path in paths {
        let _ = write!(out, "\n[[gateway.probe]]\npath = \"{path}\"\n");
    }
    out
}

fn host(waker: &WakerSpec, tenant: &Tenant, wakes: Wakes, list: &impl Fn(Vec<String>) -> String, out: &mut String) {
    let mut names = tenant.hosts.iter().map(ToString::to_string);
    let _ = write!(
        out,
        "\n[[gateway.host]]\nname = \"{}\"\naliases = {}\nbackend = \"http://{}.{}.svc:{}\"\nhold = \"{}\"\nconnect_interval = \"{}\"\nconnect_timeout = \"{}\"\n",
        names.next().unwrap_or_default(),
        list(names.collect()),
        tenant.service,
        tenant.namespace,
        tenant.port,
        time(tenant.hold),
        time(waker.interval),
        time(waker.connect),
    );
    if wakes == Wakes::Itself && tenant.sleep {
        let _ = writeln!(out, "workload = \"{}/{}\"", tenant.namespace, tenant.workload);
    }
    if let Some(allow) = tenant.allow.as_ref().filter(|allow| !allow.is_empty()) {
        let _ = writeln!(out, "allow = {}", list(allow.iter().map(ToString::to_string).collect()));
    }
}

fn issuer(waker: &WakerSpec) -> Yaml {
    map([
        ("apiVersion", text("cert-manager.io/v1")),
        ("kind", text("Issuer")),
        ("metadata", metadata(waker)),
        ("spec", map([("selfSigned", map([]))])),
    ])
}

fn certificate(waker: &WakerSpec) -> Yaml {
    let spec = map([
        ("secretName", text(NAME)),
        ("dnsNames", texts([format!("{NAME}.{}.svc", waker.namespace)])),
        ("issuerRef", map([("kind", text("Issuer")), ("name", text(NAME))])),
    ]);
    map([
        ("apiVersion", text("cert-manager.io/v1")),
        ("kind", text("Certificate")),
        ("metadata", metadata(waker)),
        ("spec", spec),
    ])
}

fn deployment(waker: &WakerSpec, image: &str, stop: Duration, wakes: Wakes) -> Yaml {
    let port = |(name, port): &(&str, u64)| map([("name", text(*name)), ("containerPort", Yaml::Whole(*port))]);
    let mount =
        |name: &str, path: &str| map([("name", text(name)), ("mountPath", text(path)), ("readOnly", Yaml::Flag(true))]);
    let security = map([
        ("allowPrivilegeEscalation", Yaml::Flag(false)),
        ("readOnlyRootFilesystem", Yaml::Flag(true)),
        ("runAsNonRoot", Yaml::Flag(true)),
        ("capabilities", map([("drop", texts(["ALL"]))])),
    ]);
    let container = map([
        ("name", text("gateway")),
        ("image", text(image)),
        ("args", texts(["gateway", "-c", "/etc/handover/config/gateway.toml"])),
        ("ports", Yaml::List(PORTS.iter().map(port).collect())),
        ("readinessProbe", map([("tcpSocket", map([("port", text("http"))])), ("periodSeconds", Yaml::Whole(2))])),
        ("securityContext", security),
        (
            "volumeMounts",
            Yaml::List(vec![
                mount("config", "/etc/handover/config"),
                mount("tls", "/etc/handover/tls"),
                mount("front-proxy", "/etc/handover/front-proxy"),
            ]),
        ),
    ]);
    let of_map = |name: &str, of: &str| map([("name", text(name)), ("configMap", map([("name", text(of))]))]);
    let secret = map([("name", text("tls")), ("secret", map([("secretName", text(NAME))]))]);
    let pod = map([
        ("serviceAccountName", text(NAME)),
        ("automountServiceAccountToken", Yaml::Flag(wakes == Wakes::Itself)),
        ("terminationGracePeriodSeconds", Yaml::Whole((stop + TO_END).as_secs())),
        ("containers", Yaml::List(vec![container])),
        ("volumes", Yaml::List(vec![of_map("config", NAME), secret, of_map("front-proxy", FRONT_PROXY)])),
    ]);
    let rolling = map([("maxSurge", Yaml::Whole(1)), ("maxUnavailable", Yaml::Whole(0))]);
    let spec = map([
        ("selector", map([("matchLabels", Yaml::Named(vec![("app.kubernetes.io/name".to_owned(), text(NAME))]))])),
        ("strategy", map([("type", text("RollingUpdate")), ("rollingUpdate", rolling)])),
        ("template", map([("metadata", map([("labels", labels())])), ("spec", pod)])),
    ]);
    map([("apiVersion", text("apps/v1")), ("kind", text("Deployment")), ("metadata", metadata(waker)), ("spec", spec)])
}

fn service(waker: &WakerSpec) -> Yaml {
    let port = |(name, port): &(&str, u64)| {
        let outside = match *name {
            "http" => 80,
            "api" => 443,
            _ => *port,
        };
        map([("name", text(*name)), ("port", Yaml::Whole(outside)), ("targetPort", text(*name))])
    };
    let spec = map([
        ("selector", Yaml::Named(vec![("app.kubernetes.io/name".to_owned(), text(NAME))])),
        ("ports", Yaml::List(PORTS.iter().map(port).collect())),
    ]);
    map([("apiVersion", text("v1")), ("kind", text("Service")), ("metadata", metadata(waker)), ("spec", spec)])
}

/// A cluster has one provider of this API: applied beside another one, the later wins.
fn api_service(waker: &WakerSpec) -> Yaml {
    let inject = format!("{}/{NAME}", waker.namespace);
    let annotations = Yaml::Named(vec![("cert-manager.io/inject-ca-from".to_owned(), text(inject))]);
    let metadata =
        map([("name", text("v1beta1.external.metrics.k8s.io")), ("labels", labels()), ("annotations", annotations)]);
    let service =
        map([("name", text(NAME)), ("namespace", text(waker.namespace.as_str())), ("port", Yaml::Whole(443))]);
    let spec = map([
        ("group", text("external.metrics.k8s.io")),
        ("version", text("v1beta1")),
        ("groupPriorityMinimum", Yaml::Whole(100)),
        ("versionPriority", Yaml::Whole(100)),
        ("service", service),
    ]);
    map([
        ("apiVersion", text("apiregistration.k8s.io/v1")),
        ("kind", text("APIService")),
        ("metadata", metadata),
        ("spec", spec),
    ])
}

fn role() -> Yaml {
    let rule = map([
        ("apiGroups", texts(["external.metrics.k8s.io"])),
        ("resources", texts(["*"])),
        ("verbs", texts(["get", "list"])),
    ]);
    map([
        ("apiVersion", text("rbac.authorization.k8s.io/v1")),
        ("kind", text("ClusterRole")),
        ("metadata", map([("name", text("handover-external-metrics")), ("labels", labels())])),
        ("rules", Yaml::List(vec![rule])),
    ])
}

fn binding() -> Yaml {
    let subject = map([
        ("kind", text("ServiceAccount")),
        ("name", text("horizontal-pod-autoscaler")),
        ("namespace", text("kube-system")),
    ]);
    let role = map([
        ("apiGroup", text("rbac.authorization.k8s.io")),
        ("kind", text("ClusterRole")),
        ("name", text("handover-external-metrics")),
    ]);
    map([
        ("apiVersion", text("rbac.authorization.k8s.io/v1")),
        ("kind", text("ClusterRoleBinding")),
        ("metadata", map([("name", text("handover-external-metrics")), ("labels", labels())])),
        ("subjects", Yaml::List(vec![subject])),
        ("roleRef", role),
    ])
}

/// The right to read and set the number of pods of one workload, and nothing else of its namespace.
fn scales(waker: &WakerSpec, tenant: &Tenant) -> [Yaml; 2] {
    let metadata = || {
        map([
            ("name", text(format!("handover-wake-{}", tenant.name))),
            ("namespace", text(tenant.namespace.as_str())),
            ("labels", labels()),
        ])
    };
    let rule = map([
        ("apiGroups", texts(["apps"])),
        ("resources", texts([format!("{}s/scale", tenant.workload.kind.word())])),
        ("resourceNames", texts([tenant.workload.name.as_str()])),
        ("verbs", texts(["get", "update"])),
    ]);
    let subject =
        map([("kind", text("ServiceAccount")), ("name", text(NAME)), ("namespace", text(waker.namespace.as_str()))]);
    let role = map([
        ("apiGroup", text("rbac.authorization.k8s.io")),
        ("kind", text("Role")),
        ("name", text(format!("handover-wake-{}", tenant.name))),
    ]);
    [
        map([
            ("apiVersion", text("rbac.authorization.k8s.io/v1")),
            ("kind", text("Role")),
            ("metadata", metadata()),
            ("rules", Yaml::List(vec![rule])),
        ]),
        map([
            ("apiVersion", text("rbac.authorization.k8s.io/v1")),
            ("kind", text("RoleBinding")),
            ("metadata", metadata()),
            ("subjects", Yaml::List(vec![subject])),
            ("roleRef", role),
        ]),
    ]
}
