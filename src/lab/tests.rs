//! What the lab's own tests share.

use crate::config;
use crate::fleet::model::Fleet;

/// Three servers in two zones behind one group, with short checks.
pub(super) const DEPLOY: &str = r#"
app = "shop"

[release]
compose = "compose.yaml"
dir     = "/opt/shop"

[balancer]
kind     = "alb"
region   = "eu-central-1"
endpoint = "http://127.0.0.1:1"

[[balancer.group]]
name   = "shop-api"
port   = 8080
health = { path = "/health", interval = "5s", timeout = "2s", unhealthy = 2, healthy = 2 }
deregistration_delay = "30s"

[drain]
by   = "file"
file = "/run/shop/drain"
real = "http://127.0.0.1:8080/version"

[[service]]
name   = "api"
group  = "shop-api"
verify = { http = "http://127.0.0.1:8080/version", json = { version = "{release}" } }

[[service]]
name   = "worker"
verify = { exec = ["worker", "--self-check"] }

[[server]]
name   = "web-1"
ssh    = "web-1"
target = "i-0a1b2c3d4e5f60718"
zone   = "a"

[[server]]
name   = "web-2"
ssh    = "web-2"
target = "i-0b2c3d4e5f6071829"
zone   = "b"

[measure]
url  = "https://shop.example/version"
rate = 20
"#;

/// It, as a fleet.
pub(super) fn fleet() -> Fleet {
    let source = config::Source::new("deploy.toml", DEPLOY);
    config::from_sources(&source, None).unwrap_or_else(|problems| panic!("{problems:?}")).fleet
}
