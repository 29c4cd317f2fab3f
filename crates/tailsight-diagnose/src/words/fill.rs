//! Placeholders of the advice: values of this run, quoted for a shell.
//!
//! A task may be named anything by whoever started it, and these commands are there to be pasted as root: names are quoted,
//! and a name with characters that cannot be shown fills nothing.

/// The values of one cause.
pub struct Fill<'a> {
    /// The cause's name.
    pub name: &'a str,
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
}

impl Fill<'_> {
    /// The command with its values; `None` when one has none in this run.
    pub fn one(&self, template: &str, pid: Option<u32>) -> Option<String> {
        let others = || {
            let all = self.cpus?;
            let others: Vec<u32> = (0..all).filter(|c| !self.cores.contains(c)).collect();
            (!others.is_empty()).then_some(others)
        };
        let all = || self.cpus.filter(|&n| n > 0).map(|n| (0..n).collect::<Vec<u32>>());
        replace(template, |key| match key {
            "name" | "app" => plain(if key == "name" { self.name } else { self.app }),
            "comm" => printable(self.name).map(quote),
            "pattern" => printable(self.name).map(|n| quote(&escape(n))),
            "pid" => pid.map(|p| p.to_string()),
            "pids" => {
                (!self.pids.is_empty()).then(|| self.pids.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
            }
            "cpu" => (!self.cores.is_empty()).then(|| list(self.cores)),
            "other_cpus" => others().map(|o| list(&o)),
            "other_mask" => others().map(|o| mask(&o)),
            "all_cpus" => all().map(|o| list(&o)),
            "all_mask" => all().map(|o| mask(&o)),
            "irq" => self.name.strip_prefix("irq:").filter(|n| n.parse::<u32>().is_ok()).map(str::to_owned),
            "dev" => self.device.map(quote),
            _ => None,
        })
    }

    /// The reason behind a command's `#`.
    pub fn comment(&self, template: &str) -> Option<String> {
        self.one(template, None)
    }
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

/// A name as an extended regular expression.
fn escape(text: &str) -> String {
    text.chars().flat_map(|c| r"\.+*?()[]{}|^$".contains(c).then_some('\\').into_iter().chain([c])).collect()
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

    #[test]
    fn names_cannot_leave_their_quotes() {
        assert_eq!(quote("nginx"), "nginx");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("x'; reboot #"), r"'x'\''; reboot #'");
        assert_eq!(quote("$(reboot)"), "'$(reboot)'");
        assert_eq!(quote("-rf"), "'-rf'");
        assert_eq!(quote(""), "''");
        let fill = Fill { name: "a\nb", app: "m", pids: &[], device: None, cores: &[], cpus: None };
        assert_eq!(fill.one("pgrep -x {pattern}", None), None);
        assert_eq!(fill.one("{pids}", None), None);
        let fill = Fill { name: "tokio (w)", ..fill };
        assert_eq!(fill.one("pgrep -x {pattern}", None).as_deref(), Some(r"pgrep -x 'tokio \(w\)'"));
        // A value that looks like a placeholder stays as it is.
        let fill = Fill { name: "{pid}", ..fill };
        assert_eq!(fill.one("see {name}", Some(7)).as_deref(), Some("see {pid}"));
    }

    #[test]
    fn cores_read_as_the_kernel_writes_them() {
        assert_eq!(list(&[0, 2, 3, 4, 7]), "0,2-4,7");
        assert_eq!(mask(&[0, 1, 3]), "b");
        assert_eq!(mask(&[0, 33]), "2,00000001");
        let fill = Fill { name: "n", app: "m", pids: &[1, 2], device: None, cores: &[0, 1], cpus: Some(2) };
        assert_eq!(fill.one("{other_cpus}", None), None, "no other core is left");
        assert_eq!(fill.one("{all_cpus} {all_mask} {cpu} {pids}", None).as_deref(), Some("0-1 3 0-1 1,2"));
    }
}
