//! How a single text must look: one list of forms, each with its noun, its check and its pattern for the schema.
//!
//! It may know no key; the pattern may be laxer than the check, never stricter.

use crate::config::url::Url;
use crate::fleet::model::{HostName, Network, RuntimeSocket, Version, WorkloadKind};
use std::net::{Ipv6Addr, SocketAddr};

/// How a text must look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Form {
    /// Anything in one line.
    Line,
    /// A Compose project's name.
    Project,
    /// Something to call a server, a zone or a field by.
    Name,
    /// A Compose service's name.
    Service,
    /// A target group's name or ARN.
    Group,
    /// What `ssh` takes as a destination.
    Ssh,
    /// The path of a file on a server.
    File,
    /// The path of a folder on a server.
    Folder,
    /// The path of a file beside deploy.toml.
    Beside,
    /// The path of a URL.
    UrlPath,
    /// A URL that a server asks about itself.
    LocalUrl,
    /// Any HTTP URL.
    Url,
    /// `HOST:PORT`.
    Address,
    /// Where a runtime socket is reached.
    Socket,
    /// A variable of the compose file.
    Variable,
    /// A signal that does not end a process.
    Signal,
    /// `ID` or `ID:PORT`.
    Target,
    /// A host, as requests name it.
    Host,
    /// An address of this machine with a port.
    Bind,
    /// Addresses that begin alike.
    Network,
    /// The URL of a server, without a path.
    Backend,
    /// The name of a Kubernetes object that is also part of a host's name.
    Label,
    /// What Kubernetes scales: `deployment/NAME`.
    Workload,
    /// The same with its namespace: `tenant-example/deployment/NAME`.
    ClusterWorkload,
    /// Numbers with dots between them.
    Version,
}

impl Form {
    /// What a person would call it.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Line => "a text in one line",
            Self::Project => "a Compose project name",
            Self::Name => "a name",
            Self::Service => "a Compose service name",
            Self::Group => "the name or ARN of a target group",
            Self::Ssh => "a destination for ssh",
            Self::File => "the absolute path of a file",
            Self::Folder => "the absolute path of a folder",
            Self::Beside => "the path of a file relative to deploy.toml",
            Self::UrlPath => "the path of a URL",
            Self::LocalUrl => "an http:// URL",
            Self::Url => "an http:// or https:// URL",
            Self::Address => "HOST:PORT",
            Self::Socket => "/PATH, HOST:PORT or ssh://DESTINATION/PATH",
            Self::Variable => "the name of a variable",
            Self::Signal => "the name of a signal",
            Self::Host => "a host name or address",
            Self::Bind => "an IP address with a port",
            Self::Network => "a network or an address",
            Self::Backend => "the http:// or https:// URL of a server",
            Self::Target => "a target: ID or ID:PORT",
            Self::Label => "the name of a Kubernetes object",
            Self::Workload => "a workload: deployment/NAME or statefulset/NAME",
            Self::ClusterWorkload => "a workload with its namespace: NAMESPACE/deployment/NAME",
            Self::Version => "a version",
        }
    }

    /// For the JSON schema.
    pub fn pattern(self) -> &'static str {
        match self {
            Self::Line => r"^[^\x00-\x1f\x7f]+$",
            Self::Project => "^[a-z0-9][a-z0-9_-]*$",
            Self::Name => r"^[^\s/\\]+$",
            Self::Service => "^[a-zA-Z0-9._-]+$",
            Self::Group | Self::Ssh | Self::Target => r"^\S+$",
            Self::File | Self::Folder | Self::UrlPath => "^/.*$",
            Self::Beside => r"^[^/\\].*$",
            Self::LocalUrl => r"^http://\S+$",
            Self::Url => r"^https?://\S+$",
            Self::Address => r"^\S+:[0-9]+$",
            Self::Socket => r"^(/|ssh://|[^/\s]+:[0-9]+$)\S*$",
            Self::Variable => "^[A-Za-z_][A-Za-z0-9_]*$",
            Self::Signal => "^SIG[A-Z0-9+-]+$",
            Self::Host => r"^[^\s/@,:]+$|^\[[0-9A-Fa-f:.]+\]$",
            Self::Bind => r"^\S+:[0-9]+$",
            Self::Network => r"^[0-9A-Fa-f:.]+(/[0-9]+)?$",
            Self::Backend => r"^https?://[^\s/?#]+/?$",
            Self::Label => "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
            Self::Workload => "^[a-z]+/[a-z0-9.-]+$",
            Self::ClusterWorkload => "^[a-z0-9-]+/[a-z]+/[a-z0-9.-]+$",
            Self::Version => r"^[0-9]+(\.[0-9]+){1,2}$",
        }
    }

    /// Why a text is not of this form.
    pub fn fault(self, text: &str) -> Option<String> {
        if text.trim().is_empty() {
            return Some("it is empty".to_owned());
        }
        if text.chars().any(char::is_control) {
            return Some("it has a control character in it".to_owned());
        }
        match self {
            Self::Line => None,
            Self::Project => {
                let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
                let fine = text.chars().all(ok) && !text.starts_with(['_', '-']);
                fault_if(!fine, "small letters, digits, `_` and `-` only, beginning with a letter or digit")
            }
            Self::Name => fault_if(
                text.contains(|c: char| c.is_whitespace() || c == '/' || c == '\\') || text.starts_with('-'),
                "no spaces, no slashes, no `-` at the beginning",
            ),
            Self::Service => {
                let ok = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
                let fine = text.chars().all(ok) && !text.starts_with('-');
                fault_if(!fine, "letters, digits, `.`, `_` and `-` only")
            }
            Self::Group => fault_if(text.contains(char::is_whitespace), "no spaces"),
            // A destination that begins with `-` would be read as an option of ssh.
            Self::Ssh => fault_if(
                text.contains(char::is_whitespace) || text.starts_with('-'),
                "no spaces, no `-` at the beginning",
            ),
            Self::File => path_fault(text).or_else(|| fault_if(text.ends_with('/'), "it ends with `/`")),
            Self::Folder => path_fault(text),
            Self::Beside => beside_fault(text),
            Self::UrlPath => url_path_fault(text),
            Self::LocalUrl => match Url::parse(text) {
                Ok(url) => fault_if(url.scheme != "http", "it begins with https://; a server asks itself without TLS"),
                Err(fault) => Some(fault),
            },
            Self::Url => Url::parse(text).err(),
            Self::Address => address_fault(text),
            Self::Socket => fault_if(
                RuntimeSocket::parse(text).is_none(),
                "write it as `/run/haproxy/admin.sock`, `10.0.0.5:9999` or `ssh://deploy@lb-1/run/haproxy/admin.sock`",
            ),
            Self::Variable => {
                let fine = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                    && !text.starts_with(|c: char| c.is_ascii_digit());
                fault_if(!fine, "letters, digits and `_` only, no digit at the beginning")
            }
            Self::Signal => signal_fault(text),
            Self::Target => split_target(text).err(),
            Self::Host => host_fault(text),
            Self::Bind => fault_if(
                text.parse::<SocketAddr>().map_or(true, |address| address.port() == 0),
                "write it as `0.0.0.0:8000`, or `[::]:8000`",
            ),
            Self::Network => Network::parse(text).err(),
            Self::Backend => match Url::parse(text) {
                Ok(url) => fault_if(url.path != "/", "it has a path: requests bring their own"),
                Err(fault) => Some(fault),
            },
            Self::Label => label_fault(text),
            Self::Workload => workload_fault(text),
            Self::ClusterWorkload => match text.split_once('/') {
                Some((namespace, workload)) => label_fault(namespace).or_else(|| workload_fault(workload)),
                None => Some("write it as `tenant-example/deployment/app-backend`".to_owned()),
            },
            Self::Version => fault_if(Version::parse(text).is_none(), "write it as `1.37` or `2.11.7`"),
        }
    }
}

/// RFC 1123, as Kubernetes wants the names of namespaces and Services.
fn label_fault(text: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fine = text.len() <= 63 && text.chars().all(plain) && !text.starts_with('-') && !text.ends_with('-');
    fault_if(!fine, "small letters, digits and `-`, at most 63, with a letter or digit at both ends")
}

fn workload_fault(text: &str) -> Option<String> {
    let Some((kind, name)) = text.split_once('/') else {
        return Some("write it as `deployment/app-backend`".to_owned());
    };
    if WorkloadKind::parse(kind).is_none() {
        return Some(format!("`{kind}` is no kind that can sleep: `deployment` or `statefulset`"));
    }
    label_fault(name)
}

fn fault_if(wrong: bool, fault: &str) -> Option<String> {
    wrong.then(|| fault.to_owned())
}

fn host_fault(text: &str) -> Option<String> {
    let port = text.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    if port && HostName::parse(text).is_ok() {
        return Some("it has a port: a host is the same on every port".to_owned());
    }
    fault_if(HostName::parse(text).is_err(), "write it as `cms.example.org`, `127.0.0.1` or `[2001:db8::1]`")
}

fn path_fault(text: &str) -> Option<String> {
    if !text.starts_with('/') {
        return Some("it does not begin with `/`".to_owned());
    }
    if text.trim_matches('/').is_empty() {
        return Some("it is the root".to_owned());
    }
    fault_if(text.split('/').any(|part| part == ".." || part == "."), "it has `..` or `.` in it")
}

fn beside_fault(text: &str) -> Option<String> {
    if text.starts_with('/') || text.contains('\\') {
        return Some("it is not relative; only files beside deploy.toml are published".to_owned());
    }
    if text.split('/').any(|part| part == "..") {
        return Some("it leads out of deploy.toml's folder with `..`".to_owned());
    }
    fault_if(
        text.split('/').any(|part| part.is_empty() || part == "."),
        "write it plainly, without `./`, `//` or `/` at the end",
    )
}

fn url_path_fault(text: &str) -> Option<String> {
    if !text.starts_with('/') {
        return Some("it does not begin with `/`".to_owned());
    }
    if text.contains(char::is_whitespace) || text.contains('#') {
        return Some("no spaces and no `#` in it".to_owned());
    }
    fault_if(text.len() > 1024, "an ALB takes at most 1024 characters")
}

fn address_fault(text: &str) -> Option<String> {
    let wrong = || Some("write it as `127.0.0.1:8080`, or `[::1]:8080`".to_owned());
    let Some((host, port)) = text.rsplit_once(':') else { return wrong() };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host_fine = match bare {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || ":/[]".contains(c)),
    };
    if host_fine && port_of(port).is_some() { None } else { wrong() }
}

fn signal_fault(text: &str) -> Option<String> {
    let name = text.strip_prefix("SIG").unwrap_or_default();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || "+-".contains(c)) {
        return Some("write it as `SIGUSR1`".to_owned());
    }
    let ends = ["KILL", "STOP", "TERM", "INT", "QUIT", "ABRT", "SEGV"].contains(&name);
    fault_if(
        ends,
        "it stops the process instead of telling it to drain; an app that drains on SIGTERM has `by = \"sigterm\"`",
    )
}

/// A port: not 0.
pub(in crate::config) fn port_of(text: &str) -> Option<u16> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|port| *port > 0)
}

/// Takes `ID`, `ID:PORT` or `[IPV6]:PORT` apart.
pub(in crate::config) fn split_target(text: &str) -> Result<(String, Option<u16>), String> {
    let wrong = || "write it as `i-0a1b2c3d4e5f60718`, `10.0.0.7:8080` or `[fd00::7]:8080`".to_owned();
    let (id, port) = if let Some(rest) = text.strip_prefix('[') {
        let (id, after) = rest.split_once(']').ok_or_else(wrong)?;
        if id.parse::<Ipv6Addr>().is_err() {
            return Err(wrong());
        }
        (id, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or_else(wrong)?) })
    } else if text.matches(':').count() > 1 {
        if text.parse::<Ipv6Addr>().is_err() {
            return Err(wrong());
        }
        (text, None)
    } else {
        text.split_once(':').map_or((text, None), |(id, port)| (id, Some(port)))
    };
    if id.is_empty() || id.contains(|c: char| c.is_whitespace() || "/[]".contains(c)) {
        return Err(wrong());
    }
    let port = port.map(|port| port_of(port).ok_or_else(wrong)).transpose()?;
    Ok((id.to_owned(), port))
}
