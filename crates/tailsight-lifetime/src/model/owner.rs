//! Owners of time, and the parts of a leg that they had.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Frame, Rule};

/// On whose side of the hand-off a nanosecond was spent (NSight §3: R and A).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Role {
    /// On the receive core, before the hand-off.
    R,
    /// On the application core, after it.
    A,
}

/// The execution context that owned a core (or the reason why none did), as seen from one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Context {
    /// The thread that served this message, working for it.
    Own,
    /// The same thread, still working for messages that came before it: head-of-line blocking.
    Ahead,
    /// Another thread of the same application.
    Sibling {
        /// Its command name.
        comm: String,
    },
    /// A task of another application or of the system.
    Foreign {
        /// Its command name.
        comm: String,
        /// Whether it is a kernel thread.
        kernel: bool,
    },
    /// The recorder's own hooks, wherever they ran.
    Profiler,
    /// Nothing ran on the core.
    Idle,
    /// The thread slept and no core was being waited for; the frames say in what.
    Blocked,
    /// The recording cannot tell.
    Unknown,
}

/// Index into [`crate::Lifetimes::owners`].
pub type OwnerId = u32;

/// The owner of some nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// The context.
    pub context: Context,
    /// What was nested in it, outermost first.
    pub frames: Vec<Frame>,
}

impl Owner {
    /// The context as the output names it.
    pub fn context_name(&self) -> String {
        match &self.context {
            Context::Own => "own".into(),
            Context::Ahead => "ahead".into(),
            Context::Sibling { comm } => format!("sibling:{comm}"),
            Context::Foreign { comm, .. } => comm.clone(),
            Context::Profiler => "profiler".into(),
            Context::Idle => "idle".into(),
            Context::Blocked => "blocked".into(),
            Context::Unknown => "unknown".into(),
        }
    }

    /// Whether it is a wait of which no event alone says that it is this message's: for another server's answer, or the turn to ask it, where the
    /// order of calls says that this message asked; until a timer, where the thread did other things meanwhile.
    pub fn is_guessed(&self) -> bool {
        let is_guess = |frame: &Frame| {
            matches!(
                frame,
                Frame::Peer { guessed: true, .. } | Frame::Turn { guessed: true, .. } | Frame::Timer { guessed: true }
            )
        };
        self.context == Context::Blocked && self.frames.iter().any(is_guess)
    }

    /// The whole path, e.g. `nginx/softirq:net_rx/packet:8088`.
    pub fn path(&self, symbols: &[String]) -> String {
        let mut out = self.context_name();
        for frame in self.frames.iter().filter(|f| !f.is_place()) {
            out.push('/');
            out += &frame.name(symbols);
        }
        out
    }
}

/// Which task a [`Context::Foreign`] or [`Context::Sibling`] was; all 0 and empty for other contexts and when not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Who {
    /// Its process (thread group); 0 when not known, and of a task of another run.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The name of its process.
    pub process: String,
    /// Whether it was the recorder itself.
    pub recorder: bool,
}

/// The time of one owner in one leg of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whose side.
    pub role: Role,
    /// The owner.
    pub owner: OwnerId,
    /// How often it began (or was met running at the start of the leg); stays at 65,535 when it was more.
    pub count: u16,
    /// Nanoseconds.
    pub ns: u64,
}

const _: () = assert!(size_of::<Part>() == 16);

/// One step of a message's path, in order: contiguous, without gap or overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSpan {
    /// Start, CLOCK_MONOTONIC ns.
    pub from_ns: u64,
    /// End, CLOCK_MONOTONIC ns.
    pub to_ns: u64,
    /// The core, when the message was bound to one.
    pub cpu: Option<u16>,
    /// Whose side.
    pub role: Role,
    /// The owner.
    pub owner: OwnerId,
    /// Whether the owner's innermost span began here (else it went on after an interruption).
    pub begins: bool,
    /// Of a sleep, and of what is followed because of one, the rule that says what that was for.
    pub rule: Option<Rule>,
}
