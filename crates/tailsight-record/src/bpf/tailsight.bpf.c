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

/* Every folder of ../probes; build.rs writes it. */
#include "probes.gen.h"

/* Runs nowhere but where it is attached to measure what an empty program costs. */
SEC("tp_btf/sched_switch")
int BPF_PROG(baseline)
{
	return 0;
}

/* Attached to nothing: run once on each core as the recording starts. Who has a core is else not known before its first
 * event, and a task may hold one for milliseconds without any. */
SEC("raw_tp")
int current_task(void *ctx)
{
	emit(TS_CURRENT, 0, 0, 0, 0);
	return 0;
}

/* The helpers used are GPL-only. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
