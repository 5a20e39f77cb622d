//! The gateway as its tables describe it, after validation; and the two values that its keys and its requests share: a host's
//! name and a network.

use super::sleep::{SleepPlace, SleepSpec};
use super::tenant::ClusterWorkload;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// `[gateway]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewaySpec {
    /// Where plain HTTP is spoken.
    pub listen: Vec<SocketAddr>,
    /// Where TLS is spoken.
    pub listen_tls: Vec<SocketAddr>,
    /// What is shown there.
    pub certificates: Vec<CertificateFiles>,
    /// Where `/metrics` is answered.
    pub metrics: SocketAddr,
    /// Where the HPA of a cluster reads.
    pub external_metrics: Option<ExternalMetrics>,
    /// Through whom alone a client's address is read from a header.
    pub trusted_proxies: Vec<Network>,
    /// How many requests are held in all.
    pub held: usize,
    /// How many connections of clients are kept.
    pub connections: usize,
    /// How long a request's head may take.
    pub head_timeout: Duration,
    /// How long an idle connection is kept.
    pub keep_alive: Duration,
    /// How long a client may send nothing of a body that it began.
    pub body_timeout: Duration,
    /// How long a client may take nothing of an answer.
    pub send_timeout: Duration,
    /// How long a request's head may be.
    pub head_bytes: usize,
    /// While this file is there, health says 503.
    pub drain_file: Option<String>,
    /// While this file is there, every request waits.
    pub hold_file: Option<String>,
    /// The socket at which a successor asks for the listeners.
    pub control: Option<String>,
    /// How long a stop waits for what runs.
    pub shutdown: Duration,
    /// How long a process that handed over waits for what runs.
    pub finish: Duration,
    /// How many threads serve.
    pub workers: Option<usize>,
    /// How often the file is looked at for changes.
    pub watch: Option<Duration>,
    /// Where those who sleep are found; `None` where nobody does.
    pub sleep: Option<SleepPlace>,
    /// Whom requests are for.
    pub hosts: Vec<HostSpec>,
    /// The health checks that are answered here.
    pub health: Vec<HealthPath>,
    /// How monitoring is recognised.
    pub probes: Vec<Traits>,
}

/// `[gateway.external_metrics]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalMetrics {
    /// Where it is asked, over TLS.
    pub listen: SocketAddr,
    /// What is shown there.
    pub certificate: CertificateFiles,
    /// Whose certificate must be shown to it.
    pub client_ca: String,
    /// For how long a request that is over is shown.
    pub latch: Duration,
}

/// `[[gateway.certificate]]`: two PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateFiles {
    /// The chain, the server's own certificate first.
    pub cert: String,
    /// Its key.
    pub key: String,
}

/// `[[gateway.host]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSpec {
    /// What it is called, and the label of its metrics.
    pub name: HostName,
    /// What else it is called.
    pub aliases: Vec<HostName>,
    /// Who answers.
    pub backend: Backend,
    /// Whose certificates its TLS must verify against; without it the machine's own.
    pub ca: Option<String>,
    /// How long a request waits for it.
    pub hold: Duration,
    /// How many wait at a time.
    pub held: usize,
    /// Who may ask; `None` is everybody.
    pub allow: Option<Vec<Network>>,
    /// Between two looks whether an absent backend accepts again.
    pub connect_interval: Duration,
    /// How long a connection to it may take.
    pub connect_timeout: Duration,
    /// How long it may take to begin an answer.
    pub answer_timeout: Option<Duration>,
    /// How long a request's body may be.
    pub body_bytes: Option<u64>,
    /// For how long an idle connection to it is used again.
    pub reuse: Duration,
    /// The page for browsers while it is absent.
    pub waiting_page: Option<String>,
    /// Clients that wait shorter or longer than others.
    pub classes: Vec<ClientClass>,
    /// How it sleeps, if it may.
    pub sleep: Option<SleepSpec>,
    /// What is woken in a cluster.
    pub workload: Option<ClusterWorkload>,
}

/// Where a backend listens and what it speaks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Backend {
    /// Whether it speaks TLS.
    pub tls: bool,
    /// Whether it speaks HTTP/2.
    pub http2: bool,
    /// Its name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// `[[gateway.host.class]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientClass {
    /// Whom it means.
    pub of: Traits,
    /// How long they wait at most.
    pub hold: Duration,
}

/// What a request is recognised by: everything that is said must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Traits {
    /// The path, without its query; one that ends with `*` means everything below.
    pub path: Option<String>,
    /// A part of the user agent, in whatever letters.
    pub user_agent: Option<String>,
    /// Where it comes from.
    pub source: Vec<Network>,
}

impl Traits {
    /// Whether a request has them all.
    #[must_use]
    pub fn meet(&self, path: &str, user_agent: &[u8], client: IpAddr) -> bool {
        let path_fits = self.path.as_deref().is_none_or(|wanted| match wanted.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == wanted,
        });
        let agent_fits = self.user_agent.as_deref().is_none_or(|wanted| {
            let wanted = wanted.as_bytes();
            user_agent.windows(wanted.len().max(1)).any(|part| part.eq_ignore_ascii_case(wanted))
        });
        path_fits && agent_fits && (self.source.is_empty() || self.source.iter().any(|network| network.holds(client)))
    }
}

/// `[[gateway.health]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthPath {
    /// What the balancer asks for.
    pub path: String,
    /// The group whose check it is.
    pub group: Option<String>,
    /// While this file is there, this check says 503.
    pub drain_file: Option<String>,
}

/// A host as it is compared: small letters, ASCII, no port, no dot at the end, addresses in their shortest form.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostName(String);

/// Why a text is no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no host name or address, with or without a port")]
pub struct NoHost;

impl HostName {
    /// Reads what stands in a `Host` header or a URL's authority: any case, a port, a dot at the end, any script, IPv6 in brackets.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, NoHost> {
        if let Some(rest) = text.strip_prefix('[') {
            let (address, after) = rest.split_once(']').ok_or(NoHost)?;
            let address: Ipv6Addr = address.parse().map_err(|_| NoHost)?;
            match after.strip_prefix(':') {
                Some(port) => check_port(port)?,
                None if after.is_empty() => {}
                None => return Err(NoHost),
            }
            return Ok(Self(format!("[{address}]")));
        }
        let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
        port.map_or(Ok(()), check_port)?;
        let name = name.strip_suffix('.').unwrap_or(name);
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.' || b == b'_';
        let ascii = if name.bytes().all(plain) && !name.contains("xn--") {
            name.to_owned()
        } else {
            // Underscores are no part of IDNA, but of many an internal name.
            let read = if name.is_ascii() { Ok(name.to_ascii_lowercase()) } else { idna::domain_to_ascii(name) };
            read.map_err(|_| NoHost)?
        };
        let label_fits = |label: &str| !label.is_empty() && label.len() <= 63 && label.bytes().all(plain);
        if ascii.len() > 253 || !ascii.split('.').all(label_fits) {
            return Err(NoHost);
        }
        Ok(Self(ascii))
    }

    /// As it is compared and shown.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl HostName {
    /// The value of a label that Kubernetes takes in a selector: the name as it is, or a digest of it where it is longer than 63 letters or has
    /// others than `[a-z0-9.-]` in it.
    #[must_use]
    pub fn label(&self) -> String {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let text = &self.0;
        if text.len() <= 63 && text.chars().all(plain) && ends(text.chars().next()) && ends(text.chars().last()) {
            return text.clone();
        }
        let digest: String = Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("host-{digest}")
    }
}

/// RFC 3986 lets the port be empty.
fn check_port(port: &str) -> Result<(), NoHost> {
    let fine = port.bytes().all(|b| b.is_ascii_digit()) && (port.is_empty() || port.parse::<u16>().is_ok());
    if fine { Ok(()) } else { Err(NoHost) }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Addresses that begin alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    first: IpAddr,
    bits: u8,
}

impl Network {
    /// Reads `10.0.0.0/16`, `fd00::/8` or a single address.
    ///
    /// # Errors
    /// A sentence why it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let first: IpAddr =
            address.parse().map_err(|_| "write it as `10.0.0.0/16`, `fd00::/8` or one address".to_owned())?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(text) => text
                .parse()
                .ok()
                .filter(|bits| *bits <= most && text.bytes().all(|b| b.is_ascii_digit()))
                .ok_or_else(|| format!("after the `/` stands a number from 0 to {most}"))?,
        };
        let network = Self { first, bits };
        if network.cut(first) != bits_of(first) {
            return Err(format!("it has bits beyond its first {bits}: write `{}/{bits}`", network.start()));
        }
        Ok(network)
    }

    /// Just this address.
    #[must_use]
    pub fn one(address: IpAddr) -> Self {
        Self { first: address, bits: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Whether an address belongs to it; IPv4 may come in IPv6's clothes.
    #[must_use]
    pub fn holds(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && self.cut(address) == bits_of(self.first)
    }

    fn cut(&self, address: IpAddr) -> u128 {
        let away = 128 - u32::from(self.bits) - if address.is_ipv4() { 96 } else { 0 };
        let all = bits_of(address);
        if away >= 128 { 0 } else { (all >> away) << away }
    }

    fn start(&self) -> IpAddr {
        let start = self.cut(self.first);
        match self.first {
            IpAddr::V4(_) => IpAddr::V4(u32::try_from(start).unwrap_or(0).into()),
            IpAddr::V6(_) => IpAddr::V6(start.into()),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Option<String> {
        HostName::parse(text).ok().map(|host| host.0)
    }

    #[test]
    fn a_host_that_kubernetes_takes_stays_and_any_other_becomes_a_digest() {
        let of = |text: &str| HostName::parse(text).expect("a host").label();
        assert_eq!(of("CMS.example.org:8443"), "cms.example.org");
        assert_eq!(of("b\u{fc}cher.example"), "xn--bcher-kva.example");
        for text in ["[2001:db8::1]", "_x.example", &format!("{}.{}.org", "a".repeat(40), "b".repeat(40))] {
            let label = of(text);
            assert!(label.starts_with("host-") && label.len() <= 63, "{text}: {label}");
        }
        assert_ne!(of("_x.example"), of("_y.example"));
    }

    #[test]
    fn one_host_is_one_name_however_it_is_written() {
        for text in
            ["cms.example.org", "CMS.Example.Org", "cms.example.org:8443", "cms.example.org.", "cms.example.org.:1"]
        {
            assert_eq!(host(text).as_deref(), Some("cms.example.org"), "{text}");
        }
        assert_eq!(host("bücher.example:443").as_deref(), Some("xn--bcher-kva.example"));
        assert_eq!(host("XN--bcher-kva.example").as_deref(), Some("xn--bcher-kva.example"));
        assert_eq!(host("[2001:DB8:0::1]:443").as_deref(), Some("[2001:db8::1]"));
        assert_eq!(host("127.0.0.1:80").as_deref(), Some("127.0.0.1"));
        assert_eq!(host("my_service:8080").as_deref(), Some("my_service"));
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in
            ["", ".", "a..b", "a b", "a/b", "a@b", "a:b", "a:99999", "[::1", "[::1]x", "::1", "a,b", "a:80:80", "a\tb"]
        {
            assert_eq!(host(text), None, "{text:?}");
        }
        assert_eq!(host(&"a".repeat(64)), None);
    }

    #[test]
    fn a_network_holds_what_begins_like_it() {
        let network = |text: &str| Network::parse(text).expect(text);
        let address = |text: &str| text.parse::<IpAddr>().expect(text);
        assert!(network("10.0.0.0/16").holds(address("10.0.255.1")));
        assert!(network("10.0.0.0/16").holds(address("::ffff:10.0.255.1")));
        assert!(!network("10.0.0.0/16").holds(address("10.1.0.1")));
        assert!(network("0.0.0.0/0").holds(address("203.0.113.9")));
        assert!(!network("0.0.0.0/0").holds(address("2001:db8::1")));
        assert!(network("::/0").holds(address("2001:db8::1")));
        assert!(network("fd00::/8").holds(address("fdff::1")));
        assert!(network("203.0.113.9").holds(address("203.0.113.9")));
        for text in ["10.0.0.1/16", "10.0.0.0/33", "10.0.0/8", "x", "fd00::/129", "10.0.0.0/+8", "1.2.3.4/"] {
            assert!(Network::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn traits_are_met_only_all_together() {
        let client = "203.0.113.9".parse().expect("an address");
        let traits = Traits {
            path: Some("/mcp*".to_owned()),
            user_agent: Some("claude".to_owned()),
            source: vec![Network::parse("203.0.113.0/24").expect("a network")],
        };
        assert!(traits.meet("/mcp/x", b"My-Claude/1", client));
        assert!(!traits.meet("/x", b"My-Claude/1", client));
        assert!(!traits.meet("/mcp", b"curl", client));
        assert!(!traits.meet("/mcp", b"claude", "10.0.0.1".parse().expect("an address")));
    }
}
