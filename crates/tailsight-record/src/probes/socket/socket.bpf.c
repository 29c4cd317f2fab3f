// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The border between kernel and application: data ready, received, sent; and connections opened and closed.
 * hooks: sk_data_ready, sock_recv_length, tcp_sendmsg_locked, udp_sendmsg, udpv6_sendmsg, sock_send_length,
 * inet_sock_set_state
 * events: Handoff, Recv, SendBegin, Send, SockState, FlowAddr6; of connections that the target made itself, to a server
 * behind it: PeerReady, PeerRecv, and Send with the flag client */

#define MSG_PEEK 2
#define TCP_ESTABLISHED 1

/* The cookie that the socket has, or a new one. */
static __always_inline __u32 cookie_of(const struct sock *sk)
{
	__u64 cookie = sk->__sk_common.skc_cookie.counter;
	return cookie ?: bpf_get_socket_cookie((void *)sk);
}

enum position { RCV_NXT, COPIED, WRITTEN };

/* A TCP sequence position of the socket; 0 for UDP. */
static __always_inline __u32 position_of(const struct sock *sk, enum position which)
{
	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	/* These hooks see whole sockets only, never a request or a time-wait stub. */
	if (!bpf_ksym_exists(bpf_rdonly_cast)) {
		const struct tcp_sock *tcp = (const void *)sk;
		return which == RCV_NXT ? BPF_CORE_READ(tcp, rcv_nxt) :
		       which == COPIED	? BPF_CORE_READ(tcp, copied_seq) :
					  BPF_CORE_READ(tcp, write_seq);
	}
	const struct tcp_sock *tp = (const struct tcp_sock *)AS(struct tcp_sock, sk);
	return which == RCV_NXT ? tp->rcv_nxt : which == COPIED ? tp->copied_seq : tp->write_seq;
}

/* Remembers the local port of a connection that the target opened itself. Where its data becomes readable and where its
 * packets are sent, the current task is not the target's, so the port identifies it. */
static __always_inline void add_client_port(__u16 port)
{
	if (port && !is_client_port(port))
		__sync_fetch_and_or(&client_ports[port >> 6], 1ULL << (port & 63));
}

static __always_inline int became_readable(struct sock *sk)
{
	struct flow flow;
	if (!is_inet(sk))
		return 0;
	bool own = is_target_socket(sk);
	if (!own && !is_client_socket(sk))
		return 0;
	flow_of_sock(sk, &flow);
	emit(ts_pack_handoff(own ? TS_HANDOFF : TS_PEER_READY,
			     (struct ts_fields_handoff){ .flow = flow_with(&flow, 0),
							 .rcv_nxt = position_of(sk, RCV_NXT),
							 .cookie = cookie_of(sk) }));
	return 0;
}

SEC("tp_btf/sk_data_ready")
int HOOK(sk_data_ready, struct sock *sk)
{
	return became_readable(sk);
}

/* Before 6.3. The function of TCP and UDP, unless a program of the kernel's put another in its place. */
SEC("fentry/sock_def_readable")
int HOOK(fentry_sock_def_readable, struct sock *sk)
{
	return became_readable(sk);
}

static __always_inline int received(struct sock *sk, int ret, int flags)
{
	struct flow flow;
	__u64 who;
	if (ret <= 0 || (flags & MSG_PEEK) || !is_inet(sk) || !(who = target_here()))
		return 0;
	flow_of_sock(sk, &flow);
	bool own = is_target_socket(sk);
	if (!own)
		add_client_port(sk->__sk_common.skc_num);
	note_routine(who, &flow, own ? ROUTINE_TAKES : ROUTINE_ASKS);
	__u64 ts = emit_of(who, ts_pack_recv(own ? TS_RECV : TS_PEER_RECV,
					     (struct ts_fields_recv){ .flow = flow_with(&flow, 0),
								      .copied_seq = position_of(sk, COPIED),
								      .bytes = ret,
								      .cookie = cookie_of(sk) }));
	if (own)
		watch_receive(&flow, ts);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int HOOK(sock_recv_length, struct sock *sk, int ret, int flags)
{
	return received(sk, ret, flags);
}

/* Before 6.3: the functions that every receive call on IPv4 and IPv6 goes through. */
SEC("fexit/inet_recvmsg")
int HOOK(fexit_inet_recvmsg, struct socket *sock, void *msg, unsigned long size, int flags, int ret)
{
	return received(sock->sk, ret, flags);
}

SEC("fexit/inet6_recvmsg")
int HOOK(fexit_inet6_recvmsg, struct socket *sock, void *msg, unsigned long size, int flags, int ret)
{
	return received(sock->sk, ret, flags);
}

/* Whether the target sends on this socket: it is one of its server's, or one with which it sends requests to another
 * server. The latter's port is remembered, so that its packets are recognised. */
static __always_inline bool sends_on(const struct sock *sk, struct flow *flow)
{
	if (!is_inet(sk))
		return false;
	/* The connection was closed in this call: on loopback the other end's reset may come before the call is over, and takes the port
	 * from the socket. That is no request to another server. */
	if (sk->sk_protocol == IPPROTO_TCP && !sk->__sk_common.skc_num)
		return false;
	flow_of_sock(sk, flow);
	if (is_target_socket(sk))
		return true;
	flow->flags |= TS_FLOW_CLIENT;
	add_client_port(sk->__sk_common.skc_num);
	return true;
}

static __always_inline int send_begins(const struct sock *sk)
{
	struct flow flow;
	__u64 who = target_here();
	if (!who || !sends_on(sk, &flow))
		return 0;
	note_routine(who, &flow, flow.flags & TS_FLOW_CLIENT ? ROUTINE_ASKS : ROUTINE_ANSWERS);
	__u64 ts = emit_of(who, ts_send_begin(.flow = flow_with(&flow, 0), .write_seq = position_of(sk, WRITTEN)));
	watch_reply(&flow, ts);
	return 0;
}

/* Inside the copy loop, so several times in a long send: the first one of a call counts. */
SEC("tp_btf/tcp_sendmsg_locked")
int HOOK(tcp_sendmsg_locked, const struct sock *sk)
{
	return send_begins(sk);
}

SEC("fentry/tcp_sendmsg_locked")
int HOOK(fentry_tcp_sendmsg_locked, struct sock *sk)
{
	return send_begins(sk);
}

SEC("fentry/udp_sendmsg")
int HOOK(fentry_udp_sendmsg, struct sock *sk)
{
	return send_begins(sk);
}

SEC("fentry/udpv6_sendmsg")
int HOOK(fentry_udpv6_sendmsg, struct sock *sk)
{
	return send_begins(sk);
}

/* Called at the start of a send on a UDP socket that is not connected, to ask whether it is allowed: always. The port of one that sends
 * requests is remembered before its first packet, which alone says to whom the request goes. */
static __always_inline int may_send(struct bpf_sock_addr *ctx, __u16 flags)
{
	struct bpf_sock *sk = ctx->sk;
	__u64 who;
	if (!recording || empty_programs || !sk || !(who = target_here()))
		return 1;
	__u16 port = sk->src_port;
	if (is_target_port(port))
		emit_of(who, ts_send_begin(.flow = { .flags = flags | TS_FLOW_UDP,
						     .local_port = port,
						     .remote_port = bpf_ntohs(ctx->user_port) }));
	else
		add_client_port(port);
	return 1;
}

SEC("cgroup/sendmsg4")
int cgroup_sendmsg4(struct bpf_sock_addr *ctx)
{
	return may_send(ctx, 0);
}

SEC("cgroup/sendmsg6")
int cgroup_sendmsg6(struct bpf_sock_addr *ctx)
{
	return may_send(ctx, TS_FLOW_V6);
}

/* What else is recorded of a TCP socket at the end of a send. */
static __always_inline __u16 state_of(const struct sock *sk)
{
	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	return (repairs_a_loss(sk) ? TS_FLOW_RECOVERY : 0) | (sk->sk_wmem_queued >= sk->sk_sndbuf ? TS_FLOW_FULL : 0);
}

static __always_inline int sent(struct sock *sk, int ret)
{
	struct flow flow;
	__u64 who;
	if (ret <= 0 || !(who = target_here()) || !sends_on(sk, &flow))
		return 0;
	__u64 ts = emit_of(who, ts_send(.flow = flow_with(&flow, state_of(sk)), .write_seq = position_of(sk, WRITTEN),
					.bytes = ret, .cookie = cookie_of(sk)));
	/* Where its begin was not seen. */
	watch_reply(&flow, ts);
	return 0;
}

SEC("tp_btf/sock_send_length")
int HOOK(sock_send_length, struct sock *sk, int ret, int flags)
{
	return sent(sk, ret);
}

/* Before 6.3, likewise. */
SEC("fexit/inet_sendmsg")
int HOOK(fexit_inet_sendmsg, struct socket *sock, void *msg, unsigned long size, int ret)
{
	return sent(sock->sk, ret);
}

SEC("fexit/inet6_sendmsg")
int HOOK(fexit_inet6_sendmsg, struct socket *sock, void *msg, unsigned long size, int ret)
{
	return sent(sock->sk, ret);
}

SEC("tp_btf/inet_sock_set_state")
int HOOK(inet_sock_set_state, const struct sock *sk, int old, int new)
{
	struct flow flow;
	if (!is_ours(sk))
		return 0;
	flow_of_sock(sk, &flow);
	emit(ts_sock_state(.flow = flow_with(&flow, 0), .old_state = old, .new_state = new, .cookie = cookie_of(sk)));
	if (new == TCP_ESTABLISHED && (flow.flags & TS_FLOW_V6)) {
		__u64 local[2], remote[2];
		read_address6(local, &sk->__sk_common.skc_v6_rcv_saddr);
		read_address6(remote, &sk->__sk_common.skc_v6_daddr);
		emit(ts_flow_addr6(.remote = 0, .address_key = flow.addrs, .address = { local[0], local[1] }));
		emit(ts_flow_addr6(.remote = 1, .address_key = flow.addrs, .address = { remote[0], remote[1] }));
	}
	return 0;
}
