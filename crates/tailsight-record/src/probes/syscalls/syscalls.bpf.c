// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* System calls of the target's threads only: the first instructions turn everybody else away.
 * hooks: sys_enter, sys_exit
 * events: SyscallEnter, SyscallExit */

SEC("tp_btf/sys_enter")
int HOOK(sys_enter, struct pt_regs *regs, long nr)
{
	emit_if_target(ts_syscall_enter(.nr = nr));
	return 0;
}

SEC("tp_btf/sys_exit")
int HOOK(sys_exit, struct pt_regs *regs, long ret)
{
	emit_if_target(ts_syscall_exit(.value = ret));
	return 0;
}
