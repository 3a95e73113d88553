//! Measures `pillion-lab analyse` and tcptrace, if installed, on traces of 1.1 million packets each:
//! `cargo build --release -p pillion-lab`, then `cargo bench -p pillion-trace --bench files`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pillion_trace::input;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Argument that requests writing the traces.
const WRITE: &str = "write";
/// Number of rounds; the best counts.
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match &arguments[..] {
        [word, workload, here, there] if word == Path::new(WRITE) => {
            let named = |it: &&Workload| Path::new(it.name) == workload;
            let workload = WORKLOADS.iter().find(named).ok_or("unknown workload")?;
            Ok(workload.write(here, there)?)
        }
        _ => WORKLOADS.iter().try_for_each(compare),
    }
}

fn compare(workload: &Workload) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let [here, there] = ["here", "there"].map(|name| folder.path().join(name));
    // The kernel's peak memory of a process includes that of its parent at the fork, so this
    // process must stay small.
    let own = std::env::current_exe()?;
    let write = [Path::new(WRITE), Path::new(workload.name)];
    ResourceUsage::measure(Command::new(&own).args(write).args([&here, &there]))?;
    let count = |trace: &Path| -> io::Result<usize> {
        Ok(input::open(trace).map_err(io::Error::other)?.count())
    };
    let (sent, all) = (count(&here)?, count(&here)? + count(&there)?);
    println!("{}:", workload.name);
    println!("| program | traces | s | million packets/s | per CPU second | peak memory, MB |");
    println!("|---|---|---|---|---|---|");
    let lab = own.ancestors().nth(2).unwrap_or(&own).join("pillion-lab");
    let lab = &*lab.to_string_lossy();
    let (analyse, analyse_both) = ([lab, "analyse"], [lab, "analyse", "--receiver"]);
    let mut rows: Vec<_> = [
        (&analyse[..], 1),
        (&analyse_both, 2),
        (&["tcptrace", "-n", "-l"], 1),
        (&["tcptrace", "-n", "-l"], 2),
    ]
    .map(|(words, traces)| {
        let mut command = Command::new(words[0]);
        let files = [&there, &here].into_iter().skip(2 - traces);
        command.args(&words[1..]).args(files);
        (words, traces, command, Vec::new())
    })
    .into();
    // In turns, because the machine's speed changes with time.
    for _ in 0..ROUNDS {
        for (.., command, rounds) in &mut rows {
            rounds.extend(ResourceUsage::measure(command));
        }
    }
    for (words, traces, _, rounds) in rows {
        let packets = if traces == 1 { sent } else { all };
        row(
            &words.join(" ").replace(lab, "pillion-lab"),
            traces,
            packets,
            &rounds,
        );
    }
    Ok(())
}

fn row(name: &str, traces: usize, packets: usize, rounds: &[ResourceUsage]) {
    let fastest = |of: fn(&ResourceUsage) -> Duration| rounds.iter().map(of).min();
    let (Some(time), Some(cpu)) = (fastest(|cost| cost.time), fastest(|cost| cost.cpu)) else {
        println!("| {name} | {traces} | is not installed | | | |");
        return;
    };
    let rate = |time: Duration| packets as f64 / time.as_secs_f64() / 1e6;
    let peak = rounds.iter().map(|cost| cost.memory_kb).max().unwrap_or(0);
    println!(
        "| {name} | {traces} | {:.3} | {:.2} | {:.2} | {:.0} |",
        time.as_secs_f64(),
        rate(time),
        rate(cpu),
        peak as f64 / 1e3
    );
}

/// Resources that a command used.
struct ResourceUsage {
    time: Duration,
    cpu: Duration,
    memory_kb: i64,
}

impl ResourceUsage {
    fn measure(command: &mut Command) -> io::Result<Self> {
        let start = Instant::now();
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pid = child.id().cast_signed();
        let mut status = 0;
        // SAFETY: rusage is plain integers, for which all zeroes is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to values that live across the call.
        if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } != pid {
            return Err(io::Error::last_os_error());
        }
        assert_eq!(status, 0, "{command:?} failed");
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Ok(Self {
            time: start.elapsed(),
            cpu: Duration::from_secs_f64(seconds(usage.ru_utime) + seconds(usage.ru_stime)),
            memory_kb: usage.ru_maxrss,
        })
    }
}

const MS: u64 = 1_000_000;
const ONE_WAY: u64 = 20 * MS;
/// Time from a loss to its retransmission.
const REPAIR: u64 = 100 * MS;
/// Payload of a segment.
const SEGMENT: u32 = 1448;
const MESSAGE: u32 = 120;
/// Time from one message of a thin stream to the next.
const ITT: u64 = 30 * MS;

/// Streams of about 1.1 million packets with their ACKs.
struct Workload {
    name: &'static str,
    /// Streams that send a message each [`ITT`].
    thin: u16,
    /// Whether each message is sent again with the next.
    bundled: bool,
    /// Streams that send a segment each millisecond.
    greedy: u16,
    /// Messages of each thin stream.
    messages: u64,
}

const WORKLOADS: [Workload; 2] = [
    Workload {
        name: "400 thin bundled streams",
        thin: 400,
        bundled: true,
        greedy: 0,
        messages: 1350,
    },
    Workload {
        name: "20 thin and 5 greedy streams",
        thin: 20,
        bundled: false,
        greedy: 5,
        messages: 3728,
    },
];

/// One packet at its sender: the fields that differ between packets.
#[derive(Clone, Copy)]
struct Packet {
    at_ns: u64,
    stream: u16,
    data: bool,
    lost: bool,
    seq: u32,
    payload: u32,
    sack: Option<(u32, u32)>,
}

impl Workload {
    /// Writes the packets that each end sees to a file.
    fn write(&self, here: &Path, there: &Path) -> io::Result<()> {
        let mut random = Pcg64::seed_from_u64(1);
        let mut all = Vec::new();
        for stream in 0..self.thin + self.greedy {
            let (every, size) = match stream < self.thin {
                true => (ITT, MESSAGE),
                false => (MS, SEGMENT),
            };
            let segments = self.messages * ITT / every;
            let bundled = self.bundled && stream < self.thin;
            all.extend(conversation(
                stream,
                segments,
                every,
                size,
                bundled,
                &mut random,
            ));
        }
        trace(&mut all, true, here)?;
        trace(&mut all, false, there)
    }
}

/// One stream: data at regular times, each unrepaired loss retransmitted once, and one ACK per
/// arrival.
fn conversation(
    stream: u16,
    segments: u64,
    every: u64,
    payload: u32,
    bundled: bool,
    random: &mut Pcg64,
) -> Vec<Packet> {
    let mut packets = Vec::new();
    let lost: Vec<bool> = (0..=segments).map(|_| random.random_ratio(1, 50)).collect();
    for segment in 0..segments {
        let previous = u64::from(bundled && segment > 0);
        let at = segment as usize;
        let packet = Packet {
            at_ns: segment * every + u64::from(stream) * 1000,
            stream,
            data: true,
            lost: lost[at],
            seq: (segment - previous) as u32 * payload,
            payload: (1 + previous as u32) * payload,
            sack: None,
        };
        packets.push(packet);
        if lost[at] && (!bundled || lost[at + 1]) {
            packets.push(Packet {
                at_ns: packet.at_ns + REPAIR + MS / 2,
                lost: false,
                ..packet
            });
        }
    }
    let arrived = packets.iter().filter(|packet| !packet.lost);
    let arrivals: BTreeMap<_, _> = arrived.map(|it| (it.at_ns + ONE_WAY, *it)).collect();
    let (mut next, mut early, mut waiting) = (0, BTreeMap::new(), false);
    for (at_ns, packet) in arrivals {
        let end = packet.seq + packet.payload;
        early.insert(packet.seq, end);
        while let Some((seq, end)) = early.pop_first() {
            if seq > next {
                early.insert(seq, end);
                break;
            }
            next = end.max(next);
        }
        // A greedy stream acknowledges every second segment that arrives in order.
        waiting = early.is_empty() && payload == SEGMENT && !waiting;
        if !waiting {
            packets.push(Packet {
                at_ns,
                data: false,
                lost: false,
                seq: next,
                payload: 0,
                sack: early.contains_key(&packet.seq).then_some((packet.seq, end)),
                ..packet
            });
        }
    }
    packets
}

/// Writes the headers that one end sees.
fn trace(all: &mut [Packet], at_sender: bool, path: &Path) -> io::Result<()> {
    let seen_ns = |packet: &Packet| {
        let arrives = packet.data != at_sender;
        packet.at_ns + if arrives { ONE_WAY } else { 0 }
    };
    all.sort_by_key(seen_ns);
    let mut file = BufWriter::new(File::create(path)?);
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 128, 1] {
        file.write_all(&word.to_le_bytes())?;
    }
    for packet in all.iter().filter(|packet| at_sender || !packet.lost) {
        let frame = packet.frame();
        let at_ns = seen_ns(packet);
        let (seconds, rest) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
        let captured = frame.len() as u32;
        let words = [
            seconds as u32,
            rest as u32,
            captured,
            captured + packet.payload,
        ];
        file.write_all(&words.map(u32::to_le_bytes).concat())?;
        file.write_all(&frame)?;
    }
    file.flush()
}

impl Packet {
    /// Ethernet, IPv4 and TCP headers with timestamps.
    fn frame(&self) -> Vec<u8> {
        let mut options = vec![1, 1, 8, 10];
        options.extend(((self.at_ns / MS) as u32).to_be_bytes());
        options.extend([0; 4]);
        if let Some((left, right)) = self.sack {
            options.extend([1, 1, 5, 10]);
            options.extend([left + 1, right + 1].map(u32::to_be_bytes).concat());
        }
        let tcp_len = 20 + options.len();
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + tcp_len as u16 + self.payload as u16).to_be_bytes());
        frame.extend(((self.at_ns / 1000) as u16).to_be_bytes());
        frame.extend([0x40, 0, 64, 6, 0, 0]);
        let (client, server) = ([192, 0, 2, 1], [198, 51, 100, 1]);
        let ports = [40_000 + self.stream, 80].map(u16::to_be_bytes);
        let [own, peer] = ports;
        if self.data {
            frame.extend([client, server].concat());
            frame.extend([own, peer].concat());
            frame.extend([self.seq + 1, 1].map(u32::to_be_bytes).concat());
        } else {
            frame.extend([server, client].concat());
            frame.extend([peer, own].concat());
            frame.extend([1, self.seq + 1].map(u32::to_be_bytes).concat());
        }
        frame.extend([(tcp_len as u8 / 4) << 4, 0x10, 1, 0xf5, 0, 0, 0, 0]);
        frame.extend(options);
        frame
    }
}
