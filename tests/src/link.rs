//! What stands before the IP header, on the wire.

/// What a device's packets begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header and so many VLAN tags, at most three. As the bundler sees it, the
    /// outermost one stands beside the packet, the others in its data.
    Ethernet {
        /// Number of VLAN tags, 0 to 3.
        tags: usize,
    },
    /// Packets begin with their IP header: a TUN device.
    Absent,
}

pub(crate) const ETHERNET_HEADER: usize = 14;
const ADDRESSES: usize = 12;

/// The VLAN tags, outermost first; `tags.bpf.c` adds them from the last on.
const TAGS: [[u8; 4]; 3] = [[0x88, 0xa8, 0, 7], [0x88, 0xa8, 0, 6], [0x81, 0x00, 0, 5]];

impl Link {
    /// The header that takes the place of an untagged Ethernet header.
    pub(crate) fn put(self, ethernet: &[u8]) -> Vec<u8> {
        match self {
            Self::Ethernet { tags } => {
                let (addresses, rest) = ethernet.split_at(ADDRESSES);
                [addresses, wire_tags(tags).as_slice(), rest].concat()
            }
            Self::Absent => ethernet[ETHERNET_HEADER..].to_vec(),
        }
    }

    /// The untagged Ethernet frame that corresponds to what is on the wire, or what is
    /// wrong with that.
    pub(crate) fn take(self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Ethernet { tags } => {
                let tags = wire_tags(tags);
                let (addresses, rest) = bytes.split_at(ADDRESSES);
                match rest.strip_prefix(tags.as_slice()) {
                    Some(rest) => Ok([addresses, rest].concat()),
                    None => Err(format!("not the tags {tags:02x?}: {bytes:02x?}")),
                }
            }
            Self::Absent => {
                let kind: [u8; 2] = match bytes.first().map(|byte| byte >> 4) {
                    Some(4) => [0x08, 0x00],
                    Some(6) => [0x86, 0xdd],
                    _ => return Err(format!("no IP header: {bytes:02x?}")),
                };
                Ok([&[0; ADDRESSES], kind.as_slice(), bytes].concat())
            }
        }
    }
}

fn wire_tags(tags: usize) -> Vec<u8> {
    TAGS[TAGS.len() - tags..].concat()
}
