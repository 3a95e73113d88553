//! Compiles the bundler's arithmetic for this machine.

fn main() {
    println!("cargo:rerun-if-changed=../bpf");
    println!("cargo:rerun-if-changed=src/tfrc.c");
    cc::Build::new()
        .file("src/tfrc.c")
        .include("../bpf")
        .opt_level(2)
        .warnings_into_errors(true)
        .compile("pillion_tfrc");
}
