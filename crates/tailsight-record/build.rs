//! Compiles the probes: writes the C header of the event record from its Rust definition, then lets clang and
//! libbpf-cargo make the skeleton.

// libbpf-cargo links libelf into this script too.
#[path = "src/link.rs"]
mod link;

use std::env;
use std::fs;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("event.gen.h"), tailsight_trace::event::c_header()).expect("OUT_DIR is writable");
    SkeletonBuilder::new()
        .source("src/bpf/tailsight.bpf.c")
        .clang_args([
            format!("-I{}", out.display()),
            // v3: atomic add that returns the old value. Every kernel that has the hooks has it.
            "-mcpu=v3".into(),
            "-Wall".into(),
            "-Werror".into(),
        ])
        .build_and_generate(out.join("tailsight.skel.rs"))
        .expect("the probes compile: clang and libbpf's headers are needed (make setup installs them)");
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed=src/probes");
}
