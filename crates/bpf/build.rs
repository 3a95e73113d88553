//! Compiles the eBPF programs and generates their Rust side, types included.

use std::env;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let bpf = Path::new(&root).join("../../bpf/bundler");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Line numbers in the programs name files, and builds in different folders must be equal.
    let crates = Path::new(&root).parent().and_then(Path::parent);
    let paths = crates.expect("crates/NAME").display();
    let paths = format!("-ffile-prefix-map={paths}=/pillion");
    for path in [&bpf, &bpf.join("../vmlinux.h"), &bpf.join("../../include")] {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    // v3: atomic exchange (Linux 5.12)
    let mut flags = vec!["-mcpu=v3", "-Wall", "-Werror", paths.as_str()];
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|it| it != "x86_64") {
        flags.push("-DWEAKLY_ORDERED"); // bpf/bundler/lock.h
    }
    for name in ["pillion", "flows"] {
        let built = SkeletonBuilder::new()
            .source(bpf.join(format!("{name}.bpf.c")))
            .clang_args(&flags)
            .build_and_generate(out.join(format!("{name}.skel.rs")));
        if let Err(error) = built {
            panic!("{error:#}\nIf clang is missing, `make setup` installs it.");
        }
    }
}
