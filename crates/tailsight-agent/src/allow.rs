//! Which targets an agent may load. In: `10.0.0.0/8:11211`. Out: whether an address and port are allowed.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ipnet::IpNet;

use crate::AgentError;

/// One allowed group of targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Addresses and ports (both ends belong to it).
    Net {
        /// The addresses.
        nets: Vec<IpNet>,
        /// First and last port.
        ports: (u16, u16),
        /// As it was written.
        text: String,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

const FORMS: &str = "ADDRESS[/BITS][:PORT[-PORT]], [IPV6/BITS]:PORT, NAME:PORT or unix:/PATH, such as 10.0.0.0/8:11211";

impl FromStr for Rule {
    type Err = AgentError;

    /// A name is resolved now, not when a load comes.
    fn from_str(text: &str) -> Result<Self, AgentError> {
        let fail = || AgentError::parse("a rule for targets", text, FORMS);
        if let Some(path) = text.strip_prefix("unix:") {
            let path = Path::new(path.strip_prefix("//").unwrap_or(path));
            return if path.is_absolute() { Ok(Self::Unix(path.to_owned())) } else { Err(fail()) };
        }
        let (host, ports) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or_else(fail)?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(fail)?) })
        } else if text.matches(':').count() > 1 {
            (text, None)
        } else {
            text.split_once(':').map_or((text, None), |(host, ports)| (host, Some(ports)))
        };
        let ports = match ports {
            None => (1, u16::MAX),
            Some(ports) => {
                let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
                (first.parse().map_err(|_| fail())?, last.parse().map_err(|_| fail())?)
            }
        };
        if ports.0 == 0 || ports.0 > ports.1 || host.is_empty() {
            return Err(fail());
        }
        let nets = if let Ok(net) = host.parse::<IpNet>() {
            vec![net.trunc()]
        } else if let Ok(address) = host.parse::<IpAddr>() {
            vec![address.into()]
        } else if host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
            let resolved = (host, ports.0).to_socket_addrs().map_err(AgentError::io(format!("resolve {host}")))?;
            resolved.map(|a| a.ip().into()).collect()
        } else {
            return Err(fail());
        };
        Ok(Self::Net { nets, ports, text: text.to_owned() })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net { text, .. } => f.write_str(text),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// All rules; what none of them names is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow(pub Vec<Rule>);

impl Default for Allow {
    /// Loopback, all ports.
    fn default() -> Self {
        let rule = |text: &str, net| Rule::Net { nets: vec![net], ports: (1, u16::MAX), text: text.to_owned() };
        let v4 = IpNet::new_assert([127, 0, 0, 0].into(), 8);
        let v6 = IpNet::new_assert(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), 128);
        Self(vec![rule("127.0.0.0/8", v4), rule("::1", v6)])
    }
}

impl Allow {
    /// Whether an address may be loaded. An IPv4 address in IPv6 clothes (`::ffff:10.0.0.1`) counts as what it is.
    #[must_use]
    pub fn permits(&self, address: SocketAddr) -> bool {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        self.0.iter().any(|rule| match rule {
            Rule::Net { nets, ports, .. } => {
                (ports.0..=ports.1).contains(&port) && nets.iter().any(|net| net.contains(&ip))
            }
            Rule::Unix(_) => false,
        })
    }

    /// Whether a Unix socket may be loaded: only by exactly the path of a rule.
    #[must_use]
    pub fn permits_unix(&self, path: &Path) -> bool {
        self.0.iter().any(|rule| matches!(rule, Rule::Unix(allowed) if allowed == path))
    }

    /// The rules as they were written.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(Rule::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn permits(rules: &[&str], address: &str) -> bool {
        Allow(rules.iter().map(|r| r.parse().unwrap()).collect()).permits(address.parse().unwrap())
    }

    #[test]
    fn only_what_a_rule_names_is_allowed() {
        let rules = ["10.0.0.0/8:11211", "192.168.1.7", "[2001:db8::/32]:80-90", "localhost:6379"];
        for yes in
            ["10.1.2.3:11211", "192.168.1.7:1", "[2001:db8:1::9]:85", "127.0.0.1:6379", "[::ffff:10.9.9.9]:11211"]
        {
            assert!(permits(&rules, yes), "{yes}");
        }
        for no in ["10.1.2.3:11212", "11.0.0.1:11211", "192.168.1.8:1", "[2001:db9::9]:85", "[2001:db8::9]:91"] {
            assert!(!permits(&rules, no), "{no}");
        }
        assert!(!permits(&["::/0"], "10.0.0.1:80"), "a rule for IPv6 says nothing about IPv4");
        assert!(!permits(&["::/0"], "[::ffff:10.0.0.1]:80"));
    }

    #[test]
    fn loopback_is_the_default_and_the_wildcard_address_is_not_in_it() {
        let allow = Allow::default();
        for (address, yes) in [("127.9.9.9:1", true), ("[::1]:9", true), ("0.0.0.0:80", false), ("[::]:80", false)] {
            assert_eq!(allow.permits(address.parse().unwrap()), yes, "{address}");
        }
        assert!(!allow.permits_unix(Path::new("/run/x")));
        assert!(Allow(vec!["unix:/run/x".parse().unwrap()]).permits_unix(Path::new("/run/x")));
    }

    #[test]
    fn bad_rules_are_refused() {
        for bad in ["", ":80", "10.0.0.0/33:1", "10.0.0.0/8:0", "10.0.0.0/8:9-8", "10.0.0.1:x", "[::1", "unix:x", "a b"]
        {
            assert!(bad.parse::<Rule>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_host_is_in_a_net_when_its_leading_bits_are(net: u32, host: u32, bits in 0..=32_u32, port in 1..u16::MAX) {
            let text = format!("{}/{bits}:{port}", std::net::Ipv4Addr::from(net));
            let allow = Allow(vec![text.parse().unwrap()]);
            let same = (net ^ host).leading_zeros() >= bits;
            let address = SocketAddr::from((std::net::Ipv4Addr::from(host), port));
            prop_assert_eq!(allow.permits(address), same);
        }
    }
}
