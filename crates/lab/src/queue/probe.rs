use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ProgramMut, RingBuffer, RingBufferBuilder};

use pillion_bpf::host::interruption::without_signals;
use pillion_bpf::host::libbpf::Messages;

use crate::queue::contract::{QueueProbeSkelBuilder, types};
use crate::queue::{Error, Packet, Target};

/// Watches the queue of one device; detached when dropped.
#[derive(Debug)]
pub(crate) struct Probe {
    links: Vec<Link>,
    /// Those whose not being run is counted.
    counted: Vec<OwnedFd>,
    packets: MapHandle,
    records: MapHandle,
    counters: MapHandle,
    told: u64,
}

const RECORD: usize = size_of::<types::queued>();

impl Probe {
    /// Begins to watch the queue of a device.
    pub(crate) fn start(target: &Target) -> Result<Self, Error> {
        let messages = Messages::keep();
        let mut storage = MaybeUninit::uninit();
        let mut open = QueueProbeSkelBuilder::default()
            .open(&mut storage)
            .map_err(|error| messages.explain(&error))?;
        let rodata = open.maps.rodata_data.as_mut();
        let rodata = rodata.expect("the programs have read-only data");
        rodata.device = target.index;
        rodata.netns = target.netns;
        let skel = without_signals(|| open.load()).map_err(|error| messages.explain(&error))?;
        let map = |map| MapHandle::try_from(map).map_err(|error| messages.explain(&error));
        let programs = &skel.progs;
        let mut probe = Self {
            links: Vec::new(),
            counted: Vec::new(),
            packets: map(&skel.maps.queue_packets)?,
            records: map(&skel.maps.queue_records)?,
            counters: map(&skel.maps.bss)?,
            told: 0,
        };
        // Ends before arrivals: what has arrived is not missed later.
        let mut attach = |program: &ProgramMut<'_>, tracepoint: &str| {
            let link = program.attach_raw_tracepoint(tracepoint);
            let link = link.map_err(|error| messages.explain(&error))?;
            probe.links.push(link);
            Ok::<_, Error>(())
        };
        attach(&programs.queue_departure, "qdisc_dequeue")?;
        attach(&programs.queue_drop, "kfree_skb")?;
        attach(&programs.queue_bypass, "net_dev_start_xmit")?;
        attach(&programs.queue_consumption, "consume_skb")?;
        attach(&programs.queue_acceptance, "qdisc_enqueue")?;
        attach(&programs.queue_arrival, "net_dev_queue")?;
        // The two that hear of every packet that the host frees are often interrupted, by packets
        // of other devices most of all. What they miss of this one is in the table still, and told
        // as unseen.
        for program in [
            &programs.queue_departure,
            &programs.queue_bypass,
            &programs.queue_acceptance,
            &programs.queue_arrival,
        ] {
            let fd = program.as_fd().try_clone_to_owned();
            let fd = fd.map_err(|error| Error::system("keep a program", error))?;
            probe.counted.push(fd);
        }
        Ok(probe)
    }

    /// Opens a reader of what the probe has seen, and will see.
    pub(crate) fn reader(&self) -> Result<Reader, Error> {
        let found = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&found);
        let mut builder = RingBufferBuilder::new();
        let callback = move |bytes: &[u8]| {
            sink.borrow_mut().extend(parse(bytes));
            0
        };
        builder.add(&self.records, callback).map_err(unreadable)?;
        let ring = builder.build().map_err(unreadable)?;
        Ok(Reader { ring, found })
    }

    /// How many packets, or their ends, could not be noted since the last call.
    pub(crate) fn missed(&mut self) -> u64 {
        let counters = self.counters.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let counters = counters.ok().flatten().unwrap_or_default();
        let count = |chunk: &[u8]| chunk.try_into().map_or(0, u64::from_ne_bytes);
        let noted: u64 = counters.chunks(size_of::<u64>()).map(count).sum();
        let skipped: u64 = self.counted.iter().map(recursion_misses).sum();
        let all = noted + skipped;
        let new = all.saturating_sub(self.told);
        self.told = all;
        new
    }

    /// Detaches the probe: it watches no longer.
    pub(crate) fn detach(&mut self) {
        self.links.clear();
    }

    /// The packets whose end was not seen.
    pub(crate) fn left_over(&self) -> Vec<Packet> {
        let values = self
            .packets
            .keys()
            .filter_map(|key| self.packets.lookup(&key, MapFlags::ANY).ok().flatten());
        let mut packets: Vec<_> = values.filter_map(|value| parse(&value)).collect();
        packets.sort_by_key(|packet| packet.arrived_ns);
        packets
    }
}

/// Reads what a probe has seen.
pub(crate) struct Reader {
    ring: RingBuffer<'static>,
    found: Rc<RefCell<Vec<Packet>>>,
}

impl Reader {
    /// Takes the packets whose fate was seen since the last call.
    pub(crate) fn take(&self) -> Result<Vec<Packet>, Error> {
        self.ring.consume().map_err(unreadable)?;
        Ok(self.found.take())
    }
}

fn unreadable(error: libbpf_rs::Error) -> Error {
    Error::system("read the queue's events", io::Error::other(error))
}

fn parse(bytes: &[u8]) -> Option<Packet> {
    if bytes.len() < RECORD {
        return None;
    }
    // SAFETY: plain integers, of which any bits are valid; the length was checked.
    let raw = unsafe { bytes.as_ptr().cast::<types::queued>().read_unaligned() };
    Some(Packet::from(&raw))
}

/// How often a program was not run because it was running already, on the same processor.
fn recursion_misses(program: &OwnedFd) -> u64 {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: the structure and its length live on this stack and have the sizes stated.
    let result = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut length)
    };
    if result == 0 {
        info.recursion_misses
    } else {
        0
    }
}
