//! The command line of `agent` as data. In: words. Out: where to listen, whom to let in, what to allow.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tailsight_agent::Rule;
use tailsight_units::parse;

/// `agent`.
#[derive(Debug, Args)]
pub struct Agent {
    /// Where to listen; port 0: one that is free
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = listen, default_value = "127.0.0.1:7411")]
    pub listen: SocketAddr,
    /// The token that callers must have, in a file of mode 600 [default: a random one, printed]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Targets that may be loaded, such as 10.0.0.0/8:11211, [2001:db8::/32]:80, cache1:11211 or unix:/run/x; repeatable
    /// [default: loopback]
    #[arg(long, value_name = "RULE", value_parser = |text: &str| text.parse::<Rule>())]
    pub allow: Vec<Rule>,
    /// The most requests/s
    #[arg(long, value_name = "RATE", value_parser = parse::rate, default_value = "100k")]
    pub max_rate: f64,
    /// The longest load
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "600s")]
    pub max_duration: Duration,
    /// The most connections
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub max_connections: u32,
    /// The most keys to store before a load; storing them is not held to --max-rate
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub max_keys: u64,
    /// Its certificate (PEM) [default: a new one, signed by itself]
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Let in only callers with a certificate that this authority (PEM) has signed
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    let only_address = || text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 7411));
    let wrong = |_| format!("`{text}` is not an address of this host; write for example 10.0.0.7:7411 or [::1]:7411");
    text.parse().or_else(|_| only_address()).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        agent: Agent,
    }

    #[test]
    fn an_agent_is_harmless_unless_told() {
        let Agent { listen, allow, .. } = Line::try_parse_from(["x"]).unwrap().agent;
        assert!(listen.ip().is_loopback() && allow.is_empty());
        let line = ["x", "--listen", "10.0.0.7", "--allow", "10.0.0.0/8:11211", "--max-rate", "5k"];
        let Agent { listen, max_rate, .. } = Line::try_parse_from(line).unwrap().agent;
        assert_eq!((listen.to_string(), max_rate), ("10.0.0.7:7411".into(), 5000.0));
    }

    #[test]
    fn wrong_words_are_refused() {
        for line in [
            ["x", "--listen", "example"],
            ["x", "--allow", "10.0.0.0/40"],
            ["x", "--max-rate", "ramp:1k..2k/3s"],
            ["x", "--certificate", "a.pem"],
            ["x", "--max-duration", "0s"],
        ] {
            assert!(Line::try_parse_from(line).is_err(), "{line:?}");
        }
    }
}
