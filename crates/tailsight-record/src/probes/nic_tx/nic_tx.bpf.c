// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Time stamps that NICs make of the target's replies (TCP), by the kernel's BPF time stamp callbacks, since 6.15. Loaded only
 * with --nic-tx-stamps, for it sets a flag on the target's sockets: set_nic_tx on those that are there, nic_tx on those that
 * come. The kernel then asks at each send whether to stamp it, and tells when the last byte of it was stamped.
 * events: NicTx */

enum { OP_PASSIVE_ESTABLISHED = 5, OP_STAMP_SOFTWARE = 17, OP_STAMP_HARDWARE = 18, OP_SENDMSG = 20 };
#define SOL_SOCKET 1
#define SK_BPF_CB_FLAGS 1009
#define SK_BPF_CB_TX_TIMESTAMPING 1

/* Which stamps are events: the NIC's; for tests of the way that they take, where no NIC stamps, the driver's. */
const volatile __u32 nic_tx_op = OP_STAMP_HARDWARE;
__u32 nic_tx_flags; /* what set_nic_tx sets */
__u64 nic_tx_set;   /* sockets that have the flag by us */
__u64 nic_tx_asked; /* sends that the kernel was asked to have stamped */

struct bpf_sock_ops {
	__u32 op;
};
struct bpf_iter__tcp {
	__u64 meta;
	struct sock_common *sk_common;
};

extern void *bpf_cast_to_kern_ctx(void *obj) __ksym __weak;
extern int bpf_sock_ops_enable_tx_tstamp(struct bpf_sock_ops_kern *skops, __u64 flags) __ksym __weak;

static __always_inline void emit_stamp(struct bpf_sock_ops_kern *kern, struct sock *sk)
{
	struct sk_buff *skb = kern->skb;
	struct flow flow;
	if (!skb)
		return;
	const volatile struct sk_buff *packet = AS(struct sk_buff, skb);
	const volatile struct skb_shared_info *info = AS(struct skb_shared_info, packet->head + packet->end);
	__s64 time = nic_tx_op == OP_STAMP_HARDWARE ? info->hwtstamps.hwtstamp : (__s64)bpf_ktime_get_ns();
	/* The key is the sequence number of the last byte. */
	__u32 end = info->tskey + 1;
	flow_of_sock(sk, &flow);
	if (time)
		emit(ts_nic_tx(.flow = flow_with(&flow, 0), .end = end, .nic_ns = time));
}

SEC("sockops")
int nic_tx(struct bpf_sock_ops *ctx)
{
	__u32 op = ctx->op;
	if (op != OP_SENDMSG && op != nic_tx_op && op != OP_PASSIVE_ESTABLISHED)
		return 1;
	if (!bpf_ksym_exists(bpf_sock_ops_enable_tx_tstamp) || !bpf_ksym_exists(bpf_cast_to_kern_ctx))
		return 1;
	struct bpf_sock_ops_kern *kern = bpf_cast_to_kern_ctx(ctx);
	struct sock *sk = kern->sk;
	if (!sk || !is_ours(sk))
		return 1;
	if (op == OP_PASSIVE_ESTABLISHED) {
		int flags = SK_BPF_CB_TX_TIMESTAMPING;
		if (!bpf_setsockopt(ctx, SOL_SOCKET, SK_BPF_CB_FLAGS, &flags, sizeof(flags)))
			__sync_fetch_and_add(&nic_tx_set, 1);
	} else if (op == OP_SENDMSG) {
		if (recording && !bpf_sock_ops_enable_tx_tstamp(kern, 0))
			__sync_fetch_and_add(&nic_tx_asked, 1);
	} else {
		emit_stamp(kern, sk);
	}
	return 1;
}

SEC("iter/tcp")
int set_nic_tx(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	if (!common || !is_target_port(common->skc_num))
		return 0;
	struct tcp_sock *socket = bpf_skc_to_tcp_sock(common);
	if (!socket)
		return 0;
	int flags = nic_tx_flags;
	if (!bpf_setsockopt(socket, SOL_SOCKET, SK_BPF_CB_FLAGS, &flags, sizeof(flags)))
		__sync_fetch_and_add(&nic_tx_set, 1);
	return 0;
}
