use super::{
    ByteOrder, Frame, InputErrorKind, LinkType, MAX_RECORD, Problem, ReadStep, Warning, Window,
    has_record, read_failure, require,
};
use crate::input::bytes::FieldReader;

/// Type of a Section Header Block, the same in both byte orders.
pub(super) const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Type and length at a block's start, and the length again at its end.
const FRAMING: u32 = 12;
const MAX_INTERFACES: usize = 1 << 16;

/// pcapng (draft-ietf-opsawg-pcapng): sections of blocks, each with a byte order and
/// interfaces of its own.
pub(crate) struct PcapNg {
    order: ByteOrder,
    interfaces: Vec<Interface>,
    warned_no_time: bool,
}

#[derive(Clone, Copy)]
struct Interface {
    link: LinkType,
    snaplen: u32,
    clock: InterfaceClock,
}

impl PcapNg {
    /// Checks for a section at the start; `next` reads it.
    pub fn new(window: &mut Window) -> Result<Self, InputErrorKind> {
        if !window.fill_to(12).map_err(InputErrorKind::Read)? {
            return Err(InputErrorKind::Short(window.bytes().len()));
        }
        match byte_order(window.bytes()) {
            Some(order) => Ok(Self {
                order,
                interfaces: Vec::new(),
                warned_no_time: false,
            }),
            None => Err(InputErrorKind::NotATrace(super::hex(
                window.bytes().first_chunk::<12>().unwrap_or(&[0; 12]),
            ))),
        }
    }

    #[inline]
    pub fn next<'w>(&mut self, window: &'w mut Window) -> Result<ReadStep<'w>, Box<Warning>> {
        loop {
            let offset = window.offset();
            if !has_record(window, FRAMING as usize, offset)? {
                return Ok(ReadStep::End);
            }
            if window.bytes().starts_with(&MAGIC) {
                self.order = byte_order(window.bytes()).ok_or(Problem::Section.at(offset))?;
            }
            let mut fields = FieldReader::new(window.bytes(), self.order);
            let (Some(kind), Some(len)) = (fields.u32(), fields.u32()) else {
                return Err(Problem::Truncated.at(offset));
            };
            if len < FRAMING || !len.is_multiple_of(4) {
                return Err(Problem::Length(len.into()).at(offset));
            }
            match kind {
                ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET => {
                    if kind == SIMPLE_PACKET && !self.warned_no_time {
                        self.warned_no_time = true;
                        return Ok(ReadStep::Note(Problem::NoTime.at(offset)));
                    }
                    let body = self.block(window, len, offset)?;
                    let frame = match kind {
                        ENHANCED_PACKET => self.enhanced(body),
                        SIMPLE_PACKET => self.simple(body),
                        _ => self.obsolete(body),
                    };
                    return Ok(match frame {
                        Ok(frame) => ReadStep::Frame(frame),
                        Err(problem) => ReadStep::Lost(problem.at(offset)),
                    });
                }
                SECTION => {
                    let body = self.block(window, len, offset)?;
                    if !is_supported_version(body, self.order) {
                        return Err(Problem::Section.at(offset));
                    }
                    self.interfaces.clear();
                }
                INTERFACE => {
                    let body = self.block(window, len, offset)?;
                    let interface =
                        Interface::new(body, self.order).ok_or(Problem::Truncated.at(offset))?;
                    if self.interfaces.len() == MAX_INTERFACES {
                        return Err(Problem::Interfaces(MAX_INTERFACES).at(offset));
                    }
                    self.interfaces.push(interface);
                    if !interface.link.is_supported() {
                        return Ok(ReadStep::Note(Problem::LinkType(interface.link).at(offset)));
                    }
                }
                _ => self.skip_block(window, len, offset)?,
            }
        }
    }

    /// The body of the block of `len` bytes at the window's start.
    #[inline]
    fn block<'w>(
        &self,
        window: &'w mut Window,
        len: u32,
        offset: u64,
    ) -> Result<&'w [u8], Box<Warning>> {
        if len > MAX_RECORD {
            return Err(Problem::Length(len.into()).at(offset));
        }
        require(window, len as usize, offset)?;
        let block = window.take(len as usize);
        let Some((rest, end)) = block.split_last_chunk() else {
            return Err(Problem::Truncated.at(offset));
        };
        self.check_end(len, *end, offset)?;
        Ok(rest.get(8..).unwrap_or_default())
    }

    /// Skips a block of any length without storing it.
    fn skip_block(&self, window: &mut Window, len: u32, offset: u64) -> Result<(), Box<Warning>> {
        match window.skip(u64::from(len) - 4) {
            Ok(true) => {}
            Ok(false) => return Err(Problem::Truncated.at(offset)),
            Err(error) => return Err(read_failure(&error, offset)),
        }
        require(window, 4, offset)?;
        let end = window.take(4).first_chunk().copied().unwrap_or_default();
        self.check_end(len, end, offset)
    }

    #[inline]
    fn check_end(&self, len: u32, end: [u8; 4], offset: u64) -> Result<(), Box<Warning>> {
        match self.order.u32(end) {
            end if end == len => Ok(()),
            end => Err(Problem::Lengths(len, end).at(offset)),
        }
    }

    fn interface(&self, index: u32) -> Result<&Interface, Problem> {
        self.interfaces
            .get(index as usize)
            .ok_or(Problem::UnknownInterface(index))
    }

    #[inline]
    fn enhanced<'w>(&self, body: &'w [u8]) -> Result<Frame<'w>, Problem> {
        let mut fields = FieldReader::new(body, self.order);
        let index = fields.u32().ok_or(Problem::Overlong)?;
        self.timed(index, fields)
    }

    fn obsolete<'w>(&self, body: &'w [u8]) -> Result<Frame<'w>, Problem> {
        let mut fields = FieldReader::new(body, self.order);
        let index = fields.u16().ok_or(Problem::Overlong)?;
        let _drops = fields.u16();
        self.timed(index.into(), fields)
    }

    /// Reads from the time field on, where both kinds of block are equal.
    #[inline]
    fn timed<'w>(&self, index: u32, mut fields: FieldReader<'w>) -> Result<Frame<'w>, Problem> {
        let interface = self.interface(index)?;
        let Some([high, low, captured, len]) = fields.four_u32() else {
            return Err(Problem::Overlong);
        };
        let ticks = u64::from(high) << 32 | u64::from(low);
        Ok(Frame {
            at_ns: Some(interface.clock.ns(ticks).ok_or(Problem::TimeRange)?),
            link: interface.link,
            interface: index,
            bytes: fields.bytes(captured as usize).ok_or(Problem::Overlong)?,
            len,
        })
    }

    /// A Simple Packet Block has no time and no captured length. The length follows from the first
    /// interface's snapshot length.
    fn simple<'w>(&self, body: &'w [u8]) -> Result<Frame<'w>, Problem> {
        let interface = self.interface(0)?;
        let mut fields = FieldReader::new(body, self.order);
        let len = fields.u32().ok_or(Problem::Overlong)?;
        let captured = match interface.snaplen {
            0 => len,
            snaplen => len.min(snaplen),
        };
        Ok(Frame {
            at_ns: None,
            link: interface.link,
            interface: 0,
            bytes: fields.bytes(captured as usize).ok_or(Problem::Overlong)?,
            len,
        })
    }
}

impl Interface {
    fn new(body: &[u8], order: ByteOrder) -> Option<Self> {
        const END: u16 = 0;
        const RESOLUTION: u16 = 9;
        const OFFSET: u16 = 14;
        let mut fields = FieldReader::new(body, order);
        let link = LinkType(fields.u16()?);
        let _reserved = fields.u16()?;
        let snaplen = fields.u32()?;
        let mut clock = InterfaceClock::default();
        while let (Some(code), Some(len)) = (fields.u16(), fields.u16()) {
            let Some(value) = fields.bytes(usize::from(len)) else {
                break;
            };
            let _padding = fields.bytes(usize::from(len).wrapping_neg() % 4);
            match (code, value) {
                (END, _) => break,
                (RESOLUTION, [resolution, ..]) => clock.set_resolution(*resolution),
                (OFFSET, value) => {
                    if let Some(seconds) = value.first_chunk() {
                        clock.set_offset(order.u64(*seconds).cast_signed());
                    }
                }
                _ => {}
            }
        }
        Some(Self {
            link,
            snaplen,
            clock,
        })
    }
}

/// The byte order of the section that starts with `start`.
fn byte_order(start: &[u8]) -> Option<ByteOrder> {
    let mark = *start.get(8..)?.first_chunk()?;
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find(|order| order.u32(mark) == BYTE_ORDER)
}

fn is_supported_version(section: &[u8], order: ByteOrder) -> bool {
    let mut fields = FieldReader::new(section, order);
    let _byte_order = fields.u32();
    // Version 1.2 was written for a while and is equal (draft-ietf-opsawg-pcapng, section 4.1).
    matches!((fields.u16(), fields.u16()), (Some(1), Some(0 | 2)))
}

const NS_PER_S: u128 = 1_000_000_000;

/// Time units of a pcapng interface: the options if_tsresol and if_tsoffset.
#[derive(Clone, Copy)]
pub(super) struct InterfaceClock {
    tick: Tick,
    offset_s: i64,
}

#[derive(Clone, Copy)]
enum Tick {
    /// A whole number of nanoseconds.
    Ns(u64),
    /// Ticks per second.
    PerSecond(u128),
}

impl Default for InterfaceClock {
    fn default() -> Self {
        Self {
            tick: Tick::Ns(1000),
            offset_s: 0,
        }
    }
}

impl InterfaceClock {
    /// Applies if_tsresol: ticks of 10^-n seconds, or 2^-n with the highest bit set.
    pub fn set_resolution(&mut self, resolution: u8) {
        let exponent = u32::from(resolution & 0x7f);
        let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
        // Ticks so short that a century of them exceeds 128 bits round to 0 ns.
        let per_second = base.checked_pow(exponent).unwrap_or(u128::MAX);
        self.tick = match (per_second <= NS_PER_S && NS_PER_S.is_multiple_of(per_second))
            .then(|| u64::try_from(NS_PER_S / per_second))
        {
            Some(Ok(ns)) => Tick::Ns(ns),
            _ => Tick::PerSecond(per_second),
        };
    }

    /// Applies if_tsoffset: seconds to add.
    pub fn set_offset(&mut self, seconds: i64) {
        self.offset_s = seconds;
    }

    /// Nanoseconds since 1970; `None` beyond 64 bits. Some programs write a time before 1970 as a
    /// negative number of ticks, which read without sign is beyond 64 bits.
    #[inline]
    pub fn ns(&self, ticks: u64) -> Option<i64> {
        let since_1970 = |ticks: i128| {
            let ns = match self.tick {
                Tick::Ns(ns) => ticks * i128::from(ns),
                Tick::PerSecond(n) => (ticks * NS_PER_S as i128)
                    .checked_div_euclid(i128::try_from(n).unwrap_or(i128::MAX))?,
            };
            let ns = i64::try_from(ns + i128::from(self.offset_s) * NS_PER_S as i128).ok()?;
            // The limits mean a trace without start and without end.
            (i64::MIN < ns && ns < i64::MAX).then_some(ns)
        };
        since_1970(ticks.into()).or_else(|| since_1970(ticks.cast_signed().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(resolution: u8, offset_s: i64, ticks: u64) -> Option<i64> {
        let mut clock = InterfaceClock::default();
        clock.set_resolution(resolution);
        clock.set_offset(offset_s);
        clock.ns(ticks)
    }

    #[test]
    fn pcapng_ticks_default_to_microseconds() {
        assert_eq!(InterfaceClock::default().ns(3), Some(3000));
    }

    #[test]
    fn pcapng_decimal_and_binary_resolutions_convert() {
        assert_eq!(ns(0, 0, 5), Some(5_000_000_000));
        assert_eq!(ns(3, 0, 5), Some(5_000_000));
        assert_eq!(ns(9, 0, 5), Some(5));
        assert_eq!(ns(12, 0, 5_999), Some(5));
        assert_eq!(ns(0x80 | 10, 0, 1536), Some(1_500_000_000));
        assert_eq!(ns(0x80 | 32, 0, 3 << 31), Some(1_500_000_000));
        assert_eq!(ns(0x80 | 32, 0, 3 << 62), Some(3_221_225_472_000_000_000));
    }

    #[test]
    fn pcapng_time_offset_is_added() {
        assert_eq!(ns(9, 2, 5), Some(2_000_000_005));
        assert_eq!(ns(9, -2, 5), Some(-1_999_999_995));
    }

    #[test]
    fn pcapng_times_never_overflow() {
        for resolution in 0..=u8::MAX {
            for offset_s in [i64::MIN, -1, 0, i64::MAX] {
                for ticks in [0, 1, u64::MAX] {
                    ns(resolution, offset_s, ticks);
                }
            }
        }
        assert_eq!(ns(0, 0, i64::MAX as u64), None);
        assert_eq!(ns(9, 1, i64::MAX as u64), None);
        assert_eq!(ns(0x7f, 0, u64::MAX), Some(0));
    }

    #[test]
    fn negative_pcapng_times_are_before_1970() {
        let ticks = |ticks: i64| ticks.cast_unsigned();
        for resolution in [0, 3, 6, 9] {
            assert_eq!(
                ns(resolution, 0, ticks(-10_i64.pow(resolution.into()))),
                Some(-1_000_000_000),
                "{resolution}"
            );
        }
        assert_eq!(ns(9, 0, ticks(i64::MIN)), None);
        // Nanoseconds of 2023 under a unit of microseconds.
        assert_eq!(ns(6, 0, 1_700_000_000_000_000_000), None);
    }
}
