//! Compiles the testbed's eBPF program and generates its Rust side.

use std::env;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let bpf = Path::new(&root).join("../../bpf/lab");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let source = bpf.join("listed_loss.bpf.c");
    for path in [&source, &bpf.join("../vmlinux.h")] {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let built = SkeletonBuilder::new()
        .source(source)
        .clang_args(["-mcpu=v3", "-Wall", "-Werror"])
        .build_and_generate(out.join("listed_loss.skel.rs"));
    if let Err(error) = built {
        panic!("{error:#}\nIf clang is missing, `make setup` installs it.");
    }
}
