//! The Rust side of `bpf/queue/queue_probe.bpf.c`, generated from the compiled programs' BTF: the
//! structs shared with C are defined once, in `bpf/queue/queue.h`.
#![allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::cast_lossless, clippy::semicolon_if_nothing_returned)]
#![allow(dead_code, unsafe_op_in_unsafe_fn)]

include!(concat!(env!("OUT_DIR"), "/queue_probe.skel.rs"));
