//! What kinds of causes there are.

use serde::{Deserialize, Serialize};

/// A category of causes (docs/categories.md). Its id is a contract: tables, JSON and scripts use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // Their ids are described in docs/categories.md.
pub enum Category {
    Interference,
    OsThreads,
    ReceiveProcessing,
    TransmitProcessing,
    Interrupts,
    HolBlocking,
    AppProcessing,
    BackendWait,
    WakeupDelay,
    NicDelay,
    SoftirqDelay,
    Paging,
    LockWait,
    DiskWait,
    Throttled,
    Stopped,
    TcpRecovery,
    ConnectionSetup,
    Steal,
    Profiler,
    /// Time that has no known owner.
    Unexplained,
    /// The row that sums up what is no cause: rows whose interval holds 0. No rule can say so.
    NotSignificant,
}

impl Category {
    /// Those that a rule can name.
    pub const ALL: [Category; 21] = [
        Category::Interference,
        Category::OsThreads,
        Category::ReceiveProcessing,
        Category::TransmitProcessing,
        Category::Interrupts,
        Category::HolBlocking,
        Category::AppProcessing,
        Category::BackendWait,
        Category::WakeupDelay,
        Category::NicDelay,
        Category::SoftirqDelay,
        Category::Paging,
        Category::LockWait,
        Category::DiskWait,
        Category::Throttled,
        Category::Stopped,
        Category::TcpRecovery,
        Category::ConnectionSetup,
        Category::Steal,
        Category::Profiler,
        Category::Unexplained,
    ];

    /// Its id.
    pub fn as_str(self) -> &'static str {
        match self {
            Category::Interference => "interference",
            Category::OsThreads => "os-threads",
            Category::ReceiveProcessing => "receive-processing",
            Category::TransmitProcessing => "transmit-processing",
            Category::Interrupts => "interrupts",
            Category::HolBlocking => "hol-blocking",
            Category::AppProcessing => "app-processing",
            Category::BackendWait => "backend-wait",
            Category::WakeupDelay => "wakeup-delay",
            Category::NicDelay => "nic-delay",
            Category::SoftirqDelay => "softirq-delay",
            Category::Paging => "paging",
            Category::LockWait => "lock-wait",
            Category::DiskWait => "disk-wait",
            Category::Throttled => "throttled",
            Category::Stopped => "stopped",
            Category::TcpRecovery => "tcp-recovery",
            Category::ConnectionSetup => "connection-setup",
            Category::Steal => "steal",
            Category::Profiler => "profiler",
            Category::Unexplained => "unexplained",
            Category::NotSignificant => "not-significant",
        }
    }

    /// Whether it names a cause, and not what is left without one.
    pub fn is_named(self) -> bool {
        !matches!(self, Category::Unexplained | Category::NotSignificant)
    }

    /// Whether its causes are tasks of others, which are told as processes with their threads.
    pub fn is_processes(self) -> bool {
        matches!(self, Category::Interference | Category::Profiler)
    }
}

impl std::str::FromStr for Category {
    type Err = String;
    fn from_str(text: &str) -> Result<Category, String> {
        let all = || Category::ALL.map(Category::as_str).join(", ");
        let found = Category::ALL.into_iter().find(|c| c.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is not one of {}", all()))
    }
}

impl std::fmt::Display for Category {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// By their ids: of equal rows the one with the smaller id comes first.
impl Ord for Category {
    fn cmp(&self, other: &Category) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialOrd for Category {
    fn partial_cmp(&self, other: &Category) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_they_read() {
        for category in Category::ALL.into_iter().chain([Category::NotSignificant]) {
            assert_eq!(serde_json::to_value(category).expect("text"), category.as_str());
        }
        assert!("not-significant".parse::<Category>().is_err(), "no rule can say so");
        assert_eq!("steal".parse(), Ok(Category::Steal));
    }
}
