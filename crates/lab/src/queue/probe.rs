//! The probe of one device: its programs, the reasons of drops, and its errors.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, EnumMember};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ProgramMut, RingBuffer, RingBufferBuilder};
use nix::net::if_::{if_nameindex, if_nametoindex};
use pillion_bpf::host::interruption::without_signals;
use pillion_bpf::host::libbpf::{LibbpfLog, LoadError};

use crate::queue::Packet;
use crate::queue::contract::{QueueProbeSkelBuilder, types};

/// Observes the queue of one device; dropping it detaches the programs.
#[derive(Debug)]
pub(crate) struct Probe {
    links: Vec<Link>,
    /// Programs whose missed runs are counted.
    counted: Vec<OwnedFd>,
    packets: MapHandle,
    records: MapHandle,
    counters: MapHandle,
    reported: u64,
}

const RECORD: usize = size_of::<types::queued>();

impl Probe {
    /// Starts to observe the queue of a device.
    pub(crate) fn start(target: &Target) -> Result<Self, Error> {
        let messages = LibbpfLog::capture();
        let mut storage = MaybeUninit::uninit();
        let mut open = QueueProbeSkelBuilder::default()
            .open(&mut storage)
            .map_err(|error| messages.to_error(&error))?;
        let rodata = open.maps.rodata_data.as_mut();
        let rodata = rodata.expect("the programs have read-only data");
        rodata.device = target.index;
        rodata.netns = target.netns;
        let skel = without_signals(|| open.load()).map_err(|error| messages.to_error(&error))?;
        let map = |map| MapHandle::try_from(map).map_err(|error| messages.to_error(&error));
        let programs = &skel.progs;
        let mut probe = Self {
            links: Vec::new(),
            counted: Vec::new(),
            packets: map(&skel.maps.queue_packets)?,
            records: map(&skel.maps.queue_records)?,
            counters: map(&skel.maps.bss)?,
            reported: 0,
        };
        // Attach the ends before the arrivals, so that no end of an observed arrival is missed.
        let mut attach = |program: &ProgramMut<'_>, tracepoint: &str| {
            let link = program.attach_raw_tracepoint(tracepoint);
            let link = link.map_err(|error| messages.to_error(&error))?;
            probe.links.push(link);
            Ok::<_, Error>(())
        };
        attach(&programs.queue_departure, "qdisc_dequeue")?;
        attach(&programs.queue_drop, "kfree_skb")?;
        attach(&programs.queue_bypass, "net_dev_start_xmit")?;
        attach(&programs.queue_consumption, "consume_skb")?;
        attach(&programs.queue_acceptance, "qdisc_enqueue")?;
        attach(&programs.queue_arrival, "net_dev_queue")?;
        // The two programs that run for every packet freed by the host are often interrupted,
        // mostly by packets of other devices. Packets of this device that they miss remain in the
        // table, and are reported as unseen.
        for program in [
            &programs.queue_departure,
            &programs.queue_bypass,
            &programs.queue_acceptance,
            &programs.queue_arrival,
        ] {
            let fd = program.as_fd().try_clone_to_owned();
            let fd =
                fd.map_err(|error| Error::system("duplicate a program's descriptor", error))?;
            probe.counted.push(fd);
        }
        Ok(probe)
    }

    /// Opens a reader of past and future observations.
    pub(crate) fn reader(&self) -> Result<Reader, Error> {
        let found = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&found);
        let mut builder = RingBufferBuilder::new();
        let callback = move |bytes: &[u8]| {
            sink.borrow_mut().extend(parse(bytes));
            0
        };
        builder.add(&self.records, callback).map_err(read_error)?;
        let ring = builder.build().map_err(read_error)?;
        Ok(Reader { ring, found })
    }

    /// Returns the number of packets, or ends of packets, that were not recorded since the last
    /// call.
    pub(crate) fn missed(&mut self) -> u64 {
        let counters = self.counters.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let counters = counters.ok().flatten().unwrap_or_default();
        let count = |chunk: &[u8]| chunk.try_into().map_or(0, u64::from_ne_bytes);
        let noted: u64 = counters.chunks(size_of::<u64>()).map(count).sum();
        let skipped: u64 = self.counted.iter().map(recursion_misses).sum();
        let all = noted + skipped;
        let new = all.saturating_sub(self.reported);
        self.reported = all;
        new
    }

    /// Detaches the programs.
    pub(crate) fn detach(&mut self) {
        self.links.clear();
    }

    /// Returns the packets without an observed end.
    pub(crate) fn remaining(&self) -> Vec<Packet> {
        let values = self
            .packets
            .keys()
            .filter_map(|key| self.packets.lookup(&key, MapFlags::ANY).ok().flatten());
        let mut packets: Vec<_> = values.filter_map(|value| parse(&value)).collect();
        packets.sort_by_key(|packet| packet.arrived_ns);
        packets
    }
}

/// Reads the probe's observations.
pub(crate) struct Reader {
    ring: RingBuffer<'static>,
    found: Rc<RefCell<Vec<Packet>>>,
}

impl Reader {
    /// Returns the packets whose disposition was observed since the last call.
    pub(crate) fn take(&self) -> Result<Vec<Packet>, Error> {
        self.ring.consume().map_err(read_error)?;
        Ok(self.found.take())
    }
}

fn read_error(error: libbpf_rs::Error) -> Error {
    Error::system("read the queue's events", io::Error::other(error))
}

fn parse(bytes: &[u8]) -> Option<Packet> {
    if bytes.len() < RECORD {
        return None;
    }
    // SAFETY: plain integers, for which all bits are valid; the length was checked.
    let raw = unsafe { bytes.as_ptr().cast::<types::queued>().read_unaligned() };
    Some(Packet::from(&raw))
}

/// Returns how often a program was skipped because it was running already, on the same processor.
fn recursion_misses(program: &OwnedFd) -> u64 {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: the structure and its length live on this stack and have the stated sizes.
    let result = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut length)
    };
    if result == 0 {
        info.recursion_misses
    } else {
        0
    }
}

/// The kernel's names for the reasons of drops. Their numbers differ between kernel versions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reasons(BTreeMap<u32, String>);

impl Reasons {
    /// Returns the reasons of the running kernel; empty without BTF.
    #[must_use]
    pub fn from_running_kernel() -> Self {
        let Ok(btf) = Btf::from_vmlinux() else {
            return Self::default();
        };
        let Some(names) = btf.type_by_name::<Enum<'_>>("skb_drop_reason") else {
            return Self::default();
        };
        let name = |member: EnumMember<'_>| {
            let name = member.name?.to_str()?;
            let name = name.strip_prefix("SKB_DROP_REASON_").unwrap_or(name);
            Some((u32::try_from(member.value).ok()?, name.to_owned()))
        };
        Self(names.iter().filter_map(name).collect())
    }

    /// Returns the name of a number, such as `QDISC_OVERLIMIT`; for an unknown one, the number.
    #[must_use]
    pub fn name(&self, reason: u32) -> String {
        let name = self.0.get(&reason).cloned();
        name.unwrap_or_else(|| format!("reason {reason}"))
    }

    /// Returns the number of a name; adds unknown names with a new number.
    pub fn number(&mut self, name: &str) -> u32 {
        let existing = self.0.iter().find(|(_, existing)| *existing == name);
        let last = self.0.last_key_value();
        let next = last.map_or(1, |(number, _)| number.saturating_add(1));
        let number = existing.map_or(next, |(number, _)| *number);
        self.0.entry(number).or_insert_with(|| name.to_owned());
        number
    }
}

/// A device whose queue is to be observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The device's name.
    pub device: String,
    /// Interface index.
    pub(crate) index: u32,
    /// Inode number of the device's network namespace; 0 if the kernel has only one.
    pub(crate) netns: u32,
}

impl Target {
    /// Finds a device in the calling thread's network namespace. A later device of the same name,
    /// or the device in another namespace, does not match.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`].
    pub fn find(device: &str) -> Result<Self, Error> {
        let index = if_nametoindex(device).map_err(|_| Error::UnknownDevice {
            name: device.to_owned(),
            available: device_names(),
        })?;
        let netns = fs::metadata("/proc/thread-self/ns/net").map(|file| file.ino());
        Ok(Self {
            device: device.to_owned(),
            index,
            netns: netns
                .ok()
                .and_then(|inode| inode.try_into().ok())
                .unwrap_or(0),
        })
    }
}

fn device_names() -> String {
    let names: Vec<_> = if_nameindex()
        .iter()
        .flat_map(|devices| devices.iter())
        .map(|device| device.name().to_string_lossy().into_owned())
        .collect();
    names.join(", ")
}

/// Why a queue could not be observed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The network namespace has no such device.
    #[error("no network device `{name}` here: expected one of {available}")]
    UnknownDevice {
        /// The requested name.
        name: String,
        /// The names of the existing devices.
        available: String,
    },
    /// The process lacks privileges.
    #[error(
        "observe the queue: not permitted; run as root, or with the capabilities CAP_BPF and \
         CAP_PERFMON"
    )]
    NotPermitted,
    /// The kernel rejected the programs.
    #[error(
        "the kernel rejected the queue probe: {reason}; it needs Linux 5.17 with \
         CONFIG_BPF_EVENTS and CONFIG_DEBUG_INFO_BTF"
    )]
    Load {
        /// The message of libbpf.
        reason: String,
    },
    /// The events could not be written.
    #[error("write the queue's events: {0}")]
    Write(io::Error),
    /// Any other failure of a system call.
    #[error("{action}: {source}")]
    System {
        /// The failed action.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl Error {
    /// Returns true if the request has to change, rather than the machine.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::UnknownDevice { .. })
    }

    /// Converts a failed system call; lack of privileges has its own error.
    pub(crate) fn system(action: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted,
            _ => Self::System { action, source },
        }
    }
}

impl From<LoadError> for Error {
    fn from(refusal: LoadError) -> Self {
        match refusal {
            LoadError::NotPermitted => Self::NotPermitted,
            LoadError::Reason(reason) => Self::Load { reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_reason_is_named_by_number() {
        let reasons = Reasons(BTreeMap::from([(2, "NOT_SPECIFIED".to_owned())]));
        assert_eq!(reasons.name(2), "NOT_SPECIFIED");
        assert_eq!(reasons.name(77), "reason 77");
    }

    #[test]
    fn reason_name_has_one_number() {
        let mut reasons = Reasons::default();
        let numbers = ["A", "B", "A"].map(|name| reasons.number(name));
        assert_eq!(numbers, [1, 2, 1]);
        assert_eq!(numbers.map(|number| reasons.name(number)), ["A", "B", "A"]);
    }

    #[test]
    fn device_is_found_by_name_and_error_lists_others() {
        let target = Target::find("lo").unwrap();
        assert_eq!((target.device.as_str(), target.index), ("lo", 1));
        let message = Target::find("nosuch0").unwrap_err().to_string();
        assert!(
            message.contains("`nosuch0`") && message.contains("lo"),
            "{message}"
        );
    }
}
