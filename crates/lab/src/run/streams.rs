//! The streams of all groups, from the first SYN to the last close.

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
    Attachment, FlowReader, Hook, Mode, NamespaceName, Namespaces, Policy, Programs, Rule,
    Selection, Totals, open_cgroup2,
};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::settings::experiment::{self, Plan, source_port};
use crate::testbed::{DEVICE, Node, RECEIVER, Testbed};
use crate::traffic::{
    ReceiveConfig, ReceiveError, Received, Receiver, SendError, Sender, Sent, Traffic,
};

/// The receiver's port for the first group; each next group has the next port.
const PORTS: u16 = 7001;
/// How long connecting may take: lost SYNs are retransmitted after 1, 3, 7, 15 and 31 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long streams that connect while others send wait for each other, but for a quarter of the time
/// that is left, if that is less: TCP gives up after 127 s.
const CONNECT_TIMEOUT_AMONG_OTHERS: Duration = Duration::from_secs(130);
/// How long the last bytes may take: retransmissions back off, too.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);
/// Time from the last connection to the barrier's opening, so that every thread can hear of it.
const BEFORE_BARRIER: Duration = Duration::from_millis(20);

/// The streams of all groups, not begun.
#[derive(Debug)]
pub(super) struct Streams {
    groups: Vec<Traffic>,
    receiving: Vec<Thread<Received, ReceiveError>>,
    /// Tells the receivers that no more will come.
    all_sent: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

type Thread<T, E> = JoinHandle<io::Result<Result<T, E>>>;

/// A group's sender, connecting or at its barrier.
struct Sending {
    connected: mpsc::Receiver<()>,
    barrier: mpsc::Sender<u64>,
    thread: Thread<Sent, SendError>,
}

/// What became of all groups' streams.
pub(super) struct Ended {
    /// When the barrier opened, `CLOCK_MONOTONIC` in nanoseconds.
    pub(super) barrier_ns: u64,
    /// What each group's sender was to do.
    pub(super) traffic: Vec<Traffic>,
    /// What came of each group.
    pub(super) groups: Vec<(Sent, Received)>,
}

/// The receiver's port for a group's streams.
pub(super) fn port(group: usize) -> u16 {
    PORTS + group as u16
}

/// What each group's sender is to do.
fn traffic(plan: &Plan) -> Vec<Traffic> {
    let mut first = 0;
    let mut traffic = Vec::new();
    for (number, streams) in plan.streams.iter().enumerate() {
        let to = SocketAddr::from((RECEIVER, port(number)));
        traffic.push(Traffic {
            duration: Some(plan.duration),
            seed: plan.seed ^ (number as u64).wrapping_mul(GROUP_SEEDS),
            records: plan.measure.records,
            first_stream: first,
            source_port: Some(source_port(first)),
            connect_timeout: match streams.traffic.connects_at_start {
                true => {
                    let left = plan.duration.saturating_sub(streams.traffic.start);
                    (left / 4).min(CONNECT_TIMEOUT_AMONG_OTHERS)
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

/// Distance between the groups' seeds: any odd number, far from those that people choose.
const GROUP_SEEDS: u64 = 0x9e37_79b9_7f4a_7c15;

impl Streams {
    /// Has the receivers of all groups listen.
    ///
    /// # Errors
    /// [`Error::Traffic`], [`Error::Receive`], [`Error::Namespace`].
    pub(super) fn listen(
        plan: &Plan,
        testbed: &Testbed,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let groups = traffic(plan);
        groups.iter().try_for_each(Traffic::validate)?;
        let count: usize = groups.iter().map(Traffic::streams).sum();
        allow_files(count as u64);
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
            let ended = Arc::clone(&all_sent);
            let receiver = receiver.with_manner(plan.receiver.manner)?;
            let run = move || receiver.run(&ended);
            receiving.push(testbed.receiver.namespace.spawn(run));
        }
        Ok(Self {
            groups,
            receiving,
            all_sent,
            stop,
        })
    }

    /// Connects all streams, lets them go at one moment, and waits for their end. `begun` hears of
    /// that moment.
    ///
    /// # Errors
    /// [`Error::Send`], [`Error::Receive`], [`Error::Namespace`]; [`Error::Stopped`].
    pub(super) fn send(
        self,
        plan: &Plan,
        testbed: &Testbed,
        begun: impl FnOnce(),
    ) -> Result<Ended, Error> {
        let hosts = plan
            .streams
            .iter()
            .filter_map(|it| testbed.hosts.get(it.host));
        let senders = self.groups.iter().zip(hosts);
        let senders: Vec<Sending> = senders
            .map(|(traffic, host)| start(traffic.clone(), host, Arc::clone(&self.stop)))
            .collect();
        // One that fails drops its end of the channel.
        let all = senders.iter().all(|sender| sender.connected.recv().is_ok());
        let barrier_ns = monotonic_ns() + BEFORE_BARRIER.as_nanos() as u64;
        if all {
            for sender in &senders {
                let _ = sender.barrier.send(barrier_ns);
            }
            begun();
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
        let received: Vec<Received> = received.collect::<Result<_, _>>()?;
        match failure {
            Some(error) => Err(error),
            None if self.stop.load(Ordering::Relaxed) => Err(Error::Stopped),
            None => Ok(Ended {
                barrier_ns,
                traffic: self.groups,
                groups: sent.into_iter().zip(received).collect(),
            }),
        }
    }
}

fn start(traffic: Traffic, host: &Node, stop: Arc<AtomicBool>) -> Sending {
    let (told, connected) = mpsc::channel();
    let (barrier, opened) = mpsc::channel();
    let work = move || connect_and_send(traffic, &told, &opened, &stop);
    Sending {
        connected,
        barrier,
        thread: host.namespace.spawn(work),
    }
}

/// Says that the streams are connected, those that connect first, and has them send once the barrier
/// opens.
fn connect_and_send(
    traffic: Traffic,
    told: &mpsc::Sender<()>,
    opened: &mpsc::Receiver<u64>,
    stop: &AtomicBool,
) -> Result<Sent, SendError> {
    let streams = traffic.streams();
    let sender = Sender::new(traffic)?;
    let ready = sender.connect(stop)?;
    let connected = ready.count();
    let _ = told.send(());
    match opened.recv() {
        Ok(barrier_ns) => ready.run(barrier_ns, stop),
        // Another one failed.
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

/// Lets this process open both ends of so many streams. Where it may not, the stream that finds
/// no room says so.
fn allow_files(streams: u64) {
    const OTHERS: u64 = 1024;
    let needed = 2 * streams + OTHERS;
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < needed
    {
        let raised = setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed));
        if raised.is_err() {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(needed), hard);
        }
    }
}

/// pillion at work on the streams of one group.
#[derive(Debug)]
pub(super) struct Bundling {
    group: String,
    /// The place of the group's host in [`Plan::hosts`](crate::settings::experiment::Plan::hosts).
    pub(super) host: usize,
    attachment: Attachment,
}

/// What pillion did for one group; what a run of an older version does not tell is 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupBundled {
    /// The group's name.
    pub group: String,
    /// All that was done for its connections.
    #[serde(flatten)]
    pub totals: Totals,
}

impl Bundling {
    /// Begins to bundle, if the group is to be bundled: on its host's device, the connections to
    /// its port.
    pub(super) fn start(
        streams: &experiment::Streams,
        host: &Node,
        port: u16,
    ) -> Result<Option<Self>, Error> {
        let Some(how) = streams.bundling else {
            return Ok(None);
        };
        let namespace = host.namespace.path();
        let name = NamespaceName::from(namespace.as_os_str());
        let namespaces = Namespaces {
            named: vec![name],
            ..Namespaces::default()
        };
        let selection = Selection::new(&[DEVICE], &namespaces, Hook::of_this_kernel())?;
        let policy = Policy {
            rules: vec![Rule {
                remote_ports: vec![port..=port],
                companions: how.companions,
                ..Rule::all(how.options)
            }],
            otherwise: Mode::LeaveAlone,
            governing: true,
            ..Policy::default()
        };
        let programs = Programs::load(&policy.at(&selection))?;
        let cgroup = open_cgroup2()?;
        let devices = selection.devices()?;
        Ok(Some(Self {
            group: streams.traffic.name.clone(),
            host: streams.host,
            attachment: Attachment::new(programs, cgroup.as_fd(), &devices)?,
        }))
    }

    /// A reader of the group's connections that pillion bundles.
    pub(super) fn flows(&self) -> Result<FlowReader, Error> {
        Ok(self.attachment.flows()?)
    }

    /// Ends the bundling, and returns what was done.
    pub(super) fn finish(mut self) -> Result<GroupBundled, Error> {
        self.attachment.detach();
        Ok(GroupBundled {
            totals: self.attachment.totals()?,
            group: self.group,
        })
    }
}
