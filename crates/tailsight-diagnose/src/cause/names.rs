//! Names of causes: the stable one for scripts, and the same in words for readers.
//!
//! In: who or what had the time ([`Subject`]), and the frames that the nesting rule added. Out: the name in the JSON
//! (`lab-holder holds it/sleep:clock_nanosleep`), and the words (`held by lab-holder, which slept in clock_nanosleep`) for
//! sentences, tables and pages. It is here and not in the report because sentences in the JSON use the words, too. No code parses a
//! name: the structure has everything.

use tailsight_kernel::syscalls::named_waits_for_work;
use tailsight_lifetime::{FrameKind, NamedFrame};

use super::{Category, Subject};

/// In the place of a system call whose number is not known.
pub(crate) const UNKNOWN_CALL: &str = "unknown call";

/// Most frames that are said of a stack.
const MOST_FRAMES: usize = 4;

/// The name without the frames that the nesting rule added: whose it is.
pub fn base(subject: &Subject) -> String {
    let call = |call: &Option<String>| call.clone().unwrap_or_else(|| UNKNOWN_CALL.into());
    match subject {
        Subject::Task { name } | Subject::Application { name } if name.is_empty() => "(unnamed)".into(),
        Subject::Task { name } | Subject::Application { name } | Subject::Peer { name } | Subject::Named { name } => {
            name.clone()
        }
        Subject::Turn { server } => format!("its turn to ask {server}"),
        Subject::Holder { name } => format!("{name} holds it"),
        Subject::OtherThread { name } => format!("{name} (other thread)"),
        Subject::OtherThreads { application } => format!("{application} (other threads)"),
        Subject::Frame { frame } => frame.to_string(),
        Subject::SystemCall { call: name } => call(name),
        Subject::WaitIn { .. } | Subject::WaitFor { .. } => format!("waits {}", place(subject).unwrap_or_default()),
        Subject::PutAside { call: name } => format!("put aside, its thread in {}", call(name)),
        Subject::Class { name } => format!("class {name}"),
        Subject::Runtime { of, does } => format!("{of} {does}"),
        Subject::LaterArrivals => "later arrivals first".into(),
        Subject::PageFaults => "page faults".into(),
        Subject::AfterMigration => "migration (cold caches)".into(),
        Subject::AroundInterrupts => "around the handlers of other cores' interrupts".into(),
    }
}

/// Of a wait of the application: in or for what.
fn place(subject: &Subject) -> Option<String> {
    match subject {
        Subject::WaitIn { call, waker, until_timer } => {
            let call = call.as_deref().unwrap_or(UNKNOWN_CALL);
            let whom = waker.as_ref().map_or_else(String::new, |waker| format!(" for {waker}"));
            Some(format!("in {call}{whom}{}", if *until_timer { " until a timer" } else { "" }))
        }
        Subject::WaitFor { waker } => Some(format!("for {waker}")),
        _ => None,
    }
}

/// The name, with the frames that the nesting rule added behind slashes. It is a contract.
pub fn full(base: &str, frames: &[NamedFrame]) -> String {
    frames.iter().fold(base.to_owned(), |out, frame| format!("{out}/{frame}"))
}

/// The name in words.
pub fn title(category: Category, subject: &Subject, frames: &[NamedFrame]) -> String {
    let start = match subject {
        // It ended the wait: it gave a lock back, or handed over what was waited for.
        Subject::Holder { name } => format!("perhaps held by {name}"),
        Subject::Frame { frame } if frame.kind == FrameKind::TxDropped => in_words(frame, false),
        Subject::Frame { frame: NamedFrame { kind: FrameKind::Function, of: Some(name) } } => name.clone(),
        Subject::Frame { frame: NamedFrame { kind: FrameKind::Vector, of: Some(vector) } } => interrupts(vector),
        Subject::Frame { frame: NamedFrame { kind: FrameKind::Packet, of: Some(service) } } => packets(service),
        Subject::Frame { frame: NamedFrame { kind: FrameKind::WakePending, .. } } => "woken, not yet running".into(),
        Subject::Named { name } if name == "wake-pending" => "woken, not yet running".into(),
        // Without the hooks of system calls it is not known whether in user space or in a call.
        Subject::Named { name } if name == "user" => "running".into(),
        Subject::Named { name } if name == "parked" => "a task that waited".into(),
        Subject::Class { name } => format!("requests {name}, which cost more"),
        // Of a server of processes they are no threads of one.
        Subject::OtherThreads { application } => format!("{application} (other workers)"),
        Subject::LaterArrivals => "requests that came later were served first".into(),
        Subject::WaitIn { until_timer: true, call, .. } => {
            format!("waits for a timer of its own ({})", call.as_deref().unwrap_or(UNKNOWN_CALL))
        }
        // With a request in hand it waits for something that its runtime has: a task, a pool, a lock of its own.
        Subject::WaitIn { call: Some(call), .. } if named_waits_for_work(call) => {
            format!("waits for what the kernel does not show ({call})")
        }
        Subject::PutAside { call } => {
            format!(
                "put aside, while its thread waited for other clients ({})",
                call.as_deref().unwrap_or(UNKNOWN_CALL)
            )
        }
        other => base(other),
    };
    start + &nested(category, subject, frames)
}

/// The interrupts of a system vector, in words.
fn interrupts(vector: &str) -> String {
    match vector {
        "local_timer" => "timer interrupts".into(),
        "reschedule" => "interrupts of other cores to reschedule".into(),
        "call_function" | "call_function_single" => "interrupts of other cores to call a function".into(),
        other => format!("interrupts {other}"),
    }
}

/// Packets of a service, `nginx:8088`, or of a port alone, in words.
fn packets(service: &str) -> String {
    match service.rsplit_once(':') {
        Some((application, port)) => format!("packets of {application} (port {port})"),
        None => format!("packets to port {service}"),
    }
}

/// Of a wait of the application: in or for what, in words; none for another subject.
pub fn waited(category: Category, subject: &Subject, frames: &[NamedFrame]) -> Option<String> {
    Some(place(subject)? + &nested(category, subject, frames))
}

/// The frames in words, each behind a comma.
fn nested(category: Category, subject: &Subject, frames: &[NamedFrame]) -> String {
    let of_thread = matches!(subject, Subject::Holder { .. } | Subject::OtherThread { .. })
        || category == Category::ConnectionSetup;
    let more = frames.iter().filter(|frame| !says_the_same(subject, frame));
    let mut said: Vec<String> = more.map(|frame| in_words(frame, of_thread)).collect();
    // Of a deep stack, where it begins and where it ends.
    if said.len() > MOST_FRAMES {
        said.splice(1..said.len() - (MOST_FRAMES - 1), [format!("… {} more", said.len() - MOST_FRAMES)]);
    }
    said.iter().map(|words| format!(", {words}")).collect()
}

/// Whether a frame says no more than the name before it does.
fn says_the_same(subject: &Subject, frame: &NamedFrame) -> bool {
    let Subject::Named { name } = subject else { return false };
    let asleep = matches!(frame.kind, FrameKind::Sleep | FrameKind::DiskSleep);
    match name.as_str() {
        "queued" => frame.kind == FrameKind::TxQueued,
        "page fault" => asleep && frame.of.as_deref() == Some("exception"),
        _ => false,
    }
}

/// What a thread that was waited for did in these frames of its path, the innermost of which says it: the first one only says
/// why it was waited for.
pub fn did(frames: &[NamedFrame]) -> String {
    match frames.last().filter(|_| frames.len() > 1) {
        None => "ran".into(),
        Some(frame) => sleep_with(frame, ["slept", "waited for a disk"]).unwrap_or_else(|| in_words(frame, true)),
    }
}

/// A sleep after its verb: that of a sleep, and that of a wait for a disk.
fn sleep_with(frame: &NamedFrame, [sleep, disk]: [&str; 2]) -> Option<String> {
    let verb = match frame.kind {
        FrameKind::Sleep | FrameKind::DiskSleep => sleep,
        FrameKind::IoSleep => disk,
        _ => return None,
    };
    Some(match frame.of.as_deref() {
        None => verb.into(),
        Some("exception") => format!("{verb} in an exception"),
        Some(call) => format!("{verb} in {call}"),
    })
}

/// `of_thread`: the name before it is a thread's.
fn in_words(frame: &NamedFrame, of_thread: bool) -> String {
    let what = frame.of.as_deref().unwrap_or("?");
    let verbs = if of_thread { ["which slept", "which waited for a disk"] } else { ["asleep", "waiting for a disk"] };
    if let Some(words) = sleep_with(frame, verbs) {
        return words;
    }
    match frame.kind {
        FrameKind::Syscall if frame.of.is_none() => "in a system call".into(),
        FrameKind::Syscall => format!("in {what}"),
        FrameKind::Softirq => format!("in softirq {what}"),
        FrameKind::Irq | FrameKind::Vector => format!("in interrupt {what}"),
        FrameKind::Function => format!("in {what}"),
        FrameKind::Work if frame.of.is_none() => "in a work item".into(),
        FrameKind::Work => format!("doing {what}"),
        FrameKind::Stack => format!("at {what}"),
        FrameKind::WokenBy => format!("until {what} woke it"),
        FrameKind::Migrate => format!("migrating pages ({what})"),
        FrameKind::TxDropped => format!("dropped on its way out ({what})"),
        FrameKind::Peer => format!("for {what}"),
        FrameKind::Turn => format!("for its turn to ask {what}"),
        FrameKind::Reclaim => format!("reclaiming memory ({what})"),
        FrameKind::IdleState => format!("in idle state {what}"),
        FrameKind::Parked => "while its task waited".into(),
        FrameKind::OwnPacket => "for its own packets".into(),
        FrameKind::Packet => format!("for packets of {what}"),
        FrameKind::Csd => "in a function run for another core".into(),
        FrameKind::WakePending => "woken but not yet running".into(),
        FrameKind::Runnable => "ready to run".into(),
        FrameKind::Timer => "until its timeout".into(),
        FrameKind::KernelLock => "at a lock of the kernel".into(),
        FrameKind::FileSync => "writing a file to its disk".into(),
        FrameKind::BetweenSends => "between two sends of its reply".into(),
        other => other.name().replace('-', " "),
    }
}

/// What has a name: its title is the name in words; of a diagnosis by an older version, which has no structure, the name.
pub trait Titled {
    /// Category, name, and the structure behind the name.
    fn parts(&self) -> (Category, &str, Option<&Subject>, &[NamedFrame]);

    /// The name in words.
    fn title(&self) -> String {
        let (category, name, subject, frames) = self.parts();
        subject.map_or_else(|| name.to_owned(), |subject| title(category, subject, frames))
    }

    /// The category in words, and whose or where, when that says more: `another program: nginx`.
    fn with_category(&self) -> String {
        let (category, ..) = self.parts();
        match self.title() {
            title if category.says(&title) => category.words().to_owned(),
            title => format!("{}: {title}", category.words()),
        }
    }
}

/// The types that have category, name and subject; behind each, which frames it has.
macro_rules! titled {
    ($($type:ty: $frames:expr;)*) => {$(
        impl $crate::cause::names::Titled for $type {
            fn parts(&self) -> ($crate::Category, &str, Option<&$crate::cause::Subject>, &[tailsight_lifetime::NamedFrame]) {
                let frames: fn(&$type) -> &[tailsight_lifetime::NamedFrame] = $frames;
                (self.category, &self.name, self.subject.as_ref(), frames(self))
            }
        }
    )*};
}
pub(crate) use titled;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Holds that these are the name that scripts rely on, and its words.
    fn check(category: Category, subject: Subject, frames: &[(FrameKind, &str)], name: &str, words: &str) {
        let which = |which: &str| Some(which.to_owned()).filter(|which| !which.is_empty());
        let frames: Vec<NamedFrame> = frames.iter().map(|&(kind, what)| NamedFrame { kind, of: which(what) }).collect();
        assert_eq!(full(&base(&subject), &frames), name);
        assert_eq!(title(category, &subject, &frames), words);
    }

    #[test]
    fn tasks_read_as_words_and_may_be_called_anything() {
        use FrameKind::{DiskSleep, IoSleep, Sleep, Stack, Syscall};
        let task = |name: &str| Subject::Task { name: name.into() };
        let holder = |name: &str| Subject::Holder { name: name.into() };
        let thread = Subject::OtherThread { name: "w".into() };
        let (interference, lock) = (Category::Interference, Category::LockWait);
        check(interference, task("nginx"), &[], "nginx", "nginx");
        // Slashes of tasks are theirs, only what is held is, and a task may be called like a frame.
        check(Category::OsThreads, task("irq/24-eth0"), &[], "irq/24-eth0", "irq/24-eth0");
        check(interference, task("who holds it"), &[], "who holds it", "who holds it");
        check(interference, task("a/sys:b"), &[], "a/sys:b", "a/sys:b");
        check(lock, holder("a"), &[], "a holds it", "perhaps held by a");
        let slept = [(Sleep, "clock_nanosleep")];
        let words = "perhaps held by a, which slept in clock_nanosleep";
        check(lock, holder("a"), &slept, "a holds it/sleep:clock_nanosleep", words);
        let words = "perhaps held by a, which slept in read";
        check(lock, holder("a"), &[(Sleep, "read")], "a holds it/sleep:read", words);
        let words = "perhaps held by a, which slept in read, for db";
        check(lock, holder("a"), &[(Sleep, "read"), (FrameKind::Peer, "db")], "a holds it/sleep:read/peer:db", words);
        let chain = [(Syscall, "write"), (Stack, "journal")];
        check(lock, holder("a"), &chain, "a holds it/sys:write/in:journal", "perhaps held by a, in write, at journal");
        let words = "w (other thread), which waited for a disk in pread64";
        check(Category::AppProcessing, thread, &[(IoSleep, "pread64")], "w (other thread)/io-sleep:pread64", words);
        let fault = [(DiskSleep, "exception")];
        let words = "w, which slept in an exception";
        check(Category::ConnectionSetup, task("w"), &fault, "w/disk-sleep:exception", words);
    }

    #[test]
    fn what_is_no_task_reads_as_words() {
        use FrameKind::{IdleState, Packet, Sleep, Softirq, Syscall, TxDropped, TxQueued, WakePending, WokenBy, Work};
        let named = |name: &str| Subject::named(name);
        let frame = |kind, name: &str| Subject::Frame { frame: NamedFrame { kind, of: Some(name.into()) } };
        let app = || Subject::Application { name: "m".into() };
        let (transmit, queue) = (Category::TransmitProcessing, Category::HolBlocking);
        check(Category::LockWait, named("mmap_lock"), &[], "mmap_lock", "mmap_lock");
        check(transmit, named("queued"), &[(TxQueued, "")], "queued/tx-queued", "queued");
        check(
            Category::Paging,
            named("page fault"),
            &[(Sleep, "exception")],
            "page fault/sleep:exception",
            "page fault",
        );
        check(Category::AppProcessing, named("w"), &[(Sleep, "")], "w/sleep:?", "w, asleep");
        let woken = [(WokenBy, "jbd2/vda1-8")];
        check(Category::DiskWait, named("x"), &woken, "x/woken-by:jbd2/vda1-8", "x, until jbd2/vda1-8 woke it");
        let idle = [(IdleState, "2"), (WakePending, "")];
        let words = "idle, in idle state 2, woken but not yet running";
        check(Category::WakeupDelay, named("idle"), &idle, "idle/idle-state:2/wake-pending", words);
        let sends = [(Syscall, "sendmsg"), (Softirq, "net_rx")];
        check(queue, app(), &sends, "m/sys:sendmsg/softirq:net_rx", "m, in sendmsg, in softirq net_rx");
        let deep = ["a", "b", "c", "d", "e", "f"].map(|name| (Work, name));
        let words = "m, doing a, … 2 more, doing d, doing e, doing f";
        check(queue, app(), &deep, "m/work:a/work:b/work:c/work:d/work:e/work:f", words);
        check(transmit, frame(TxDropped, "FULL"), &[], "tx-dropped:FULL", "dropped on its way out (FULL)");
        check(Category::ReceiveProcessing, frame(Packet, "m:8088"), &[], "packet:m:8088", "packets of m (port 8088)");
        check(Category::ReceiveProcessing, frame(Packet, "8088"), &[], "packet:8088", "packets to port 8088");
        let vector = |name| frame(FrameKind::Vector, name);
        check(Category::Interrupts, vector("local_timer"), &[], "vector:local_timer", "timer interrupts");
        check(Category::Interrupts, vector("error_apic"), &[], "vector:error_apic", "interrupts error_apic");
        check(Category::WakeupDelay, named("wake-pending"), &[], "wake-pending", "woken, not yet running");
        let later = "requests that came later were served first";
        check(Category::HolBlocking, Subject::LaterArrivals, &[], "later arrivals first", later);
        let wait =
            Subject::WaitIn { call: Some("futex".into()), waker: Some("jbd2/vda1-8".into()), until_timer: false };
        let name = "waits in futex for jbd2/vda1-8";
        check(Category::AppProcessing, wait, &[], name, name);
    }

    proptest! {
        /// Whoever names a task can neither make this panic nor vanish.
        #[test]
        fn any_name_has_words(name in "(\\PC|/|sys:|sleep:|packet:own:| holds it){0,12}", lock in any::<bool>()) {
            let subject = if lock { Subject::Holder { name } } else { Subject::Task { name } };
            prop_assert!(!title(Category::LockWait, &subject, &[]).is_empty());
        }
    }
}
