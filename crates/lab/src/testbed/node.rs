//! The hosts of the testbed: network namespaces, devices, addresses.

use std::fs;
use std::io;
use std::iter;
use std::net::Ipv4Addr;

use pillion_bpf::host::Offload;
use serde::de::DeserializeOwned;

use super::Log;
use crate::settings::experiment::Mechanism;
use crate::{Error, Namespace, kernel_release};

/// A machine of a testbed: a network namespace and a name.
#[derive(Debug, Clone)]
pub struct Node {
    /// The machine's name in messages and files.
    pub name: String,
    /// The machine's network namespace.
    pub namespace: Namespace,
    log: Log,
}

impl Node {
    /// Creates an empty machine without IPv6, so that only the studied packets pass its devices.
    pub(super) fn create(name: &str, log: &Log) -> Result<Self, Error> {
        let namespace = Namespace::create().map_err(|source| Error::Namespace {
            name: name.to_owned(),
            source,
        })?;
        let node = Self {
            name: name.to_owned(),
            namespace,
            log: log.clone(),
        };
        node.enter(disable_ipv6)?.map_err(|source| {
            let action = "switch IPv6 off";
            Error::System { action, source }
        })?;
        Ok(node)
    }

    /// Runs `work` inside the machine and waits for its result.
    pub(crate) fn enter<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.namespace
            .enter(work)
            .map_err(|source| Error::Namespace {
                name: self.name.clone(),
                source,
            })
    }

    /// Runs a command inside the machine and returns its output; its words contain no spaces.
    ///
    /// # Errors
    /// [`Error::Command`] with the command's error output.
    pub fn run(&self, command: &str) -> Result<String, Error> {
        self.run_with(command, "")
    }

    /// Runs a command inside the machine and parses its output as JSON.
    ///
    /// # Errors
    /// As [`Node::run`], and for invalid JSON.
    pub(crate) fn run_json<T: DeserializeOwned>(&self, command: &str) -> Result<T, Error> {
        let text = self.run(command)?;
        serde_json::from_str(&text).map_err(|error| Error::Command {
            command: command.to_owned(),
            host: self.name.clone(),
            reason: format!("invalid JSON: {error}"),
        })
    }

    /// Configures the machine's devices by one batch of `ip` commands, the loopback device first.
    pub(super) fn set_up(&self, lines: impl IntoIterator<Item = String>) -> Result<(), Error> {
        let loopback = "link set lo up".to_owned();
        let lines: Vec<_> = iter::once(loopback).chain(lines).collect();
        self.run_batch("ip", &lines)
    }

    /// Runs a batch of `ip` or `tc` commands inside the machine. In the virtual engine, the start
    /// of a program takes as long as a hundred commands.
    ///
    /// # Errors
    /// [`Error::Command`] with the first failed command and its error output.
    pub(super) fn run_batch(&self, program: &str, lines: &[String]) -> Result<(), Error> {
        if lines.is_empty() {
            return Ok(());
        }
        for line in lines {
            self.log.log(&format!("{}: {program} {line}", self.name));
        }
        let input = lines.join("\n") + "\n";
        let done = self.run_with(&format!("{program} -batch -"), &input);
        done.map(drop).map_err(|error| match error {
            Error::Command {
                reason,
                host,
                command,
            } => {
                let (command, reason) = match failed_command(&reason, lines) {
                    Some((line, output)) => (format!("{program} {line}"), output),
                    None => (command, reason),
                };
                Error::Command {
                    command,
                    host,
                    reason,
                }
            }
            other => other,
        })
    }

    fn run_with(&self, command: &str, input: &str) -> Result<String, Error> {
        self.log.log(&format!("{}: {command}", self.name));
        let failed = |reason: String| Error::Command {
            command: command.to_owned(),
            host: self.name.clone(),
            reason,
        };
        let mut words = command.split_whitespace();
        let program = words.next().unwrap_or_default();
        let arguments: Vec<_> = words.collect();
        let missing = |error| failed(format!("{error}; the live engine needs iproute2"));
        let output = self.namespace.run(program, &arguments, input);
        let output = output.map_err(missing)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let output = String::from_utf8_lossy(&output.stderr);
        Err(failed(output.trim().replace('\n', "; ")))
    }

    /// Sets a sysctl in the machine's network namespace.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the kernel does not have the sysctl, [`Error::Sysctl`].
    pub(super) fn set(&self, name: &str, value: &str) -> Result<(), Error> {
        self.log
            .log(&format!("{}: sysctl {name}={value}", self.name));
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let written = value.to_owned();
        let result = self.enter(move || fs::write(path, written))?;
        let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let mechanism = Mechanism::all().find(|mechanism| mechanism.sysctl() == name);
        result.map_err(|source| match mechanism {
            Some(mechanism) if absent(&source) => Error::Unsupported {
                feature: format!("the mechanism {} ({name})", mechanism.name()),
                kernel: kernel_release(),
            },
            _ => Error::Sysctl {
                host: self.name.clone(),
                setting: format!("{name}={value}"),
                source: match absent(&source) {
                    true => {
                        io::Error::other("this kernel has no such sysctl in a network namespace")
                    }
                    false => source,
                },
            },
        })
    }
}

/// Returns the failed command from the output of `ip` or `tc`, and its error text.
fn failed_command<'a>(output: &str, lines: &'a [String]) -> Option<(&'a str, String)> {
    let (output, number) = output.rsplit_once("Command failed -:")?;
    let number: usize = number.trim().parse().ok()?;
    let line = lines.get(number.checked_sub(1)?)?;
    Some((line, output.trim_end_matches([' ', ';']).to_owned()))
}

/// Disables IPv6 in this thread's network namespace, so that the kernel sends no router
/// solicitations or multicast reports and a path carries only the studied packets.
///
/// # Errors
/// Errors of writing the sysctl; a kernel without IPv6 is not an error.
pub fn disable_ipv6() -> io::Result<()> {
    match fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1") {
        // The kernel has no IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// A device of a machine: one end of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Port<'a> {
    pub(super) node: &'a Node,
    pub(super) device: &'a str,
}

/// Turns the machine at the second ends of these cables into a bridge. The cables have no queue;
/// their other ends are still down.
pub(super) fn build_bridge(cables: &[[Port; 2]]) -> Result<(), Error> {
    let Some([_, hub]) = cables.first() else {
        return Ok(());
    };
    // The kernel checks that a new device's name is also unused in the namespace of the command.
    let pairs = cables
        .iter()
        .map(|[one, other]| format!("link add {} type veth peer name {}", one.end(), other.end()));
    let bridge = "link add bridge type bridge stp_state 0 mcast_snooping 0 forward_delay 0";
    let ports = cables.iter();
    let ports = ports.map(|[_, port]| format!("link set {} master bridge up", port.device));
    let up = "link set bridge up".to_owned();
    let lines = pairs.chain([bridge.to_owned()]).chain(ports).chain([up]);
    hub.node.set_up(lines)?;
    let mut ends = cables.iter().flatten();
    ends.try_for_each(|end| end.disable_offloads())
}

impl Port<'_> {
    /// Makes every TCP segment a packet of its own (thesis, appendix B): the kernel neither merges
    /// segments nor leaves their segmentation to the device.
    pub(super) fn send_whole_segments(self) -> Result<(), Error> {
        self.disable_offloads()?;
        let command = format!("ip link set {} gso_max_segs 1", self.device);
        self.node.run(&command).map(drop)
    }

    fn disable_offloads(self) -> Result<(), Error> {
        let off = |device: &str| {
            let mut offloads = Offload::SEGMENTS.iter();
            offloads.try_for_each(|offload| offload.switch_off(device))
        };
        let device = self.device.to_owned();
        let action = "disable segmentation offloads";
        let done = self.node.enter(move || off(&device))?;
        done.map_err(|source| Error::System { action, source })
    }

    /// Returns the end of a cable as arguments of `ip`. Every segment is a packet of its own there,
    /// see [`Port::send_whole_segments`].
    fn end(self) -> String {
        let namespace = self.node.namespace.path();
        let (device, namespace) = (self.device, namespace.display());
        format!("{device} netns {namespace} txqueuelen 0 gso_max_segs 1")
    }

    /// Returns commands of `ip` that set the device's address, in a /24 network, and bring it up.
    pub(super) fn bring_up(self, address: Ipv4Addr) -> [String; 2] {
        let (device, hardware) = (self.device, hardware(address));
        [
            format!("link set {device} address {hardware} up"),
            format!("address add {address}/24 dev {device}"),
        ]
    }

    /// Returns a command of `ip` that adds a permanent neighbour, so that no ARP request can be
    /// lost.
    pub(super) fn add_neighbour(self, address: Ipv4Addr) -> String {
        let (device, hardware) = (self.device, hardware(address));
        format!("neighbour add {address} lladdr {hardware} dev {device} nud permanent")
    }
}

/// Returns the hardware address of the device with this IP address.
pub(super) fn hardware(address: Ipv4Addr) -> String {
    let [_, _, network, host] = address.octets();
    format!("02:77:00:00:{network:02x}:{host:02x}")
}

/// Returns the address of a sending host, by its number.
pub(super) fn sender_address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 1, host as u8 + 1)
}

/// The address of the router, towards the senders.
pub(super) const ROUTER_IN: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 254);

/// The address of the router, towards the receiver.
pub(super) const ROUTER_OUT: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 254);

/// The address of the receiver.
pub const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_command_of_batch_is_named() {
        let lines = ["qdisc add dev lo root pfifo", "qdisc add dev lo root cake"];
        let lines = lines.map(str::to_owned);
        let output = "Error: Specified qdisc kind is unknown.; Command failed -:2";
        let why = "Error: Specified qdisc kind is unknown.".to_owned();
        assert_eq!(failed_command(output, &lines), Some((&*lines[1], why)));
        for strange in [
            "",
            "Command failed -:",
            "Command failed -:0",
            "Command failed -:3",
        ] {
            assert_eq!(failed_command(strange, &lines), None, "{strange}");
        }
    }
}
