//! Compiles the probes: writes the C header of the event record from its Rust definition and the lists of probes from the
//! folders of `src/probes`, lets clang make the object, and writes the layout of its variables as Rust.
//!
//! Without libbpf-cargo: with what it needs it takes as long to build as a tenth of this program, and it writes the object as a
//! megabyte of Rust.

#[path = "build/layout.rs"]
mod layout;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR is set by cargo"));
    fs::write(out.join("event.gen.h"), tailsight_event::c_header::text()).expect("OUT_DIR is writable");
    let probes = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("src/probes");
    let names = probe_names(&probes);
    fs::write(out.join("probes.gen.h"), c_includes(&names)).expect("OUT_DIR is writable");
    fs::write(out.join("probes.rs"), rust_modules(&probes, &names)).expect("OUT_DIR is writable");
    let object = out.join("tailsight.bpf.o");
    compile(&out, &probes, &object);
    let variables = layout::rust(&fs::read(&object).expect("clang wrote it"));
    fs::write(out.join("variables.rs"), variables).expect("OUT_DIR is writable");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed=src/probes");
}

/// Compiles the C into an object that has BTF and no other debug information.
fn compile(out: &Path, probes: &Path, object: &Path) {
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers are");
    let architecture = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => panic!("the probes are written for x86_64 and aarch64, not for {other:?}"),
    };
    let mut clang = Command::new("clang");
    clang.args(["-g", "-O2", "-target", "bpf", "-fno-stack-protector", "-Wall", "-Werror"]);
    // v3 has the atomic add that returns the old value. Every kernel that has the hooks supports it.
    clang.arg("-mcpu=v3").arg(format!("-D__TARGET_ARCH_{architecture}"));
    clang.args([format!("-I{}", out.display()), format!("-I{}", probes.display()), format!("-I{libbpf}")]);
    // BTF holds lines of the source, which the kernel's verifier prints: keep this machine's folders out of them.
    clang.arg(format!("-ffile-prefix-map={}=tailsight-record", env!("CARGO_MANIFEST_DIR")));
    clang.arg(format!("-ffile-prefix-map={}=out", out.display()));
    run(clang.args(["-c", "src/bpf/tailsight.bpf.c", "-o"]).arg(object));
    run(Command::new("llvm-strip").arg("-g").arg(object));
}

fn run(command: &mut Command) {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().unwrap_or_else(|e| panic!("cannot start {program} (make setup installs it): {e}"));
    assert!(status.success(), "{program}: {status}; the probes need clang, llvm and libbpf's headers (make setup)");
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
