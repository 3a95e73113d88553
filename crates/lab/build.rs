//! Compiles the eBPF programs of the testbed and of the queue probe and generates their Rust side, types
//! included.

use std::env;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let bpf = Path::new(&root).join("../../bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Line numbers in the programs name files, and builds in different folders must be equal.
    let crates = Path::new(&root).parent().and_then(Path::parent);
    let paths = crates.expect("crates/NAME").display();
    let paths = format!("-ffile-prefix-map={paths}=/pillion");
    for path in ["lab", "queue", "vmlinux.h"] {
        println!("cargo:rerun-if-changed={}", bpf.join(path).display());
    }
    for source in ["lab/listed_loss", "queue/queue_probe"] {
        let name = source.split_once('/').expect("a folder and a name").1;
        let built = SkeletonBuilder::new()
            .source(bpf.join(format!("{source}.bpf.c")))
            .clang_args(["-mcpu=v3", "-Wall", "-Werror", &paths])
            .build_and_generate(out.join(format!("{name}.skel.rs")));
        if let Err(error) = built {
            panic!("{error:#}\nIf clang is missing, `make setup` installs it.");
        }
    }
}
