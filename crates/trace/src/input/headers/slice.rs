use super::Skip;

/// A part of a frame: as much of it as was captured, and how long it was on the wire.
#[derive(Clone, Copy)]
pub(super) struct Slice<'a> {
    pub bytes: &'a [u8],
    /// Never less than `bytes` has.
    pub len: u32,
}

impl<'a> Slice<'a> {
    /// Some programs write a length on the wire below the length captured: the larger holds.
    #[inline]
    pub fn new(bytes: &'a [u8], len: u32) -> Self {
        Self {
            bytes,
            len: len.max(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
        }
    }

    /// The first `N` bytes, and what follows them.
    #[inline]
    pub fn split<const N: usize>(self) -> Result<(&'a [u8; N], Self), Skip> {
        match self.bytes.split_first_chunk() {
            Some((head, bytes)) => {
                let len = self.len - N as u32;
                Ok((head, Self { bytes, len }))
            }
            None => Err(self.short_of(N as u32)),
        }
    }

    /// What follows the first `len` bytes.
    #[inline]
    pub fn skip(self, len: u32) -> Result<Self, Skip> {
        match self.bytes.get(len as usize..) {
            Some(bytes) => Ok(Self {
                bytes,
                len: self.len - len,
            }),
            None => Err(self.short_of(len)),
        }
    }

    /// This slice, `len` bytes long by a header of its own: what is beyond is padding, or the
    /// frame's check sequence.
    #[inline]
    pub fn limit(self, len: u32) -> Self {
        Self {
            bytes: self.bytes.get(..len as usize).unwrap_or(self.bytes),
            len,
        }
    }

    #[cold]
    fn short_of(self, len: u32) -> Skip {
        if self.len >= len {
            Skip::Cut
        } else {
            Skip::Damaged
        }
    }
}
