//! What bundling costs: time in the eBPF program per packet, and throughput of a greedy
//! stream with and without pillion. As root: `cargo bench -p pillion --bench bundler`.

mod cost;
mod throughput;

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    if !nix::unistd::Uid::effective().is_root() {
        println!("left out: benchmarks of the bundler need root");
        return;
    }
    cost::print();
    throughput::print();
}

/// The binary whose programs are measured.
const PILLION: &str = env!("CARGO_BIN_EXE_pillion");
const PILLION_LAB: &str = concat!(env!("CARGO_BIN_EXE_pillion"), "-lab");
