// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Plain text that goes into TLS and comes out, where a library of the target takes it or gives it.
 * hooks: none of their own; uprobes and uretprobes at functions of the target's files, attached by the recorder when --protocol asks for
 * payload and a file has them
 * events: PlainText, PlainPiece
 *
 * Go's crypto/tls has no place at which its return address could be replaced. Read copies what it gives from the connection's memory, by a
 * call of memmove that has all that is asked for, and Write calls a function that encrypts and sends, behind which it knows its error. Both
 * may go on in another thread than they began in, but not in another goroutine.
 *
 * Each of the other functions has the connection, a buffer and its size as its first arguments, and returns how much of it was used; those whose
 * name ends with _ex return 1 and write it where their fourth argument says. Only the first bytes that --protocol asks for are kept. */

/* What a place is. mod.rs has the same. */
#define PLAIN_RETURNS 1 /* the end of the call, else its begin */
#define PLAIN_OUT 2	/* takes plain text, else gives it */
#define PLAIN_COUNTS 4	/* _ex */
#define PLAIN_GO 8	/* of crypto/tls */

/* Who is in a call: a thread, or a goroutine by its address. */
struct plain_caller {
	__u64 task;
	__u64 tgid;
};

/* A call. */
struct plain_call {
	__u64 connection, buffer;
	__u64 count; /* where the number of bytes is when it returns; 0: it is what is returned. Of Go: the number that it is to write */
	__u64 begin;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct plain_caller);
	__type(value, struct plain_call);
} plain_calls SEC(".maps");

struct function plain_text_calls;
__u32 plain_text_limit; /* calls in a tenth of a second */

#if defined(__TARGET_ARCH_arm64)
#define ARGUMENT_0(regs) ((regs)->regs[0])
#define ARGUMENT_1(regs) ((regs)->regs[1])
#define ARGUMENT_3(regs) ((regs)->regs[3])
#define GO_THIRD_ARGUMENT(regs) ((regs)->regs[2])
#define RETURNED(regs) ((regs)->regs[0])
#else
#define ARGUMENT_0(regs) ((regs)->di)
#define ARGUMENT_1(regs) ((regs)->si)
#define ARGUMENT_3(regs) ((regs)->cx)
#define GO_THIRD_ARGUMENT(regs) ((regs)->cx)
#define RETURNED(regs) ((regs)->ax)
#endif

/* Plain text of which the first bytes are kept. */
struct kept_plain_text {
	__u64 who, buffer, connection;
	__u32 bytes;
	bool out;
};

static __noinline int emit_plain_piece(__u64 who, const __u64 *piece, __u8 number, bool out, __u8 connection)
{
	emit_of(who, ts_pack_piece(TS_PLAIN_PIECE, (struct ts_fields_piece){ .number = number,
									     .outgoing = out,
									     .low_sequence = connection,
									     .payload = { piece[0], piece[1], piece[2] } }));
	return 0;
}

/* A piece of it; 1 ends the loop. */
static long keep_plain_piece(__u64 i, struct kept_plain_text *kept)
{
	__u64 piece[3] = {};
	__u32 begin = (__u32)i * PIECE;
	if (begin >= kept->bytes)
		return 1;
	__u32 bytes = kept->bytes - begin;
	if (bytes > PIECE)
		bytes = PIECE;
	if (bpf_probe_read_user(piece, bytes, (void *)(kept->buffer + begin)))
		return 1;
	emit_plain_piece(kept->who, piece, i, kept->out, kept->connection);
	return 0;
}

/* How much a call of a library gave or took. */
static __always_inline __s64 plain_bytes(const struct plain_call *call, __u64 returned)
{
	__u64 count = 0;
	if (!call->count)
		return (__s32)returned;
	if ((__s32)returned != 1 || bpf_probe_read_user(&count, sizeof(count), (void *)call->count))
		return 0;
	return count > 0x7fffffff ? 0 : count;
}

static __always_inline int plain_text_went(__u64 who, const struct plain_call *call, __s64 bytes, bool out)
{
	/* To have nothing to give is usual, and says how far what was received is used up. */
	if (bytes < 0 || bytes > 0x7fffffff)
		bytes = 0;
	/* As of a task, the address of the connection must tell nobody where things are in memory. */
	__u64 connection = routine_of(call->connection);
	emit_of(who, ts_plain_text(.outgoing = out, .connection = connection, .bytes = bytes, .begin_ns = call->begin));
	struct kept_plain_text kept = { .who = who, .buffer = call->buffer, .connection = connection, .bytes = bytes, .out = out };
	if (bytes)
		bpf_loop(payload_pieces, keep_plain_piece, &kept, 0);
	return 0;
}

SEC("uprobe")
int plain_text(struct pt_regs *regs)
{
	__u64 who;
	if (!recording || plain_text_calls.off_ns || !(who = target_here()))
		return 0;
	__u64 cookie = bpf_get_attach_cookie(regs);
	bool out = cookie & PLAIN_OUT, go = cookie & PLAIN_GO;
	/* Read here: a pointer into the registers that both ways below share is refused. */
	__u64 second = GO_SECOND_ARGUMENT(regs), third = GO_THIRD_ARGUMENT(regs);
	asm volatile("" : "+r"(second), "+r"(third));
	/* One that goes on after a wait is told nowhere else. */
	if (go)
		see_goroutine(who, GOROUTINE(regs));
	struct plain_caller caller = { .task = go ? GOROUTINE(regs) : (__u32)who, .tgid = who >> 32 };
	if (!(cookie & PLAIN_RETURNS)) {
		if (!function_begins(&plain_text_calls, plain_text_limit))
			return 0;
		struct plain_call call = { .begin = bpf_ktime_get_ns() };
		if (go) {
			call.connection = GO_ARGUMENT(regs);
			call.buffer = second;
			call.count = third;
		} else {
			call.connection = ARGUMENT_0(regs);
			call.buffer = ARGUMENT_1(regs);
			call.count = cookie & PLAIN_COUNTS ? ARGUMENT_3(regs) : 0;
		}
		bpf_map_update_elem(&plain_calls, &caller, &call, 0);
		return 0;
	}
	struct plain_call *call = bpf_map_lookup_elem(&plain_calls, &caller);
	if (!call)
		return 0;
	struct plain_call copy = *call;
	bpf_map_delete_elem(&plain_calls, &caller);
	if (!go)
		return plain_text_went(who, &copy, plain_bytes(&copy, RETURNED(regs)), out);
	/* Without an error it wrote all. */
	if (out)
		return plain_text_went(who, &copy, second ? 0 : copy.count, out);
	/* memmove: to, from, bytes. */
	copy.buffer = second;
	return plain_text_went(who, &copy, third, out);
}
