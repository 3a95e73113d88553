//! The Rust side of `bpf/*.bpf.c`, generated from the compiled programs' BTF: the
//! structs shared with C are defined once, in `bpf/bundler/flow.h`.
#![allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::cast_lossless, clippy::semicolon_if_nothing_returned)]
#![allow(dead_code, unsafe_op_in_unsafe_fn)]

mod pillion {
    include!(concat!(env!("OUT_DIR"), "/pillion.skel.rs"));
}

mod flows {
    include!(concat!(env!("OUT_DIR"), "/flows.skel.rs"));
}

pub use flows::{FlowsSkelBuilder, OpenFlowsSkel};
pub use pillion::{
    OpenPillionSkel, PillionMaps, PillionProgs, PillionSkel, PillionSkelBuilder, types,
};
