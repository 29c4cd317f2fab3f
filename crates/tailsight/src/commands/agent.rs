//! `agent`: generates load for a coordinator on another machine, within what its operator allows.

use std::sync::Arc;

use anyhow::Context;
use tailsight_agent::{Agent, Allow, Config, Identity, Policy, Token};

use crate::cli_agent::Agent as Args;
use crate::stop::on_interrupt;
use crate::{Exit, terminal};

/// Serves until Ctrl-C or SIGTERM.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let token = match &args.token_file {
        Some(path) => Token::from_file(path)?,
        None => Token::random()?,
    };
    let identity = match (&args.certificate, &args.key) {
        (Some(certificate), Some(key)) => Some(Identity { certificate: certificate.clone(), key: key.clone() }),
        _ => None,
    };
    let policy = Policy {
        allow: if args.allow.is_empty() { Allow::default() } else { Allow(args.allow.clone()) },
        rate: args.max_rate,
        duration: args.max_duration,
        connections: args.max_connections,
        keys: args.max_keys,
        ..Policy::default()
    };
    let allowed = policy.allow.texts().join(", ");
    let agent = Agent::bind(Config {
        listen: args.listen,
        token: token.clone(),
        identity,
        client_ca: args.client_ca.clone(),
        policy,
    })?;
    let stop = on_interrupt();
    if args.token_file.is_none() {
        say!("token: {}", token.reveal());
    }
    say(&format!(
        "allows {allowed}; at most {} requests/s for {:?} over {} connections",
        args.max_rate, args.max_duration, args.max_connections
    ));
    terminal::print(&format!("{}#{}\n", agent.address(), agent.fingerprint())).context("print the agent's address")?;
    agent.serve(&stop, Arc::new(say))?;
    Ok(Exit::Done)
}

/// A line of the log, with the time (UTC).
fn say(text: &str) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = now.as_secs() % 86_400;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    say!("{hours:02}:{minutes:02}:{seconds:02}.{:03}Z agent: {text}", now.subsec_millis());
}
