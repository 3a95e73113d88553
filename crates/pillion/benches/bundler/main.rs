//! Cost of bundling: run time of the eBPF programs per packet, and throughput of a greedy stream
//! with and without pillion. Run as root: `cargo bench -p pillion --bench bundler`.

mod cost;
mod throughput;

fn main() {
    // `cargo test --benches` only checks that it compiles.
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

/// Binary under test.
const PILLION: &str = env!("CARGO_BIN_EXE_pillion");
const PILLION_LAB: &str = concat!(env!("CARGO_BIN_EXE_pillion"), "-lab");
