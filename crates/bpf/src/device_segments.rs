//! Segments for each device, and how many of them its program did not see
//! (`bpf/bundler/tx/device_segments.h`).

use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::contract::types;
use crate::policy::bytes;

/// Minimum number of segments for a verdict, and the maximum time in which they are counted.
const MIN_SEGMENTS: u64 = 100;
const WINDOW: Duration = Duration::from_secs(60);

/// Counts since the device's first segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Segments {
    announced: u64,
    unseen: u64,
}

/// A device: the cookie of its network namespace, and its interface index.
pub(crate) type DeviceKey = (u64, u32);

/// Reads the counts of the devices for which `is_attached` is true, and removes the others. Returns
/// nothing if the kernel refuses.
pub(crate) fn read(
    map: &MapHandle,
    is_attached: impl Fn(DeviceKey) -> bool,
) -> Vec<(DeviceKey, Segments)> {
    let keys: Vec<_> = map.keys().collect();
    let mut all = Vec::new();
    for key in keys
        .iter()
        .filter(|it| it.len() >= size_of::<types::device_key>())
    {
        // SAFETY: plain integers, of which any bits are valid, and enough of them.
        let device = unsafe { key.as_ptr().cast::<types::device_key>().read_unaligned() };
        let device = (device.netns, device.ifindex);
        if !is_attached(device) {
            let _ = map.delete(key);
        } else if let Ok(Some(value)) = map.lookup(key, MapFlags::ANY)
            && value.len() >= size_of::<types::device_segments>()
        {
            let value = value.as_ptr().cast::<types::device_segments>();
            // SAFETY: as above.
            let types::device_segments { announced, unseen } = unsafe { value.read_unaligned() };
            all.push((device, Segments { announced, unseen }));
        }
    }
    all
}

/// Restarts the counts of a device.
pub(crate) fn reset(map: &MapHandle, (netns, ifindex): DeviceKey) {
    let key = types::device_key {
        netns,
        ifindex,
        ..Default::default()
    };
    // There may be none.
    let _ = map.delete(bytes(&key));
}

/// The start of the current window, and the counts at that time.
#[derive(Debug)]
pub(crate) struct SegmentWindow(Instant, Segments);

impl SegmentWindow {
    /// A window that starts without counts.
    pub(crate) fn new(now: Instant) -> Self {
        Self(now, Segments::default())
    }

    /// Returns true if more than half of the segments since the last verdict were not seen, and
    /// `None` before there are enough of them.
    pub(crate) fn is_bypassed(&mut self, now: Instant, segments: Segments) -> Option<bool> {
        let Self(start, before) = self;
        let announced = segments.announced.saturating_sub(before.announced);
        let unseen = segments.unseen.saturating_sub(before.unseen);
        let is_complete = announced >= MIN_SEGMENTS;
        if is_complete || now.duration_since(*start) >= WINDOW {
            *self = Self(now, segments);
        }
        is_complete.then_some(unseen > announced / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_bypassed_if_most_of_100_segments_are_unseen() {
        let start = Instant::now();
        let mut window = SegmentWindow::new(start);
        let mut judge = |after_s, announced, unseen| {
            let now = start + Duration::from_secs(after_s);
            window.is_bypassed(now, Segments { announced, unseen })
        };
        assert_eq!(judge(1, 99, 99), None);
        assert_eq!(judge(2, 100, 51), Some(true));
        assert_eq!(judge(3, 200, 101), Some(false));
        // A minute without a verdict starts another window.
        assert_eq!(judge(63, 250, 151), None);
        assert_eq!(judge(64, 349, 250), None);
        assert_eq!(judge(65, 350, 251), Some(true));
    }
}
