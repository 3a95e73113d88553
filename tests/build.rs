//! Compiles the bundler's arithmetic for this machine, and the tests' own eBPF programs.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    println!("cargo:rerun-if-changed=../bpf");
    println!("cargo:rerun-if-changed=src/tfrc.c");
    println!("cargo:rerun-if-changed=src/auto.c");
    println!("cargo:rerun-if-changed=src/token_bucket.c");
    cc::Build::new()
        .file("src/tfrc.c")
        .file("src/auto.c")
        .file("src/token_bucket.c")
        .include("../bpf/bundler")
        .opt_level(2)
        .warnings_into_errors(true)
        .compile("pillion_tfrc");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=src/signal_storm.c");
    let mut compiler = cc::Build::new().get_compiler().to_command();
    compiler.args([
        "-shared",
        "-fPIC",
        "-Wall",
        "-Werror",
        "src/signal_storm.c",
        "-o",
    ]);
    let compiled = compiler.arg(out.join("signal_storm.so")).status();
    assert!(
        compiled.is_ok_and(|it| it.success()),
        "signal_storm.c is compiled"
    );
    SkeletonBuilder::new()
        .source("../bpf/bundler/pillion.bpf.c")
        .obj(out.join("weakly_ordered.bpf.o"))
        .clang_args(["-mcpu=v3", "-DWEAKLY_ORDERED", "-Wall", "-Werror"])
        .build()
        .expect("the programs for weakly ordered processors are compiled");
    for name in ["programs", "refuse"] {
        let source = format!("src/{name}.bpf.c");
        println!("cargo:rerun-if-changed={source}");
        SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args(["-I../bpf", "-Wall", "-Werror"])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .expect("the tests' eBPF programs are compiled");
    }
}
