use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pillion_bpf::{
    Level, LossRule, Mode, Observing, Options, Reaction, RedundancyCaps, Rule, ThinTest,
};

use crate::tap::{Checksums, Link};
use crate::{Wire, isolated};

/// Allows one attached governor at a time. A test finds it by the names of its maps, which are the same
/// for each, and stops it.
static GOVERNOR_LOCK: Mutex<()> = Mutex::new(());

/// Configuration of a test connection. The defaults are the simplest case: an active open over
/// IPv4, MSS 1460, no timestamps, a long RTO, and one bundler without limits that treats every
/// stream as thin.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Addresses of the connection.
    pub ip: Ip,
    /// Link header of packets.
    pub link: Link,
    /// Side that opens the connection.
    pub opening: Opening,
    /// Delay of the peer's part of the handshake; below one second, otherwise the kernel
    /// retransmits.
    pub rtt: Duration,
    /// The kernel's initial sequence number (active open only); `None` for a random one. The
    /// stream's first byte has the next number.
    pub isn: Option<u32>,
    /// MSS announced by the peer, in bytes.
    pub mss: u16,
    /// Enables the timestamps option, which takes 12 bytes of the MSS.
    pub timestamps: bool,
    /// The peer offers SACK.
    pub sack: bool,
    /// Both ends sign their segments (TCP MD5; active open only), which takes 20 bytes of the MSS.
    /// A SYN has no room for timestamps as well.
    pub signed: bool,
    /// The peer offers MPTCP (RFC 8684; passive open only).
    pub multipath: bool,
    /// Number of spoofed SYNs with MPTCP that the listener receives during the handshake.
    pub spoofed_syns: u16,
    /// Both ends agree on explicit congestion notification (RFC 3168; active open only).
    pub ecn: bool,
    /// Where checksums are computed.
    pub checksums: Checksums,
    /// Minimum RTO of the route; zero for the kernel's default.
    pub rto_min: Duration,
    /// Sets TCP_NODELAY on the socket.
    pub nodelay: bool,
    /// Initial congestion window, in segments.
    pub initial_window: u32,
    /// Attaches bundlers to the bridge above the TAP device too ([`Checksums::Bridge`]).
    pub on_bridge: bool,
    /// Headers after the Ethernet header arrive in separate pages.
    pub received_in_pages: bool,
    /// Cgroup whose connections are bundled; `None` for the root.
    pub cgroup: Option<PathBuf>,
    /// Bundlers attached before the connection is opened, in order.
    pub bundlers: Vec<Bundler>,
    /// Enables the governor, which decides how many segments carry redundancy.
    pub governing: bool,
    /// Caps on the redundancy of all connections.
    pub redundancy_caps: Option<RedundancyCaps>,
    /// Observation settings of the bundlers.
    pub observing: Option<Observing>,
    /// `IPPROTO_TCP` options set on the socket before it connects or listens.
    pub tcp_options: Vec<(i32, i32)>,
}

/// Bundler, defined by its rules for connections of the test's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundler {
    /// Rules; the first match decides.
    pub rules: Vec<Rule>,
    /// Mode of connections without a matching rule.
    pub default_mode: Mode,
}

/// Address family of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ip {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// IPv4, from an IPv6 socket.
    Mapped,
}

/// Side that opens the connection.
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
            // Close to the maximum: an emulated machine may take half a minute to load programs.
            rto_min: Duration::from_secs(100),
            nodelay: true,
            initial_window: 200,
            on_bridge: false,
            received_in_pages: false,
            cgroup: None,
            bundlers: vec![Bundler::unlimited()],
            governing: false,
            redundancy_caps: None,
            observing: None,
            tcp_options: Vec::new(),
        }
    }
}

impl Setup {
    /// Returns the default with a bundler that uses these options.
    #[must_use]
    pub fn bundling(options: Options) -> Self {
        Self {
            bundlers: vec![Bundler::with(options)],
            ..Self::default()
        }
    }

    /// Runs a test on a connection in its own network namespace.
    pub fn run(self, test: impl FnOnce(&mut Wire) + Send) {
        let governor = self.governing.then_some(&GOVERNOR_LOCK);
        let _lock = governor.map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
        isolated(|| test(&mut Wire::open(self)));
    }

    /// Runs a test with each kind of socket: IPv4, IPv6, mapped, and accepted.
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
    pub fn run_on_ip_variants(self, test: impl Fn(&mut Wire) + Sync) {
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
    /// Returns a bundler that bundles every connection with these options.
    #[must_use]
    pub fn with(options: Options) -> Self {
        Self::with_rules(&[Rule::all(options)])
    }

    /// Returns a bundler that bundles only connections that match its rules.
    #[must_use]
    pub fn with_rules(rules: &[Rule]) -> Self {
        Self {
            rules: rules.to_vec(),
            default_mode: Mode::Never,
        }
    }

    /// Returns a bundler without rules that applies this mode to every connection.
    #[must_use]
    pub fn with_default(default_mode: Mode) -> Self {
        Self {
            rules: Vec::new(),
            default_mode,
        }
    }

    /// Returns a bundler that treats every stream as thin and bundles everything that fits.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::with(unlimited())
    }
}

/// Returns the published level and reaction, with pillion's safeguards: one previous segment in a
/// bundle, and a window reduction for hidden losses.
#[must_use]
pub fn limit_one() -> Options {
    Options {
        level: Some(Level::Fixed),
        reaction: Some(Reaction::Cwr),
        ..Options::default()
    }
}

/// Returns options that treat every stream as thin and bundle everything that fits, on any path.
/// The loss rule is not learnt, because scripted peers may omit DSACKs.
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
    /// Returns the kernel's address on the wire.
    pub(crate) fn local(self) -> IpAddr {
        match self {
            Self::V4 | Self::Mapped => [10, 0, 0, 1].into(),
            Self::V6 => [0xfd00, 0, 0, 0, 0, 0, 0, 1].into(),
        }
    }

    /// Returns the peer's address on the wire.
    pub(crate) fn peer(self) -> IpAddr {
        match self {
            Self::V4 | Self::Mapped => [10, 0, 0, 2].into(),
            Self::V6 => [0xfd00, 0, 0, 0, 0, 0, 0, 2].into(),
        }
    }

    /// Converts an address for a socket of this family.
    pub(crate) fn in_socket(self, address: IpAddr) -> IpAddr {
        match (self, address) {
            (Self::Mapped, IpAddr::V4(address)) => address.to_ipv6_mapped().into(),
            (_, address) => address,
        }
    }
}
