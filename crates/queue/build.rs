//! Compiles the probe's eBPF programs and generates their Rust side, types included.

use std::env;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let bpf = Path::new(&root).join("../../bpf/queue");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for path in [&bpf, &bpf.join("../vmlinux.h")] {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let built = SkeletonBuilder::new()
        .source(bpf.join("queue_probe.bpf.c"))
        .clang_args(["-mcpu=v3", "-Wall", "-Werror"])
        .build_and_generate(out.join("queue_probe.skel.rs"));
    if let Err(error) = built {
        panic!("{error:#}\nIf clang is missing, `make setup` installs it.");
    }
}
