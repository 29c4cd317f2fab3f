//! What kinds of causes there are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! categories {
    ($($name:ident $id:literal $words:literal,)*) => {
        /// A category of causes (docs/categories.md). Its id is a contract: tables, JSON and scripts use it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum Category {
            $(#[doc = $words] #[serde(rename = $id)] $name,)*
            /// The row that sums up what is no cause: rows whose interval holds 0. No rule can say so.
            #[serde(rename = "not-significant")]
            NotSignificant,
        }

        impl Category {
            /// Those that a rule can name.
            pub const ALL: [Category; 25] = [$(Category::$name,)*];

            /// Its id.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Category::$name => $id,)*
                    Category::NotSignificant => "not-significant",
                }
            }

            /// What it is called in tables and sentences, as a noun: who or what had the time.
            pub fn words(self) -> &'static str {
                match self {
                    $(Category::$name => $words,)*
                    Category::NotSignificant => "not significant",
                }
            }
        }
    };
}

categories! {
    Interference "interference" "another program",
    OsThreads "os-threads" "a kernel thread",
    ReceiveProcessing "receive-processing" "receiving packets",
    TransmitProcessing "transmit-processing" "sending",
    Interrupts "interrupts" "interrupts",
    HolBlocking "hol-blocking" "other requests",
    AppProcessing "app-processing" "the server itself",
    Runtime "runtime" "its runtime",
    BackendWait "backend-wait" "another server",
    WakeupDelay "wakeup-delay" "waking up",
    NicDelay "nic-delay" "the network card",
    SoftirqDelay "softirq-delay" "a late softirq",
    Paging "paging" "memory pages",
    LockWait "lock-wait" "a lock",
    PoolWait "pool-wait" "a pool",
    SchedulerWait "scheduler-wait" "its scheduler",
    DiskWait "disk-wait" "a disk",
    Throttled "throttled" "its CPU quota",
    Stopped "stopped" "stopped",
    TcpRecovery "tcp-recovery" "lost packets",
    ConnectionSetup "connection-setup" "a new connection",
    ClientWait "client-wait" "the client",
    Steal "steal" "the hypervisor",
    Profiler "profiler" "the recording",
    Unexplained "unexplained" "unexplained",
}

impl Category {
    /// Whether it names a cause, and not what is left without one.
    pub fn is_named(self) -> bool {
        !matches!(self, Category::Unexplained | Category::NotSignificant)
    }

    /// Whether a cause's name in words says no more than [`Category::words`]: a hypervisor is a hypervisor.
    pub fn says(self, title: &str) -> bool {
        title == self.as_str() || self.words().to_ascii_lowercase().ends_with(&title.to_ascii_lowercase())
    }

    /// Whether its causes are tasks of others, which are told as processes with their threads.
    pub fn is_processes(self) -> bool {
        matches!(self, Category::Interference | Category::Profiler)
    }
}

impl std::str::FromStr for Category {
    type Err = String;
    fn from_str(text: &str) -> Result<Category, String> {
        let names = || Category::ALL.map(Category::as_str).join(", ");
        let category = Category::ALL.into_iter().find(|c| c.as_str() == text);
        category.ok_or_else(|| format!("{text:?} is not one of {}", names()))
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
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/categories.md");
        let page = std::fs::read_to_string(page).expect("the book is beside the crate");
        let missing: Vec<_> =
            Category::ALL.into_iter().filter(|c| !page.contains(&format!("\n| `{c}` | {} | ", c.words()))).collect();
        assert!(missing.is_empty(), "docs/categories.md has no words for {missing:?}");
    }

    #[test]
    fn a_title_that_its_words_say_already_is_not_said_again() {
        assert!(Category::Steal.says("hypervisor") && Category::Throttled.says("cpu quota"));
        assert!(Category::Stopped.says("stopped") && !Category::Interference.says("nginx"));
        let mut words: Vec<&str> = Category::ALL.into_iter().map(Category::words).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Category::ALL.len(), "each is told from the others");
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
