#!/bin/sh
# The main job on this machine: installs what is missing, builds the binary, runs `tailsight demo`.
#
#   scripts/demo.sh [DIR]      the run and the report go to DIR (default: tailsight-demo in the current folder)
#
# Needs root. The build does not, and runs as the user who called sudo. The demo's exit code is ours.
set -eu
. "$(dirname -- "$0")/lib.sh"
out=${1:-tailsight-demo}

if ! is_root; then
    die "the demo loads BPF programs and makes network namespaces, which needs root: sudo make demo"
fi
# Before anything is installed or built: these two no package brings.
if [ ! -r /sys/kernel/btf/vmlinux ]; then
    die "kernel $(uname -r) has no BTF (/sys/kernel/btf/vmlinux), which the probes need; Debian 13's and Ubuntu 24.04's own kernels have it"
fi
# Before 6.3 programs on kernel functions take the tracepoint's place, where the kernel lets programs attach to functions.
if ! grep -q btf_trace_sk_data_ready /sys/kernel/btf/vmlinux && [ "$(cat /proc/sys/kernel/ftrace_enabled 2>/dev/null || echo 0)" != 1 ]; then
    die "kernel $(uname -r) has no sk_data_ready tracepoint, which came with 6.3, and no function tracer (kernel.ftrace_enabled) to take its place; Debian 13's and Ubuntu 24.04's own kernels have the tracepoint, and Debian 12's newer one is in bookworm-backports"
fi
"$REPO/scripts/setup.sh" demo
require_cargo
case $out in /*) ;; *) out=$PWD/$out ;; esac
cd "$REPO"
# Without the commands that the demo does not use (crates/tailsight/Cargo.toml): half the time from the clone to the named cause.
phase "build of tailsight" as_builder cargo build --locked -p tailsight --no-default-features
# Ctrl-C is for the demo, which cleans up after itself; we stay to hand its files to the user.
trap : INT
code=0
"${CARGO_TARGET_DIR:-target}/debug/tailsight" demo --out "$out" || code=$?
give_back "$out"
exit "$code"
