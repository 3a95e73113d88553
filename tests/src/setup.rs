use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use pillion_bpf::{LossRule, Mode, Observing, Options, Rule, ThinTest};

use crate::tap::{Checksums, Link};
use crate::{Wire, isolated};

/// What a test needs of the wire. The defaults are the plainest case: an active open over
/// IPv4, MSS 1460, no timestamps, time-outs far away, one bundler that takes every stream
/// for thin and knows no limit.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The connection's addresses.
    pub ip: Ip,
    /// What stands before the IP header.
    pub link: Link,
    /// Who opens the connection.
    pub opening: Opening,
    /// How long the peer lets its part of the handshake wait; below one second, or the kernel
    /// retransmits its own.
    pub rtt: Duration,
    /// The kernel's initial sequence number (active open only); `None` for its own choice. The
    /// stream's first byte has the next one.
    pub isn: Option<u32>,
    /// The MSS that the peer announces, in bytes.
    pub mss: u16,
    /// The timestamps option is in use, and takes 12 bytes from the MSS.
    pub timestamps: bool,
    /// The peer offers selective acknowledgements.
    pub sack: bool,
    /// Both ends sign what they send (TCP MD5; active open only), which takes 20 bytes from
    /// the MSS. The options of a SYN have no room for timestamps as well.
    pub signed: bool,
    /// The peer offers MPTCP (RFC 8684; passive open only).
    pub multipath: bool,
    /// SYNs with MPTCP that a stranger sends to the listener during the handshake.
    pub spoofed_syns: u16,
    /// Both ends agree on explicit congestion notification (RFC 3168; active open only).
    pub ecn: bool,
    /// Who computes checksums.
    pub checksums: Checksums,
    /// The shortest retransmission time-out, as the route says; zero if it says none.
    pub rto_min: Duration,
    /// The socket's own wish is to have Nagle's algorithm off.
    pub nodelay: bool,
    /// Congestion window to begin with, in segments.
    pub initial_window: u32,
    /// Bundlers are on the bridge above the TAP device as well ([`Checksums::Bridge`]).
    pub on_bridge: bool,
    /// The headers behind that of Ethernet, too, arrive in pages of the device's own.
    pub received_in_pages: bool,
    /// The cgroup whose connections are bundled; `None` for the root.
    pub cgroup: Option<PathBuf>,
    /// The bundlers that are attached before the connection is opened, in order.
    pub bundlers: Vec<Bundler>,
    /// A governor decides how many segments carry redundancy.
    pub governing: bool,
    /// What the bundlers observe of the connection.
    pub observing: Option<Observing>,
    /// Options of level `IPPROTO_TCP` that the socket has before it connects or listens.
    pub tcp_options: Vec<(i32, i32)>,
}

/// A bundler, by the rules for the connections of the test's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundler {
    /// The rules; the first that matches decides.
    pub rules: Vec<Rule>,
    /// What becomes of connections that no rule matches.
    pub otherwise: Mode,
}

/// Addresses of the connection's two endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ip {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// IPv4, from an IPv6 socket.
    Mapped,
}

/// Who opens the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The kernel opens the connection.
    Active,
    /// The peer opens the connection.
    Passive,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            ip: Ip::V4,
            link: Link::Ethernet { tags: 0 },
            opening: Opening::Active,
            rtt: Duration::ZERO,
            isn: None,
            mss: 1460,
            timestamps: false,
            sack: true,
            signed: false,
            multipath: false,
            spoofed_syns: 0,
            ecn: false,
            checksums: Checksums::Kernel,
            // Near the longest that there is: an emulated machine may take half a minute to load programs.
            rto_min: Duration::from_secs(100),
            nodelay: true,
            initial_window: 200,
            on_bridge: false,
            received_in_pages: false,
            cgroup: None,
            bundlers: vec![Bundler::unlimited()],
            governing: false,
            observing: None,
            tcp_options: Vec::new(),
        }
    }
}

impl Setup {
    /// The default with one bundler, and that bundles with these options.
    #[must_use]
    pub fn bundling(options: Options) -> Self {
        Self {
            bundlers: vec![Bundler::with(options)],
            ..Self::default()
        }
    }

    /// Opens the connection in a network namespace of its own and runs a test on it.
    pub fn run(self, test: impl FnOnce(&mut Wire) + Send) {
        isolated(|| test(&mut Wire::open(self)));
    }

    /// Runs a test with each kind of socket: of either family, of both, and an accepted one.
    pub fn run_on_each_socket(self, test: impl Fn(&mut Wire) + Sync) {
        for (ip, opening) in [
            (Ip::V4, Opening::Active),
            (Ip::V6, Opening::Active),
            (Ip::Mapped, Opening::Active),
            (Ip::V4, Opening::Passive),
        ] {
            let setup = self.clone();
            let variant = Self {
                ip,
                opening,
                ..setup
            };
            variant.run(&test);
        }
    }

    /// Runs a test over IPv4 and IPv6, each without and with timestamps.
    pub fn run_everywhere(self, test: impl Fn(&mut Wire) + Sync) {
        for ip in [Ip::V4, Ip::V6] {
            for timestamps in [false, true] {
                let setup = self.clone();
                let variant = Self {
                    ip,
                    timestamps,
                    ..setup
                };
                variant.run(&test);
            }
        }
    }
}

impl Bundler {
    /// A bundler that bundles every connection with these options.
    #[must_use]
    pub fn with(options: Options) -> Self {
        Self::by(&[Rule::all(options)])
    }

    /// A bundler whose rules decide, and that bundles no other connection.
    #[must_use]
    pub fn by(rules: &[Rule]) -> Self {
        Self {
            rules: rules.to_vec(),
            otherwise: Mode::LeaveAlone,
        }
    }

    /// A bundler without rules: this becomes of every connection.
    #[must_use]
    pub fn always(otherwise: Mode) -> Self {
        Self {
            rules: Vec::new(),
            otherwise,
        }
    }

    /// A bundler for which every stream is thin, and all that fits rides along.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::with(unlimited())
    }
}

/// Options by which every stream is thin, and all that fits rides along, on any path. The script's
/// peer may make no reports: nothing is learnt from that.
#[must_use]
pub fn unlimited() -> Options {
    Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        max_bytes: 0,
        loss_rule: LossRule::Dsack,
        published: true,
        ..Options::default()
    }
}

impl Ip {
    /// The address of the kernel's endpoint, as on the wire.
    pub(crate) fn local(self) -> IpAddr {
        match self {
            Self::V4 | Self::Mapped => [10, 0, 0, 1].into(),
            Self::V6 => [0xfd00, 0, 0, 0, 0, 0, 0, 1].into(),
        }
    }

    /// The address of the peer's endpoint, as on the wire.
    pub(crate) fn peer(self) -> IpAddr {
        match self {
            Self::V4 | Self::Mapped => [10, 0, 0, 2].into(),
            Self::V6 => [0xfd00, 0, 0, 0, 0, 0, 0, 2].into(),
        }
    }

    /// An address as a socket of this family wants it.
    pub(crate) fn in_socket(self, address: IpAddr) -> IpAddr {
        match (self, address) {
            (Self::Mapped, IpAddr::V4(address)) => address.to_ipv6_mapped().into(),
            (_, address) => address,
        }
    }
}
