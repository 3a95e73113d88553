/// The byte order that a trace's writer chose for its own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Big,
    Little,
}

impl Order {
    #[inline]
    pub fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Big => u16::from_be_bytes(bytes),
            Self::Little => u16::from_le_bytes(bytes),
        }
    }

    #[inline]
    pub fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        }
    }

    pub fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Big => u64::from_be_bytes(bytes),
            Self::Little => u64::from_le_bytes(bytes),
        }
    }
}

/// Takes one field after the other; `None` where there are no bytes left for it.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    pub rest: &'a [u8],
    order: Order,
}

impl<'a> Fields<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8], order: Order) -> Self {
        Self { rest: bytes, order }
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*field)
    }

    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(|bytes| self.order.u16(bytes))
    }

    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(|bytes| self.order.u32(bytes))
    }

    /// Four at a time, which are there or not together.
    #[inline]
    pub fn four_u32(&mut self) -> Option<[u32; 4]> {
        let bytes: [u8; 16] = self.array()?;
        let words: &[[u8; 4]; 4] = bytes.as_chunks().0.try_into().ok()?;
        Some(words.map(|word| self.order.u32(word)))
    }

    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(field)
    }
}
