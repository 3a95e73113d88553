//! The testbed of the papers (LCN 2015, section IV.B; thesis, chapter 3), of network namespaces.
//!
//! ```text
//! host ---+                 rate, queue         delay, loss
//! host ---+-- bridge --+-- router ------------- emulator --+-- receiver
//! host ---+            |                                   |
//!                sender's trace                     receiver's trace
//! ```

mod bottleneck;
mod emulator;
mod node;

use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use crate::Error;
use crate::settings::experiment::{Plan, Sysctls};
use bottleneck::build_link;
use node::{Port, ROUTER_IN, ROUTER_OUT, build_bridge, sender_address};

pub use bottleneck::{ListedLoss, QUEUE};
pub use emulator::Emulator;
pub use node::{Node, RECEIVER, speak_ipv4_alone};

/// The name of the device of a sending host, and of the receiver.
pub const DEVICE: &str = "eth0";

/// The name of the bridge's and the emulator's device towards the router.
pub const TO_ROUTER: &str = emulator::TO_ROUTER;

/// The name of the router's device towards the emulator, where the queue is.
pub const OUT: &str = "out";

/// The name of the router's device towards the senders, where that of the way back is, if there is one.
pub const IN: &str = "in";

/// All machines of a run, cabled and set up. A machine vanishes with the last reference to it.
#[derive(Debug)]
pub struct Testbed {
    /// The hosts that streams come from, in the order of [`Plan::hosts`].
    pub hosts: Vec<Node>,
    /// The bridge, where the senders' trace is taken.
    pub bridge: Node,
    /// The router, where the bottleneck's rate and queue are.
    pub router: Node,
    /// What emulates the path between router and receiver.
    pub emulator: Emulator,
    /// The receiver, which streams go to.
    pub receiver: Node,
}

impl Testbed {
    /// Builds the testbed of a run, with pillion's own path even where the kernel has netem if
    /// that is wanted; nothing is sent yet.
    ///
    /// # Errors
    /// [`Error::Command`], [`Error::Namespace`], [`Error::Sysctl`], [`Error::Path`];
    /// [`Error::Lacks`] if this kernel cannot do what the run asks for.
    pub fn build(plan: &Plan, own_path: bool, log: &Log) -> Result<Self, Error> {
        let bridge = Node::create("bridge", log)?;
        let router = Node::create("router", log)?;
        let receiver = Node::create("receiver", log)?;
        let ports: Vec<String> = (0..plan.hosts.len()).map(|n| format!("host{n}")).collect();
        let [to_hosts, to_router] = [
            Port {
                node: &router,
                device: IN,
            },
            Port {
                node: &bridge,
                device: TO_ROUTER,
            },
        ];
        let mut of_router = to_hosts.raise(ROUTER_IN).to_vec();
        let hosts = plan.hosts.iter().map(|host| Node::create(&host.name, log));
        let hosts: Vec<Node> = hosts.collect::<Result<_, _>>()?;
        let cables = hosts.iter().zip(&ports).map(|(node, port)| {
            let here = Port {
                node,
                device: DEVICE,
            };
            let there = Port {
                node: &bridge,
                device: port,
            };
            [here, there]
        });
        let cables: Vec<_> = cables.chain([[to_hosts, to_router]]).collect();
        build_bridge(&cables)?;
        for ((number, host), &[here, there]) in plan.hosts.iter().enumerate().zip(&cables) {
            let address = sender_address(number);
            let window = initial_window(host.initial_window);
            set_up_end(here, address, ROUTER_IN, &window)?;
            of_router.push(to_hosts.meet(address));
            build_link(host, here, there)?;
        }

        let out = Port {
            node: &router,
            device: OUT,
        };
        let last = Port {
            node: &receiver,
            device: DEVICE,
        };
        let emulator = Emulator::build(plan, own_path, out, last, log)?;
        of_router.extend(out.raise(ROUTER_OUT));
        of_router.push(out.meet(RECEIVER));
        router.set_up(of_router)?;
        let acks = match plan.receiver.delayed_acks {
            true => "",
            false => " quickack 1",
        };
        let window = initial_window(plan.receiver.initial_window);
        set_up_end(last, RECEIVER, ROUTER_OUT, &(window + acks))?;
        router.set("net.ipv4.ip_forward", "1")?;
        bottleneck::build(&router, OUT, &plan.bottleneck, plan)?;
        if plan.has_queue_back() {
            bottleneck::build(&router, IN, &plan.bottleneck_back, plan)?;
        }

        set_all(&receiver, &plan.sysctls)?;
        set_all(&receiver, &plan.receiver.sysctls)?;
        for (node, host) in hosts.iter().zip(&plan.hosts) {
            set_all(node, &plan.sysctls)?;
            set_all(node, &host.sysctls)?;
        }
        let testbed = Self {
            hosts,
            bridge,
            router,
            emulator,
            receiver,
        };
        settle(testbed.nodes())?;
        Ok(testbed)
    }

    /// A sending host's address, by its number.
    #[must_use]
    pub fn address(host: usize) -> Ipv4Addr {
        sender_address(host)
    }

    /// All machines of the testbed, from the senders to the receiver.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        let emulator = match &self.emulator {
            Emulator::Netem { node, .. } => Some(node),
            Emulator::Path(_) => None,
        };
        let senders = self.hosts.iter().chain([&self.bridge, &self.router]);
        senders.chain(emulator).chain([&self.receiver])
    }

    /// The machines where connections end: the sending hosts and the receiver.
    pub fn endpoints(&self) -> impl Iterator<Item = &Node> {
        self.hosts.iter().chain([&self.receiver])
    }

    /// Has the ends send nothing more, so that counters come to rest: TCP would go on to retransmit
    /// closes whose answers were lost.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn silence(&self) -> Result<(), Error> {
        for node in self.endpoints() {
            node.run("ip route replace blackhole default")?;
        }
        Ok(())
    }
}

/// Sets up a machine at an end of the testbed, with one router to all others, by a route that has
/// these words of `ip` as well.
fn set_up_end(port: Port, address: Ipv4Addr, router: Ipv4Addr, words: &str) -> Result<(), Error> {
    let mut lines = port.raise(address).to_vec();
    lines.push(port.meet(router));
    let device = port.device;
    lines.push(format!(
        "route add default via {router} dev {device}{words}"
    ));
    port.node.set_up(lines)
}

/// What `ip` is told of the window, in segments, that connections by a route begin with.
fn initial_window(segments: Option<u32>) -> String {
    segments.map_or_else(String::new, |segments| format!(" initcwnd {segments}"))
}

fn set_all(node: &Node, sysctls: &Sysctls) -> Result<(), Error> {
    sysctls
        .iter()
        .try_for_each(|(name, value)| node.set(name, value))
}

/// The record of what was done for a run, a line each with its time in seconds.
#[derive(Debug, Clone)]
pub struct Log(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    begun: Instant,
    file: Mutex<File>,
}

impl Log {
    /// Begins a log; its times count from now.
    ///
    /// # Errors
    /// The system's, of making the file.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            begun: Instant::now(),
            file: Mutex::new(File::create_new(path)?),
        })))
    }

    /// Adds a line to the log. One that cannot be written is left out: what is measured matters
    /// more.
    pub fn say(&self, line: &str) {
        let elapsed = self.0.begun.elapsed().as_secs_f64();
        let mut file = self.0.file.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(file, "{elapsed:.6} {line}");
    }
}

const LONGEST: Duration = Duration::from_secs(10);
const BETWEEN: Duration = Duration::from_millis(100);

/// Waits until every device of these machines forwards: after its other end has come up, it takes
/// a second until the kernel takes note, and a bridge drops all until then, the first SYNs too.
///
/// # Errors
/// [`Error::System`] if a device does not come up.
fn settle<'a>(nodes: impl Iterator<Item = &'a Node>) -> Result<(), Error> {
    let begun = Instant::now();
    for node in nodes {
        while let Some(device) = resting(node)? {
            if begun.elapsed() > LONGEST {
                let what = format!("{device} of {} does not come up", node.name);
                return Err(Error::System {
                    action: "bring up the testbed's devices",
                    source: io::Error::new(io::ErrorKind::TimedOut, what),
                });
            }
            thread::sleep(BETWEEN);
        }
    }
    Ok(())
}

/// The name of a device of the machine that has no carrier yet.
fn resting(node: &Node) -> Result<Option<String>, Error> {
    let found = node.enter(|| {
        let mut devices = getifaddrs()?;
        let resting = devices.find(|device| is_resting(device.flags));
        Ok(resting.map(|device| device.interface_name))
    })?;
    found.map_err(|errno: Errno| Error::System {
        action: "see whether devices have come up",
        source: errno.into(),
    })
}

fn is_resting(flags: InterfaceFlags) -> bool {
    flags.contains(InterfaceFlags::IFF_UP) && !flags.contains(InterfaceFlags::IFF_RUNNING)
}

/// A run for the tests of parts.
#[cfg(test)]
pub(crate) mod tests {
    use crate::settings::experiment::Plan;

    /// A plan of two thin streams and three greedy ones from a host each, 5 Mbit/s, 150 ms.
    pub(crate) fn plan() -> Plan {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.toml");
        let text = "\
duration = 1
bottleneck = { rate = 5, limit = 63 }
path.rtt = 150
group.a-thin = { streams = 2, itt = 30 }
group.b-greedy = { streams = 3, kind = \"greedy\" }
";
        std::fs::write(&file, text).unwrap();
        crate::settings::experiment::load_run(&file).unwrap().plan
    }
}
