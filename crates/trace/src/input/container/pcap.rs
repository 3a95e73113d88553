use super::{
    Container, Frame, LONGEST, LinkType, Order, Problem, Step, Unreadable, Warning, Window, begins,
    whole,
};
use crate::input::fields::Fields;

const HEADER: usize = 24;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Kuznetsov's libpcap of the 1990s: eight more bytes in each record's header.
const LONG_RECORDS: u32 = 0xa1b2_cd34;

/// pcap (draft-ietf-opsawg-pcap): a header, then record after record.
pub(crate) struct Pcap {
    order: Order,
    ns_per_tick: u32,
    record_header: usize,
    link: LinkType,
}

impl Pcap {
    /// Reads the header; `None` if `magic` is not pcap's.
    pub fn new(window: &mut Window, magic: [u8; 4]) -> Option<Result<Self, Unreadable>> {
        let (order, (ns_per_tick, record_header)) = [Order::Little, Order::Big]
            .into_iter()
            .find_map(|order| Some((order, variant(order.u32(magic))?)))?;
        Some(read_header(window, order).map(|link| Self {
            order,
            ns_per_tick,
            record_header,
            link,
        }))
    }

    pub fn container(&self) -> Container {
        Container::Pcap {
            nanoseconds: self.ns_per_tick == 1,
        }
    }

    #[inline]
    pub fn next<'w>(&mut self, window: &'w mut Window) -> Result<Step<'w>, Box<Warning>> {
        let offset = window.offset();
        if !begins(window, self.record_header, offset)? {
            return Ok(Step::End);
        }
        let mut fields = Fields::new(window.bytes(), self.order);
        let Some([seconds, ticks, captured, len]) = fields.four_u32() else {
            return Err(Problem::Truncated.at(offset));
        };
        // More than the header's snapshot length is no damage: some programs write it wrong.
        if captured > LONGEST {
            return Err(Problem::Length(captured.into()).at(offset));
        }
        let record = self.record_header + captured as usize;
        whole(window, record, offset)?;
        let bytes = window.take(record);
        Ok(Step::Frame(Frame {
            at_ns: Some(
                i64::from(seconds) * 1_000_000_000 + i64::from(ticks) * i64::from(self.ns_per_tick),
            ),
            link: self.link,
            interface: 0,
            bytes: bytes.get(self.record_header..).unwrap_or_default(),
            len,
        }))
    }
}

/// Nanoseconds of a tick, and bytes of a record's header.
fn variant(magic: u32) -> Option<(u32, usize)> {
    match magic {
        MICROSECONDS => Some((1000, 16)),
        NANOSECONDS => Some((1, 16)),
        LONG_RECORDS => Some((1000, 24)),
        _ => None,
    }
}

fn read_header(window: &mut Window, order: Order) -> Result<LinkType, Unreadable> {
    if !window.holds(HEADER).map_err(Unreadable::Read)? {
        return Err(Unreadable::Short(window.bytes().len()));
    }
    let mut fields = Fields::new(window.take(HEADER), order);
    let _magic = fields.u32();
    let (major, minor) = (
        fields.u16().unwrap_or_default(),
        fields.u16().unwrap_or_default(),
    );
    if major != 2 {
        return Err(Unreadable::Version { major, minor });
    }
    let _zone_accuracy_snaplen: Option<[u8; 12]> = fields.array();
    // The upper half says how long the frames' checksums are.
    let link = LinkType(fields.u32().unwrap_or_default() as u16);
    if link.is_read() {
        Ok(link)
    } else {
        Err(Unreadable::LinkType(link))
    }
}
