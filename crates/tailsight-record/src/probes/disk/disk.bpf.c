// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Files that the target's threads wait for on their way to the disk: the whole of fsync, its work and its sleeps. Of any
 * file system where functions can be traced; else of those with a tracepoint at both ends (xfs and btrfs have one at the
 * begin only). Compilers put vfs_fsync_range into the system calls' do_fsync, and then only other callers (msync, O_SYNC,
 * io_uring) come to the function itself; where they did not, one is inside of the other, and counts once.
 * hooks: ext4_sync_file_enter, ext4_sync_file_exit, f2fs_sync_file_enter, f2fs_sync_file_exit, do_fsync_enter, do_fsync_exit
 * events: SyncBegin, SyncEnd */

#define SYNC_BEGINS(section, name)                                                                                     \
	SEC(section)                                                                                                   \
	int HOOK(name)                                                                                                 \
	{                                                                                                              \
		emit_if_target(ts_sync_begin());                                                                       \
		return 0;                                                                                              \
	}

SYNC_BEGINS("tp_btf/ext4_sync_file_enter", ext4_sync_file_enter)
SYNC_BEGINS("tp_btf/f2fs_sync_file_enter", f2fs_sync_file_enter)
SYNC_BEGINS("fentry/vfs_fsync_range", fentry_vfs_fsync_range)
SYNC_BEGINS("fentry/do_fsync", fentry_do_fsync)

SEC("tp_btf/ext4_sync_file_exit")
int HOOK(ext4_sync_file_exit, struct inode *inode, int ret)
{
	emit_if_target(ts_sync_end(.value = ret));
	return 0;
}

SEC("tp_btf/f2fs_sync_file_exit")
int HOOK(f2fs_sync_file_exit, struct inode *inode, int need, int data, int ret)
{
	emit_if_target(ts_sync_end(.value = ret));
	return 0;
}

SEC("fexit/vfs_fsync_range")
int HOOK(fexit_vfs_fsync_range, struct file *file, long long from, long long to, int data, int ret)
{
	emit_if_target(ts_sync_end(.value = ret));
	return 0;
}

SEC("fexit/do_fsync")
int HOOK(fexit_do_fsync, unsigned int fd, int data, int ret)
{
	emit_if_target(ts_sync_end(.value = ret));
	return 0;
}
