// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Packets on their way in, from the first place in the stack that sees them, and packets dropped.
 * At all three hooks the Ethernet header is pulled: skb->data is at the network header, whose offset is not set yet.
 * hooks: napi_gro_receive_entry, netif_rx_entry, netif_receive_skb, kfree_skb
 * events: RxNapi, RxBacklog, RxStack, RxHardware, SkbDrop, and Payload when asked for */

static __always_inline bool parse_incoming(struct sk_buff *skb, struct packet *p)
{
	return parse(skb->data, skb->protocol, skb->len, true, p);
}

/* A pure acknowledgement is no part of a message. */
static __always_inline bool carries_data(const struct packet *p)
{
	return p->payload || (p->flow.flags & (TS_FLOW_SYN | TS_FLOW_FIN | TS_FLOW_RST));
}

/* Some drivers leave an address where the stamp would be, and make a time of it when somebody asks. */
#define SKBTX_HW_TSTAMP_NETDEV (1 << 5)

/* Some device is set to stamp what it receives. Else the end of the packet's buffer, where the stamp would be, is not touched: it
 * is a cache line that nobody has read yet. */
__u32 nic_stamps;

/* The NIC's own time stamp, when it stamps: at each hook where a packet can be seen first, right behind its event. */
static __always_inline void emit_hardware_time(struct sk_buff *skb)
{
	if (!nic_stamps)
		return;
	__s64 time;
	__u8 flags;
	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		const volatile struct skb_shared_info *info = AS(struct skb_shared_info, skb->head + skb->end);
		time = info->hwtstamps.hwtstamp;
		flags = info->tx_flags;
	} else {
		const struct skb_shared_info *info = (const void *)(skb->head + skb->end);
		time = BPF_CORE_READ(info, hwtstamps.hwtstamp);
		flags = BPF_CORE_READ(info, tx_flags);
	}
	if (time && !(flags & SKBTX_HW_TSTAMP_NETDEV))
		emit(ts_rx_hardware(.nic_ns = time, .ifindex = skb->dev->ifindex));
}

SEC("tp_btf/napi_gro_receive_entry")
int HOOK(napi_gro_receive_entry, struct sk_buff *skb)
{
	struct packet p;
	if (!parse_incoming(skb, &p) || !is_target_packet(&p, skb->dev) || !carries_data(&p))
		return 0;
	__u64 ts = emit(packet_as(TS_RX_NAPI, &p, 0, skb->dev->ifindex));
	if (p.payload)
		watch_arrival(&p.flow, ts);
	emit_hardware_time(skb);
	return 0;
}

SEC("tp_btf/netif_rx_entry")
int HOOK(netif_rx_entry, struct sk_buff *skb)
{
	struct packet p;
	if (!parse_incoming(skb, &p) || !is_target_packet(&p, skb->dev) || !carries_data(&p))
		return 0;
	__u64 ts = emit(packet_as(TS_RX_BACKLOG, &p, 0, skb->dev->ifindex));
	if (p.payload)
		watch_arrival(&p.flow, ts);
	emit_hardware_time(skb);
	return 0;
}

/* What a segment's payload begins like: a record of TLS or a frame of HTTP/2, which many requests share. Nothing of the payload is
 * kept. A frame's header is 9 bytes: length (24 bits), type, flags, stream (31 bits). Segments mostly begin where a frame does. */
static __always_inline __u16 kind_of_content(struct sk_buff *skb, const struct packet *p)
{
	struct bpf_dynptr whole;
	struct {
		__u8 b[9];
	} h = {};

	if (p->payload < sizeof(h) || p->flow.flags & TS_FLOW_UDP || !bpf_ksym_exists(bpf_dynptr_from_skb))
		return 0;
	if (bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &whole) ||
	    bpf_dynptr_read(&h, sizeof(h), &whole, p->headers, 0))
		return 0;
	if (is_tls_record(h.b))
		return TS_FLOW_LOOKED | TS_FLOW_TLS;
	if (h.b[0] == 'P' && h.b[1] == 'R' && h.b[2] == 'I' && h.b[3] == ' ' && h.b[4] == '*' && h.b[5] == ' ' &&
	    h.b[6] == 'H' && h.b[7] == 'T')
		return TS_FLOW_LOOKED | TS_FLOW_HTTP2;
	if (h.b[0] || h.b[1] > 64 || h.b[3] > 9 || h.b[5] > 127)
		return TS_FLOW_LOOKED;
	__u32 length = (__u32)h.b[1] << 8 | h.b[2];
	bool stream = h.b[5] || h.b[6] || h.b[7] || h.b[8], odd = h.b[8] & 1;
	switch (h.b[3]) {
	case 0: /* DATA */
	case 9: /* CONTINUATION */
		return stream && odd ? TS_FLOW_LOOKED | TS_FLOW_HTTP2 : TS_FLOW_LOOKED;
	case 1: /* HEADERS */
		return stream && odd && length ? TS_FLOW_LOOKED | TS_FLOW_HTTP2 : TS_FLOW_LOOKED;
	case 2: /* PRIORITY */
		return stream && length == 5 ? TS_FLOW_LOOKED | TS_FLOW_HTTP2 : TS_FLOW_LOOKED;
	case 3: /* RST_STREAM */
		return stream && length == 4 ? TS_FLOW_LOOKED | TS_FLOW_HTTP2 : TS_FLOW_LOOKED;
	case 4: /* SETTINGS */
		return !stream && length % 6 == 0 ? TS_FLOW_LOOKED | TS_FLOW_HTTP2 : TS_FLOW_LOOKED;
	case 6: /* PING */
		return !stream && length == 8 ? TS_FLOW_LOOKED | TS_FLOW_HTTP2 : TS_FLOW_LOOKED;
	case 7: /* GOAWAY */
		return !stream && length >= 8 ? TS_FLOW_LOOKED | TS_FLOW_HTTP2 : TS_FLOW_LOOKED;
	case 8: /* WINDOW_UPDATE */
		return length == 4 ? TS_FLOW_LOOKED | TS_FLOW_HTTP2 : TS_FLOW_LOOKED;
	default:
		return TS_FLOW_LOOKED;
	}
}

/* To look at a segment takes longer than to record it, and a connection is what most of its segments are: one in 16 is looked at, by a
 * hash of its sequence number, which favours no connection. */
static __always_inline __u16 content_of(struct sk_buff *skb, const struct packet *p)
{
	if (((p->sequence ^ p->flow.ports) * 2654435761U) >> 28)
		return 0;
	return kind_of_content(skb, p);
}

SEC("tp_btf/netif_receive_skb")
int HOOK(netif_receive_skb, struct sk_buff *skb)
{
	struct packet p;
	if (!parse_incoming(skb, &p) || !carries_data(&p))
		return 0;
	if (is_target_packet(&p, skb->dev)) {
		__u64 ts = emit(packet_as(TS_RX_STACK, &p, content_of(skb, &p), skb->dev->ifindex));
		if (p.payload)
			watch_arrival(&p.flow, ts);
		emit_hardware_time(skb);
		emit_payload(skb, 0, &p, false);
	} else if (!is_target_port(p.flow.ports & 0xffff)) {
		/* The target's own replies, on their way to a client of this host, name nobody. */
		emit(packet_as(TS_RX_STACK, &p, TS_FLOW_FOREIGN, skb->dev->ifindex));
	}
	return 0;
}

static __always_inline void emit_drop(const struct packet *p, __u16 flags, __u32 reason)
{
	emit(ts_skb_drop(.flow = flow_with(&p->flow, flags), .sequence = p->sequence, .bytes = p->payload, .reason = reason));
}

SEC("tp_btf/kfree_skb")
int HOOK(kfree_skb, struct sk_buff *skb, void *location, int reason)
{
	struct packet p;
	__u16 offset = skb->network_header;
	/* Some drops happen before a network header is known. */
	if (offset == 0 || offset == 0xffff)
		return 0;
	struct sock *sk = skb->sk;
	__u16 port = sk ? sk->__sk_common.skc_num : 0;
	bool serves = sk && is_target_socket(sk);
	/* One of the target's own on its way out still has the socket that sent it. */
	if (sk && (serves || is_client_socket(sk)) && parse(skb->head + offset, skb->protocol, 0xffff, false, &p) &&
	    p.flow.ports >> 16 == port) {
		if (p.payload)
			emit_drop(&p, TS_FLOW_OUT | (serves ? 0 : TS_FLOW_CLIENT), reason);
		return 0;
	}
	if (parse(skb->head + offset, skb->protocol, 0xffff, true, &p) && is_target_packet(&p, skb->dev))
		emit_drop(&p, 0, reason);
	return 0;
}
