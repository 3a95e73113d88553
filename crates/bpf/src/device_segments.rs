//! Segments for each device, and how many of them its program did not see
//! (`bpf/bundler/tx/device_segments.h`).

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::contract::types;
use crate::policy::bytes;

/// Minimum number of segments for a verdict. Thin streams may take hours to send them.
const MIN_SEGMENTS: u64 = 100;

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

/// The counts at the last verdict.
#[derive(Debug, Default)]
pub(crate) struct SegmentWindow(Segments);

impl SegmentWindow {
    /// Returns true if more than half of the segments since the last verdict were not seen, and
    /// `None` before there are enough of them.
    pub(crate) fn is_bypassed(&mut self, segments: Segments) -> Option<bool> {
        let Self(before) = self;
        let announced = segments.announced.saturating_sub(before.announced);
        let unseen = segments.unseen.saturating_sub(before.unseen);
        (announced >= MIN_SEGMENTS).then(|| {
            *before = segments;
            unseen > announced / 2
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_bypassed_if_most_of_100_segments_are_unseen() {
        let mut window = SegmentWindow::default();
        let mut judge = |announced, unseen| window.is_bypassed(Segments { announced, unseen });
        assert_eq!(judge(99, 99), None);
        assert_eq!(judge(100, 51), Some(true));
        assert_eq!(judge(199, 51), None);
        assert_eq!(judge(200, 101), Some(false));
    }
}
