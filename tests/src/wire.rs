use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::TcpCongestion;
use pillion_bpf::{
    Attachment, Counters, Device, Flow, Hook, Namespaces, Observation, Outcome, Policy, Programs,
    Scope, Selection, Totals, cgroup2_mount,
};

use crate::peer::{LISTENING_PORT, Peer};
use crate::programs::Tagging;
use crate::segment::{self, Script};
use crate::setup::{Bundler, Opening, Setup};
use crate::tap::{self, Link};
use crate::{netns, socket};

/// An established connection between a socket of the kernel and a scripted peer.
///
/// What a test does and expects is in `play.rs`, what it is made of is here.
pub struct Wire {
    pub(crate) setup: Setup,
    pub(crate) attachments: Vec<Attachment>,
    pub(crate) stream: TcpStream,
    pub(crate) peer: Peer,
    /// Memory that was written without a copy: the kernel reads it until it is acknowledged.
    pub(crate) pages: Vec<Vec<u8>>,
    /// Bytes written to the stream.
    pub(crate) written: u32,
    /// True if the sending half is closed; its FIN counts as a byte until acknowledged.
    pub(crate) closed: bool,
    pub(crate) script: Script,
    /// The programs for VLAN tags, which are detached when this is dropped.
    _tagging: Option<Tagging>,
}

impl Wire {
    /// Makes device, bundlers and connection in the calling thread's network namespace.
    pub fn open(setup: Setup) -> Self {
        let mut peer = Peer::new(tap::create_device(&setup), &setup);
        let mut tagging = match setup.link {
            Link::Ethernet { tags } if tags > 0 => Some(Tagging::load(tap::TAP, tags)),
            _ => None,
        };
        if let Some(tagging) = &mut tagging {
            tagging.begin_egress();
        }
        let attachments = setup
            .bundlers
            .iter()
            .map(|bundler| attach(&setup, bundler))
            .collect();
        if let Some(tagging) = &mut tagging {
            tagging.begin_ingress();
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

    /// Puts one more bundler to work, beside those already there.
    pub fn attach(&mut self, bundler: &Bundler) {
        self.script.note("attach");
        self.attachments.push(attach(&self.setup, bundler));
    }

    /// Has the last bundler take in the connections that are older than it.
    pub fn adopt(&mut self) {
        self.script.note("adopt");
        let last = self.attachments.last().expect("an attachment");
        last.review().expect("the connections are adopted");
    }

    /// Gives the first bundler the rules of this one.
    pub fn replace_rules(&mut self, bundler: &Bundler) {
        self.script.note("replace rules");
        let policy = policy(bundler);
        let first = &self.attachments[0];
        first
            .replace_rules(&policy)
            .expect("the rules are replaced");
        first.review().expect("the connections are looked at");
    }

    /// Has another bundler take over from the first, with what is remembered of sockets.
    pub fn hand_over(&mut self, bundler: &Bundler) {
        self.script.note("hand over");
        let first = &mut self.attachments[0];
        let programs = Programs::load_after(&policy(bundler), Some(first.requests()));
        let successor = put_to_work(&self.setup, programs.expect("the programs load"));
        successor.review().expect("the connections are adopted");
        *first = successor;
    }

    /// Takes all bundlers away.
    pub fn detach(&mut self) {
        self.script.note("detach");
        self.attachments.iter_mut().for_each(Attachment::detach);
    }

    /// Takes the last bundler away, and gives its programs.
    #[must_use]
    pub fn take_programs(&mut self) -> Programs {
        self.script.note("take the programs");
        let last = self.attachments.pop().expect("an attachment");
        last.into_programs()
    }

    /// Has all bundlers come to an end, and does something while they wait for what is on its way.
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

    /// Ends the connection and opens another one, to a port of the peer's, with the same
    /// socket.
    pub fn reconnect(&mut self, port: u16) {
        self.script.note(&format!("reconnect={port}"));
        socket::disconnect(&self.stream);
        let stream = self.stream.try_clone().expect("another handle");
        self.peer.port = port;
        connect(&self.setup, &mut self.peer, stream);
        self.written = 0;
    }

    /// Sends so many SYNs with MPTCP to a port of this end, from a stranger.
    pub fn flood(&mut self, port: u16, syns: u16) {
        self.script.note(&format!("flood={syns}"));
        self.peer.flood(port, syns);
    }

    /// Ends the connection at once; the socket stays.
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

    /// The name of the connection's congestion control.
    #[must_use]
    pub fn congestion_control(&self) -> String {
        let name = getsockopt(&self.stream, TcpCongestion).expect("TCP_CONGESTION");
        name.to_string_lossy().into_owned()
    }

    /// Waits until the connection has failed, and gives the reason.
    #[must_use]
    pub fn failure(&self) -> io::Error {
        let mut failure = None;
        socket::until(|| {
            failure = self.stream.take_error().expect("SO_ERROR");
            failure.is_some()
        });
        failure.unwrap_or_else(|| self.script.fail("the connection goes on"))
    }

    /// The kernel's socket, for what a test does to it besides.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Payload that a segment can have at most, in bytes, unless it carries SACK blocks.
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

    /// The kernel's account of the connection.
    #[must_use]
    pub fn tcp_info(&self) -> libc::tcp_info {
        socket::tcp_info(&self.stream)
    }

    /// What the first bundler observed of the connections so far.
    #[must_use]
    pub fn observations(&mut self) -> Vec<Observation> {
        let seen = self.attachments[0].observations();
        seen.expect("what is observed can be read")
    }

    /// The connection as the first bundler knows it.
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

    /// What the first bundler did so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals_of(0)
    }

    /// Has the first bundler see to it that it stays attached, each second as the command does, so
    /// many times.
    pub fn stay(&mut self, times: u32) {
        let none = Namespaces::default();
        let selection = Selection::new(&[tap::TAP], &none, Hook::of_this_kernel());
        let mut selection = selection.expect("the device is there");
        for _ in 0..times {
            self.attachments[0].stay(&mut selection);
            thread::sleep(Duration::from_secs(1));
        }
    }

    /// How many connections the first bundler covers at this moment.
    #[must_use]
    pub fn connections_now(&self) -> u64 {
        let readings = self.attachments[0].readings().expect("readings");
        readings.connections().expect("they are counted")
    }

    /// What one of the bundlers did so far, in the order in which they were attached.
    #[must_use]
    pub fn totals_of(&self, bundler: usize) -> Totals {
        let attachment = &self.attachments[bundler];
        attachment.totals().expect("the totals can be read")
    }

    /// Checks that the first bundler gave these outcomes, as often as stated, and no others.
    pub fn assert_outcomes(&self, expected: &[(Outcome, u64)]) {
        self.assert_outcomes_of(0, expected);
    }

    /// Checks that one of the bundlers gave these outcomes, as often as stated, and no others; they
    /// are numbered in the order in which they were attached.
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
            self.attachments.drain(..).for_each(give_back);
            socket::abort_when_closed(&self.stream);
        }
    }
}

fn policy(bundler: &Bundler) -> Policy {
    Policy {
        rules: bundler.rules.clone(),
        otherwise: bundler.otherwise,
        scope: Scope::ThisNamespace,
        ..Policy::default()
    }
}

fn attach(setup: &Setup, bundler: &Bundler) -> Attachment {
    let policy = Policy {
        governing: setup.governing,
        observing: setup.observing,
        ..policy(bundler)
    };
    put_to_work(setup, take_programs(&policy))
}

fn put_to_work(setup: &Setup, programs: Programs) -> Attachment {
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
    socket::begin(&stream, SocketAddr::new(address, peer.port));
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
    let came = socket::until(|| {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    assert!(came, "the connection is there to be accepted");
    let (stream, _) = accepted.expect("it came");
    stream.set_nonblocking(true).expect("O_NONBLOCK");
    if setup.nodelay {
        stream.set_nodelay(true).expect("TCP_NODELAY");
    }
    stream
}

/// Programs that a test has done with, for the next one: verifying them takes longer than all else that
/// most tests do. They may be waiting for sockets of theirs to be freed; the latest are the last.
static IDLE: Mutex<Vec<Programs>> = Mutex::new(Vec::new());

/// So many are kept.
const IDLE_PROGRAMS: usize = 16;

/// Programs as they are when loaded with this policy, and the kernel has verified them now or for an
/// earlier test.
fn take_programs(policy: &Policy) -> Programs {
    let mut waiting = Vec::new();
    while let Some(mut programs) = pop() {
        match programs.renew(policy) {
            Ok(true) => {
                waiting.into_iter().rev().for_each(put);
                return programs;
            }
            Ok(false) => waiting.push(programs),
            Err(error) => panic!("the programs are made as they were: {error}"),
        }
    }
    waiting.into_iter().rev().for_each(put);
    Programs::load(policy).expect("the programs load")
}

/// Takes back the programs of a test that has passed.
fn give_back(attachment: Attachment) {
    put(attachment.into_programs());
}

fn pop() -> Option<Programs> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

fn put(programs: Programs) {
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    // The next tests are likelier to be of the latest's kind: those that watch are another.
    let oldest = (idle.len() == IDLE_PROGRAMS).then(|| idle.remove(0));
    idle.push(programs);
    // The kernel takes its time to free programs, and others wait for the lock.
    drop(idle);
    drop(oldest);
}
