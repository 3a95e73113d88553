use super::{
    Frame, LONGEST, LinkType, Order, Problem, Step, Unreadable, Warning, Window, begins, failed,
    whole,
};
use crate::input::bytes::Fields;

/// Type of a Section Header Block, the same in both byte orders.
pub(super) const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Type and length at a block's start, its length again at the end.
const FRAMING: u32 = 12;
const MOST_INTERFACES: usize = 1 << 16;

/// pcapng (draft-ietf-opsawg-pcapng): sections of blocks, each with a byte order and
/// interfaces of its own.
pub(crate) struct PcapNg {
    order: Order,
    interfaces: Vec<Interface>,
    said_no_time: bool,
}

#[derive(Clone, Copy)]
struct Interface {
    link: LinkType,
    snaplen: u32,
    clock: Clock,
}

impl PcapNg {
    /// Finds out whether a section begins here; reading it is left to `next`.
    pub fn new(window: &mut Window) -> Result<Self, Unreadable> {
        if !window.holds(12).map_err(Unreadable::Read)? {
            return Err(Unreadable::Short(window.bytes().len()));
        }
        match byte_order(window.bytes()) {
            Some(order) => Ok(Self {
                order,
                interfaces: Vec::new(),
                said_no_time: false,
            }),
            None => Err(Unreadable::NotATrace(super::hex(
                window.bytes().first_chunk::<12>().unwrap_or(&[0; 12]),
            ))),
        }
    }

    #[inline]
    pub fn next<'w>(&mut self, window: &'w mut Window) -> Result<Step<'w>, Box<Warning>> {
        loop {
            let offset = window.offset();
            if !begins(window, FRAMING as usize, offset)? {
                return Ok(Step::End);
            }
            if window.bytes().starts_with(&MAGIC) {
                self.order = byte_order(window.bytes()).ok_or(Problem::Section.at(offset))?;
            }
            let mut fields = Fields::new(window.bytes(), self.order);
            let (Some(kind), Some(len)) = (fields.u32(), fields.u32()) else {
                return Err(Problem::Truncated.at(offset));
            };
            if len < FRAMING || !len.is_multiple_of(4) {
                return Err(Problem::Length(len.into()).at(offset));
            }
            match kind {
                ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET => {
                    if kind == SIMPLE_PACKET && !self.said_no_time {
                        self.said_no_time = true;
                        return Ok(Step::Note(Problem::NoTime.at(offset)));
                    }
                    let body = self.block(window, len, offset)?;
                    let frame = match kind {
                        ENHANCED_PACKET => self.enhanced(body),
                        SIMPLE_PACKET => self.simple(body),
                        _ => self.obsolete(body),
                    };
                    return Ok(match frame {
                        Ok(frame) => Step::Frame(frame),
                        Err(problem) => Step::Lost(problem.at(offset)),
                    });
                }
                SECTION => {
                    let body = self.block(window, len, offset)?;
                    if !version_is_read(body, self.order) {
                        return Err(Problem::Section.at(offset));
                    }
                    self.interfaces.clear();
                }
                INTERFACE => {
                    let body = self.block(window, len, offset)?;
                    let interface =
                        Interface::new(body, self.order).ok_or(Problem::Truncated.at(offset))?;
                    if self.interfaces.len() == MOST_INTERFACES {
                        return Err(Problem::Interfaces(MOST_INTERFACES).at(offset));
                    }
                    self.interfaces.push(interface);
                    if !interface.link.is_read() {
                        return Ok(Step::Note(Problem::LinkType(interface.link).at(offset)));
                    }
                }
                _ => self.pass(window, len, offset)?,
            }
        }
    }

    /// The body of the block of `len` bytes that begins here.
    #[inline]
    fn block<'w>(
        &self,
        window: &'w mut Window,
        len: u32,
        offset: u64,
    ) -> Result<&'w [u8], Box<Warning>> {
        if len > LONGEST {
            return Err(Problem::Length(len.into()).at(offset));
        }
        whole(window, len as usize, offset)?;
        let block = window.take(len as usize);
        let Some((rest, end)) = block.split_last_chunk() else {
            return Err(Problem::Truncated.at(offset));
        };
        self.check_end(len, *end, offset)?;
        Ok(rest.get(8..).unwrap_or_default())
    }

    /// Passes over a block without holding it: such may be of any length.
    fn pass(&self, window: &mut Window, len: u32, offset: u64) -> Result<(), Box<Warning>> {
        match window.skip(u64::from(len) - 4) {
            Ok(true) => {}
            Ok(false) => return Err(Problem::Truncated.at(offset)),
            Err(error) => return Err(failed(&error, offset)),
        }
        whole(window, 4, offset)?;
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
        let mut fields = Fields::new(body, self.order);
        let index = fields.u32().ok_or(Problem::Overlong)?;
        self.timed(index, fields)
    }

    fn obsolete<'w>(&self, body: &'w [u8]) -> Result<Frame<'w>, Problem> {
        let mut fields = Fields::new(body, self.order);
        let index = fields.u16().ok_or(Problem::Overlong)?;
        let _drops = fields.u16();
        self.timed(index.into(), fields)
    }

    /// From the time on, both kinds of block are alike.
    #[inline]
    fn timed<'w>(&self, index: u32, mut fields: Fields<'w>) -> Result<Frame<'w>, Problem> {
        let interface = self.interface(index)?;
        let Some([high, low, captured, len]) = fields.four_u32() else {
            return Err(Problem::Overlong);
        };
        Ok(Frame {
            at_ns: Some(interface.clock.ns(u64::from(high) << 32 | u64::from(low))),
            link: interface.link,
            interface: index,
            bytes: fields.bytes(captured as usize).ok_or(Problem::Overlong)?,
            len,
        })
    }

    /// A Simple Packet Block says neither when nor how much was captured: that follows from the
    /// first interface's snapshot length.
    fn simple<'w>(&self, body: &'w [u8]) -> Result<Frame<'w>, Problem> {
        let interface = self.interface(0)?;
        let mut fields = Fields::new(body, self.order);
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
    fn new(body: &[u8], order: Order) -> Option<Self> {
        const END: u16 = 0;
        const RESOLUTION: u16 = 9;
        const OFFSET: u16 = 14;
        let mut fields = Fields::new(body, order);
        let link = LinkType(fields.u16()?);
        let _reserved = fields.u16()?;
        let snaplen = fields.u32()?;
        let mut clock = Clock::default();
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

/// The byte order of the section that begins with `start`.
fn byte_order(start: &[u8]) -> Option<Order> {
    let mark = *start.get(8..)?.first_chunk()?;
    [Order::Little, Order::Big]
        .into_iter()
        .find(|order| order.u32(mark) == BYTE_ORDER)
}

fn version_is_read(section: &[u8], order: Order) -> bool {
    let mut fields = Fields::new(section, order);
    let _byte_order = fields.u32();
    // 1.2 was written for a while and is the same (draft-ietf-opsawg-pcapng, section 4.1).
    matches!((fields.u16(), fields.u16()), (Some(1), Some(0 | 2)))
}

const NS_PER_S: u128 = 1_000_000_000;

/// How an interface of a pcapng trace counts time: the options if_tsresol and if_tsoffset.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    tick: Tick,
    offset_s: i64,
}

#[derive(Clone, Copy)]
enum Tick {
    /// A whole number of nanoseconds.
    Ns(u64),
    /// So many to a second.
    PerSecond(u128),
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            tick: Tick::Ns(1000),
            offset_s: 0,
        }
    }
}

impl Clock {
    /// Takes over if_tsresol: ticks of 10^-n seconds, or 2^-n with the highest bit set.
    pub fn set_resolution(&mut self, resolution: u8) {
        let exponent = u32::from(resolution & 0x7f);
        let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
        // Ticks so short that a century of them exceeds 128 bits leave no nanosecond.
        let per_second = base.checked_pow(exponent).unwrap_or(u128::MAX);
        self.tick = match (per_second <= NS_PER_S && NS_PER_S.is_multiple_of(per_second))
            .then(|| u64::try_from(NS_PER_S / per_second))
        {
            Some(Ok(ns)) => Tick::Ns(ns),
            _ => Tick::PerSecond(per_second),
        };
    }

    /// Takes over if_tsoffset: seconds to add.
    pub fn set_offset(&mut self, seconds: i64) {
        self.offset_s = seconds;
    }

    /// Nanoseconds since 1970; what lies beyond the years that 64 bits can say is the last of them.
    #[inline]
    pub fn ns(&self, ticks: u64) -> i64 {
        let ns = match self.tick {
            Tick::Ns(ns) => i64::try_from(ticks.saturating_mul(ns)).unwrap_or(i64::MAX),
            Tick::PerSecond(n) => {
                i64::try_from(u128::from(ticks) * NS_PER_S / n).unwrap_or(i64::MAX)
            }
        };
        ns.saturating_add(self.offset_s.saturating_mul(NS_PER_S as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(resolution: u8, offset_s: i64, ticks: u64) -> i64 {
        let mut clock = Clock::default();
        clock.set_resolution(resolution);
        clock.set_offset(offset_s);
        clock.ns(ticks)
    }

    #[test]
    fn ticks_are_microseconds_unless_said_otherwise() {
        assert_eq!(Clock::default().ns(3), 3000);
    }

    #[test]
    fn every_decimal_and_binary_resolution_is_understood() {
        assert_eq!(ns(0, 0, 5), 5_000_000_000);
        assert_eq!(ns(3, 0, 5), 5_000_000);
        assert_eq!(ns(9, 0, 5), 5);
        assert_eq!(ns(12, 0, 5_999), 5);
        assert_eq!(ns(0x80 | 10, 0, 1536), 1_500_000_000);
        assert_eq!(ns(0x80 | 32, 0, 3 << 31), 1_500_000_000);
    }

    #[test]
    fn an_offset_is_added() {
        assert_eq!(ns(9, 2, 5), 2_000_000_005);
        assert_eq!(ns(9, -2, 5), -1_999_999_995);
    }

    #[test]
    fn no_resolution_offset_or_time_overflows() {
        for resolution in 0..=u8::MAX {
            for offset_s in [i64::MIN, -1, 0, i64::MAX] {
                for ticks in [0, 1, u64::MAX] {
                    ns(resolution, offset_s, ticks);
                }
            }
        }
        assert_eq!(ns(0, 0, u64::MAX), i64::MAX);
        assert_eq!(ns(0x7f, 0, u64::MAX), 0);
    }
}
