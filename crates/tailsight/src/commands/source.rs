//! Where a load comes from: this process, or agents on other machines. In: the words of `load` and `sweep`. Out: a [`Load`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use tailsight_agent::coordinator::{self, Credentials, Options, RemoteLoad};
use tailsight_agent::{AgentError, Identity, Token};
use tailsight_load::Plan;
use tailsight_measure::{Error, Load, Local};

use crate::cli_load::Agents;
use crate::commands::usage::or_usage;

/// The agents' token, where no file has it: a command line would show it to every user of the host.
const TOKEN_VARIABLE: &str = "TAILSIGHT_AGENT_TOKEN";

/// A source of load.
pub enum Source {
    /// Threads of this process.
    Here(Box<Local>),
    /// Agents.
    Agents(Box<RemoteLoad>),
}

impl Source {
    /// Gets ready: without agents there is nothing to do, with agents it opens a session with each.
    pub fn open(agents: &Agents, plan: Plan, stop: &Arc<AtomicBool>) -> anyhow::Result<Self> {
        if agents.agent.is_empty() {
            return Ok(Self::Here(Box::new(Local::new(plan))));
        }
        let credentials = credentials(agents)?;
        let (roles, stop) = (agents.agent_role.clone(), Some(Arc::clone(stop)));
        let options = Options { roles, stop, ..Options::default() };
        let load = match coordinator::connect(&agents.agent, &credentials, plan, options) {
            Ok(load) => load,
            // What cannot be shared contradicts itself; all else is a failure.
            Err(error @ AgentError::Split(_)) => return or_usage(Err(Error::Contradiction(error.to_string()))),
            Err(AgentError::Load(error)) => return or_usage(Err(Error::Load(error))),
            Err(error) => return Err(error.into()),
        };
        for agent in load.reports() {
            say!(
                "agent {} ({} on {}, {} cores, {}): clock offset known to {}",
                agent.agent,
                agent.role,
                agent.host,
                agent.cores,
                if agent.kernel_stamps { "kernel stamps" } else { "no kernel stamps" },
                tailsight_units::format::duration(agent.clock.bound_ns)
            );
        }
        Ok(Self::Agents(Box::new(load)))
    }

    /// As a measurement sees it.
    pub fn load(&mut self) -> &mut dyn Load {
        match self {
            Self::Here(load) => load.as_mut(),
            Self::Agents(load) => load.as_mut(),
        }
    }
}

fn credentials(agents: &Agents) -> anyhow::Result<Credentials> {
    let token = match (&agents.agent_token_file, std::env::var(TOKEN_VARIABLE)) {
        (Some(path), _) => Token::from_file(path)?,
        (None, Ok(text)) => text.parse().with_context(|| format!("the environment's {TOKEN_VARIABLE}"))?,
        (None, Err(_)) => {
            anyhow::bail!("agents need their token: give its file with --agent-token-file, or set {TOKEN_VARIABLE}")
        }
    };
    let identity = match (&agents.agent_certificate, &agents.agent_key) {
        (Some(certificate), Some(key)) => Some(Identity { certificate: certificate.clone(), key: key.clone() }),
        // The command line requires both or none.
        _ => None,
    };
    Ok(Credentials { token, ca: agents.agent_ca.clone(), identity })
}
