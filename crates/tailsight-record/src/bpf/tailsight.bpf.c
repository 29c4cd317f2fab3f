// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* All probes in one object, so that they share the buffers and the filters. Each lives in its own folder under
 * ../probes, beside its Rust; the loader decides at run time which programs are loaded. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "event.gen.h"
#include "common.h"
#include "watch.h"

/* Every folder of ../probes; build.rs writes it. */
#include "probes.gen.h"

/* An empty program, attached only to measure what running a program costs. */
SEC("tp_btf/sched_switch")
int BPF_PROG(baseline)
{
	return 0;
}

/* Not attached: run once on each core when the recording starts. Otherwise the running task would be unknown until the
 * core's first event, which may be milliseconds later. */
SEC("raw_tp")
int current_task(void *ctx)
{
	emit(ts_current());
	return 0;
}

/* The helpers used are GPL-only. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
