/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What `watch` knows of each message while it is served: when it came, when it was received, and, at its reply, how long each took. A message
 * that took longer than a limit is told once (`slow_message`); latencies are counted by leg. Nothing of this is loaded by a plain recording.
 *
 * A message is that of its connection: from the first packet that the server had not received before until a send call of the server on the same
 * connection begins. Packets that come meanwhile wait to be the next message. The stamps are those of the events, so that a capture has the same
 * numbers. UDP has no connections and is not watched. */
#pragma once

enum watched_leg { WATCHED_TOTAL, WATCHED_RECEIVE, WATCHED_SERVICE, WATCHED_LEGS };

/* Connections with a message that has no reply yet, by a hash of the connection: a later one replaces an earlier one with the same place. */
#define OPEN_MESSAGES_LOG2 16
struct open_message {
	__u64 connection;
	__u64 unread_ns;   /* when the first packet came that the server has not received yet; 0: there is none */
	__u64 driver_ns;   /* when that came which it received and has not answered; 0: there is none */
	__u64 received_ns; /* when it received that */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct open_message);
} open_messages SEC(".maps");

/* Messages by core, leg and latency: eight classes for each power of two, so that a class is at most an eighth wide. */
#define LATENCY_CLASSES 320
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader: cores * legs * classes */
	__type(key, __u32);
	__type(value, __u64);
} latency_counts SEC(".maps");

__u64 watch_limits_ns[WATCHED_LEGS]; /* 0: none */

/* The first message beyond a limit since the last was taken. `at_ns` is written last. */
struct slow_message {
	__u64 at_ns;
	__u64 legs_ns[WATCHED_LEGS];
	__u32 ports; /* as of a flow */
	__u32 tid;
	__u32 taken;
	__u32 pad;
};
struct slow_message slow_message __attribute__((aligned(64)));
__u64 further_slow; /* others beyond a limit, ever */

static __always_inline __u64 connection_of(const struct flow *flow)
{
	__u64 h = (flow->addrs ^ (__u64)flow->ports * TS_MIX_K2) * TS_MIX_K1;
	h ^= h >> 32;
	return h * TS_MIX_K1 | 1;
}

static __always_inline struct open_message *open_message_of(__u64 connection)
{
	__u32 place = connection >> (64 - OPEN_MESSAGES_LOG2);
	return bpf_map_lookup_elem(&open_messages, &place);
}

static __always_inline bool is_watched(const struct flow *flow, __u64 ts)
{
	return watches && ts && !(flow->flags & TS_FLOW_UDP);
}

/* A packet with data came in. */
static __always_inline void watch_arrival(const struct flow *flow, __u64 ts)
{
	if (!is_watched(flow, ts))
		return;
	__u64 connection = connection_of(flow);
	struct open_message *message = open_message_of(connection);
	if (!message || (message->connection == connection && message->unread_ns))
		return;
	if (message->connection != connection) {
		message->connection = connection;
		message->driver_ns = 0;
	}
	message->unread_ns = ts;
}

/* The server received from the connection. What it received before without a reply is forgotten: it may be a message that has none. */
static __always_inline void watch_receive(const struct flow *flow, __u64 ts)
{
	if (!is_watched(flow, ts))
		return;
	__u64 connection = connection_of(flow);
	struct open_message *message = open_message_of(connection);
	if (!message || message->connection != connection || !message->unread_ns)
		return;
	message->driver_ns = message->unread_ns;
	message->received_ns = ts;
	message->unread_ns = 0;
}

static __always_inline __u32 log2_of(__u64 v)
{
	__u32 r = 0;
	if (v >> 32) {
		v >>= 32;
		r += 32;
	}
	if (v >> 16) {
		v >>= 16;
		r += 16;
	}
	if (v >> 8) {
		v >>= 8;
		r += 8;
	}
	if (v >> 4) {
		v >>= 4;
		r += 4;
	}
	if (v >> 2) {
		v >>= 2;
		r += 2;
	}
	return r + (v >> 1);
}

/* The class of a latency; those of eight minutes and more are one. */
static __always_inline __u32 latency_class(__u64 ns)
{
	if (ns < 8)
		return ns;
	__u32 power = log2_of(ns);
	__u32 class = (power - 2) * 8 + ((ns >> (power - 3)) & 7);
	return class < LATENCY_CLASSES ? class : LATENCY_CLASSES - 1;
}

static __noinline int count_latency(__u32 leg, __u64 ns)
{
	__u32 place = (bpf_get_smp_processor_id() * WATCHED_LEGS + leg) * LATENCY_CLASSES + latency_class(ns);
	__u64 *count = bpf_map_lookup_elem(&latency_counts, &place);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

static __noinline int tell_slow(__u64 ports, __u64 driver_ns, __u64 received_ns, __u64 ts)
{
	if (slow_message.taken || __sync_lock_test_and_set(&slow_message.taken, 1)) {
		__sync_fetch_and_add(&further_slow, 1);
		return 0;
	}
	slow_message.legs_ns[WATCHED_TOTAL] = ts - driver_ns;
	slow_message.legs_ns[WATCHED_RECEIVE] = received_ns - driver_ns;
	slow_message.legs_ns[WATCHED_SERVICE] = ts - received_ns;
	slow_message.ports = ports;
	slow_message.tid = bpf_get_current_pid_tgid();
	barrier();
	*(volatile __u64 *)&slow_message.at_ns = ts;
	return 0;
}

static __always_inline bool is_beyond(enum watched_leg leg, __u64 ns)
{
	__u64 limit = watch_limits_ns[leg];
	return limit && ns > limit;
}

/* The server begins to send on the connection: the message that it received from there is answered. */
static __always_inline void watch_reply(const struct flow *flow, __u64 ts)
{
	if (!is_watched(flow, ts) || (flow->flags & TS_FLOW_CLIENT))
		return;
	__u64 connection = connection_of(flow);
	struct open_message *message = open_message_of(connection);
	if (!message || message->connection != connection)
		return;
	__u64 driver_ns = message->driver_ns, received_ns = message->received_ns;
	if (!driver_ns || received_ns < driver_ns || ts < received_ns)
		return;
	message->driver_ns = 0;
	count_latency(WATCHED_TOTAL, ts - driver_ns);
	count_latency(WATCHED_RECEIVE, received_ns - driver_ns);
	count_latency(WATCHED_SERVICE, ts - received_ns);
	if (is_beyond(WATCHED_TOTAL, ts - driver_ns) || is_beyond(WATCHED_RECEIVE, received_ns - driver_ns) ||
	    is_beyond(WATCHED_SERVICE, ts - received_ns))
		tell_slow(flow->ports, driver_ns, received_ns, ts);
}
