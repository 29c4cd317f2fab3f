// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Files that the target's threads wait for on their way to the disk: the whole of fsync, its work and its sleeps.
 * hooks: ext4_sync_file_enter, ext4_sync_file_exit
 * events: SyncBegin, SyncEnd */

SEC("tp_btf/ext4_sync_file_enter")
int HOOK(ext4_sync_file_enter)
{
	emit_if_target(TS_SYNC_BEGIN, 0, 0, 0, 0);
	return 0;
}

SEC("tp_btf/ext4_sync_file_exit")
int HOOK(ext4_sync_file_exit, struct inode *inode, int ret)
{
	emit_if_target(TS_SYNC_END, 0, 0, ret, 0);
	return 0;
}
