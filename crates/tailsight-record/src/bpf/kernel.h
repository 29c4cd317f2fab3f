/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The few kernel structures that the probes read, with only the fields used. CO-RE relocates every access against the
 * running kernel's BTF, so offsets, order and size here do not matter; names and types do. */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false, true };

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_F_MMAPABLE = 1024 };

/* Fixed by the kernel's interface with programs, which the verifier translates: not relocated. */
struct bpf_sock {
	__u32 bound_dev_if, family, type, protocol, mark, priority, src_ip4, src_ip6[4];
	__u32 src_port; /* host byte order */
};
struct bpf_sock_addr {
	__u32 user_family, user_ip4, user_ip6[4];
	__u32 user_port; /* network byte order */
	__u32 family, type, protocol, msg_src_ip4, msg_src_ip6[4];
	struct bpf_sock *sk;
};

/* Complete, because libbpf compares the kinds of the types in a kernel function's signature. */
struct inode;
struct __sk_buff {
	__u32 len;
};
struct bpf_dynptr {
	__u64 opaque[2];
} __attribute__((aligned(8)));

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_info {
	__u32 cpu;
};
struct rq {
	__u64 prev_steal_time_rq; /* only with CONFIG_PARAVIRT_TIME_ACCOUNTING */
};
struct cfs_rq {
	struct rq *rq;
	int throttle_count; /* only with CONFIG_CFS_BANDWIDTH */
};
struct sched_entity {
	struct cfs_rq *cfs_rq; /* only with CONFIG_FAIR_GROUP_SCHED */
};
/* A task's number in each of the namespaces that it is in. */
struct upid {
	int nr;
};
struct pid {
	unsigned int level;
	struct upid numbers[1];
};
struct task_struct {
	struct thread_info thread_info;
	int prio;
	int pid;
	int tgid;
	struct pid *thread_pid;
	char comm[16];
	struct sched_entity se;
	bool throttled; /* since 6.18: a task is throttled on its way to user space, not its whole group's queue */
	unsigned in_iowait : 1; /* a bit field: only with BPF_CORE_READ_BITFIELD */
};
struct ns_common {
	unsigned int inum;
};
struct net {
	struct ns_common ns;
};
typedef struct {
	struct net *net; /* only with CONFIG_NET_NS */
} possible_net_t;
struct net_device {
	int ifindex;
	possible_net_t nd_net;
};
struct napi_struct {
	struct net_device *dev;
};
struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};
typedef struct {
	__s64 counter;
} atomic64_t;
struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
	possible_net_t skc_net;
};
struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	int sk_wmem_queued;
	int sk_sndbuf;
};
struct socket {
	struct sock *sk;
};
struct inet_connection_sock {
	__u8 icsk_ca_state : 5; /* a bit field: only with BPF_CORE_READ_BITFIELD */
};
struct tcp_sock {
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 write_seq;
	__u32 dsack_dups;
};
struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned int len;
	unsigned int data_len;
	__be16 protocol;
	__u16 network_header;
	char cb[48];
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
};
struct skb_shared_hwtstamps {
	__s64 hwtstamp;
};
struct skb_shared_info {
	__u8 tx_flags;
	struct skb_shared_hwtstamps hwtstamps;
	__u32 tskey;
};
struct bpf_sock_ops_kern {
	struct sock *sk;
	struct sk_buff *skb;
};
struct irqaction {
	const char *name;
};
struct work_struct {
	void (*func)(struct work_struct *);
};
/* Only their names are used: the probes know the layout of what goes over the wire. */
struct iphdr {
	__u8 protocol;
};
struct ipv6hdr {
	__u8 nexthdr;
};
struct tcphdr {
	__be16 source;
};
struct pt_regs {
#if defined(__TARGET_ARCH_arm64)
	__s32 syscallno;
	__u64 regs[31], sp, pc;
#else
	unsigned long orig_ax, ip, sp, bp, ax, bx, cx, dx, si, di, r14, flags;
#endif
};

#pragma clang attribute pop
