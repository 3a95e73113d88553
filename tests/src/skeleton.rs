//! The Rust side of the tests' own programs, `*.bpf.c` in this folder, generated from their BTF.
#![allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::cast_lossless, clippy::semicolon_if_nothing_returned)]
#![allow(dead_code)]

mod answers {
    include!(concat!(env!("OUT_DIR"), "/answers.skel.rs"));
}

mod grow {
    include!(concat!(env!("OUT_DIR"), "/grow.skel.rs"));
}

mod states {
    include!(concat!(env!("OUT_DIR"), "/states.skel.rs"));
}

mod tags {
    include!(concat!(env!("OUT_DIR"), "/tags.skel.rs"));
}

pub(crate) use answers::AnswersSkelBuilder;
pub(crate) use grow::GrowSkelBuilder;
pub(crate) use states::StatesSkelBuilder;
pub(crate) use tags::TagsSkelBuilder;
