//! Who or what a cause is, as data. [`crate::cause::names`] makes its name and its words; no code parses these.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_lifetime::NamedFrame;

/// Who or what had the time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Subject {
    /// A process of another application, a kernel thread, the recorder.
    Task {
        /// What it is called.
        name: String,
    },
    /// The task that held what was waited for.
    Holder {
        /// What it is called.
        name: String,
    },
    /// Another thread of the application, or several of like names.
    OtherThread {
        /// What it is called.
        name: String,
    },
    /// The application itself, with messages before this one.
    Application {
        /// What it is called.
        name: String,
    },
    /// Other threads of the application, with other messages.
    OtherThreads {
        /// What the application is called.
        application: String,
    },
    /// What ran: a handler, a packet, a system call.
    Frame {
        /// The frame.
        frame: NamedFrame,
    },
    /// A system call.
    SystemCall {
        /// Its name, when it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
    },
    /// A wait of the application in a system call.
    WaitIn {
        /// Its name, when it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
        /// The task that ended it, where that is part of the name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waker: Option<String>,
        /// A timer of the application's own ended it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        until_timer: bool,
    },
    /// The application put the message aside: its thread waited for another client's request meanwhile.
    PutAside {
        /// In which system call, when it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
    },
    /// A wait of the application for a task.
    WaitFor {
        /// The task that ended it.
        waker: String,
    },
    /// A runtime of the application on its own account.
    Runtime {
        /// Which.
        of: String,
        /// What it does, as it reads after its name: `collecting garbage`.
        does: String,
    },
    /// Another server.
    Peer {
        /// Its address and port.
        name: String,
    },
    /// The turn to ask another server.
    Turn {
        /// Its address and port.
        server: String,
    },
    /// Requests of a class that costs more than others.
    Class {
        /// The class.
        name: String,
    },
    /// Messages that arrived later and were served first.
    LaterArrivals,
    /// Page faults, by their number.
    PageFaults,
    /// The cold caches that a migration leaves, by their number.
    AfterMigration,
    /// What other cores' interrupts cost before and after their handlers, by their number.
    AroundInterrupts,
    /// What the category table calls it.
    Named {
        /// In the table's words.
        name: String,
    },
}

impl Subject {
    /// Whether it is a wait of the application's own: the sleep is told, and not what somebody else did.
    pub fn is_own_wait(&self) -> bool {
        matches!(self, Subject::WaitIn { .. } | Subject::PutAside { .. } | Subject::WaitFor { .. })
    }

    /// What the category table calls it.
    pub fn named(name: impl Into<String>) -> Subject {
        Subject::Named { name: name.into() }
    }
}
