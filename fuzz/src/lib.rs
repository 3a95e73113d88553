//! What must hold whatever bytes a trace has: `cargo +nightly fuzz run TARGET`.
//!
//! The trace crate's tests include this file, replay the corpus and mutate it, so that neither
//! nightly Rust nor cargo-fuzz is needed to see a target fail.

mod flows;

use std::io::Cursor;

use pillion_trace::input::{Counts, Input};

pub use flows::flows;

/// More packets than these cannot be in so few bytes, decompressed or not.
const MOST_PACKETS: usize = 1 << 20;
/// Every link type that is read, and one that is not.
const LINK_TYPES: [u16; 12] = [0, 1, 12, 14, 101, 108, 113, 228, 229, 276, 127, 65535];

/// A whole file: the container, its compression, and all within.
pub fn container(data: &[u8]) {
    let Ok(mut input) = Input::new("fuzz", Cursor::new(data.to_vec())) else {
        return;
    };
    let mut last = 0;
    let mut given = 0;
    for packet in input.by_ref().take(MOST_PACKETS) {
        given += 1;
        assert!(packet.number > last, "packets are numbered in order");
        last = packet.number;
        assert!(packet.header_len >= 40, "IP and TCP have headers");
        assert!(packet.window_scale.is_none_or(|scale| scale <= 14));
    }
    if given == MOST_PACKETS {
        assert!(
            input.format().compression().is_some(),
            "no packet is made of nothing"
        );
        return;
    }
    assert!(input.next().is_none(), "the end is the end");
    assert_eq!(input.counts().tcp, given as u64);
    assert_eq!(sum(input.counts()), input.counts().packets);
    assert!(input.progress().read() <= data.len() as u64);
    if input.format().compression().is_none() {
        for warning in input.warnings() {
            assert!(warning.offset <= data.len() as u64, "{warning}");
        }
        assert!(input.counts().packets <= data.len() as u64 / 12);
    }
}

/// One frame: its link type, how much longer it was on the wire, and as much as was captured.
pub fn headers(data: &[u8]) {
    let [link, more, frame @ ..] = data else {
        return;
    };
    let link = LINK_TYPES[usize::from(*link) % LINK_TYPES.len()];
    let captured = frame.len() as u32;
    let fields = [
        0xa1b2_c3d4,
        0x0004_0002,
        0,
        0,
        0,
        u32::from(link),
        0,
        0,
        captured,
        captured + u32::from(*more),
    ];
    let header = fields.map(u32::to_le_bytes).concat();
    container(&[&header, frame].concat());
}

fn sum(counts: &Counts) -> u64 {
    counts.tcp
        + counts.other_link
        + counts.not_ip
        + counts.not_tcp
        + counts.fragments
        + counts.cut
        + counts.damaged
        + counts.filtered
}
