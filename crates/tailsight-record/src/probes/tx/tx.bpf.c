// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Packets of the target on their way out. A GSO packet is a byte range. The skb may be gone after the driver's
 * transmit, so the last look is before it.
 * hooks: net_dev_queue, net_dev_start_xmit, tcp_retransmit_skb
 * events: TxQueue, TxDriver, TcpRetransmit, and Payload when asked for */

/* `at`: bytes from skb->data to the network header. */
static __always_inline bool parse_outgoing(struct sk_buff *skb, struct packet *p, __u32 *at)
{
	struct sock *sk = skb->sk;
	/* The socket's port is a cheap first look; a forwarded packet has no socket and is not the target's. */
	if (!sk)
		return false;
	bool serves = is_target_socket(sk);
	if (!serves && !is_client_socket(sk))
		return false;
	unsigned char *l3 = skb->head + skb->network_header;
	__u32 bytes = skb->len - (__u32)(l3 - skb->data);
	/* Not folded into a difference of pointers, which the verifier does not take in 32 bits. */
	barrier_var(bytes);
	*at = skb->len - bytes;
	if (!parse(l3, skb->protocol, bytes, false, p) || !p->payload)
		return false;
	if (!serves)
		p->flow.flags |= TS_FLOW_CLIENT;
	return true;
}

SEC("tp_btf/net_dev_queue")
int HOOK(net_dev_queue, struct sk_buff *skb)
{
	struct packet p;
	__u32 at;
	if (parse_outgoing(skb, &p, &at))
		emit(packet_as(TS_TX_QUEUE, &p, 0, skb->dev->ifindex));
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int HOOK(net_dev_start_xmit, struct sk_buff *skb)
{
	struct packet p;
	__u32 at;
	if (parse_outgoing(skb, &p, &at)) {
		emit(packet_as(TS_TX_DRIVER, &p, 0, skb->dev->ifindex));
		if (!(p.flow.flags & TS_FLOW_CLIENT))
			emit_payload(skb, at, &p, true);
	}
	return 0;
}

/* The begin of struct tcp_skb_cb in skb->cb. */
struct tcp_range {
	__u32 seq, end_seq;
};

SEC("tp_btf/tcp_retransmit_skb")
int HOOK(tcp_retransmit_skb, const struct sock *sk, const struct sk_buff *skb)
{
	struct flow flow;
	struct tcp_range range = {};
	if (!is_inet(sk))
		return 0;
	bool serves = is_target_socket(sk);
	if (!serves && !is_client_socket(sk))
		return 0;
	flow_of_sock(sk, &flow);
	if (skb)
		bpf_probe_read_kernel(&range, sizeof(range), skb->cb);
	/* A tail-loss probe leaves the connection's state as it was. What was sent again in vain the other end reports, and the
	 * next retransmission tells. */
	__u16 repairs = repairs_a_loss(sk) ? TS_FLOW_RECOVERY : 0;
	emit(ts_tcp_retransmit(.flow = flow_with(&flow, repairs | (serves ? 0 : TS_FLOW_CLIENT)), .sequence = range.seq,
			       .bytes = range.end_seq - range.seq, .duplicates = duplicates_reported(sk)));
	return 0;
}
