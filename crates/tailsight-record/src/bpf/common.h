/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What every probe shares: the per-core event buffers, the target filters, and flow keys.
 *
 * Buffers: memory-mapped arrays of CHUNK events, `slots` events a core. Chunks, because the kernel clears a map's memory
 * in one go: one map of hundreds of megabytes holds a core for 80 ms and more on a kernel that does not preempt itself,
 * and the server that is to be observed may need it. A slot is taken with an atomic add (interrupts nest), its
 * header word is written last and carries the lap's generation, so a reader never takes half an event. A full buffer
 * drops and counts, and the next event that finds room says since when (Lost). No system call, no wake-up. */
#pragma once

#define MAX_CPUS 1024
#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86DD
/* Slots kept free so that interrupts nested between the check and the add cannot overrun the reader. */
#define GUARD 64

struct head {
	/* One cache line: what nearly every event uses. */
	__u64 n;        /* events written or being written, ever */
	__u64 tail;     /* events consumed, ever (written by the reader) */
	__u64 running;  /* the thread that was last known to run here and its process, with RUNNING_KNOWN; 0: not known */
	__u64 gap_from; /* time of the first loss that no Lost event tells yet; 0: none */
	__u64 steal;    /* stolen time of this core that Steal events have told, ns since boot */
	__u64 received; /* receive calls of the target that were told, ever */
	__u64 sent;     /* its send calls */
	__u64 usual_ns; /* from receive to reply: a message here that takes longer is one of the slowest ninth */
	/* And the rest. */
	__u64 lost;
	__u64 gap_count;  /* losses since gap_from */
	__u64 slow_ticks; /* of the sampling clock inside of such messages, ever */
	__u64 ticks;      /* its other ones, where some of them are skipped */
	__u64 excess_ns;  /* of messages that were slower than usual: how much, ever */
	__u64 target_ticks; /* of the sampling clock in threads of the target, ever */
	__u64 apart_ticks;  /* those in threads that receive no messages: collectors, holders of locks, workers of a pool */
	__u64 pad[1];
};

#define CHUNK_LOG2 16
#define CHUNK (1u << CHUNK_LOG2)

struct chunk {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CHUNK);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct ts_event));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1); /* set by the loader: cores * slots / CHUNK */
	__type(key, __u32);
	__array(values, struct chunk);
} chunks SEC(".maps");

const volatile __u64 slots = 1;     /* a power of two */
const volatile __u32 slots_log2 = 0;
/* A server is watched (watch.h). A full buffer then overwrites its oldest events instead of dropping new ones: it always holds the last ones. */
const volatile __u32 watches = 0;

/* For measuring what hooks cost by themselves: every program returns at once, the verifier drops the rest. */
const volatile __u32 empty_programs = 0;

/* libbpf's BPF_PROG with that. */
#define HOOK(name, args...)                                                                                            \
	name(unsigned long long *ctx);                                                                                 \
	static __always_inline int ____##name(unsigned long long *ctx, ##args);                                        \
	int name(unsigned long long *ctx)                                                                              \
	{                                                                                                              \
		_Pragma("GCC diagnostic push")                                                                         \
		_Pragma("GCC diagnostic ignored \"-Wint-conversion\"")                                                 \
		return empty_programs ? 0 : ____##name(___bpf_ctx_cast(args));                                         \
		_Pragma("GCC diagnostic pop")                                                                          \
	}                                                                                                              \
	static __always_inline int ____##name(unsigned long long *ctx, ##args)

/* Each on cache lines of its own: the words below are read at every event on every core. */
struct head heads[MAX_CPUS] __attribute__((aligned(128)));
__u32 recording;
__u32 naming; /* births and names of tasks only: from the first look at the host's tasks until the recording starts */
__u64 target_tgids[65536]; /* a bit a process id, up to the kernel's limit of 4,194,304 */
__u64 target_ports[1024];  /* a bit a local port */
__u64 client_ports[1024];  /* local ports from which the target itself asked others, a bit each */
__u32 follow_children;

static __always_inline bool is_target_tgid(__u32 tgid)
{
	return target_tgids[(tgid >> 6) & 0xffff] >> (tgid & 63) & 1;
}

static __always_inline bool is_target_port(__u16 port)
{
	return target_ports[port >> 6] >> (port & 63) & 1;
}

static __always_inline bool is_client_port(__u16 port)
{
	return client_ports[port >> 6] >> (port & 63) & 1;
}

/* A port number alone does not identify the target: each network namespace, and each address in one, has ports of its
 * own. A socket belongs to the target if it is in one of the target's namespaces and has the address at which the target
 * serves the port. A packet belongs to it if its device is in such a namespace; elsewhere (at the host's NIC, on a
 * bridge) if it goes to an address of such a namespace. */
struct address {
	__u64 words[2]; /* IPv4: the address in host order, and 4 */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} target_netns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct address);
	__type(value, __u8);
} target_addresses SEC(".maps");

struct door {
	__u32 netns; /* 0: any of the target's, for packets that are not there yet */
	__u32 port;
	struct address address; /* zeros: any */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct door);
	__type(value, __u8);
} doors SEC(".maps");

__u32 first_netns;        /* one of target_netns: most targets have no other */
__u64 bound_ports[1024];  /* ports that are served at some addresses only: `doors` knows which */

/* The namespace of a socket and of a device; NULL in a kernel that has no others. */
static __always_inline const struct net *net_of_sock(const struct sock *sk)
{
	return bpf_core_field_exists(((struct sock_common *)0)->skc_net.net) ? sk->__sk_common.skc_net.net : NULL;
}

static __always_inline const struct net *net_of_device(const struct net_device *dev)
{
	return dev && bpf_core_field_exists(((struct net_device *)0)->nd_net.net) ? dev->nd_net.net : NULL;
}

/* Its number; 1 in a kernel that has no others. */
static __always_inline __u32 number_of_net(const struct net *net)
{
	return net ? net->ns.inum : 1;
}

static __always_inline bool is_target_netns(__u32 netns)
{
	return netns && (netns == first_netns || bpf_map_lookup_elem(&target_netns, &netns));
}

/* The first place that was found to be the target's: most servers have no other. It is compared before the tables, which take
 * several cache lines an event. In one line, and the port is written last: 0 means not yet. */
struct place {
	__u64 net;      /* address of the kernel's struct net */
	__u64 local[2]; /* zeros: any address */
	__u32 port;
	__u32 taken;
};
struct place first_place __attribute__((aligned(64)));

/* Of a socket or a packet with its port. */
static __always_inline bool is_first_place(const struct net *net, const __u64 local[2])
{
	if (first_place.net != (__u64)net || !net)
		return false;
	return (first_place.local[0] == local[0] && first_place.local[1] == local[1]) ||
	       !(first_place.local[0] | first_place.local[1]);
}

static __noinline int keep_first_place(__u64 net, __u32 port, __u64 word, __u64 other)
{
	if (!net || first_place.taken || __sync_lock_test_and_set(&first_place.taken, 1))
		return 0;
	first_place.net = net;
	first_place.local[0] = word;
	first_place.local[1] = other;
	barrier();
	*(volatile __u32 *)&first_place.port = port;
	return 0;
}

static __noinline int is_door(__u32 netns, __u32 port, __u64 word, __u64 other)
{
	struct door door = { .netns = netns, .port = port, .address = { { word, other } } };
	if (bpf_map_lookup_elem(&doors, &door))
		return 1;
	door.address.words[0] = door.address.words[1] = 0;
	return !!bpf_map_lookup_elem(&doors, &door);
}

static __always_inline bool is_bound(__u16 port)
{
	return bound_ports[port >> 6] >> (port & 63) & 1;
}

/* Whether the target serves a port at an address of one of its namespaces. */
static __always_inline bool serves_at(const struct net *net, __u32 netns, __u16 port, const __u64 local[2])
{
	bool bound = is_bound(port);
	if (bound && !is_door(netns, port, local[0], local[1]))
		return false;
	keep_first_place((__u64)net, port, bound ? local[0] : 0, bound ? local[1] : 0);
	return true;
}

/* Writes one event; `ts` 0 means now. Does nothing while there are no buffers yet. Gives the event's time; 0: none was written. */
static __always_inline __u64 put(struct head *head, __u32 cpu, __u64 ts, __u64 who, struct ts_content content)
{
	__u64 i = __sync_fetch_and_add(&head->n, 1);
	__u64 slot = i & (slots - 1);
	__u32 key = ((__u64)cpu * slots + slot) >> CHUNK_LOG2;
	void *chunk = bpf_map_lookup_elem(&chunks, &key);
	if (!chunk)
		return 0;
	key = slot & (CHUNK - 1);
	struct ts_event *event = bpf_map_lookup_elem(chunk, &key);
	if (!event)
		return 0;
	ts = ts ?: bpf_ktime_get_ns();
	event->ts = ts;
	event->a = content.a;
	event->b = content.b;
	event->c = content.c;
	__u64 generation = ((i >> slots_log2) + 1) & 0xff;
	barrier();
	/* kind, generation, aux, tid in one store: the event exists from here on. */
	*(volatile __u64 *)&event->kind =
		content.kind | generation << 8 | (__u64)content.aux << 16 | who << 32;
	return ts;
}

/* There is room again after a loss: record when the loss began. The slots kept free by GUARD are for these events. */
static __noinline int tell_gap(__u32 cpu)
{
	if (cpu >= MAX_CPUS)
		return 0;
	struct head *head = &heads[cpu];
	__u64 from = head->gap_from, count = head->gap_count;
	head->gap_from = 0;
	head->gap_count = 0;
	if (from)
		put(head, cpu, from, bpf_get_current_pid_tgid(), ts_lost(.events = count));
	return 0;
}

static __noinline int lose(__u32 cpu)
{
	if (cpu >= MAX_CPUS)
		return 0;
	struct head *head = &heads[cpu];
	__sync_fetch_and_add(&head->lost, 1);
	__sync_fetch_and_add(&head->gap_count, 1);
	if (!head->gap_from)
		head->gap_from = bpf_ktime_get_ns();
	return 0;
}

/* Threads that received a message and have not sent since, indexed by the low bits of their ids; a later thread replaces
 * an earlier one with the same index. */
#define UNDER_WAY 4096
struct under_way {
	__u64 since; /* when the message was received */
	__u32 tid;
	__u32 served; /* the last one that received a message, also when it was answered */
} under_way[UNDER_WAY];

static __always_inline struct under_way *message_of(__u32 tid)
{
	return &under_way[tid & (UNDER_WAY - 1)];
}

static __always_inline bool has_message(__u32 tid)
{
	return message_of(tid)->tid == tid;
}

/* Samples favour messages that are slower than usual: outside of these, one tick of the clock in so many takes a sample, which counts
 * as many. 0: no samples are taken. */
const volatile __u32 sample_one_in = 0;

/* A message was answered after so long. The limit settles where one in nine takes longer: it rises by a sixteenth with each
 * that does, and falls by a hundred and twenty-eighth with each other one. */
static __always_inline void learn_usual(struct head *head, __u64 took_ns)
{
	__u64 usual = head->usual_ns;
	/* Ticks inside of slow messages are counted from `usual` on, too: times their period they are the part of this that ran. */
	if (took_ns > usual)
		head->excess_ns += took_ns - usual;
	head->usual_ns = took_ns > usual ? usual + (usual >> 4) + 1 : usual - (usual >> 7);
}

/* Writes one event of thread `who` (its process in the high half), which runs here, if there is room. Gives the event's time; 0: none was
 * written. */
static __always_inline __u64 emit_of(__u64 who, struct ts_content content)
{
	__u8 kind = content.kind;
	if (!recording && !(kind >= TS_TASK_FORK && kind <= TS_TASK_RENAME && naming))
		return 0;
	__u32 cpu = bpf_get_smp_processor_id();
	if (cpu >= MAX_CPUS)
		return 0;
	struct head *head = &heads[cpu];
	if (!watches && head->n - head->tail >= slots - GUARD) {
		lose(cpu);
		return 0;
	}
	if (head->gap_from)
		tell_gap(cpu);
	__u64 ts = put(head, cpu, 0, who, content);
	/* The kind is a constant here. Not atomic: the counts only estimate progress, and nested calls are rare. */
	struct under_way *message = message_of(who);
	if (kind == TS_RECV) {
		head->received++;
		message->since = ts;
		message->tid = message->served = who;
	}
	if (kind == TS_SEND) {
		head->sent++;
		/* A request to another server is not the reply. */
		if (!(content.aux & TS_FLOW_CLIENT)) {
			if (sample_one_in && message->tid == (__u32)who)
				learn_usual(head, ts - message->since);
			message->tid = 0;
		}
	}
	return ts;
}

/* The thread that runs on this core and its process, as bpf_get_current_pid_tgid gives them, are remembered from the last context
 * switch: the helper takes 9 ns and more. From the switch's event to the switch itself interrupts are off and no other hook runs.
 * Some tasks leave a core without a switch that hooks see (on a kernel that hides its host's agent), so it is asked again where that
 * would cost an event of the target (`target_here`), and by the tick; not if a switch away from the remembered thread was seen before. */
#define RUNNING_KNOWN (1ULL << 63)

/* Threads, by the low bits of their id, whose leaving a core hooks have seen. Of two with the same bits one is forgotten and asked for. */
__u32 seen_leaving[1024];

static __always_inline bool leaves_seen(__u32 tid)
{
	return seen_leaving[tid & 1023] == tid;
}

static __always_inline void remember_running(__u64 running)
{
	__u32 cpu = bpf_get_smp_processor_id();
	if (cpu < MAX_CPUS)
		heads[cpu].running = running;
}

/* Not inlined and not static: the verifier looks at it once, and not again on each path of each hook. */
__noinline __u64 ask_who_runs(void)
{
	__u64 who = bpf_get_current_pid_tgid();
	remember_running(who | RUNNING_KNOWN);
	return who;
}

static __always_inline __u64 running_here(void)
{
	__u32 cpu = bpf_get_smp_processor_id();
	__u64 running = cpu < MAX_CPUS ? heads[cpu].running : 0;
	return running ? running & ~RUNNING_KNOWN : ask_who_runs();
}

static __always_inline __u64 emit(struct ts_content content)
{
	return emit_of(running_here(), content);
}

/* The id of the thread that runs here if it is one of the target's, else 0. */
static __always_inline __u64 target_here(void)
{
	__u64 who = running_here();
	if (is_target_tgid(who >> 32))
		return who;
	if (leaves_seen((__u32)who))
		return 0;
	/* With the bounds that it has above, so that the verifier sees no other state. */
	who = ask_who_runs() & ~RUNNING_KNOWN;
	return is_target_tgid(who >> 32) ? who : 0;
}

/* Writes one event if the thread that runs here is one of the target's. */
static __always_inline void emit_if_target(struct ts_content content)
{
	__u64 who = target_here();
	if (who)
		emit_of(who, content);
}

static __always_inline __u64 pair(__u32 low, __u32 high)
{
	return low | (__u64)high << 32;
}

/* Reads kernel memory as the given type with plain loads; one that faults reads 0. A packet's headers take 1 ns, not the
 * 36 ns of bpf_probe_read_kernel. The verifier accepts only whole members of the type. Since 6.2. */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;
#define AS(type, address) ((const volatile void *)bpf_rdonly_cast((const void *)(address), bpf_core_type_id_kernel(type)))
/* Older kernels: a copy. In both, memory that faults reads as 0. */
#define AS_OR_COPY(type, address, copy)                                                                                \
	(bpf_ksym_exists(bpf_rdonly_cast) ? AS(type, address) :                                                        \
					    (bpf_probe_read_kernel(copy, sizeof(*(copy)), address), (const volatile void *)(copy)))

static __always_inline void read_address6(__u64 to[2], const struct in6_addr *address)
{
	if (!bpf_ksym_exists(bpf_rdonly_cast)) {
		bpf_probe_read_kernel(to, 16, address);
		return;
	}
	const volatile __u64 *words = AS(struct in6_addr, address);
	to[0] = words[0];
	to[1] = words[1];
}

struct text {
	__u64 first, second;
};

/* A flow as both a packet and a socket give it. */
struct flow {
	__u64 addrs;
	__u32 ports; /* local << 16 | remote */
	__u16 flags;
};

/* The flow as events have it, with more flags. */
static __always_inline struct ts_fields_flow flow_with(const struct flow *flow, __u16 flags)
{
	return (struct ts_fields_flow){ .flags = flow->flags | flags,
					.address_key = flow->addrs,
					.local_port = flow->ports >> 16,
					.remote_port = flow->ports };
}

static __always_inline __u64 mix6(const __u64 local[2], const __u64 remote[2])
{
	__u64 h = local[0] * TS_MIX_K1;
	h ^= h >> 29;
	h = (h + local[1]) * TS_MIX_K2;
	h ^= h >> 32;
	h = (h + remote[0]) * TS_MIX_K1;
	h ^= h >> 29;
	h = (h + remote[1]) * TS_MIX_K2;
	return h ^ (h >> 32);
}

static __always_inline bool is_v4_mapped(const __u64 address[2])
{
	return address[0] == 0 && (__u32)address[1] == bpf_htonl(0xffff);
}

/* The flow of a socket; the caller has checked that it is IPv4 or IPv6. */
static __always_inline void flow_of_sock(const struct sock *sk, struct flow *flow)
{
	flow->flags = sk->sk_protocol == IPPROTO_UDP ? TS_FLOW_UDP : 0;
	flow->ports = (__u32)sk->__sk_common.skc_num << 16 | bpf_ntohs(sk->__sk_common.skc_dport);
	if (sk->__sk_common.skc_family == AF_INET6) {
		__u64 local[2], remote[2];
		read_address6(local, &sk->__sk_common.skc_v6_rcv_saddr);
		read_address6(remote, &sk->__sk_common.skc_v6_daddr);
		/* Dual-stack sockets speak IPv4 with mapped addresses. */
		if (!is_v4_mapped(remote)) {
			flow->addrs = mix6(local, remote);
			flow->flags |= TS_FLOW_V6;
			return;
		}
	}
	flow->addrs = pair(bpf_ntohl(sk->__sk_common.skc_daddr), bpf_ntohl(sk->__sk_common.skc_rcv_saddr));
}

static __always_inline bool is_inet(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;
	return family == AF_INET || family == AF_INET6;
}

#define TCP_CA_RECOVERY 3

/* Whether a TCP connection repairs a loss: fast recovery, or after its time-out. */
static __always_inline bool repairs_a_loss(const struct sock *sk)
{
	__u64 state;
	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		const struct inet_connection_sock *icsk = (const void *)AS(struct inet_connection_sock, sk);
		state = BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state);
	} else {
		const struct inet_connection_sock *icsk = (const void *)sk;
		state = BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state);
	}
	return state >= TCP_CA_RECOVERY;
}

/* How many segments the other end of a TCP connection has reported as received twice (DSACK). */
static __always_inline __u32 duplicates_reported(const struct sock *sk)
{
	if (!bpf_ksym_exists(bpf_rdonly_cast)) {
		const struct tcp_sock *tcp = (const void *)sk;
		return BPF_CORE_READ(tcp, dsack_dups);
	}
	return ((const struct tcp_sock *)AS(struct tcp_sock, sk))->dsack_dups;
}

/* The socket's own address, as in `doors`. */
static __always_inline void local_of_sock(const struct sock *sk, __u64 local[2])
{
	if (sk->__sk_common.skc_family == AF_INET6) {
		read_address6(local, &sk->__sk_common.skc_v6_rcv_saddr);
		if (!is_v4_mapped(local))
			return;
	}
	local[0] = bpf_ntohl(sk->__sk_common.skc_rcv_saddr);
	local[1] = 4;
}

/* Whether the target serves at this socket. The port is compared first, because it excludes nearly all other sockets. */
static __always_inline bool is_target_socket(const struct sock *sk)
{
	__u16 port = sk->__sk_common.skc_num;
	__u64 local[2];
	const struct net *net = net_of_sock(sk);
	if (port == first_place.port) {
		local_of_sock(sk, local);
		if (is_first_place(net, local))
			return true;
	}
	if (!is_target_port(port))
		return false;
	local_of_sock(sk, local);
	__u32 netns = number_of_net(net);
	return is_target_netns(netns) && serves_at(net, netns, port, local);
}

/* Whether the target sends requests to another server on this socket. */
static __always_inline bool is_client_socket(const struct sock *sk)
{
	return is_client_port(sk->__sk_common.skc_num) && is_target_netns(number_of_net(net_of_sock(sk)));
}

static __always_inline bool is_ours(const struct sock *sk)
{
	return is_inet(sk) && is_target_socket(sk);
}

struct ipv4 {
	__u8 version_ihl, tos;
	__be16 total;
	__be16 id, frag;
	__u8 ttl, protocol;
	__be16 check;
	__be32 source, destination;
};
struct ipv6 {
	__be32 version_class;
	__be16 payload;
	__u8 next, hops;
	__u64 source[2], destination[2];
};
struct transport {
	__be16 source, destination;
	__be32 sequence, ack; /* TCP; a UDP header ends before and these are not looked at */
	__u8 offset, flags;
};

struct packet {
	struct flow flow;
	__u32 sequence;
	__u32 headers; /* bytes from the network header to the payload */
	__u32 payload;
	__u64 local[2]; /* the local address, as in `doors` */
};

/* Reads the headers at `l3`. `incoming`: local is the destination. `bytes`: from l3 to the end of the packet.
 * False: not TCP or UDP, or headers not in reach. */
static __always_inline bool parse(const unsigned char *l3, __be16 protocol, __u32 bytes, bool incoming, struct packet *p)
{
	__u32 l3_bytes;
	__u8 proto;

	if (protocol == bpf_htons(ETH_P_IP)) {
		struct ipv4 copy;
		const volatile struct ipv4 *ip = AS_OR_COPY(struct iphdr, l3, &copy);
		/* A fragment has no ports; reassembly gives the whole datagram to netif's later hooks unseen. */
		if (ip->frag & bpf_htons(0x1fff))
			return false;
		proto = ip->protocol;
		l3_bytes = (ip->version_ihl & 15) * 4;
		__u32 total = bpf_ntohs(ip->total);
		/* The frame may be padded; a GSO packet over 64 KiB says 0. */
		if (total && total < bytes)
			bytes = total;
		__u32 source = bpf_ntohl(ip->source), destination = bpf_ntohl(ip->destination);
		p->flow.addrs = incoming ? pair(source, destination) : pair(destination, source);
		p->flow.flags = 0;
		p->local[0] = incoming ? destination : source;
		p->local[1] = 4;
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6 copy;
		const volatile struct ipv6 *ip = AS_OR_COPY(struct ipv6hdr, l3, &copy);
		const __u64 source[2] = { ip->source[0], ip->source[1] };
		const __u64 destination[2] = { ip->destination[0], ip->destination[1] };
		proto = ip->next;
		l3_bytes = sizeof(struct ipv6);
		__u32 total = bpf_ntohs(ip->payload);
		if (total && total + sizeof(struct ipv6) < bytes)
			bytes = total + sizeof(struct ipv6);
		p->flow.addrs = incoming ? mix6(destination, source) : mix6(source, destination);
		p->flow.flags = TS_FLOW_V6;
		p->local[0] = incoming ? destination[0] : source[0];
		p->local[1] = incoming ? destination[1] : source[1];
	} else {
		return false;
	}
	/* Bytes after the end of a short packet are not used; reading them may fault, which gives 0. */
	struct transport copy;
	const volatile struct transport *t = AS_OR_COPY(struct tcphdr, l3 + l3_bytes, &copy);
	if (proto == IPPROTO_TCP) {
		__u32 headers = l3_bytes + (t->offset >> 4) * 4;
		__u8 flags = t->flags;
		p->headers = headers;
		p->payload = bytes > headers ? bytes - headers : 0;
		p->sequence = bpf_ntohl(t->sequence);
		p->flow.flags |= (flags & 1 ? TS_FLOW_FIN : 0) | (flags & 2 ? TS_FLOW_SYN : 0) | (flags & 4 ? TS_FLOW_RST : 0);
	} else if (proto == IPPROTO_UDP) {
		p->headers = l3_bytes + 8;
		p->payload = bytes > l3_bytes + 8 ? bytes - l3_bytes - 8 : 0;
		p->sequence = 0;
		p->flow.flags |= TS_FLOW_UDP;
	} else {
		return false;
	}
	__u32 source = bpf_ntohs(t->source), destination = bpf_ntohs(t->destination);
	p->flow.ports = incoming ? destination << 16 | source : source << 16 | destination;
	return true;
}

/* A packet on its way in to the target, at a device. */
static __always_inline bool is_target_packet(const struct packet *p, const struct net_device *dev)
{
	__u16 port = p->flow.ports >> 16;
	const struct net *net = net_of_device(dev);
	if (port == first_place.port && is_first_place(net, p->local))
		return true;
	if (!is_target_port(port))
		return false;
	__u32 netns = number_of_net(net);
	if (is_target_netns(netns))
		return serves_at(net, netns, port, p->local);
	struct address address = { { p->local[0], p->local[1] } };
	return bpf_map_lookup_elem(&target_addresses, &address) && serves_at(NULL, 0, port, p->local);
}

/* What an event of this kind says of a packet. */
static __always_inline struct ts_content packet_as(__u8 kind, const struct packet *p, __u16 flags, __u32 ifindex)
{
	return ts_pack_packet(kind, (struct ts_fields_packet){ .flow = flow_with(&p->flow, flags),
							       .sequence = p->sequence,
							       .bytes = p->payload,
							       .ifindex = ifindex });
}

/* How many pieces of 24 bytes of each segment's payload are kept; 0 unless --protocol asks for them. */
const volatile __u32 payload_pieces = 0;
#define PIECE 24

/* Since 6.12 for these programs; without it a run has no payload and says so. */
extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *ptr__uninit) __ksym __weak;

static __noinline int emit_piece(const __u64 *piece, __u8 number, bool out, __u8 low_sequence)
{
	emit(ts_payload(.number = number, .outgoing = out, .low_sequence = low_sequence,
			.payload = { piece[0], piece[1], piece[2] }));
	return 0;
}

/* A packet whose payload is kept. */
struct kept {
	struct bpf_dynptr *whole;
	__u32 at;
	__u32 bytes;
	__u8 low_sequence;
	bool out;
};

/* Of a record of TLS the head tells all that can be read; its plain text is read elsewhere. */
const volatile __u32 plain_text_on = 0;

/* Change of cipher, alert, handshake, data; version 3.0 to 3.4; at most 2^14 bytes and what encryption adds. `b`: its head, 5 bytes. */
static __always_inline bool is_tls_record(const __u8 *b)
{
	return b[0] >= 20 && b[0] <= 23 && b[1] == 3 && b[2] <= 4 && b[3] <= 65;
}

/* A piece of it; 1 ends the loop. */
static long keep_piece(__u64 i, struct kept *kept)
{
	__u64 piece[3] = {};
	__u32 begin = (__u32)i * PIECE;
	if (begin >= kept->bytes)
		return 1;
	__u32 bytes = kept->bytes - begin;
	if (bytes > PIECE)
		bytes = PIECE;
	if (bpf_dynptr_read(piece, bytes, kept->whole, kept->at + begin, 0))
		return 1;
	emit_piece(piece, i, kept->out, kept->low_sequence);
	return plain_text_on && !i && is_tls_record((const __u8 *)piece);
}

/*
 * The first bytes of a packet's payload, right behind the packet's event. `l3`: from skb->data to the network header. By bpf_loop, whose
 * body the verifier looks at once: a loop of 50 turns was more than it takes, and nothing was recorded.
 */
static __always_inline void emit_payload(struct sk_buff *skb, __u32 l3, const struct packet *p, bool out)
{
	struct bpf_dynptr whole;

	if (!payload_pieces || !p->payload || !bpf_ksym_exists(bpf_dynptr_from_skb))
		return;
	if (bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &whole))
		return;
	struct kept kept = {
		.whole = &whole, .at = l3 + p->headers, .bytes = p->payload, .low_sequence = p->sequence, .out = out
	};
	bpf_loop(payload_pieces, keep_piece, &kept, 0);
}

/* The run queue of the task's core; its steal clock was read when the scheduler was entered. */
static __always_inline void tell_steal(struct task_struct *task)
{
	if (!bpf_core_field_exists(((struct rq *)0)->prev_steal_time_rq) ||
	    !bpf_core_field_exists(((struct sched_entity *)0)->cfs_rq))
		return;
	struct cfs_rq *cfs = task->se.cfs_rq;
	if (!cfs)
		return;
	__u64 stolen = cfs->rq->prev_steal_time_rq;
	__u32 cpu = bpf_get_smp_processor_id();
	if (cpu >= MAX_CPUS)
		return;
	struct head *head = &heads[cpu];
	if (stolen == head->steal)
		return;
	__u64 since = head->steal ? stolen - head->steal : 0;
	head->steal = stolen;
	if (since)
		emit(ts_steal(.since_last_ns = since, .since_boot_ns = stolen));
}
