//! The command line of `serve`.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use tailsight_testbed::queue::{Service, TextProtocol};
use tailsight_units::parse;

/// `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The law of service times: fixed:100us, exponential:100us, bimodal:50us (90 % take it, 10 % ten times it) or
    /// lognormal:100us
    #[arg(long, value_name = "LAW:TIME", value_parser = |t: &str| t.parse::<Service>(), default_value = "fixed:100us")]
    pub service: Service,
    /// What is spoken
    #[arg(long, value_enum, value_name = "PROTOCOL", default_value = "memcached")]
    pub protocol: TextProtocol,
    /// The port; 0: a free one, which is printed
    #[arg(long, value_name = "PORT", default_value_t = 7000)]
    pub port: u16,
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub listen: IpAddr,
    /// End after this long [default: at Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse::duration)]
    pub duration: Option<Duration>,
}
