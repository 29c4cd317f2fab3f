//! Names of what a measurement assumes: the method's checks, and the accounts of client and server. In and out: data, and the ids that JSON
//! and files have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_stats::method::CheckId;

/// What ends a measurement besides the method's own checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Account")]
pub enum Na {
    /// The server stopped answering.
    Stalled,
    /// An agent failed.
    Agent,
    /// It was interrupted.
    Interrupted,
    /// The server closed all connections, or was never there.
    ServerGone,
    /// The client had no CPU left.
    ClientCpu,
    /// The client was kept from its core.
    ClientStarved,
    /// Requests were held back because every connection was full.
    OpenLoop,
    /// The server sent what is not its protocol's, or not asked for.
    OutOfStep,
    /// A part of the client failed.
    Client,
}

/// Which assumption a check is of, or which account of the client and the server ended the measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AssumptionId {
    /// An assumption of the method.
    Method(CheckId),
    /// An account of the client and the server.
    Account(Na),
    /// One that a file of another version has.
    #[schemars(skip)]
    Other(String),
}

impl AssumptionId {
    /// As in JSON.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Method(check) => check.name(),
            Self::Account(na) => na.id(),
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for AssumptionId {
    /// By its name in JSON.
    fn from(name: &str) -> Self {
        let method = CheckId::ALL.into_iter().find(|id| id.name() == name).map(Self::Method);
        let account = || Na::ALL.into_iter().find(|na| na.id() == name).map(Self::Account);
        method.or_else(account).unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

impl std::fmt::Display for AssumptionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Na {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Stalled,
        Self::Agent,
        Self::Interrupted,
        Self::ServerGone,
        Self::ClientCpu,
        Self::ClientStarved,
        Self::OpenLoop,
        Self::OutOfStep,
        Self::Client,
    ];

    /// As in [`crate::report::Checked::id`].
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Stalled => "stalled",
            Self::Agent => "agent",
            Self::Interrupted => "interrupted",
            Self::ServerGone => "server-gone",
            Self::ClientCpu => "client-cpu",
            Self::ClientStarved => "client-starved",
            Self::OpenLoop => "open-loop",
            Self::OutOfStep => "out-of-step",
            Self::Client => "client",
        }
    }

    /// Why what the method knew does not stand as bounds; `None`: it does, for it was measured before, or in spite of it.
    pub(crate) fn voids(self) -> Option<&'static str> {
        match self {
            Self::Agent | Self::Interrupted => None,
            Self::Stalled => {
                Some("a server that stops answering has no latency, and what it had before is not that of the load")
            }
            Self::ServerGone => {
                Some("the server was gone, and what it answered before is not its latency under the load")
            }
            Self::ClientCpu => Some("by how much a client without CPU was late to read its replies is not known"),
            Self::ClientStarved => {
                Some("by how much the client was late to read its replies is not known, and no kernel stamp says it")
            }
            Self::OpenLoop => Some(
                "requests that found every connection full were held back, so that the server did not see the load \
                 asked for",
            ),
            Self::OutOfStep => {
                Some("what a server sends that is not its protocol's, or not asked for, cannot be told from replies")
            }
            Self::Client => Some("a part of the client failed, so that the server did not see the load asked for"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_and_written_by_their_names() {
        let ids =
            CheckId::ALL.into_iter().map(AssumptionId::Method).chain(Na::ALL.into_iter().map(AssumptionId::Account));
        for id in ids.chain([AssumptionId::Other("of-tomorrow".into())]) {
            assert_eq!(serde_json::to_value(&id).unwrap(), id.name());
            assert_eq!(
                (&AssumptionId::from(id.name()), serde_json::from_value(id.name().into()).ok()),
                (&id, Some(id.clone()))
            );
        }
    }
}
