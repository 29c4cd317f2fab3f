//! Placeholders of the advice: values of this run, quoted for a shell.
//!
//! A task may have any name, and these commands are pasted as root. So names are quoted, and a name with unprintable characters is
//! not filled in. A value that the run does not have is a word in capitals, with how to find it.

use tailsight_diagnose::model::{FunctionPart, Who};
use tailsight_units::name;

/// The values of one cause.
#[derive(Default)]
pub struct Fill<'a> {
    /// The cause's name.
    pub name: &'a str,
    /// The same without the frames that the nesting rule added.
    pub base: &'a str,
    /// The device interrupt that the cause is.
    pub irq: Option<&'a str>,
    /// The application.
    pub app: &'a str,
    /// The target's processes.
    pub pids: &'a [u32],
    /// The network device.
    pub device: Option<&'a str>,
    /// The cores that the cause hit.
    pub cores: &'a [u32],
    /// Cores of the machine.
    pub cpus: Option<u32>,
    /// The target's control group.
    pub cgroup: Option<&'a str>,
    /// Interrupts of the devices.
    pub irqs: &'a [u32],
    /// A process in the target's network namespace, when that is another one than the recorder's.
    pub netns: Option<u32>,
    /// A process in the device's, likewise.
    pub device_netns: Option<u32>,
    /// The namespace that the whole command is run in, when that is another one.
    pub inside: Option<u32>,
    /// The process that the cause is, when it is known.
    pub who: Option<&'a Who>,
    /// The first function that the cause was in, when one is named.
    pub function: Option<&'a FunctionPart>,
}

/// A text with its values, and the words in it that stand for values which this run does not know.
#[derive(Debug, PartialEq, Eq)]
pub struct Filled {
    /// The text.
    pub text: String,
    /// A word in capitals, and how to find what it stands for.
    pub find: Vec<(&'static str, &'static str)>,
}

/// The value of a placeholder.
enum Value {
    Known(String),
    /// A word in its place, and how to find the value.
    Unknown(&'static str, &'static str),
    /// There is none: what needs it cannot be done here.
    Never,
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Value {
        value.map_or(Value::Never, Value::Known)
    }
}

impl Fill<'_> {
    /// The command with its values; `None` when one cannot exist in this run (no other core is left).
    pub fn one(&self, template: &str, pid: Option<u32>) -> Option<Filled> {
        let find = std::cell::RefCell::new(vec![]);
        let text = replace(template, |key| match self.value(key, pid) {
            Value::Known(value) => Some(value),
            Value::Unknown(word, how) => {
                let mut find = find.borrow_mut();
                if !find.contains(&(word, how)) {
                    find.push((word, how));
                }
                Some(word.to_owned())
            }
            Value::Never => None,
        })?;
        Some(Filled { text, find: find.into_inner() })
    }

    /// The text with its values as they are, not quoted: data, not a command. `None` when a value is not known.
    pub fn raw(&self, template: &str) -> Option<String> {
        replace(template, |key| match key {
            "comm" => printable(self.base).map(str::to_owned),
            "dev" => self.device.map(str::to_owned),
            _ => match self.value(key, None) {
                Value::Known(value) => Some(value),
                _ => None,
            },
        })
    }

    fn value(&self, key: &str, pid: Option<u32>) -> Value {
        let unknown = |word: &'static str, how: &'static str| Value::Unknown(word, how);
        match key {
            "name" | "app" => plain(if key == "name" { self.name } else { self.app }).into(),
            "comm" => printable(self.base).map(quote_name).into(),
            "threads" => self.threads(),
            "function" => self.function.and_then(|function| plain(&function.name)).into(),
            "where" => self.function.map(place).into(),
            "share" => self.function.map(|function| format!("{:.0} %", function.inclusive().min(1.0) * 100.0)).into(),
            "key" => Value::Known(file_name(self.base)),
            "tag" => Value::Known(self.inside.map_or(String::new(), |pid| format!(".{pid}"))),
            // Before a program's name within a step.
            "in" => Value::Known(enter(self.netns)),
            "device_in" => Value::Known(enter(self.device_netns)),
            "pid" => pid
                .map(|p| Value::Known(p.to_string()))
                .unwrap_or(unknown("PID", "the target's process id, see pgrep -a or ss -ltnp")),
            "pids" if self.pids.is_empty() => {
                unknown("PIDS", "the target's process ids with commas, see pgrep -a or ss -ltnp")
            }
            "pids" => Value::Known(joined(self.pids, ",")),
            // To watch a few of many is enough, and what watches slows down what it watches.
            "some_pids" if !self.pids.is_empty() => {
                Value::Known(joined(&self.pids[..self.pids.len().min(MOST_WATCHED)], ","))
            }
            "some_pids" => self.value("pids", None),
            "irq" => match self.irq {
                Some(irq) => Value::Known(irq.to_owned()),
                None => unknown("IRQ", "the interrupt's number, see /proc/interrupts"),
            },
            "irqs" if self.irqs.is_empty() => {
                unknown("IRQS", "the device's interrupt numbers with spaces, see /proc/interrupts")
            }
            "irqs" => Value::Known(joined(self.irqs, " ")),
            "cgroup" => match self.cgroup.and_then(printable) {
                Some(path) => Value::Known(quote(&format!("/sys/fs/cgroup{path}"))),
                None => unknown("CGROUP", "the control group's directory under /sys/fs/cgroup, see /proc/PID/cgroup"),
            },
            "dev" => match self.device {
                Some(device) => Value::Known(quote(device)),
                None => unknown("DEV", "the network device of the service, see ip -br addr"),
            },
            _ => self.cores(key),
        }
    }

    /// A shell's command that prints the threads of the cause's process; of several, of those that are called so.
    fn threads(&self) -> Value {
        // Bytes that are no text are found by a grep that looks at bytes.
        let name = printable(self.base).map(|name| (if is_text(name) { "" } else { "LC_ALL=C " }, quote_name(name)));
        let named = |what: &str, field: u8| {
            let (locale, name) = name.as_ref()?;
            Some(format!("{locale}grep -lsFx -e {name} /proc/[0-9]*/{what}comm | cut -d/ -f{field}"))
        };
        match self.who {
            Some(who) if who.processes == 1 => Value::Known(format!("ls /proc/{}/task", who.pid)),
            // Every script of an interpreter is called so. By number alone it may be another process by now.
            Some(who) if who.pids.len() == who.processes as usize && tailsight_fix::runs_anything(self.base) => name
                .as_ref()
                .map(|(locale, name)| {
                    let pids = joined(&who.pids, " ");
                    format!("for p in {pids}; do {locale}grep -qsFx -e {name} /proc/$p/comm && ls /proc/$p/task; done")
                })
                .into(),
            Some(_) => named("", 3).map(|leaders| format!("for p in $({leaders}); do ls /proc/$p/task; done")).into(),
            None => named("task/[0-9]*/", 5).into(),
        }
    }

    /// Cores: of the cause, the others, all.
    fn cores(&self, key: &str) -> Value {
        let cpus = self.cpus.filter(|&n| n > 0);
        // Which cores are others is known when the machine's and the cause's are.
        let others = |show: fn(&[u32]) -> String| {
            let all = cpus.filter(|_| !self.cores.is_empty())?;
            let others: Vec<u32> = (0..all).filter(|c| !self.cores.contains(c)).collect();
            Some(if others.is_empty() { Value::Never } else { Value::Known(show(&others)) })
        };
        let all = |show: fn(&[u32]) -> String| cpus.map(|n| Value::Known(show(&(0..n).collect::<Vec<u32>>())));
        let of = || (!self.cores.is_empty()).then(|| Value::Known(list(self.cores)));
        let (value, word, how) = match key {
            "cpu" => (of(), "CPU", "the core of the slow messages, see taskset -acp of the target"),
            "other_cpus" => (others(list), "OTHER_CPUS", "the cores to use instead, as 0,2-3, see lscpu -e"),
            "other_mask" => {
                (others(mask), "OTHER_MASK", "the cores to use instead as a hexadecimal mask, bit 0 for core 0")
            }
            "all_cpus" => (all(list), "ALL_CPUS", "what /sys/devices/system/cpu/online says"),
            "all_mask" => (all(mask), "ALL_MASK", "every core as a hexadecimal mask, bit 0 for core 0, see lscpu -e"),
            _ => return Value::Never,
        };
        value.unwrap_or(Value::Unknown(word, how))
    }
}

/// Processes that one command watches.
const MOST_WATCHED: usize = 4;

/// Where a function's text is, with a blank before it: its line where debug information tells it, else its program or library.
fn place(function: &FunctionPart) -> String {
    match [&function.source, &function.module].into_iter().find_map(|text| printable(text)) {
        Some(text) => format!(" ({text})"),
        None => String::new(),
    }
}

/// Numbers as text.
fn joined(of: &[u32], by: &str) -> String {
    of.iter().map(u32::to_string).collect::<Vec<_>>().join(by)
}

/// Whether a network device is one of software only, by its usual names: it has no interrupts, rings or coalescing.
pub fn is_virtual(device: &str) -> bool {
    let names =
        ["veth", "br-", "docker", "virbr", "cni", "tun", "tap", "wg", "dummy", "vxlan", "cali", "flannel", "lxc"];
    device == "lo" || names.iter().any(|n| device.starts_with(n))
}

/// Fills `{key}`s in one pass (values are not looked into); `None` when one has no value.
pub fn replace(template: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (key, after) = after.split_once('}')?;
        out += before;
        out += &value(key)?;
        rest = after;
    }
    Some(out + rest)
}

fn printable(text: &str) -> Option<&str> {
    let unknown = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
    (!text.is_empty() && !text.contains(unknown)).then_some(text)
}

/// A name within words: kept on its line.
fn plain(text: &str) -> Option<String> {
    printable(text).map(str::to_owned)
}

/// A word for a shell.
pub fn quote(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-/:,+@=".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(safe) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Whether a name's bytes are its text.
fn is_text(text: &str) -> bool {
    name::to_bytes(text) == text.as_bytes()
}

/// A task's name for a shell: its bytes, where they are no text by way of printf.
fn quote_name(text: &str) -> String {
    if is_text(text) {
        return quote(text);
    }
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:,+@= ".contains(&byte);
    let bytes = name::to_bytes(text).into_iter();
    let octal = |byte| if safe(byte) { char::from(byte).to_string() } else { format!("\\0{byte:03o}") };
    format!("\"$(printf %b '{}')\"", bytes.map(octal).collect::<String>())
}

/// A name as a part of a file's name.
fn file_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

fn enter(netns: Option<u32>) -> String {
    netns.map_or(String::new(), |pid| format!("nsenter -t {pid} -n "))
}

/// Cores as a list, e.g. `0,2-4`.
fn list(cores: &[u32]) -> String {
    let mut out: Vec<(u32, u32)> = vec![];
    for &core in cores {
        match out.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => out.push((core, core)),
        }
    }
    let range = |&(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    out.iter().map(range).collect::<Vec<_>>().join(",")
}

/// Cores as a hexadecimal mask in groups of 32, as /sys takes it.
fn mask(cores: &[u32]) -> String {
    let groups = cores.iter().max().map_or(1, |m| m / 32 + 1);
    let mut words = vec![0u32; groups as usize];
    cores.iter().for_each(|c| words[(c / 32) as usize] |= 1 << (c % 32));
    words.iter().rev().enumerate().map(|(i, w)| if i == 0 { format!("{w:x}") } else { format!(",{w:08x}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Fill<'static> {
        Fill { name: "n", base: "n", app: "m", ..Fill::default() }
    }

    #[test]
    fn names_cannot_leave_their_quotes() {
        assert_eq!(quote("nginx"), "nginx");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("x'; reboot #"), r"'x'\''; reboot #'");
        assert_eq!(quote("$(reboot)"), "'$(reboot)'");
        assert_eq!(quote("-rf"), "'-rf'");
        assert_eq!(quote(""), "''");
        let fill = Fill { name: "a\nb", base: "a\nb", ..none() };
        assert_eq!(fill.one("grep -Fx -e {comm}", None), None);
        let fill = Fill { name: "tokio (w)", base: "tokio (w)", ..fill };
        assert_eq!(text(&fill, "grep -Fx -e {comm} >> {key}", None), "grep -Fx -e 'tokio (w)' >> tokio__w_");
        // A task is called what it is called, not what the nesting rule added.
        let fill = Fill { name: "lab/hog/softirq:net_rx", base: "lab/hog", ..fill };
        assert_eq!(text(&fill, "grep -Fx -e {comm} >> {key}", None), "grep -Fx -e lab/hog >> lab_hog");
        // A value that looks like a placeholder stays as it is.
        let fill = Fill { name: "{pid}", base: "{pid}", ..fill };
        assert_eq!(text(&fill, "see {name}", Some(7)), "see {pid}");
    }

    fn text(fill: &Fill<'_>, template: &str, pid: Option<u32>) -> String {
        let filled = fill.one(template, pid).unwrap();
        assert!(filled.find.is_empty(), "{filled:?}");
        filled.text
    }

    /// What a run does not know is a word that no command takes, with how to find it; never a guess.
    #[test]
    fn unknown_values_are_words_with_how_to_find_them() {
        let filled =
            none().one("ethtool -C {dev} on {cpu}, not {other_cpus} of {dev} {pid} {pids} {irq}", None).unwrap();
        assert_eq!(filled.text, "ethtool -C DEV on CPU, not OTHER_CPUS of DEV PID PIDS IRQ");
        let words: Vec<&str> = filled.find.iter().map(|(word, _)| *word).collect();
        assert_eq!(words, ["DEV", "CPU", "OTHER_CPUS", "PID", "PIDS", "IRQ"]);
        // The machine's cores alone do not say which ones are others.
        let fill = Fill { cpus: Some(4), ..none() };
        assert_eq!(fill.one("{other_mask} of {all_mask}", None).unwrap().text, "OTHER_MASK of f");
        assert_eq!(fill.one("{nonsense}", None), None);
    }

    /// A process is moved with all of its threads, whatever they are called.
    #[test]
    fn threads_are_those_of_the_process() {
        let who = |processes| Who { pid: 812, processes, ..Default::default() };
        let (one, four) = (who(1), who(4));
        let fill = Fill { name: "rustc", base: "rustc", who: Some(&one), ..none() };
        assert_eq!(text(&fill, "{threads}", None), "ls /proc/812/task");
        let fill = Fill { who: Some(&four), ..fill };
        let all = "for p in $(grep -lsFx -e rustc /proc/[0-9]*/comm | cut -d/ -f3); do ls /proc/$p/task; done";
        assert_eq!(text(&fill, "{threads}", None), all);
        let fill = Fill { who: None, name: "lto cgu.01", base: "lto cgu.01", ..fill };
        assert_eq!(
            text(&fill, "{threads}", None),
            "grep -lsFx -e 'lto cgu.01' /proc/[0-9]*/task/[0-9]*/comm | cut -d/ -f5"
        );
    }

    /// The kernel cuts names inside a character: the command is to find such a thread, and no other.
    #[test]
    fn a_name_that_is_no_text_is_matched_by_its_bytes() {
        let bytes = b"-l'\xe3\x82\xb5 %s\xe3\x83";
        let comm = name::from_bytes(bytes);
        let fill = Fill { who: None, name: &comm, base: &comm, ..none() };
        let words = text(&fill, "printf %s {comm}", None);
        let out = std::process::Command::new("sh").args(["-c", &words]).output().unwrap();
        assert_eq!(out.stdout, bytes, "{words}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [&bytes[..], b"\n"].concat()).unwrap();
        let find =
            text(&fill, "{threads}", None).replace("/proc/[0-9]*/task/[0-9]*/comm", &file.path().display().to_string());
        let found = |command: &str| {
            let out = std::process::Command::new("sh").args(["-c", command]).output().unwrap();
            out.stdout.iter().filter(|b| **b == b'\n').count()
        };
        assert_eq!(found(&find.replace("| cut -d/ -f5", "")), 1, "{find}");
        std::fs::write(file.path(), b"-l'\xe3\x82\xb5 %s\xe3\x82\n").unwrap();
        assert_eq!(found(&find.replace("| cut -d/ -f5", "")), 0, "another name: {find}");
    }

    #[test]
    fn devices_of_software() {
        for (device, expected) in [("lo", true), ("veth1", true), ("eth0", false), ("enp3s0", false), ("docker0", true)]
        {
            assert_eq!(is_virtual(device), expected, "{device}");
        }
    }

    #[test]
    fn cores_read_as_the_kernel_writes_them() {
        assert_eq!(list(&[0, 2, 3, 4, 7]), "0,2-4,7");
        assert_eq!(mask(&[0, 1, 3]), "b");
        assert_eq!(mask(&[0, 33]), "2,00000001");
        let fill = Fill { pids: &[1, 2], cores: &[0, 1], cpus: Some(2), ..none() };
        assert_eq!(fill.one("{other_cpus}", None), None, "no other core is left");
        assert_eq!(text(&fill, "{all_cpus} {all_mask} {cpu} {pids}", None), "0-1 3 0-1 1,2");
    }
}
