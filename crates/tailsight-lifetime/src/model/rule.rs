//! The names of the rules that say what a sleep on a message's path was for. What they ask is in `path/rules/`, a file each.

macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $says:literal;)*) => {
        /// A rule that decides what a sleep was for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Rule {
            $($(#[$doc])* $variant,)*
        }

        impl Rule {
            /// All rules, in the order in which they are asked.
            pub const ALL: &'static [Rule] = &[$(Rule::$variant,)*];

            /// Its name in output and options.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self { $(Rule::$variant => $id,)* }
            }

            /// What it says of a sleep, as a sentence.
            #[must_use]
            pub fn says(self) -> &'static str {
                match self { $(Rule::$variant => $says,)* }
            }
        }
    };
}

rules! {
    /// `path/rules/handed_off.rs`
    HandedOff = "handed-off",
        "the interrupt that received the message ended the sleep: it is the end of receive processing";
    /// `path/rules/waker_waited.rs`
    WakerWaited = "waker-waited",
        "the thread that ended the sleep had slept itself, for a server, a timer or a packet: that is what was waited for, and nobody held a lock";
    /// `path/rules/holder_writes.rs`
    HolderWrites = "holder-writes",
        "who is waited for in a lock writes to a full buffer: it has the lock still, and the reader holds nothing";
    /// `path/rules/held.rs`
    Held = "held",
        "another thread of the application ended a sleep that was no wait for work: it had what this one needed";
    /// `path/rules/passed_on.rs`
    PassedOn = "passed-on",
        "another thread of the application ended a wait for work: it passed the message on";
    /// `path/rules/request_arriving.rs`
    RequestArriving = "request-arriving",
        "parts of the request were still to come";
    /// `path/rules/answered_later.rs`
    AnsweredLater = "answered-later",
        "an event loop waited, and another thread handed it the answer later: what that one did meanwhile";
    /// `path/rules/other_messages.rs`
    OtherMessages = "other-messages",
        "the thread waited for a server, or a time, for an earlier message";
    /// `path/rules/next_request.rs`
    NextRequest = "next-request",
        "the thread that received the message waited for the next request of another client: it had put this one aside";
    /// `path/rules/given_back.rs`
    GivenBack = "given-back",
        "who ended the wait for the lock had waited for its client meanwhile, and had given the lock back before that: who had it is not known";
    /// `path/rules/file_lock_line.rs`
    FileLockLine = "file-lock-line",
        "who is waited for waits for the same file lock: the wait is the lock's";
    /// `path/rules/holds_nothing.rs`
    HoldsNothing = "holds-nothing",
        "who is waited for waits for whatever comes, and serves nobody: it holds no lock";
    /// `path/rules/waited_for.rs`
    WaitedFor = "waited-for",
        "who is waited for sleeps, too";
    /// `path/rules/outside.rs`
    Outside = "outside",
        "nobody of the application ended the sleep: it is the thread's own wait";
}

impl Rule {
    /// The rule of that name.
    #[must_use]
    pub fn of_id(id: &str) -> Option<Rule> {
        Rule::ALL.iter().copied().find(|rule| rule.id() == id)
    }

    /// Whether it always answers where it is asked: without it some sleeps would have no owner.
    #[must_use]
    pub fn is_last_resort(self) -> bool {
        matches!(self, Rule::PassedOn | Rule::WaitedFor | Rule::Outside)
    }
}

/// Rules that are not asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without(u32);

impl Without {
    /// Without this rule, too. One that always answers is asked all the same.
    #[must_use]
    pub fn and(self, rule: Rule) -> Without {
        if rule.is_last_resort() { self } else { Without(self.0 | 1 << rule as u8) }
    }

    /// Whether the rule is left out.
    #[must_use]
    pub fn has(self, rule: Rule) -> bool {
        self.0 & 1 << rule as u8 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        for &rule in Rule::ALL {
            assert_eq!(Rule::of_id(rule.id()), Some(rule));
            assert!(rule.says().starts_with(|first: char| first.is_lowercase()) && !rule.says().ends_with('.'));
        }
        assert_eq!(Rule::of_id("nobody"), None);
        let without = Without::default().and(Rule::Held).and(Rule::Outside);
        assert!(without.has(Rule::Held) && !without.has(Rule::Outside) && !without.has(Rule::PassedOn));
    }
}
