use std::time::Duration;

/// One write of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The time since the write before began to be sent; none of the first.
    pub gap: Duration,
    /// Its bytes.
    pub size: u32,
}

/// A segment with new bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) at_ns: i64,
    /// Positions of the new bytes.
    pub(super) begin: i64,
    pub(super) end: i64,
    pub(super) payload: u32,
    pub(super) push: bool,
}

/// The largest payload of one packet on any link in use.
const LARGEST_SEGMENT: u32 = 9216;

/// Puts together what was cut, to at most `max_size` bytes. A segment as large as the connection's are
/// that lacks the PSH flag was cut from a write that goes on (RFC 9293, section 3.9.1.2: PSH marks the
/// end of one). A bundle and a retransmission bring no more than their new bytes. Writes that TCP
/// joined, as Nagle's algorithm does, stay one.
pub(super) fn join(mut segments: Vec<Segment>, mss: Option<u16>, max_size: u32) -> Vec<Write> {
    segments.sort_by_key(|segment| segment.begin);
    // What is larger was not cut yet where the trace was taken.
    let most = mss.map_or(LARGEST_SEGMENT, u32::from);
    let sizes = segments.iter().map(|segment| segment.payload);
    let full = sizes.filter(|size| *size <= most).max().unwrap_or(most);
    let mut writes: Vec<(i64, u32)> = Vec::new();
    let mut goes_on_at = None;
    for segment in segments {
        let size = u32::try_from(segment.end - segment.begin).unwrap_or(u32::MAX);
        match writes.last_mut() {
            Some((_, whole))
                if goes_on_at == Some(segment.begin) && whole.saturating_add(size) <= max_size =>
            {
                *whole += size;
            }
            _ => writes.push((segment.at_ns, size)),
        }
        let is_cut = !segment.push && segment.payload >= full;
        goes_on_at = is_cut.then_some(segment.end);
    }
    let mut last = writes.first().map_or(0, |(at_ns, _)| *at_ns);
    let gaps = writes.into_iter().map(|(at_ns, size)| {
        // A part that the trace shows late is no step back.
        let gap = u64::try_from(at_ns.saturating_sub(last)).unwrap_or(0);
        last = last.max(at_ns);
        Write {
            gap: Duration::from_nanos(gap),
            size,
        }
    });
    gaps.collect()
}
