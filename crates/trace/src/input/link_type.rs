//! Link types: the numbers of link layers in traces.

use std::fmt;

/// A link layer, by its number in a trace (www.tcpdump.org/linktypes.html).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

pub(super) const NULL: u16 = 0;
pub(super) const ETHERNET: u16 = 1;
/// PPP, with or without the header of HDLC framing (RFC 1662).
/// Cisco HDLC shares the framing.
pub(super) const PPP: [u16; 3] = [9, 50, C_HDLC];
const C_HDLC: u16 = 104;
pub(super) const PPPOE: u16 = 51;
/// PPP after a byte for the direction; pppd writes both.
pub(super) const PPP_WITH_DIRECTION: [u16; 2] = [166, 204];
/// Raw IP on BSD/OS and others, before it had its own number.
pub(super) const RAW_BSD: [u16; 2] = [12, 14];
pub(super) const RAW: u16 = 101;
pub(super) const LOOP: u16 = 108;
pub(super) const SLL: u16 = 113;
pub(super) const IPV4: u16 = 228;
pub(super) const IPV6: u16 = 229;
pub(super) const SLL2: u16 = 276;

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
