//! Sequence numbers without their wrap.

/// Where a stream's sequence numbers begin. A position counts from there in 64 bits: the SYN
/// stands at 0, the first byte of payload at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbering {
    initial: u32,
}

/// No two bytes under way are further apart, since no window is larger (RFC 7323, section 2.3).
pub(crate) const LARGEST_WINDOW: i64 = 1 << 30;

impl Numbering {
    pub(crate) fn new(initial: u32) -> Self {
        Self { initial }
    }

    pub(crate) fn initial(self) -> u32 {
        self.initial
    }

    /// The sequence number of a position.
    pub(crate) fn number(self, position: i64) -> u32 {
        self.initial.wrapping_add(position as u32)
    }

    /// The position that a sequence number means, of all that it could mean the one that is
    /// closest to `near`.
    #[inline]
    pub(crate) fn position(self, near: i64, number: u32) -> i64 {
        let distance = number.wrapping_sub(self.number(near)) as i32;
        near.wrapping_add(i64::from(distance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_go_on_where_sequence_numbers_wrap() {
        let numbering = Numbering::new(u32::MAX - 1);
        assert_eq!(numbering.position(0, u32::MAX), 1);
        assert_eq!(numbering.position(1, 9), 11);
        assert_eq!(numbering.number(11), 9);
    }

    #[test]
    fn a_number_far_behind_the_wrap_is_an_old_one() {
        let numbering = Numbering::new(0);
        let near = 3 * (1 << 32) + 10;
        assert_eq!(numbering.position(near, u32::MAX), near - 11);
        assert_eq!(numbering.position(near, 20), near + 10);
    }
}
