//! Names of causes as a reader understands them.
//!
//! In: the name of a [`Cause`](crate::model::Cause), which scripts rely on and which therefore stays what it is: who or what
//! did it, and behind slashes the frames that the nesting rule added (`lab-holder holds it/sleep:clock_nanosleep`). Out: the
//! same in words (`held by lab-holder, which slept in clock_nanosleep`). For sentences, tables and pages only.

/// What a frame of a path begins with, or is. A task may have a slash in its name: only these end a name.
const FRAMES: [&str; 34] = [
    "sys:",
    "softirq:",
    "irq:",
    "vector:",
    "work:",
    "packet:",
    "idle-state:",
    "sleep:",
    "disk-sleep:",
    "io-sleep:",
    "in:",
    "woken-by:",
    "peer:",
    "reclaim:",
    "csd",
    "work",
    "request-arriving",
    "wake-pending",
    "runnable",
    "throttled",
    "stolen",
    "kernel-lock",
    "file-sync",
    "tcp-hole",
    "unseen",
    "connection-setup",
    "stopped",
    "serving",
    "tx-queued",
    "tx-socket",
    "tx-qdisc",
    "tx-recovery",
    "tx-dropped:",
    "migrate:",
];

/// Most frames that are said of a stack.
const MOST: usize = 4;

/// The name in words.
pub fn readable(category: &str, name: &str) -> String {
    let (base, mut frames) = match first_frame(name) {
        Some(at) => (&name[..at], Some(&name[at + 1..])),
        None => (name, None),
    };
    let holder = base.strip_suffix(" holds it").filter(|_| category == "lock-wait");
    let mut out = holder.map_or(base.to_owned(), |holder| format!("held by {holder}"));
    if let Some(reason) = base.strip_prefix("tx-dropped:") {
        out = format!("dropped on its way out ({reason})");
    }
    let is_thread = holder.is_some() || base.ends_with("(other thread)") || category == "connection-setup";
    let mut said = vec![];
    while let Some(path) = frames {
        let (frame, rest) = match first_frame(path) {
            Some(at) => (&path[..at], Some(&path[at + 1..])),
            None => (path, None),
        };
        // What says no more than the name does.
        let known = matches!(
            (base, frame),
            ("queued", "tx-queued") | ("page fault", "sleep:exception" | "disk-sleep:exception")
        );
        if !known {
            said.push(in_words(frame, is_thread));
        }
        frames = rest;
    }
    // Of a deep stack, where it begins and where it ends.
    if said.len() > MOST {
        said.splice(1..said.len() - (MOST - 1), [format!("… {} more", said.len() - MOST)]);
    }
    said.iter().for_each(|words| out += &format!(", {words}"));
    out
}

/// The name without the frames that the nesting rule added: whose it is.
pub fn base(name: &str) -> &str {
    first_frame(name).map_or(name, |at| &name[..at])
}

/// What the last frame of a holder's path says it did; the first frame says only why it was waited for.
pub fn last(path: &str) -> String {
    let mut frames = vec![];
    let mut rest = path;
    while let Some(at) = first_frame(rest) {
        rest = &rest[at + 1..];
        frames.push(rest);
    }
    match frames.last().filter(|_| frames.len() > 1) {
        None => "ran".into(),
        Some(frame) => match in_words(frame, true).strip_prefix("which ") {
            Some(slept) => slept.to_owned(),
            None => in_words(frame, true),
        },
    }
}

/// Where the slash before the first frame is.
fn first_frame(name: &str) -> Option<usize> {
    let is_frame = |text: &str| {
        FRAMES.iter().any(|f| match f.ends_with(':') {
            true => text.strip_prefix(f).is_some_and(|what| !what.is_empty()),
            false => text.strip_prefix(f).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        })
    };
    name.match_indices('/').map(|(at, _)| at).find(|&at| at > 0 && is_frame(&name[at + 1..]))
}

/// `of_thread`: the name before it is a thread's.
fn in_words(frame: &str, of_thread: bool) -> String {
    let Some((kind, what)) = frame.split_once(':') else {
        return match frame {
            "work" => "in a work item".into(),
            "csd" => "in a function run for another core".into(),
            "wake-pending" => "woken but not yet running".into(),
            "runnable" => "ready to run".into(),
            "kernel-lock" => "at a lock of the kernel".into(),
            "file-sync" => "writing a file to its disk".into(),
            other => other.replace('-', " "),
        };
    };
    let call = match what {
        "?" => String::new(),
        "exception" => " in an exception".into(),
        call => format!(" in {call}"),
    };
    match kind {
        "sys" if call.is_empty() => "in a system call".into(),
        "sys" => format!("in {what}"),
        "sleep" | "disk-sleep" => format!("{}{call}", if of_thread { "which slept" } else { "asleep" }),
        "io-sleep" => format!("{} for a disk{call}", if of_thread { "which waited" } else { "waiting" }),
        "softirq" => format!("in softirq {what}"),
        "irq" | "vector" => format!("in interrupt {what}"),
        "work" => format!("doing {what}"),
        "in" => format!("at {what}"),
        "woken-by" => format!("until {what} woke it"),
        "migrate" => format!("migrating pages ({what})"),
        "tx-dropped" => format!("dropped on its way out ({what})"),
        "peer" => format!("for {what}"),
        "reclaim" => format!("reclaiming memory ({what})"),
        "idle-state" => format!("in idle state {what}"),
        "packet" => match what.strip_prefix("own:") {
            Some(_) => "for its own packets".into(),
            None => format!("for packets of {what}"),
        },
        _ => frame.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn chains_read_as_words() {
        for (category, name, text) in [
            ("interference", "nginx", "nginx"),
            ("lock-wait", "lab-holder holds it", "held by lab-holder"),
            (
                "lock-wait",
                "lab-holder holds it/sleep:clock_nanosleep",
                "held by lab-holder, which slept in clock_nanosleep",
            ),
            ("lock-wait", "a holds it/sys:write/in:journal", "held by a, in write, at journal"),
            ("lock-wait", "mmap_lock", "mmap_lock"),
            // Only a lock is held.
            ("interference", "who holds it", "who holds it"),
            ("hol-blocking", "memcached/sys:sendmsg/softirq:net_rx", "memcached, in sendmsg, in softirq net_rx"),
            ("disk-wait", "journal/woken-by:jbd2/vda1-8", "journal, until jbd2/vda1-8 woke it"),
            (
                "app-processing",
                "worker (other thread)/io-sleep:pread64",
                "worker (other thread), which waited for a disk in pread64",
            ),
            ("connection-setup", "w/disk-sleep:exception", "w, which slept in an exception"),
            ("app-processing", "w/sleep:?", "w, asleep"),
            ("paging", "page fault/sleep:exception", "page fault"),
            ("transmit-processing", "queued/tx-queued", "queued"),
            ("wakeup-delay", "idle/idle-state:2/wake-pending", "idle, in idle state 2, woken but not yet running"),
            (
                "hol-blocking",
                "m/work:a/work:b/work:c/work:d/work:e/work:f",
                "m, doing a, … 2 more, doing d, doing e, doing f",
            ),
            ("transmit-processing", "tx-dropped:QDISC_DROP", "dropped on its way out (QDISC_DROP)"),
            ("tcp-recovery", "retransmission of our own replies", "retransmission of our own replies"),
            // Slashes of tasks are theirs.
            ("os-threads", "irq/24-eth0", "irq/24-eth0"),
            ("interference", "kworker/0:1", "kworker/0:1"),
            ("receive-processing", "packet:nginx:8088", "packet:nginx:8088"),
        ] {
            assert_eq!(readable(category, name), text);
        }
    }

    proptest! {
        /// Whoever names a task can neither make this panic nor vanish.
        #[test]
        fn any_name_has_words(name in "(\\PC|/|sys:|sleep:|packet:own:| holds it){0,12}", lock in any::<bool>()) {
            let text = readable(if lock { "lock-wait" } else { "interference" }, &name);
            prop_assert!(name.is_empty() || !text.is_empty());
        }
    }
}
