//! Who a process is to itself. In: the text of `/proc/PID/status`. Out: its id in its own namespace, its user. Each is read from its own
//! line: procfs-core refuses a file in which any line is missing.

/// Reads it. The name in it may be cut inside a character.
pub(super) fn read(pid: u32) -> std::io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/status"))?).into_owned())
}

/// The value of a line.
pub(super) fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
}

/// The id in the innermost namespace.
pub(super) fn inside(status: &str) -> Option<u32> {
    field(status, "NSpid")?.split_whitespace().next_back()?.parse().ok()
}

/// The effective user: not the owner of `/proc/PID`, which is root where a server gave root's rights up.
pub(super) fn user(status: &str) -> Option<u32> {
    field(status, "Uid")?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_as_it_knows_itself() {
        let status = "Name:\tserver \u{fffd}\nodd\nUid:\t5\t6\t5\t5\nNSpid:\t77\t7\n";
        assert_eq!((inside(status), user(status)), (Some(7), Some(6)));
        // Kernels before 4.1 have no such line.
        assert_eq!((inside("Uid:\t5\n"), user("Uid:\t5\n")), (None, None));
        assert!(inside(&read(std::process::id()).unwrap()).is_some());
    }
}
