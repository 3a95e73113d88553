//! The testbed of the papers (LCN 2015, section IV.B; thesis, chapter 3), built from network
//! namespaces.
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

pub use bottleneck::{ListedLoss, QUEUE_HANDLE};
pub use emulator::Emulator;
pub use node::{Node, RECEIVER, disable_ipv6};

/// The device name of a sending host, and of the receiver.
pub const DEVICE: &str = "eth0";

/// The device name of the bridge and of the emulator towards the router.
pub const TO_ROUTER: &str = emulator::TO_ROUTER;

/// The router's device towards the emulator, with the bottleneck's queue.
pub const OUT: &str = "out";

/// The router's device towards the senders, with the return path's queue if there is one.
pub const IN: &str = "in";

/// All machines of a run, connected and configured. A machine vanishes with the last reference to
/// it.
#[derive(Debug)]
pub struct Testbed {
    /// The sending hosts, in the order of [`Plan::hosts`].
    pub hosts: Vec<Node>,
    /// The bridge, where the senders' trace is captured.
    pub bridge: Node,
    /// The router, with the bottleneck's rate and queue.
    pub router: Node,
    /// The emulator of the path between router and receiver.
    pub emulator: Emulator,
    /// The receiver of all streams.
    pub receiver: Node,
}

impl Testbed {
    /// Builds the testbed of a run; nothing is sent yet. With `own_path`, uses pillion's own path
    /// even if the kernel has netem.
    ///
    /// # Errors
    /// [`Error::Command`], [`Error::Namespace`], [`Error::Sysctl`], [`Error::Path`];
    /// [`Error::Unsupported`] if this kernel does not support the run.
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
        let mut router_commands = to_hosts.bring_up(ROUTER_IN).to_vec();
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
            router_commands.push(to_hosts.add_neighbour(address));
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
        router_commands.extend(out.bring_up(ROUTER_OUT));
        router_commands.push(out.add_neighbour(RECEIVER));
        router.set_up(router_commands)?;
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
        wait_for_carrier(testbed.nodes())?;
        Ok(testbed)
    }

    /// Returns a sending host's address, by its number.
    #[must_use]
    pub fn address(host: usize) -> Ipv4Addr {
        sender_address(host)
    }

    /// Returns all machines of the testbed, from the senders to the receiver.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        let emulator = match &self.emulator {
            Emulator::Netem { node, .. } => Some(node),
            Emulator::Path(_) => None,
        };
        let senders = self.hosts.iter().chain([&self.bridge, &self.router]);
        senders.chain(emulator).chain([&self.receiver])
    }

    /// Returns the machines with connections: the sending hosts and the receiver.
    pub fn endpoints(&self) -> impl Iterator<Item = &Node> {
        self.hosts.iter().chain([&self.receiver])
    }

    /// Stops all transmissions of the endpoints, so that counters stay constant. TCP would
    /// otherwise retransmit FINs whose answers were lost.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn stop_sending(&self) -> Result<(), Error> {
        for node in self.endpoints() {
            node.run("ip route replace blackhole default")?;
        }
        Ok(())
    }
}

/// Sets up a machine at an end of the testbed, with a default route through one router; `words` are
/// further arguments of `ip` for the route.
fn set_up_end(port: Port, address: Ipv4Addr, router: Ipv4Addr, words: &str) -> Result<(), Error> {
    let mut lines = port.bring_up(address).to_vec();
    lines.push(port.add_neighbour(router));
    let device = port.device;
    lines.push(format!(
        "route add default via {router} dev {device}{words}"
    ));
    port.node.set_up(lines)
}

/// Returns the argument of `ip` for a route's initial congestion window, in segments.
fn initial_window(segments: Option<u32>) -> String {
    segments.map_or_else(String::new, |segments| format!(" initcwnd {segments}"))
}

fn set_all(node: &Node, sysctls: &Sysctls) -> Result<(), Error> {
    sysctls
        .iter()
        .try_for_each(|(name, value)| node.set(name, value))
}

/// The log of a run's setup, one line per step with its time in seconds.
#[derive(Debug, Clone)]
pub struct Log(Arc<LogState>);

#[derive(Debug)]
struct LogState {
    started: Instant,
    file: Mutex<File>,
}

impl Log {
    /// Creates a log; its times count from now.
    ///
    /// # Errors
    /// Errors of creating the file.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(LogState {
            started: Instant::now(),
            file: Mutex::new(File::create_new(path)?),
        })))
    }

    /// Adds a line to the log. Ignores write errors, because the measurement matters more.
    pub fn log(&self, line: &str) {
        let elapsed = self.0.started.elapsed().as_secs_f64();
        let mut file = self.0.file.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(file, "{elapsed:.6} {line}");
    }
}

const CARRIER_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until every device of these machines forwards. After its other end is up, the kernel takes
/// up to a second to notice. Until then, a bridge drops all packets, including the first SYNs.
///
/// # Errors
/// [`Error::System`] if a device does not come up.
fn wait_for_carrier<'a>(nodes: impl Iterator<Item = &'a Node>) -> Result<(), Error> {
    let started = Instant::now();
    for node in nodes {
        while let Some(device) = device_without_carrier(node)? {
            if started.elapsed() > CARRIER_TIMEOUT {
                let what = format!("{device} of {} does not come up", node.name);
                return Err(Error::System {
                    action: "bring up the testbed's devices",
                    source: io::Error::new(io::ErrorKind::TimedOut, what),
                });
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(())
}

/// Returns the name of a device of the machine without carrier.
fn device_without_carrier(node: &Node) -> Result<Option<String>, Error> {
    let found = node.enter(|| {
        let mut devices = getifaddrs()?;
        let device_without_carrier = devices.find(|device| lacks_carrier(device.flags));
        Ok(device_without_carrier.map(|device| device.interface_name))
    })?;
    found.map_err(|errno: Errno| Error::System {
        action: "check whether devices are up",
        source: errno.into(),
    })
}

fn lacks_carrier(flags: InterfaceFlags) -> bool {
    flags.contains(InterfaceFlags::IFF_UP) && !flags.contains(InterfaceFlags::IFF_RUNNING)
}

/// A run for unit tests.
#[cfg(test)]
pub(crate) mod tests {
    use crate::settings::experiment::Plan;

    /// Returns a plan of two thin streams and three greedy ones, each from its own host, 5 Mbit/s,
    /// 150 ms.
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
