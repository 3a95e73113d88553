//! The connections that pillions on this host bundle. Nothing but their names tells their maps from
//! others.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use pillion_stats::measure::share;
use serde::Serialize;

use crate::contract::{FlowsSkelBuilder, OpenFlowsSkel, types};
use crate::host::interruption::without_signals;
use crate::host::libbpf::Messages;
use crate::socket_iter::{self, Walk};
use crate::{
    Companion, Companions, Counters, Decision, Error, Governed, LossRule, Namespace, Outcome,
    companions,
};

/// A connection that a running pillion bundles.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flow {
    /// The socket's cookie, as `ss --extended` shows it, which no second socket gets; `None` while
    /// nobody has asked the kernel for one.
    pub cookie: Option<u64>,
    /// The inode by which processes have the socket open, if one has.
    pub inode: Option<u64>,
    /// When the connection ended, in seconds since 1970; `None` while it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<u64>,
    /// The id of the cgroup whose socket it is.
    #[serde(skip)]
    pub cgroup: Option<u64>,
    /// The endpoint on this host.
    pub local: SocketAddr,
    /// The peer's endpoint.
    pub peer: SocketAddr,
    /// Inode number of the connection's network namespace, as `lsns` shows it; `None` where the
    /// kernel was built without any.
    pub netns: Option<u32>,
    /// Packets in flight at this moment.
    pub in_flight: u32,
    /// The connection's minimum RTT in microseconds, if it has a sample.
    pub rtt_min_us: Option<u32>,
    /// The smoothed RTT in microseconds, if there is a sample.
    pub srtt_us: Option<u32>,
    /// Packets with data that TCP has sent since the connection was opened, retransmissions included.
    pub data_packets: u32,
    /// Packets of these that were retransmissions; of a connection that was taken in after its first
    /// data, with those of its handshake.
    pub retransmitted: u32,
    /// Congestion window in packets.
    pub snd_cwnd: u32,
    /// Maximum segment size in bytes of payload.
    pub mss: u32,
    /// Who wants the connection to be bundled.
    pub wanted_by: WantedBy,
    /// The rule that decided, by its number, the first being 1; `None` where none matches.
    pub rule: Option<u32>,
    /// True if the connection's application has switched bundling off.
    pub off: bool,
    /// How hidden losses are found; [`LossRule::Auto`] while that is being learnt, and
    /// [`LossRule::None`] where they cannot be.
    pub loss_rule: LossRule,
    /// Previous segments in a bundle at present, where that follows the losses.
    pub level: u32,
    /// Bytes of payload that a segment with its bundle may have for now, where larger ones
    /// did not get through the path.
    pub path_size: Option<u32>,
    /// The governor's decision that the connection met last; `None` before its first eligible segment,
    /// and where nothing governs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<Governed>,
    /// The congestion control sets the window itself and ignores CWR, as BBR does. Hidden losses
    /// reduce no window then, and the connection is bundled only below its fair share
    /// ([`Outcome::OverShare`]).
    pub ignores_cwr: bool,
    /// The companions that the kernel took.
    #[serde(skip_serializing_if = "Companions::is_empty")]
    #[serde(serialize_with = "companions::of_a_flow::serialize")]
    pub companions: Companions,
    /// The companions that the kernel refused when they were last tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub companions_refused: Vec<Companion>,
    /// Outcome of the connection's last segment; `None` before the first.
    pub last: Option<Outcome>,
    /// What became of the connection's segments.
    #[serde(flatten)]
    pub counters: Counters,
    /// The last decision of TFRC-SP about the connection, if there was one.
    #[serde(flatten)]
    pub decision: Option<Decision>,
}

impl Flow {
    /// The share of packets with data that were lost, as far as is known: those that TCP retransmitted
    /// or a bundle repaired; `None` before the first packet. What TCP retransmitted needlessly counts
    /// as lost.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        let lost = u64::from(self.retransmitted) + self.counters.hidden_losses;
        share(lost, self.data_packets.into()).map(|share| share.min(1.0))
    }
}

/// Who wants a connection to be bundled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WantedBy {
    /// The rules want the connection to be bundled.
    Rule,
    /// The connection's application wants it to be bundled, and the rules allow that.
    Application,
}

/// Reads the connections of every pillion that runs on this host, as often as is wanted.
#[derive(Debug)]
pub struct FlowLister {
    /// The program that goes through any map's own entries, loaded once; `None` where the kernel
    /// refuses it, and each map takes programs of its own.
    over_storage: Option<OwnedFd>,
}

impl FlowLister {
    /// # Errors
    /// [`Error::NotPermitted`] without the capabilities, [`Error::Load`].
    pub fn load() -> Result<Self, Error> {
        let over_storage = socket_iter::can_be_over_storage().then(load_over_storage);
        Ok(Self {
            over_storage: over_storage.transpose()?,
        })
    }

    /// One that reads, whatever the kernel can do, only the connections in the calling thread's network
    /// namespace, and those that processes have open.
    #[must_use]
    pub fn over_sockets() -> Self {
        Self { over_storage: None }
    }

    /// The connections as they are now, of pillions that have begun since as well.
    ///
    /// # Errors
    /// [`Error::MayNotList`] without the capability for what other processes keep;
    /// [`Error::NotPermitted`], [`Error::Load`], [`Error::System`].
    pub fn list(&self) -> Result<Vec<Flow>, Error> {
        let mut flows = Vec::new();
        for map in find_maps("pillion_flows", size_of::<types::flow>())? {
            flows.extend(self.reader(map.as_fd())?.read()?);
        }
        Ok(flows)
    }

    fn reader(&self, map: BorrowedFd) -> Result<FlowReader, Error> {
        let walk = match &self.over_storage {
            Some(program) => Walk::over_storage(program.as_fd(), map).map_err(failed)?,
            None => load_over_sockets(map)?,
        };
        Ok(FlowReader(walk))
    }
}

/// Reads the connections of every pillion that runs on this host.
///
/// # Errors
/// As [`FlowLister::list`].
pub fn list_flows() -> Result<Vec<Flow>, Error> {
    FlowLister::load()?.list()
}

/// Reads the connections of one pillion, as often as is wanted: what that takes is loaded once.
#[derive(Debug)]
pub struct FlowReader(Walk);

impl FlowReader {
    /// A reader of the connections in one map.
    ///
    /// # Errors
    /// As [`FlowLister::load`]; [`Error::System`].
    pub(crate) fn of(map: BorrowedFd) -> Result<Self, Error> {
        FlowLister::load()?.reader(map)
    }

    /// Reads all connections as they are now.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn read(&self) -> Result<Vec<Flow>, Error> {
        let here = [Namespace::default()];
        let records = self.0.read::<{ size_of::<Record>() }>(&here)?;
        Ok(records.iter().map(|record| parse(record)).collect())
    }
}

fn failed(error: io::Error) -> Error {
    Error::system("list the connections", error)
}

fn load_over_storage() -> Result<OwnedFd, Error> {
    let log = Messages::keep();
    let mut storage = MaybeUninit::uninit();
    let mut open = open(&log, &mut storage, true)?;
    let unused = open.maps.pillion_flows.set_autocreate(false);
    unused.map_err(|error| log.explain(&error))?;
    let skel = without_signals(|| open.load()).map_err(|error| log.explain(&error))?;
    let program = skel.progs.pillion_list.as_fd().try_clone_to_owned();
    program.map_err(|error| Error::system("keep a program", error))
}

fn load_over_sockets(map: BorrowedFd) -> Result<Walk, Error> {
    let log = Messages::keep();
    let mut storage = MaybeUninit::uninit();
    let mut open = open(&log, &mut storage, false)?;
    let reused = open.maps.pillion_flows.reuse_fd(map);
    reused.map_err(|error| log.explain(&error))?;
    let skel = without_signals(|| open.load()).map_err(|error| log.explain(&error))?;
    let by_tcp = skel.progs.pillion_list_by_tcp.as_fd();
    Walk::over_sockets(by_tcp, skel.progs.pillion_list_by_file.as_fd()).map_err(failed)
}

/// The programs, of which those alone will be loaded that go through the connections this way.
fn open<'obj>(
    log: &Messages,
    storage: &'obj mut MaybeUninit<OpenObject>,
    over_storage: bool,
) -> Result<OpenFlowsSkel<'obj>, Error> {
    let open = FlowsSkelBuilder::default().open(storage);
    let mut open = open.map_err(|error| log.explain(&error))?;
    open.progs.pillion_list.set_autoload(over_storage);
    open.progs.pillion_list_by_tcp.set_autoload(!over_storage);
    open.progs.pillion_list_by_file.set_autoload(!over_storage);
    Ok(open)
}

/// What stands for the RTT of a connection without a sample.
const NO_RTT_SAMPLE: u32 = types::rtt_sample::NO_RTT_SAMPLE.0;

/// What the programs write of each connection.
#[repr(C, packed)]
pub(crate) struct Record {
    of_flow: types::flow_record,
    counters: types::counters,
}

/// # Panics
/// If there are fewer bytes than in a record.
pub(crate) fn parse(record: &[u8]) -> Flow {
    assert!(record.len() >= size_of::<Record>());
    // SAFETY: plain integers, of which any bits are valid, and enough of them.
    let Record {
        of_flow: raw,
        counters,
    } = unsafe { record.as_ptr().cast::<Record>().read_unaligned() };
    let address = |octets: [u8; 16], port| {
        SocketAddr::new(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical(), port)
    };
    let counters = Counters::from(&counters);
    let loss_rule = match raw.loss_rule {
        types::loss_rule::LOSS_RULE_DSACK => LossRule::Dsack,
        types::loss_rule::LOSS_RULE_ACK => LossRule::Ack,
        types::loss_rule::LOSS_RULE_NONE => LossRule::None,
        _ => LossRule::Auto,
    };
    let last = Outcome::ALL
        .iter()
        .copied()
        .find(|outcome| *outcome as u32 == raw.last.0);
    let wanted_by = match raw.wanted_by {
        types::wanted_by::WANTED_BY_APPLICATION => WantedBy::Application,
        _ => WantedBy::Rule,
    };
    Flow {
        cookie: Some(raw.cookie).filter(|cookie| *cookie != 0),
        inode: Some(raw.inode).filter(|inode| *inode != 0),
        closed_at: None,
        cgroup: Some(raw.cgroup).filter(|cgroup| *cgroup != 0),
        local: address(raw.ends.local, raw.ends.local_port),
        peer: address(raw.ends.peer, raw.ends.peer_port),
        netns: Some(raw.netns).filter(|netns| *netns != 0),
        in_flight: raw.in_flight,
        rtt_min_us: Some(raw.rtt_min_us).filter(|rtt| *rtt != NO_RTT_SAMPLE),
        srtt_us: Some(raw.srtt_us).filter(|rtt| *rtt != 0),
        data_packets: raw.data_packets,
        retransmitted: raw.retransmitted,
        snd_cwnd: raw.snd_cwnd,
        mss: raw.mss,
        wanted_by,
        rule: Some(raw.rule).filter(|rule| *rule > 0),
        off: raw.off != 0,
        loss_rule,
        level: raw.level,
        path_size: Some(raw.path_size).filter(|bytes| *bytes > 0),
        governor: Governed::of_flow(&raw.allowance),
        ignores_cwr: raw.ignores_cwr != 0,
        companions: Companions::of_flow(&raw.companions),
        companions_refused: Companion::of(raw.companions_refused),
        last: last.filter(|_| !counters.outcomes.is_empty()),
        counters,
        decision: Decision::from_raw(&raw.decision),
    }
}

/// The maps with this name, at most 15 bytes, and values of this size in bytes: another version of
/// pillion may keep something else under the same name.
///
/// # Errors
/// [`Error::MayNotList`] without the capability for what other processes keep; [`Error::System`].
pub(crate) fn find_maps(name: &str, value_size: usize) -> Result<Vec<OwnedFd>, Error> {
    let mut maps = Vec::new();
    let mut id = 0;
    loop {
        // SAFETY: a system call that writes the next id, which lives across it.
        let result = unsafe { libbpf_sys::bpf_map_get_next_id(id, &raw mut id) };
        match -result {
            0 => {}
            libc::ENOENT => return Ok(maps),
            errno => return Err(may_not_list(errno)),
        }
        match map_by_id(id) {
            Ok(map) => maps.extend(is_it(map.as_fd(), name, value_size).then_some(map)),
            // It has just ended.
            Err(libc::ENOENT) => {}
            Err(errno) => return Err(may_not_list(errno)),
        }
    }
}

fn may_not_list(errno: i32) -> Error {
    match errno {
        libc::EPERM => Error::MayNotList,
        errno => Error::system("list the connections", io::Error::from_raw_os_error(errno)),
    }
}

fn is_it(map: BorrowedFd, name: &str, value_size: usize) -> bool {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: a system call that writes no more than the length stated.
    let result = unsafe {
        libbpf_sys::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut length)
    };
    let named = info.name.map(|byte| byte.to_ne_bytes()[0]);
    let named = named.split(|byte| *byte == 0).next();
    result == 0 && named == Some(name.as_bytes()) && info.value_size as usize == value_size
}

/// Opens a map by the kernel's id; the error is the kernel's number.
fn map_by_id(id: u32) -> Result<OwnedFd, i32> {
    // SAFETY: a plain system call; the result is checked.
    let fd = unsafe { libbpf_sys::bpf_map_get_fd_by_id(id) };
    if fd < 0 {
        return Err(-fd);
    }
    // SAFETY: a valid file descriptor, new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
