//! Decisions of level `auto` (`bpf/bundler/tx/auto.h`), compiled for this machine.

mod c {
    // SAFETY: the signatures match auto.c, which stores no pointer.
    unsafe extern "C" {
        pub safe fn pillion_choose_level(
            runs: &[u16; 8],
            segments: u32,
            target_ppm: u32,
            waiting: u32,
        ) -> i32;
        pub safe fn pillion_messages_waiting(itt_us: u32, srtt_us: u32) -> u32;
        pub safe fn pillion_are_bundles_insufficient(
            runs: &[u16; 8],
            segments: u32,
            in_time: u32,
            target_ppm: u32,
            isolated: i32,
        ) -> i32;
        pub safe fn pillion_are_bundles_sufficient(
            expected: u32,
            received: u32,
            in_time: u32,
            target_ppm: u32,
        ) -> i32;
        pub safe fn pillion_are_bundles_sufficient_without_reports(
            runs: &[u16; 8],
            segments: u32,
            in_time: u32,
            target_ppm: u32,
        ) -> i32;
        pub safe fn pillion_copies_after(
            copies: i32,
            has_queue: i32,
            runs: &[u16; 8],
            segments: u32,
            itt_us: u32,
            srtt_us: u32,
        ) -> i32;
        pub safe fn pillion_isolated_copies_last(itt_us: u32, srtt_us: u32) -> i32;
        pub safe fn pillion_decisions_with_copies(starts: i32) -> i32;
        pub safe fn pillion_messages_in_time(deadline_ms: u32, itt_us: u32) -> u32;
    }
}

/// Returns the number of previous segments in a bundle; `waiting` messages wait for each
/// retransmission.
#[must_use]
pub fn level(runs: [u16; 8], segments: u32, target_ppm: u32, waiting: u32) -> i32 {
    c::pillion_choose_level(&runs, segments, target_ppm, waiting)
}

/// Returns the number of messages that wait for a retransmission.
#[must_use]
pub fn messages_waiting(itt_us: u32, srtt_us: u32) -> u32 {
    c::pillion_messages_waiting(itt_us, srtt_us)
}

/// Returns whether copies start: `runs` has the number of loss runs by length among `segments`.
#[must_use]
pub fn copies_start(runs: [u16; 8], segments: u32, in_time: u32, target_ppm: u32) -> bool {
    c::pillion_are_bundles_insufficient(&runs, segments, in_time, target_ppm, 0) != 0
}

/// Returns whether copies of isolated segments start again.
#[must_use]
pub fn isolated_copies_start(runs: [u16; 8], segments: u32, target_ppm: u32) -> bool {
    c::pillion_are_bundles_insufficient(&runs, segments, 0, target_ppm, 1) != 0
}

/// Returns whether copies end, by the reports expected and received, in 1/64.
#[must_use]
pub fn copies_end(expected: u32, received: u32, in_time: u32, target_ppm: u32) -> bool {
    c::pillion_are_bundles_sufficient(expected, received, in_time, target_ppm) != 0
}

/// Returns whether copies end if none was sent: `runs` has the number of loss runs by length among
/// `segments`.
#[must_use]
pub fn unused_copies_end(runs: [u16; 8], segments: u32, in_time: u32, target_ppm: u32) -> bool {
    c::pillion_are_bundles_sufficient_without_reports(&runs, segments, in_time, target_ppm) != 0
}

/// Returns the number of following messages whose bundles repair a loss in time.
#[must_use]
pub fn messages_in_time(deadline_ms: u32, itt_us: u32) -> u32 {
    c::pillion_messages_in_time(deadline_ms, itt_us)
}

/// Returns the copies (0: none, 1: of isolated segments, 2: of all) after a decision of a connection
/// with the default target.
#[must_use]
pub fn copies_after(
    copies: i32,
    has_queue: bool,
    runs: [u16; 8],
    itt_us: u32,
    srtt_us: u32,
) -> i32 {
    c::pillion_copies_after(copies, has_queue.into(), &runs, 1000, itt_us, srtt_us)
}

/// Returns whether copies of isolated segments remain after many decisions without losses.
#[must_use]
pub fn isolated_copies_last(itt_us: u32, srtt_us: u32) -> bool {
    c::pillion_isolated_copies_last(itt_us, srtt_us) != 0
}

/// Returns the number of decisions until copies of all segments end where nothing is lost any more,
/// after they have started this many times.
#[must_use]
pub fn decisions_with_copies(starts: i32) -> i32 {
    c::pillion_decisions_with_copies(starts)
}
