//! Sends the streams of all groups, from the first SYN to the last close.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pillion_bpf::host::clock::monotonic_ns;
use pillion_bpf::{
    AttachTargets, Attachment, FlowReader, Hook, Mode, NamespaceName, Namespaces, Policy, Programs,
    Rule, Totals, open_cgroup2,
};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::settings::experiment::{self, Plan, source_port};
use crate::testbed::{DEVICE, Node, RECEIVER, Testbed};
use crate::traffic::{
    ReceiveConfig, ReceiveError, ReceiveResult, Receiver, SendError, SendResult, Sender, Traffic,
};

/// The receiver's port for the first group; the following groups have the following ports.
const FIRST_PORT: u16 = 7001;
/// Maximum time for connecting. Lost SYNs are retransmitted after 1, 3, 7, 15 and 31 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time that streams which connect while others send wait for each other: this, or a
/// quarter of the remaining time if that is less. TCP gives up after 127 s.
const LATE_CONNECT_TIMEOUT: Duration = Duration::from_secs(130);
/// Maximum time for the last bytes, because retransmissions back off, too.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);
/// Time from the last connection until the barrier opens, so that every thread is ready.
const BARRIER_DELAY: Duration = Duration::from_millis(20);

/// The streams of all groups, before they connect.
#[derive(Debug)]
pub(super) struct Streams {
    groups: Vec<Traffic>,
    receiving: Vec<Thread<ReceiveResult, ReceiveError>>,
    /// Set when the receivers need not expect further connections.
    all_sent: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

type Thread<T, E> = JoinHandle<io::Result<Result<T, E>>>;

/// A group's sender, while it connects or waits at the barrier.
struct Sending {
    connected: mpsc::Receiver<()>,
    barrier: mpsc::Sender<u64>,
    thread: Thread<SendResult, SendError>,
}

/// The results of all groups' streams.
pub(super) struct StreamsResult {
    /// When the barrier opened, by `CLOCK_MONOTONIC` in nanoseconds.
    pub(super) barrier_ns: u64,
    /// The traffic of each group.
    pub(super) traffic: Vec<Traffic>,
    /// The reports of each group's sender and receiver.
    pub(super) groups: Vec<(SendResult, ReceiveResult)>,
}

/// Returns the receiver's port for a group's streams.
pub(super) fn port(group: usize) -> u16 {
    FIRST_PORT + group as u16
}

/// Returns the traffic of each group.
fn traffic(plan: &Plan) -> Vec<Traffic> {
    let mut first = 0;
    let mut traffic = Vec::new();
    for (number, streams) in plan.streams.iter().enumerate() {
        let to = SocketAddr::from((RECEIVER, port(number)));
        traffic.push(Traffic {
            duration: Some(plan.duration),
            seed: plan.seed ^ (number as u64).wrapping_mul(GROUP_SEED_STEP),
            records: plan.measure.records,
            first_stream: first,
            source_port: Some(source_port(first)),
            connect_timeout: match streams.traffic.connects_at_start {
                true => {
                    let remaining = plan.duration.saturating_sub(streams.traffic.start);
                    (remaining / 4).min(LATE_CONNECT_TIMEOUT)
                }
                false => CONNECT_TIMEOUT,
            },
            partly: true,
            drain_timeout: DRAIN_TIMEOUT,
            ..Traffic::new(to, streams.traffic.clone())
        });
        first += streams.traffic.streams as u32;
    }
    traffic
}

/// Distance between the groups' seeds: an odd number, far from common seeds.
const GROUP_SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Streams {
    /// Starts the receivers of all groups.
    ///
    /// # Errors
    ///
    /// [`Error::Traffic`], [`Error::Receive`], [`Error::Namespace`].
    pub(super) fn listen(
        plan: &Plan,
        testbed: &Testbed,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let groups = traffic(plan);
        groups.iter().try_for_each(Traffic::validate)?;
        let count: usize = groups.iter().map(Traffic::streams).sum();
        raise_file_limit(count as u64);
        let all_sent = Arc::new(AtomicBool::new(false));
        let mut receiving = Vec::new();
        for traffic in &groups {
            let config = ReceiveConfig {
                listen: traffic.to,
                streams: None,
                datagrams: traffic.has_datagrams(),
                records: traffic.records,
            };
            let receiver = testbed.receiver.enter(move || Receiver::bind(config))??;
            let no_more = Arc::clone(&all_sent);
            let receiver = receiver.with_behaviour(plan.receiver.behaviour)?;
            let run = move || receiver.run(&no_more);
            receiving.push(testbed.receiver.namespace.spawn(run));
        }
        Ok(Self {
            groups,
            receiving,
            all_sent,
            stop,
        })
    }

    /// Connects all streams, starts them at the same moment, and waits until they finish. Calls
    /// `on_start` at that moment.
    ///
    /// # Errors
    ///
    /// [`Error::Send`], [`Error::Receive`], [`Error::Namespace`]; [`Error::Stopped`].
    pub(super) fn send(
        self,
        plan: &Plan,
        testbed: &Testbed,
        on_start: impl FnOnce(),
    ) -> Result<StreamsResult, Error> {
        let hosts = plan
            .streams
            .iter()
            .filter_map(|it| testbed.hosts.get(it.host));
        let senders = self.groups.iter().zip(hosts);
        let senders: Vec<Sending> = senders
            .map(|(traffic, host)| start(traffic.clone(), host, Arc::clone(&self.stop)))
            .collect();
        // A sender that fails drops its end of the channel.
        let all = senders.iter().all(|sender| sender.connected.recv().is_ok());
        let barrier_ns = monotonic_ns() + BARRIER_DELAY.as_nanos() as u64;
        if all {
            for sender in &senders {
                let _ = sender.barrier.send(barrier_ns);
            }
            on_start();
        }
        let mut sent = Vec::new();
        let mut failure = None;
        for (
            Sending {
                thread, barrier, ..
            },
            host,
        ) in senders.into_iter().zip(&plan.streams)
        {
            drop(barrier);
            match join(thread, &plan.hosts[host.host].name) {
                Ok(done) => sent.push(done),
                Err(Error::Send(SendError::Stopped { .. })) => {
                    failure = failure.or(Some(Error::Stopped));
                }
                Err(error) => {
                    self.stop.store(true, Ordering::Relaxed);
                    failure = Some(error);
                }
            }
        }
        self.all_sent.store(true, Ordering::Relaxed);
        let received = self
            .receiving
            .into_iter()
            .map(|thread| join(thread, "receiver"));
        let received: Vec<ReceiveResult> = received.collect::<Result<_, _>>()?;
        match failure {
            Some(error) => Err(error),
            None if self.stop.load(Ordering::Relaxed) => Err(Error::Stopped),
            None => Ok(StreamsResult {
                barrier_ns,
                traffic: self.groups,
                groups: sent.into_iter().zip(received).collect(),
            }),
        }
    }
}

fn start(traffic: Traffic, host: &Node, stop: Arc<AtomicBool>) -> Sending {
    let (connected_sender, connected) = mpsc::channel();
    let (barrier, barrier_receiver) = mpsc::channel();
    let run_streams =
        move || connect_and_send(traffic, &connected_sender, &barrier_receiver, &stop);
    Sending {
        connected,
        barrier,
        thread: host.namespace.spawn(run_streams),
    }
}

/// Connects the streams that connect before the barrier, signals that they are
/// connected, and sends once the barrier opens.
fn connect_and_send(
    traffic: Traffic,
    connected_sender: &mpsc::Sender<()>,
    barrier_receiver: &mpsc::Receiver<u64>,
    stop: &AtomicBool,
) -> Result<SendResult, SendError> {
    let streams = traffic.streams();
    let sender = Sender::new(traffic)?;
    let ready = sender.connect(stop)?;
    let connected = ready.count();
    let _ = connected_sender.send(());
    match barrier_receiver.recv() {
        Ok(barrier_ns) => ready.run(barrier_ns, stop),
        // Another sender failed.
        Err(_) => Err(SendError::Stopped { connected, streams }),
    }
}

fn join<T, E>(thread: Thread<T, E>, host: &str) -> Result<T, Error>
where
    Error: From<E>,
{
    let joined = thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread failed")));
    let done = joined.map_err(|source| Error::Namespace {
        name: host.to_owned(),
        source,
    })?;
    Ok(done?)
}

/// Raises the limit of open files for both ends of `streams` streams. If that fails, the stream
/// without a free descriptor reports the error.
fn raise_file_limit(streams: u64) {
    const OTHER_FILES: u64 = 1024;
    let needed = 2 * streams + OTHER_FILES;
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < needed
    {
        let raised = setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed));
        if raised.is_err() {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(needed), hard);
        }
    }
}

/// pillion, attached for the streams of one group.
#[derive(Debug)]
pub(super) struct GroupBundler {
    group: String,
    /// The index of the group's host in [`Plan::hosts`](crate::settings::experiment::Plan::hosts).
    pub(super) host: usize,
    attachment: Attachment,
}

/// pillion's totals for one group. Totals that an older version did not write are 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupBundlingTotals {
    /// The group's name.
    pub group: String,
    /// Totals of all its connections.
    #[serde(flatten)]
    pub totals: Totals,
}

impl GroupBundler {
    /// Attaches pillion to the host's device for connections to the group's port; `None` if the
    /// group is not bundled.
    pub(super) fn start(
        streams: &experiment::Streams,
        host: &Node,
        port: u16,
    ) -> Result<Option<Self>, Error> {
        let Some(bundling) = streams.bundling else {
            return Ok(None);
        };
        let namespace = host.namespace.path();
        let name = NamespaceName::from(namespace.as_os_str());
        let namespaces = Namespaces {
            named: vec![name],
            ..Namespaces::default()
        };
        let targets = AttachTargets::new(&[DEVICE], &namespaces, Hook::of_this_kernel())?;
        let policy = Policy {
            rules: vec![Rule {
                remote_ports: vec![port..=port],
                tcp_options: bundling.tcp_options,
                ..Rule::all(bundling.options)
            }],
            default_mode: Mode::Never,
            governing: true,
            ..Policy::default()
        };
        let programs = Programs::load(&policy.with_targets(&targets))?;
        let cgroup = open_cgroup2()?;
        let devices = targets.devices()?;
        Ok(Some(Self {
            group: streams.traffic.name.clone(),
            host: streams.host,
            attachment: Attachment::new(programs, cgroup.as_fd(), &devices)?,
        }))
    }

    /// Returns a reader of the group's bundled connections.
    pub(super) fn flows(&self) -> Result<FlowReader, Error> {
        Ok(self.attachment.flows()?)
    }

    /// Detaches pillion, and returns its totals.
    pub(super) fn finish(mut self) -> Result<GroupBundlingTotals, Error> {
        self.attachment.detach();
        Ok(GroupBundlingTotals {
            totals: self.attachment.totals()?,
            group: self.group,
        })
    }
}
