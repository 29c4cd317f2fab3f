//! Seccomp filters: of a recording, the system calls that it does not need from when its programs are attached; of a process that reads
//! what strangers wrote, also all that reaches another process or the network.
//!
//! Lists of what is refused, not of what is allowed: the C library, libbpf and the readers of symbols use other calls in each
//! version, and a recording must not fail on a newer one. Refused calls fail with EPERM, as without rights.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

/// What changes the machine, starts programs, talks to the network, or reaches into other processes.
const REFUSED: &[libc::c_long] = &[
    // Other programs and other users.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    // The network. Sockets are created only to query devices; nothing is sent.
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // Memory of other processes, and their control.
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    // Files that are no run's.
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_open_by_handle_at,
    // Kernel interfaces with many known vulnerabilities.
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// The same calls in the older forms, on processors that have them.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_mknod,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chown,
    libc::SYS_lchown,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// What a reader of strangers' files does not need either: other processes, further sockets, threads and programs, and names of files. It
/// answers by sendmsg(2) and sendto(2) on the socket that it has.
const REFUSED_TO_READERS: &[libc::c_long] = &[
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_sendmmsg,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_setns,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_process_vm_readv,
    libc::SYS_prlimit64,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_msgget,
    libc::SYS_mq_open,
    libc::SYS_inotify_init1,
    libc::SYS_fanotify_init,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_truncate,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
];

/// The same calls in the older forms.
#[cfg(target_arch = "x86_64")]
const REFUSED_TO_READERS_HERE: &[libc::c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_inotify_init,
    libc::SYS_mkdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_chmod,
    libc::SYS_creat,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_TO_READERS_HERE: &[libc::c_long] = &[];

/// Commands of bpf(2) that make something new: BPF_MAP_CREATE, BPF_PROG_LOAD, BPF_BTF_LOAD.
const BPF_CREATES: [u64; 3] = [0, 5, 18];

fn of_recording(connects: bool) -> Result<BpfProgram, seccompiler::BackendError> {
    let refused = REFUSED.iter().chain(REFUSED_HERE).filter(|call| !(connects && **call == libc::SYS_connect));
    let always = refused.map(|call| (*call, Vec::new()));
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = always.collect();
    let command = |number| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, number);
    let creates = BPF_CREATES.into_iter().map(|number| SeccompRule::new(vec![command(number)?]));
    rules.insert(libc::SYS_bpf, creates.collect::<Result<_, _>>()?);
    refusing(rules)
}

fn of_reader() -> Result<BpfProgram, seccompiler::BackendError> {
    let refused = [REFUSED, REFUSED_HERE, REFUSED_TO_READERS, REFUSED_TO_READERS_HERE].concat();
    refusing(refused.into_iter().map(|call| (call, Vec::new())).collect())
}

fn refusing(rules: BTreeMap<i64, Vec<SeccompRule>>) -> Result<BpfProgram, seccompiler::BackendError> {
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// Installs the filter for every thread of this process; it cannot be removed. `connects`: connecting to the socket of a JVM
/// is allowed. It also sets `no_new_privs`: programs that are started gain no rights.
///
/// # Errors
/// Why there is none, for the reader of a run: a processor that seccompiler does not know, or a kernel without seccomp.
pub fn install(connects: bool) -> Result<(), String> {
    let program = of_recording(connects).map_err(|e| e.to_string())?;
    apply_filter_all_threads(&program).map_err(|e| e.to_string())
}

/// Installs the filter of a process that reads what strangers wrote and answers on a socket that it has.
///
/// # Errors
/// As of [`install`].
pub fn install_for_reader() -> Result<(), String> {
    let program = of_reader().map_err(|e| e.to_string())?;
    apply_filter_all_threads(&program).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own, because the filter cannot be removed. The child only calls the kernel.
    #[test]
    fn a_filtered_process_starts_nothing_and_loads_nothing() {
        let program = of_recording(false).unwrap();
        let call = |number: libc::c_long, first: usize| {
            // SAFETY: calls that fail before they look at an argument, or are harmless: null pointers throughout.
            let rc = unsafe { libc::syscall(number, first, 0usize, 0usize, 0usize, 0usize) };
            if rc == -1 { std::io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 }
        };
        // SAFETY: the child makes system calls only, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let filtered = seccompiler::apply_filter(&program).is_ok();
            let refused =
                [libc::SYS_execve, libc::SYS_connect, libc::SYS_finit_module, libc::SYS_mount, libc::SYS_ptrace];
            let all_refused = refused.iter().all(|number| call(*number, 0) == libc::EPERM)
                && BPF_CREATES.iter().all(|command| call(libc::SYS_bpf, *command as usize) == libc::EPERM)
                // A look-up in something that is not a map: the kernel's own error, which differs from the filter's.
                && call(libc::SYS_getpid, 0) == 0
                && call(libc::SYS_bpf, 1) != libc::EPERM;
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if filtered && all_refused { 0 } else { 1 }) };
        }
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: waits for the child that was just made.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
    /// Likewise.
    #[test]
    fn a_filtered_reader_reaches_no_other_process() {
        let program = of_reader().unwrap();
        // SAFETY: the child makes system calls only, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let filtered = seccompiler::apply_filter(&program).is_ok();
            let refused = |number: libc::c_long| {
                // SAFETY: refused before any argument is looked at, or harmless: signal 0, null pointers.
                let rc = unsafe { libc::syscall(number, 0usize, 0usize, 0usize, 0usize, 0usize) };
                rc == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
            };
            let calls = [libc::SYS_kill, libc::SYS_socket, libc::SYS_clone, libc::SYS_execve, libc::SYS_bpf];
            let all_refused = calls.into_iter().all(refused) && !refused(libc::SYS_getpid);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if filtered && all_refused { 0 } else { 1 }) };
        }
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: waits for the child that was just made.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
