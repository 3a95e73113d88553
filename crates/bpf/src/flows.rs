//! The connections that pillions on this host bundle. Their maps are found by name.

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
use crate::host::libbpf::LibbpfLog;
use crate::socket_iter::{self, SocketIter, SocketProgram};
use crate::{
    Counters, Error, GovernorDecision, LossRule, Namespace, Outcome, TcpOption, TcpOptions,
    TfrcDecision, tcp_options,
};

/// A connection that a running pillion bundles.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flow {
    /// The socket's cookie, as in `ss --extended`, unique on this host; `None` if the kernel has
    /// not assigned one.
    pub cookie: Option<u64>,
    /// The inode by which processes have the socket open, if one has.
    pub inode: Option<u64>,
    /// When the connection ended, in seconds since 1970; `None` while it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at_s: Option<u64>,
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
    /// Data waits in the socket for the ACK of a small segment (Nagle's algorithm).
    pub waits_for_nagle: bool,
    /// The connection's minimum RTT in microseconds, if it has a sample.
    pub rtt_min_us: Option<u32>,
    /// The smoothed RTT in microseconds, if there is a sample.
    pub srtt_us: Option<u32>,
    /// Packets with data that TCP has sent since the connection was opened, retransmissions included.
    pub data_packets: u32,
    /// Retransmissions among `data_packets`. Includes those of the handshake if the connection was
    /// added after its first data.
    pub retransmitted_packets: u32,
    /// Congestion window in packets.
    pub snd_cwnd: u32,
    /// Maximum segment size in bytes of payload.
    pub mss: u32,
    /// Who requested bundling of the connection.
    pub requested_by: RequestedBy,
    /// Number of the rule that decided, from 1; `None` if no rule matches.
    pub rule: Option<u32>,
    /// True if the connection's application has switched bundling off.
    pub disabled_by_application: bool,
    /// How hidden losses are found; [`LossRule::Auto`] while that is being learnt, and
    /// [`LossRule::None`] where they cannot be.
    pub loss_rule: LossRule,
    /// Current number of previous segments per bundle, if it adapts to losses.
    pub level: u32,
    /// Current number of copies of each eligible segment; none while `copies_limited` or
    /// `has_queue` at level `auto`.
    pub copies_per_segment: u32,
    /// At level `auto`: the stream sends more than TFRC-SP allows (RFC 4828), so nothing is copied.
    pub copies_limited: bool,
    /// Packets wait on the path. Level `auto` then sends no copies and one previous segment, and each
    /// hidden loss causes a reaction.
    pub has_queue: bool,
    /// Current maximum of payload bytes of a segment with its bundle, after larger ones were lost on
    /// the path; `None`: no such limit.
    pub path_size: Option<u32>,
    /// The governor's last decision about the connection; `None` before its first eligible segment,
    /// and without a governor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<GovernorDecision>,
    /// The congestion control sets the window itself and ignores CWR, as BBR does. Hidden losses
    /// reduce no window then, and the connection is bundled only below its fair share
    /// ([`Outcome::OverFairShare`]).
    pub ignores_cwr: bool,
    /// The TCP options that the kernel accepted.
    #[serde(skip_serializing_if = "TcpOptions::is_empty")]
    #[serde(serialize_with = "tcp_options::flow_json::serialize")]
    pub tcp_options: TcpOptions,
    /// The TCP options that the kernel refused at the last try.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tcp_options_refused: Vec<TcpOption>,
    /// Outcome of the connection's last segment; `None` before the first.
    pub last_outcome: Option<Outcome>,
    /// Outcomes and counters of the connection's segments.
    #[serde(flatten)]
    pub counters: Counters,
    /// The last decision of TFRC-SP about the connection, if there was one.
    #[serde(flatten)]
    pub tfrc_decision: Option<TfrcDecision>,
}

impl Flow {
    /// The share of packets with data that were lost, as far as known: retransmitted by TCP, or
    /// repaired by a bundle; `None` before the first packet. Spurious retransmissions count as
    /// lost.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        let lost = u64::from(self.retransmitted_packets) + self.counters.hidden_losses;
        share(lost, self.data_packets.into()).map(|share| share.min(1.0))
    }
}

/// Who requested bundling of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestedBy {
    /// The rules want the connection to be bundled.
    Rule,
    /// The connection's application wants it to be bundled, and the rules allow that.
    Application,
}

/// Reads the connections of every running pillion on this host, repeatedly.
#[derive(Debug)]
pub struct FlowLister {
    programs: Programs,
}

#[derive(Debug)]
enum Programs {
    /// The program that goes through any map's own entries.
    Storage(OwnedFd),
    /// Where the kernel refuses that: the programs over TCP's sockets and over open files.
    Sockets([SocketProgram; 2]),
}

impl FlowLister {
    /// # Errors
    /// [`Error::NotPermitted`] without the capabilities, [`Error::Load`].
    pub fn load() -> Result<Self, Error> {
        match socket_iter::is_storage_iterator_supported() {
            true => load_storage_program().map(|it| Self {
                programs: Programs::Storage(it),
            }),
            false => Self::over_sockets(),
        }
    }

    /// A lister that reads only connections in the calling thread's network namespace, and those
    /// that processes have open, even if the kernel supports more.
    ///
    /// # Errors
    /// As [`FlowLister::load`].
    pub fn over_sockets() -> Result<Self, Error> {
        relocate_socket_programs().map(|it| Self {
            programs: Programs::Sockets(it),
        })
    }

    /// Lists the current connections, also of pillions that started later.
    ///
    /// # Errors
    ///
    /// [`Error::ListNotPermitted`] without the capability to read other processes' maps;
    /// [`Error::NotPermitted`], [`Error::Load`], [`Error::System`].
    pub fn list(&self) -> Result<Vec<Flow>, Error> {
        let mut flows = Vec::new();
        for map in find_maps("pillion_flows", size_of::<types::flow>())? {
            flows.extend(self.reader(map.as_fd())?.read()?);
        }
        Ok(flows)
    }

    fn reader(&self, map: BorrowedFd) -> Result<FlowReader, Error> {
        let iterator = match &self.programs {
            Programs::Storage(program) => SocketIter::storage(program.as_fd(), map),
            Programs::Sockets([tcp, files]) => tcp.load(map).and_then(|tcp| {
                let files = files.load(map)?;
                SocketIter::sockets(tcp.as_fd(), files.as_fd())
            }),
        };
        Ok(FlowReader(iterator.map_err(failed)?))
    }
}

/// Reads the connections of every pillion that runs on this host.
///
/// # Errors
/// As [`FlowLister::list`].
pub fn list_flows() -> Result<Vec<Flow>, Error> {
    FlowLister::load()?.list()
}

/// Reads the connections of one pillion, repeatedly; its programs are loaded once.
#[derive(Debug)]
pub struct FlowReader(SocketIter);

impl FlowReader {
    /// A reader of the connections in one map.
    ///
    /// # Errors
    /// As [`FlowLister::load`]; [`Error::System`].
    pub(crate) fn for_map(map: BorrowedFd) -> Result<Self, Error> {
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

fn load_storage_program() -> Result<OwnedFd, Error> {
    let log = LibbpfLog::capture();
    let mut storage = MaybeUninit::uninit();
    let mut open = open(&log, &mut storage, true)?;
    let unused = open.maps.pillion_flows.set_autocreate(false);
    unused.map_err(|error| log.to_error(&error))?;
    let skel = without_signals(|| open.load()).map_err(|error| log.to_error(&error))?;
    let program = skel.progs.pillion_list.as_fd().try_clone_to_owned();
    program.map_err(|error| Error::system("keep a program", error))
}

/// Loads the programs with an empty map, because libbpf relocates them only then.
fn relocate_socket_programs() -> Result<[SocketProgram; 2], Error> {
    let log = LibbpfLog::capture();
    let mut storage = MaybeUninit::uninit();
    let open = open(&log, &mut storage, false)?;
    let skel = without_signals(|| open.load()).map_err(|error| log.to_error(&error))?;
    let programs = &skel.progs;
    Ok([
        SocketProgram::new(c"tcp", programs.pillion_list_by_tcp.insns()),
        SocketProgram::new(c"task_file", programs.pillion_list_by_file.insns()),
    ])
}

/// Opens the programs; only the iterators of the chosen kind will be loaded.
fn open<'obj>(
    log: &LibbpfLog,
    storage: &'obj mut MaybeUninit<OpenObject>,
    storage_program: bool,
) -> Result<OpenFlowsSkel<'obj>, Error> {
    let open = FlowsSkelBuilder::default().open(storage);
    let mut open = open.map_err(|error| log.to_error(&error))?;
    open.progs.pillion_list.set_autoload(storage_program);
    open.progs
        .pillion_list_by_tcp
        .set_autoload(!storage_program);
    open.progs
        .pillion_list_by_file
        .set_autoload(!storage_program);
    Ok(open)
}

/// The RTT value of a connection without a sample.
const NO_RTT_SAMPLE: u32 = types::rtt_sample::NO_RTT_SAMPLE.0;

/// The programs' record of a connection.
#[repr(C, packed)]
pub(crate) struct Record {
    record: types::flow_record,
    counters: types::counters,
}

/// # Panics
/// If there are fewer bytes than in a record.
pub(crate) fn parse(record: &[u8]) -> Flow {
    assert!(record.len() >= size_of::<Record>());
    // SAFETY: plain integers, of which any bits are valid, and enough of them.
    let Record {
        record: raw,
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
    let requested_by = match raw.requested_by {
        types::requested_by::REQUESTED_BY_APPLICATION => RequestedBy::Application,
        _ => RequestedBy::Rule,
    };
    Flow {
        cookie: Some(raw.cookie).filter(|cookie| *cookie != 0),
        inode: Some(raw.inode).filter(|inode| *inode != 0),
        closed_at_s: None,
        cgroup: Some(raw.cgroup).filter(|cgroup| *cgroup != 0),
        local: address(raw.endpoints.local, raw.endpoints.local_port),
        peer: address(raw.endpoints.peer, raw.endpoints.peer_port),
        netns: Some(raw.netns).filter(|netns| *netns != 0),
        in_flight: raw.in_flight,
        waits_for_nagle: raw.waits_for_nagle != 0,
        rtt_min_us: Some(raw.rtt_min_us).filter(|rtt| *rtt != NO_RTT_SAMPLE),
        srtt_us: Some(raw.srtt_us).filter(|rtt| *rtt != 0),
        data_packets: raw.data_packets,
        retransmitted_packets: raw.retransmitted_packets,
        snd_cwnd: raw.snd_cwnd,
        mss: raw.mss,
        requested_by,
        rule: Some(raw.rule).filter(|rule| *rule > 0),
        disabled_by_application: raw.disabled_by_application != 0,
        loss_rule,
        level: raw.level,
        copies_per_segment: raw.copies,
        copies_limited: raw.copies_limited != 0,
        has_queue: raw.has_queue != 0,
        path_size: Some(raw.path_size).filter(|bytes| *bytes > 0),
        governor: GovernorDecision::from_flow(&raw.allowance),
        ignores_cwr: raw.ignores_cwr != 0,
        tcp_options: TcpOptions::from_flow(&raw.tcp_options),
        tcp_options_refused: TcpOption::from_bits(raw.tcp_options_refused),
        last_outcome: last.filter(|_| !counters.outcomes.is_empty()),
        counters,
        tfrc_decision: TfrcDecision::from_raw(&raw.tfrc_decision),
    }
}

/// The maps with this name, at most 15 bytes, and this value size in bytes, because another version
/// of pillion may store other values under that name.
///
/// # Errors
///
/// [`Error::ListNotPermitted`] without the capability to read other processes' maps;
/// [`Error::System`].
pub(crate) fn find_maps(name: &str, value_size: usize) -> Result<Vec<OwnedFd>, Error> {
    let mut maps = Vec::new();
    let mut id = 0;
    loop {
        // SAFETY: a system call that writes the next id, which lives across it.
        let result = unsafe { libbpf_sys::bpf_map_get_next_id(id, &raw mut id) };
        match -result {
            0 => {}
            libc::ENOENT => return Ok(maps),
            errno => return Err(list_error(errno)),
        }
        match map_by_id(id) {
            Ok(map) => maps.extend(matches_map(map.as_fd(), name, value_size).then_some(map)),
            // It has just ended.
            Err(libc::ENOENT) => {}
            Err(errno) => return Err(list_error(errno)),
        }
    }
}

fn list_error(errno: i32) -> Error {
    match errno {
        libc::EPERM => Error::ListNotPermitted,
        errno => Error::system("list the connections", io::Error::from_raw_os_error(errno)),
    }
}

fn matches_map(map: BorrowedFd, name: &str, value_size: usize) -> bool {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: a system call that writes no more than the length stated.
    let result = unsafe {
        libbpf_sys::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut length)
    };
    let map_name = info.name.map(|byte| byte.to_ne_bytes()[0]);
    let map_name = map_name.split(|byte| *byte == 0).next();
    result == 0 && map_name == Some(name.as_bytes()) && info.value_size as usize == value_size
}

/// Opens a map by the kernel's id; the error is the kernel's number.
fn map_by_id(id: u32) -> Result<OwnedFd, i32> {
    // SAFETY: a plain system call; the result is checked.
    let fd = unsafe { libbpf_sys::bpf_map_get_fd_by_id(id) };
    if fd < 0 {
        return Err(-fd);
    }
    // SAFETY: a valid, new file descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
