//! Compiles the probes: writes the C header of the event record from its Rust definition and the lists of probes from the
//! folders of `src/probes`, then lets clang and libbpf-cargo make the skeleton.

// libbpf-cargo links libelf into this script too.
#[path = "src/link.rs"]
mod link;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("event.gen.h"), tailsight_trace::event::c_header()).expect("OUT_DIR is writable");
    let probes = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("src/probes");
    let names = probe_names(&probes);
    fs::write(out.join("probes.gen.h"), c_includes(&names)).expect("OUT_DIR is writable");
    fs::write(out.join("probes.rs"), rust_modules(&probes, &names)).expect("OUT_DIR is writable");
    SkeletonBuilder::new()
        .source("src/bpf/tailsight.bpf.c")
        .clang_args([
            format!("-I{}", out.display()),
            format!("-I{}", probes.display()),
            // The lines of the source are in the program, for the kernel's verifier to name: without this machine's folders.
            format!("-ffile-prefix-map={}=tailsight-record", env!("CARGO_MANIFEST_DIR")),
            format!("-ffile-prefix-map={}=out", out.display()),
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

/// The folders of `src/probes`, by name.
fn probe_names(probes: &Path) -> Vec<String> {
    let entries =
        fs::read_dir(probes).expect("src/probes is there").map(|entry| entry.expect("src/probes is readable"));
    let folders = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = folders.map(|f| f.file_name().into_string().expect("a module's name")).collect();
    names.sort();
    names
}

/// The C of every probe.
fn c_includes(names: &[String]) -> String {
    names.iter().map(|name| format!("#include \"{name}/{name}.bpf.c\"\n")).collect()
}

/// The Rust of every probe, and their list.
fn rust_modules(probes: &Path, names: &[String]) -> String {
    let module = |name: &String| format!("#[path = {:?}]\npub mod {name};\n", probes.join(name).join("mod.rs"));
    let modules: String = names.iter().map(module).collect();
    let list: String = names.iter().map(|name| format!("    {name}::PROBE,\n")).collect();
    format!("{modules}\n/// Every probe.\npub const PROBES: &[Probe] = &[\n{list}];\n")
}
