use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::TcpCongestion;
use pillion_bpf::{
    AttachTargets, Attachment, Counters, Device, Flow, Hook, Namespaces, Observation, Outcome,
    Policy, Programs, Scope, Totals, cgroup2_mount,
};

use crate::peer::{LISTENING_PORT, Peer};
use crate::programs::VlanTagging;
use crate::segment::{self, Script};
use crate::setup::{Bundler, Opening, Setup};
use crate::tap::{self, Link};
use crate::{netns, socket};

/// Payload bytes that the bundler stores, at the start of a connection's state
/// (`bpf/bundler/flow.h`).
const HISTORY_BYTES: usize = 2048;

/// Established connection between a kernel socket and a scripted peer.
///
/// `steps.rs` has the actions and expectations of tests; this file has the parts of the connection.
pub struct Wire {
    pub(crate) setup: Setup,
    pub(crate) attachments: Vec<Attachment>,
    pub(crate) stream: TcpStream,
    pub(crate) peer: Peer,
    /// Memory written without a copy, which the kernel reads until it is acknowledged.
    pub(crate) pages: Vec<Vec<u8>>,
    /// Bytes written to the stream.
    pub(crate) written: u32,
    /// True if the sending half is closed; until acknowledged, its FIN counts as a byte.
    pub(crate) closed: bool,
    pub(crate) script: Script,
    /// VLAN programs, detached on drop.
    _tagging: Option<VlanTagging>,
}

impl Wire {
    /// Creates device, bundlers and connection in the calling thread's network namespace.
    pub fn open(setup: Setup) -> Self {
        let mut peer = Peer::new(tap::create_device(&setup), &setup);
        let mut tagging = match setup.link {
            Link::Ethernet { tags } if tags > 0 => Some(VlanTagging::load(tap::TAP, tags)),
            _ => None,
        };
        // The first bundler runs first: tcx runs the last one attached first, clsact the first one.
        let attach = |bundler| attach(&setup, bundler);
        let attachments = match Hook::of_this_kernel() {
            Hook::Tcx => {
                let mut attachments: Vec<_> = setup.bundlers.iter().rev().map(attach).collect();
                attachments.reverse();
                attachments
            }
            Hook::Clsact => setup.bundlers.iter().map(attach).collect(),
        };
        if let Some(tagging) = &mut tagging {
            tagging.attach_egress();
            tagging.attach_ingress();
        }
        let stream = match setup.opening {
            Opening::Active => connect(
                &setup,
                &mut peer,
                socket::new(setup.ip.in_socket(setup.ip.peer())).into(),
            ),
            Opening::Passive => accept(&setup, &mut peer, |peer| peer.connect(setup.rtt)),
        };
        Self {
            script: Script::new(format!("{setup:?}")),
            setup,
            attachments,
            stream,
            peer,
            pages: Vec::new(),
            written: 0,
            closed: false,
            _tagging: tagging,
        }
    }

    /// Attaches another bundler after the existing ones.
    pub fn attach(&mut self, bundler: &Bundler) {
        self.script.note("attach");
        self.attachments.push(attach(&self.setup, bundler));
    }

    /// Makes the last bundler adopt connections that are older than itself.
    pub fn adopt(&mut self) {
        self.script.note("adopt");
        let last = self.attachments.last().expect("an attachment");
        last.review().expect("the connections are adopted");
    }

    /// Replaces the rules of the first bundler.
    pub fn replace_rules(&mut self, bundler: &Bundler) {
        self.script.note("replace rules");
        let policy = policy(bundler);
        let first = &self.attachments[0];
        first
            .replace_rules(&policy)
            .expect("the rules are replaced");
        first.review().expect("the connections are reviewed");
    }

    /// Hands over from the first bundler to a new one, together with the stored requests of
    /// sockets.
    pub fn hand_over(&mut self, bundler: &Bundler) {
        self.script.note("hand over");
        let first = &mut self.attachments[0];
        let programs = Programs::load_with_requests(&policy(bundler), Some(first.requests()));
        let new_attachment = attach_programs(&self.setup, programs.expect("the programs load"));
        new_attachment
            .review()
            .expect("the connections are adopted");
        *first = new_attachment;
    }

    /// Detaches all bundlers.
    pub fn detach(&mut self) {
        self.script.note("detach");
        self.attachments.iter_mut().for_each(Attachment::detach);
    }

    /// Removes the last bundler and returns its programs.
    #[must_use]
    pub fn detach_programs(&mut self) -> Programs {
        self.script.note("take the programs");
        let last = self.attachments.pop().expect("an attachment");
        last.into_programs()
    }

    /// Shuts all bundlers down, and runs a function while they wait for data in flight.
    pub fn finish_while(&mut self, act: impl FnOnce(&mut Self)) {
        self.script.note("finish");
        let mut attachments = std::mem::take(&mut self.attachments);
        thread::scope(|scope| {
            scope.spawn(|| attachments.iter_mut().for_each(Attachment::finish));
            thread::sleep(Duration::from_millis(200));
            act(self);
        });
        self.attachments = attachments;
    }

    /// Reconnects the socket to another port of the peer.
    pub fn reconnect(&mut self, port: u16) {
        self.script.note(&format!("reconnect={port}"));
        socket::disconnect(&self.stream);
        let stream = self.stream.try_clone().expect("another handle");
        self.peer.port = port;
        connect(&self.setup, &mut self.peer, stream);
        self.written = 0;
    }

    /// Sends SYNs with MPTCP from a stranger to a local port.
    pub fn flood_syns(&mut self, port: u16, syns: u16) {
        self.script.note(&format!("flood={syns}"));
        self.peer.flood_syns(port, syns);
    }

    /// Ends the connection immediately; the socket stays open.
    pub fn end(&mut self) {
        self.script.note("end");
        socket::disconnect(&self.stream);
    }

    /// Changes the device's MTU, in bytes.
    pub fn set_mtu(&mut self, mtu: u16) {
        self.script.note(&format!("mtu={mtu}"));
        netns::ip(&format!("link set {} mtu {mtu}\n", tap::TAP));
    }

    /// Sets a socket option, such as `(libc::SOL_SOCKET, libc::SO_KEEPALIVE)`.
    pub fn set_option(&self, (level, option): (i32, i32), value: &[u8]) {
        socket::set_option(&self.stream, level, option, value);
    }

    /// Reads a socket option whose value is an integer.
    #[must_use]
    pub fn option(&self, (level, option): (i32, i32)) -> i32 {
        socket::option(&self.stream, level, option)
    }

    /// Returns the name of the connection's congestion control.
    #[must_use]
    pub fn congestion_control(&self) -> String {
        let name = getsockopt(&self.stream, TcpCongestion).expect("TCP_CONGESTION");
        name.to_string_lossy().into_owned()
    }

    /// Waits until the connection has failed. Returns the error.
    #[must_use]
    pub fn wait_for_failure(&self) -> io::Error {
        let mut failure = None;
        socket::wait_until(|| {
            failure = self.stream.take_error().expect("SO_ERROR");
            failure.is_some()
        });
        failure.unwrap_or_else(|| self.script.fail("the connection has not failed"))
    }

    /// Returns the kernel socket for other operations of a test.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Returns the maximum payload of a segment without SACK blocks, in bytes.
    #[must_use]
    pub fn mss(&self) -> u32 {
        let timestamps = if self.setup.timestamps { 12 } else { 0 };
        let signature = if self.setup.signed {
            segment::SIGNATURE_LENGTH
        } else {
            0
        };
        u32::from(self.setup.mss - timestamps - signature)
    }

    /// Returns the kernel's state of the connection (`TCP_INFO`).
    #[must_use]
    pub fn tcp_info(&self) -> libc::tcp_info {
        socket::tcp_info(&self.stream)
    }

    /// Returns the first bundler's observations of connections so far.
    #[must_use]
    pub fn observations(&mut self) -> Vec<Observation> {
        let seen = self.attachments[0].observations();
        seen.expect("observations can be read")
    }

    /// Returns the connection's entry in the first bundler's flow list.
    #[must_use]
    pub fn flow(&self) -> Flow {
        let reader = self.attachments[0].flows().expect("flows can be read");
        let flows = reader.read().expect("flows");
        let local = self.stream.local_addr().expect("the local end");
        let mut flows = flows.into_iter();
        flows
            .find(|flow| flow.local.port() == local.port())
            .unwrap_or_else(|| self.script.fail("the connection is not listed"))
    }

    /// Returns the first bundler's totals so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals_of(0)
    }

    /// Makes the first bundler check its attachments once a second, like the command, `times`
    /// times.
    pub fn keep_attached(&mut self, times: u32) {
        let none = Namespaces::default();
        let targets = AttachTargets::new(&[tap::TAP], &none, Hook::of_this_kernel());
        let mut targets = targets.expect("the device is there");
        for _ in 0..times {
            self.attachments[0].reattach(&mut targets);
            thread::sleep(Duration::from_secs(1));
        }
    }

    /// Returns how many bytes other than 0 the bundlers store of the connection's payload; `None`
    /// without state of the connection.
    #[must_use]
    pub fn stored_payload(&self) -> Option<usize> {
        let socket = self.stream.as_fd().as_raw_fd().to_ne_bytes();
        let maps = MapInfoIter::default().filter(|it| it.name == "pillion_flows");
        let maps = maps.filter_map(|it| MapHandle::from_map_id(it.id).ok());
        let mut flows = maps.filter_map(|it| it.lookup(&socket, MapFlags::ANY).ok()?);
        let history = flows.next()?;
        let history = history.iter().take(HISTORY_BYTES);
        Some(history.filter(|byte| **byte != 0).count())
    }

    /// Returns the number of connections that the first bundler covers now.
    #[must_use]
    pub fn active_connections(&self) -> u64 {
        let totals_reader = self.attachments[0].totals_reader().expect("readings");
        let connections = totals_reader.connections();
        connections.expect("they are counted").count
    }

    /// Returns the totals of a bundler; bundlers are numbered in the order in which they run.
    #[must_use]
    pub fn totals_of(&self, bundler: usize) -> Totals {
        let attachment = &self.attachments[bundler];
        attachment.totals().expect("the totals can be read")
    }

    /// Checks that the first bundler's outcomes are exactly these, with these counts.
    pub fn assert_outcomes(&self, expected: &[(Outcome, u64)]) {
        self.assert_outcomes_of(0, expected);
    }

    /// Checks that a bundler's outcomes are exactly these, with these counts. Bundlers are numbered
    /// in the order of attachment.
    pub fn assert_outcomes_of(&self, bundler: usize, expected: &[(Outcome, u64)]) {
        let Counters { outcomes, .. } = self.totals_of(bundler).counters;
        if outcomes != expected.iter().copied().collect() {
            self.script.fail(&format!(
                "bundler {bundler}: {outcomes:?}, not {expected:?}"
            ));
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.attachments.drain(..).for_each(release);
            socket::abort_when_closed(&self.stream);
        }
    }
}

fn policy(bundler: &Bundler) -> Policy {
    Policy {
        rules: bundler.rules.clone(),
        default_mode: bundler.default_mode,
        scope: Scope::ThisNamespace,
        ..Policy::default()
    }
}

fn attach(setup: &Setup, bundler: &Bundler) -> Attachment {
    let policy = Policy {
        governing: setup.governing,
        redundancy_caps: setup.redundancy_caps,
        observing: setup.observing,
        ..policy(bundler)
    };
    attach_programs(setup, acquire_programs(&policy))
}

fn attach_programs(setup: &Setup, programs: Programs) -> Attachment {
    let root = || cgroup2_mount().expect("cgroup v2");
    let cgroup = File::open(setup.cgroup.clone().unwrap_or_else(root)).expect("a cgroup");
    let mut names = vec![tap::TAP.to_owned()];
    if setup.on_bridge {
        names.push(tap::BRIDGE.to_owned());
    }
    let devices = Device::select(&names).expect("the devices");
    Attachment::new(programs, cgroup.as_fd(), &devices).expect("the programs attach")
}

fn connect(setup: &Setup, peer: &mut Peer, stream: TcpStream) -> TcpStream {
    if let Some(isn) = setup.isn {
        socket::set_isn(&stream, isn);
    }
    set_options(setup, &stream);
    let address = setup.ip.in_socket(setup.ip.peer());
    if setup.signed {
        segment::require_signature(&stream, address);
    }
    socket::start_connect(&stream, SocketAddr::new(address, peer.port));
    peer.accept(setup.rtt);
    if setup.nodelay {
        stream.set_nodelay(true).expect("TCP_NODELAY");
    }
    stream
}

fn set_options(setup: &Setup, socket: &impl AsFd) {
    for (option, value) in &setup.tcp_options {
        socket::set_option(socket, libc::IPPROTO_TCP, *option, &value.to_ne_bytes());
    }
}

pub(crate) fn accept(setup: &Setup, peer: &mut Peer, open: impl FnOnce(&mut Peer)) -> TcpStream {
    let address = setup.ip.in_socket(setup.ip.local());
    let listener: TcpListener = socket::listener(SocketAddr::new(address, LISTENING_PORT));
    set_options(setup, &listener);
    open(peer);
    let mut accepted = None;
    let accepted_in_time = socket::wait_until(|| {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    assert!(accepted_in_time, "the connection is there to be accepted");
    let (stream, _) = accepted.expect("it came");
    stream.set_nonblocking(true).expect("O_NONBLOCK");
    if setup.nodelay {
        stream.set_nodelay(true).expect("TCP_NODELAY");
    }
    stream
}

/// Pool of programs that earlier tests used, because their verification takes most of a test's
/// time. Some still wait for their sockets to be freed; the most recent are last.
static IDLE_PROGRAMS: Mutex<Vec<Programs>> = Mutex::new(Vec::new());

/// Maximum size of the pool.
const MAX_IDLE_PROGRAMS: usize = 16;

/// Returns programs as if just loaded with this policy, from the pool if possible.
fn acquire_programs(policy: &Policy) -> Programs {
    let mut unsuitable = Vec::new();
    while let Some(mut programs) = pop_idle() {
        match programs.reset(policy) {
            Ok(true) => {
                unsuitable.into_iter().rev().for_each(push_idle);
                return programs;
            }
            Ok(false) => unsuitable.push(programs),
            Err(error) => panic!("the programs are not renewed: {error}"),
        }
    }
    unsuitable.into_iter().rev().for_each(push_idle);
    Programs::load(policy).expect("the programs load")
}

/// Returns the programs of a passed test to the pool.
fn release(attachment: Attachment) {
    push_idle(attachment.into_programs());
}

fn pop_idle() -> Option<Programs> {
    IDLE_PROGRAMS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .pop()
}

fn push_idle(programs: Programs) {
    let mut idle = IDLE_PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    // The next tests probably need programs of the latest kind; tests of observation need others.
    let oldest = (idle.len() == MAX_IDLE_PROGRAMS).then(|| idle.remove(0));
    idle.push(programs);
    // The kernel takes a while to free programs, and other threads wait for the lock.
    drop(idle);
    drop(oldest);
}
