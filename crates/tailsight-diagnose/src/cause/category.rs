//! What kinds of causes there are.

use serde::{Deserialize, Serialize};

macro_rules! categories {
    ($($name:ident $id:literal,)*) => {
        /// A category of causes (docs/categories.md). Its id is a contract: tables, JSON and scripts use it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Category {
            $(#[doc = $id] #[serde(rename = $id)] $name,)*
            /// The row that sums up what is no cause: rows whose interval holds 0. No rule can say so.
            #[serde(rename = "not-significant")]
            NotSignificant,
        }

        impl Category {
            /// Those that a rule can name.
            pub const ALL: [Category; 22] = [$(Category::$name,)*];

            /// Its id.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Category::$name => $id,)*
                    Category::NotSignificant => "not-significant",
                }
            }
        }
    };
}

categories! {
    Interference "interference", OsThreads "os-threads", ReceiveProcessing "receive-processing",
    TransmitProcessing "transmit-processing", Interrupts "interrupts", HolBlocking "hol-blocking",
    AppProcessing "app-processing", Runtime "runtime", BackendWait "backend-wait", WakeupDelay "wakeup-delay", NicDelay "nic-delay",
    SoftirqDelay "softirq-delay", Paging "paging", LockWait "lock-wait", DiskWait "disk-wait", Throttled "throttled",
    Stopped "stopped", TcpRecovery "tcp-recovery", ConnectionSetup "connection-setup", Steal "steal",
    Profiler "profiler", Unexplained "unexplained",
}

impl Category {
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
    fn the_book_has_an_example_of_each() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reading-the-output.md");
        let page = std::fs::read_to_string(page).expect("the book is beside the crate");
        let missing: Vec<_> = Category::ALL.into_iter().filter(|c| !page.contains(&format!("\n| `{c}` | `"))).collect();
        assert!(missing.is_empty(), "docs/reading-the-output.md has no example of {missing:?}");
    }

    #[test]
    fn ids_are_written_as_they_read() {
        for category in Category::ALL.into_iter().chain([Category::NotSignificant]) {
            assert_eq!(serde_json::to_value(category).expect("text"), category.as_str());
        }
        assert!("not-significant".parse::<Category>().is_err(), "no rule can say so");
        assert_eq!("steal".parse(), Ok(Category::Steal));
    }
}
