//! The headers of a frame: from bytes to a packet.

mod tcp_ip;

use std::fmt;

use super::Filter;
use super::container::Frame;
use crate::{Endpoint, Packet};

/// Why a frame yields no packet. As wide as the pointer that it shares results with, which avoids
/// byte-wise handling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum SkipReason {
    OtherLink,
    NotIp,
    NotTcp,
    Fragment,
    Cut,
    Damaged,
    TimeRange,
    Filtered,
}

/// A packet and its anomalies.
pub(super) struct Segment {
    pub packet: Packet,
    pub options_cut: bool,
    pub first_fragment: bool,
}

/// Reads the frame with this number in the trace.
#[inline]
pub(super) fn read(frame: &Frame, number: u64, filter: &Filter) -> Result<Segment, SkipReason> {
    let at_ns = frame.at_ns.unwrap_or_default();
    if !filter.matches_time(at_ns) {
        return Err(SkipReason::Filtered);
    }
    let whole = FrameSlice::new(frame.bytes, frame.len);
    let frame_len = whole.len;
    let ip = match network(frame.link, whole)? {
        Network::V4(packet) => tcp_ip::v4(packet)?,
        Network::V6(packet) => tcp_ip::v6(packet)?,
    };
    let (tcp, _) = ip.payload.split::<{ tcp_ip::HEADER }>()?;
    let [from, to] = tcp_ip::ports(tcp);
    let from = Endpoint {
        address: ip.from,
        port: from,
    };
    let to = Endpoint {
        address: ip.to,
        port: to,
    };
    if !filter.matches_ends(&from, &to) {
        return Err(SkipReason::Filtered);
    }
    let fixed = tcp_ip::TcpHeader::new(tcp);
    let payload_len = ip.payload.len.checked_sub(fixed.header_len.into());
    let header_len = u16::try_from(ip.header_len + u32::from(fixed.header_len));
    let (Some(payload_len), Ok(header_len)) = (payload_len, header_len) else {
        return Err(SkipReason::Damaged);
    };
    let (options, options_cut) = fixed.options_of(ip.payload.bytes)?;
    let options = tcp_ip::TcpOptions::read(options, fixed.flags.syn);
    let packet = Packet {
        number,
        at_ns,
        interface: interface(frame),
        from,
        to,
        frame_len,
        header_len,
        payload_len,
        seq: fixed.seq,
        ack: fixed.ack,
        flags: fixed.flags,
        window: fixed.window,
        ip_id: ip.id,
        timestamps: options.timestamps,
        sack: options.sack,
        mss: options.mss,
        window_scale: options.window_scale,
    };
    Ok(Segment {
        packet,
        options_cut,
        first_fragment: ip.first_fragment,
    })
}

/// A part of a frame: its captured bytes and its length on the wire.
#[derive(Clone, Copy)]
struct FrameSlice<'a> {
    pub bytes: &'a [u8],
    /// At least the length of `bytes`.
    pub len: u32,
    /// Whether a header has this length, so that no inner header can exceed it. The length of a
    /// frame is rewritten by programs that truncate it.
    is_limited: bool,
}

impl<'a> FrameSlice<'a> {
    /// Some programs write a wire length below the captured length: the larger one counts.
    #[inline]
    pub fn new(bytes: &'a [u8], len: u32) -> Self {
        Self {
            bytes,
            len: len.max(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            is_limited: false,
        }
    }

    /// Splits off the first `N` bytes.
    #[inline]
    pub fn split<const N: usize>(self) -> Result<(&'a [u8; N], Self), SkipReason> {
        match self.bytes.split_first_chunk() {
            Some((head, bytes)) => {
                let len = self.len - N as u32;
                Ok((head, Self { bytes, len, ..self }))
            }
            None => Err(self.short_of(N as u32)),
        }
    }

    /// Drops the first `len` bytes.
    #[inline]
    pub fn skip(self, len: u32) -> Result<Self, SkipReason> {
        match self.bytes.get(len as usize..) {
            Some(bytes) => Ok(Self {
                bytes,
                len: self.len - len,
                ..self
            }),
            None => Err(self.short_of(len)),
        }
    }

    /// Limits the slice to `len` bytes, a header's length field. The rest is padding or the frame
    /// check sequence.
    #[inline]
    pub fn limit(self, len: u32) -> Self {
        let len = match self.is_limited {
            true => len.min(self.len),
            false => len,
        };
        Self {
            bytes: self.bytes.get(..len as usize).unwrap_or(self.bytes),
            len,
            is_limited: true,
        }
    }

    #[cold]
    fn short_of(self, len: u32) -> SkipReason {
        if self.len >= len {
            SkipReason::Cut
        } else {
            SkipReason::Damaged
        }
    }
}

/// A link layer, by its number in a trace (www.tcpdump.org/linktypes.html).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

const NULL: u16 = 0;
const ETHERNET: u16 = 1;
/// PPP, with or without the header of HDLC framing (RFC 1662).
/// Cisco HDLC shares the framing.
const PPP: [u16; 3] = [9, 50, C_HDLC];
const C_HDLC: u16 = 104;
const PPPOE: u16 = 51;
/// PPP after a byte for the direction; pppd writes both.
const PPP_WITH_DIRECTION: [u16; 2] = [166, 204];
/// Raw IP on BSD/OS and others, before it had its own number.
const RAW_BSD: [u16; 2] = [12, 14];
const RAW: u16 = 101;
const LOOP: u16 = 108;
const SLL: u16 = 113;
const IPV4: u16 = 228;
const IPV6: u16 = 229;
const SLL2: u16 = 276;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_PPPOE: u16 = 0x8864;

/// Numbers and names of the other link types (www.tcpdump.org/linktypes.html).
const UNSUPPORTED: &str = "\
    2 EXP_ETHERNET, 3 AX25, 4 PRONET, 5 CHAOS, 6 IEEE802_5, 7 ARCNET, 8 SLIP, 10 FDDI, \
    11 ATM_RFC1483, 99 SYMANTEC_FIREWALL, 100 ATM_RFC1483, 102 SLIP_BSDOS, 103 PPP_BSDOS, \
    105 IEEE802_11, 106 ATM_CLIP, 107 FRELAY, 109 ENC, 110 LANE8023, 111 HIPPI, \
    112 HDLC, 114 LTALK, 115 ECONET, 116 IPFILTER, 117 PFLOG, 118 CISCO_IOS, 119 PRISM_HEADER, \
    120 AIRONET_HEADER, 122 IP_OVER_FC, 123 SUNATM, 127 IEEE802_11_RADIO, 128 TZSP, \
    129 ARCNET_LINUX, 130 JUNIPER_MLPPP, 131 JUNIPER_MLFR, 132 JUNIPER_ES, 133 JUNIPER_GGSN, \
    134 JUNIPER_MFR, 135 JUNIPER_ATM2, 136 JUNIPER_SERVICES, 137 JUNIPER_ATM1, \
    138 APPLE_IP_OVER_IEEE1394, 139 MTP2_WITH_PHDR, 140 MTP2, 141 MTP3, 142 SCCP, 143 DOCSIS, \
    144 LINUX_IRDA, 163 IEEE802_11_RADIO_AVS, 164 JUNIPER_MONITOR, 165 BACNET_MS_TP, \
    167 JUNIPER_PPPOE, 168 JUNIPER_PPPOE_ATM, 169 GPRS_LLC, 170 GPF_T, 171 GPF_F, 172 GCOM_SERIAL, \
    173 GCOM_T1E1, 174 JUNIPER_PIC_PEER, 175 ERF_ETH, 176 ERF_POS, 177 LINUX_LAPD, \
    178 JUNIPER_ETHER, 179 JUNIPER_PPP, 180 JUNIPER_FRELAY, 181 JUNIPER_CHDLC, 182 MFR, \
    183 JUNIPER_VP, 184 A429, 185 A653_ICM, 186 USB_FREEBSD, 187 BLUETOOTH_HCI_H4, \
    188 IEEE802_16_MAC_CPS, 189 USB_LINUX, 190 CAN20B, 191 IEEE802_15_4_LINUX, 192 PPI, \
    193 IEEE802_16_MAC_CPS_RADIO, 194 JUNIPER_ISM, 195 IEEE802_15_4, 196 SITA, 197 ERF, 198 RAIF1, \
    199 IPMB_KONTRON, 200 JUNIPER_ST, 201 BLUETOOTH_HCI_H4_WITH_PHDR, 202 AX25_KISS, \
    205 C_HDLC_WITH_DIR, 206 FRELAY_WITH_DIR, 207 LAPB_WITH_DIR, 209 I2C_LINUX, 210 FLEXRAY, \
    211 MOST, 212 LIN, 213 X2E_SERIAL, 214 X2E_XORAYA, 215 IEEE802_15_4_NONASK_PHY, \
    216 LINUX_EVDEV, 217 GSMTAP_UM, 218 GSMTAP_ABIS, 219 MPLS, 220 USB_LINUX_MMAPPED, 221 DECT, \
    222 AOS, 223 WIHART, 224 FC_2, 225 FC_2_WITH_FRAME_DELIMS, 226 IPNET, 227 CAN_SOCKETCAN, \
    230 IEEE802_15_4_NOFCS, 231 DBUS, 232 JUNIPER_VS, 233 JUNIPER_SRX_E2E, \
    234 JUNIPER_FIBRECHANNEL, 235 DVB_CI, 236 MUX27010, 237 STANAG_5066_D_PDU, \
    238 JUNIPER_ATM_CEMIC, 239 NFLOG, 240 NETANALYZER, 241 NETANALYZER_TRANSPARENT, 242 IPOIB, \
    243 MPEG_2_TS, 244 NG40, 245 NFC_LLCP, 246 PFSYNC, 247 INFINIBAND, 248 SCTP, 249 USBPCAP, \
    250 RTAC_SERIAL, 251 BLUETOOTH_LE_LL, 252 WIRESHARK_UPPER_PDU, 253 NETLINK, \
    254 BLUETOOTH_LINUX_MONITOR, 255 BLUETOOTH_BREDR_BB, 256 BLUETOOTH_LE_LL_WITH_PHDR, \
    257 PROFIBUS_DL, 258 PKTAP, 259 EPON, 260 IPMI_HPM_2, 261 ZWAVE_R1_R2, 262 ZWAVE_R3, \
    263 WATTSTOPPER_DLM, 264 ISO_14443, 265 RDS, 266 USB_DARWIN, 267 OPENFLOW, 268 SDLC, \
    269 TI_LLN_SNIFFER, 271 VSOCK, 272 NORDIC_BLE, 273 DOCSIS31_XRA31, 274 ETHERNET_MPACKET, \
    275 DISPLAYPORT_AUX, 278 OPENVIZSLA, 279 EBHSCR, 280 VPP_DISPATCH, 281 DSA_TAG_BRCM, \
    282 DSA_TAG_BRCM_PREPEND, 283 IEEE802_15_4_TAP, 284 DSA_TAG_DSA, 285 DSA_TAG_EDSA, 286 ELEE, \
    287 Z_WAVE_SERIAL, 288 USB_2_0, 289 ATSC_ALP, 290 ETW, 291 NETANALYZER_NG, 292 ZBOSS_NCP, \
    293 USB_2_0_LOW_SPEED, 294 USB_2_0_FULL_SPEED, 295 USB_2_0_HIGH_SPEED, 296 AUERSWALD_LOG, \
    297 ZWAVE_TAP, 298 SILABS_DEBUG_CHANNEL, 299 FIRA_UCI, 300 MDB, 301 DECT_NR";

/// Payload of a frame.
enum Network<'a> {
    V4(FrameSlice<'a>),
    V6(FrameSlice<'a>),
}

impl LinkType {
    /// The link type's name; `None` if unsupported.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            NULL => "BSD loopback",
            ETHERNET => "Ethernet",
            PPPOE => "PPPoE",
            C_HDLC => "Cisco HDLC",
            n if PPP.contains(&n) || PPP_WITH_DIRECTION.contains(&n) => "PPP",
            RAW => "raw IP",
            n if RAW_BSD.contains(&n) => "raw IP",
            LOOP => "OpenBSD loopback",
            SLL => "Linux cooked v1",
            IPV4 => "raw IPv4",
            IPV6 => "raw IPv6",
            SLL2 => "Linux cooked v2",
            _ => return None,
        })
    }

    pub(crate) fn is_supported(self) -> bool {
        self.name().is_some()
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.name() {
            return f.write_str(name);
        }
        let number = self.0.to_string();
        let mut others = UNSUPPORTED.split(", ").filter_map(|it| it.split_once(' '));
        match others.find(|(other, _)| *other == number) {
            Some((_, name)) => write!(f, "{number} ({name})"),
            None => write!(f, "{number} (unknown)"),
        }
    }
}

/// The capturing interface. Linux cooked headers name it; v1 has only the packet's direction.
#[inline]
fn interface(frame: &Frame) -> u32 {
    let interface_index = match frame.link.0 {
        SLL => frame
            .bytes
            .first_chunk()
            .map(|kind| u16::from_be_bytes(*kind).into()),
        SLL2 => frame
            .bytes
            .get(4..)
            .and_then(<[u8]>::first_chunk)
            .map(|index| u32::from_be_bytes(*index)),
        _ => None,
    };
    interface_index.unwrap_or(frame.interface)
}

/// The IP packet within a frame.
#[inline]
fn network(link: LinkType, frame: FrameSlice) -> Result<Network, SkipReason> {
    match link.0 {
        ETHERNET => {
            let (header, rest) = frame.split::<14>()?;
            let [.., high, low] = *header;
            skip_vlan_tags(u16::from_be_bytes([high, low]), rest)
        }
        SLL => {
            let (header, rest) = frame.split::<16>()?;
            let [.., high, low] = *header;
            skip_vlan_tags(u16::from_be_bytes([high, low]), rest)
        }
        SLL2 => {
            let (header, rest) = frame.split::<20>()?;
            let [high, low, ..] = *header;
            skip_vlan_tags(u16::from_be_bytes([high, low]), rest)
        }
        NULL | LOOP => {
            let (family, rest) = frame.split::<4>()?;
            loopback(u32::from_be_bytes(*family), rest)
        }
        PPPOE => pppoe(frame),
        n if PPP.contains(&n) => ppp(frame),
        n if PPP_WITH_DIRECTION.contains(&n) => ppp(frame.skip(1)?),
        IPV4 => Ok(Network::V4(frame)),
        IPV6 => Ok(Network::V6(frame)),
        RAW => raw(frame),
        n if RAW_BSD.contains(&n) => raw(frame),
        _ => Err(SkipReason::OtherLink),
    }
}

/// The payload of a PPPoE session packet (RFC 2516).
fn pppoe(packet: FrameSlice) -> Result<Network, SkipReason> {
    let ([_, code, _, _, high, low], rest) = packet.split::<6>()?;
    match code {
        0 => ppp(rest.limit(u32::from(u16::from_be_bytes([*high, *low])))),
        _ => Err(SkipReason::NotIp),
    }
}

/// The payload of a PPP frame. The framing header may be absent, and the protocol may be one byte
/// (RFC 1661, section 6.5). Cisco HDLC has an EtherType instead (RFC 1547, section 4.3.1).
fn ppp(frame: FrameSlice) -> Result<Network, SkipReason> {
    let frame = match frame.bytes {
        [0x0f | 0x8f, 0, ..] => {
            let ([_, _, high, low], rest) = frame.split::<4>()?;
            return skip_vlan_tags(u16::from_be_bytes([*high, *low]), rest);
        }
        [0xff, 0x03, ..] => frame.skip(2)?,
        _ => frame,
    };
    let ([first], rest) = frame.split::<1>()?;
    let (protocol, rest) = match first & 1 {
        // Only the last byte of the number is odd.
        0 => {
            let ([second], rest) = rest.split::<1>()?;
            (u16::from_be_bytes([*first, *second]), rest)
        }
        _ => (u16::from(*first), rest),
    };
    match protocol {
        0x21 => Ok(Network::V4(rest)),
        0x57 => Ok(Network::V6(rest)),
        _ => Err(SkipReason::NotIp),
    }
}

/// Skips VLAN tags (802.1Q, 802.1ad, and the older QinQ).
#[inline]
fn skip_vlan_tags(mut ethertype: u16, mut rest: FrameSlice) -> Result<Network, SkipReason> {
    loop {
        match ethertype {
            ETHERTYPE_IPV4 => return Ok(Network::V4(rest)),
            ETHERTYPE_IPV6 => return Ok(Network::V6(rest)),
            ETHERTYPE_PPPOE => return pppoe(rest),
            0x8100 | 0x88a8 | 0x9100 => {
                let ([_, _, high, low], after) = rest.split::<4>()?;
                ethertype = u16::from_be_bytes([*high, *low]);
                rest = after;
            }
            _ => return Err(SkipReason::NotIp),
        }
    }
}

/// The address family is in the capturing host's byte order. IPv6's number differs between systems:
/// Linux; NetBSD, OpenBSD; FreeBSD; macOS.
fn loopback(family: u32, rest: FrameSlice) -> Result<Network, SkipReason> {
    match family.min(family.swap_bytes()) {
        2 => Ok(Network::V4(rest)),
        10 | 24 | 28 | 30 => Ok(Network::V6(rest)),
        _ => Err(SkipReason::NotIp),
    }
}

fn raw(packet: FrameSlice) -> Result<Network, SkipReason> {
    let ([first], _) = packet.split::<1>()?;
    match first >> 4 {
        4 => Ok(Network::V4(packet)),
        6 => Ok(Network::V6(packet)),
        _ => Err(SkipReason::NotIp),
    }
}
