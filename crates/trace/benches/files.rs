//! Measures two traces of 1.1 million packets each, from file to results. Also runs tcptrace and
//! tshark on one of them, if installed: `cargo bench -p pillion-trace --bench files`.

use std::collections::BTreeMap;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pillion_trace::measure::{self, Meter};
use pillion_trace::{Analysis, input, pair};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const PACKETS: usize = 1_100_000;
/// Argument that requests writing the traces.
const WRITE: &str = "write";
/// Number of rounds; the best counts.
const ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match &files[..] {
        [word, here, there] if word == Path::new(WRITE) => Ok(write_traces(PACKETS, here, there)?),
        [here, there] if here.exists() => measure_pair(here, there),
        [here] if here.exists() => one(here),
        _ => compare(),
    }
}

/// Runs one round in its own process, because memory is measured per process.
fn measure_pair(here: &Path, there: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (here, there) = (input::open(here)?, input::open(there)?);
    let meter = Meter::new(measure::MeterOptions::default());
    let (meter, summary) = pair::analyse(here, there, &pair::PairOptions::default(), meter);
    black_box(meter.finish_pair(&summary.clock));
    Ok(())
}

fn one(trace: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut analysis = Analysis::new(Meter::new(measure::MeterOptions::default()));
    for packet in input::open(trace)? {
        analysis.packet(&packet);
    }
    black_box(analysis.finish().finish());
    Ok(())
}

fn compare() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let [here, there] = ["here", "there"].map(|name| folder.path().join(name));
    // The kernel's peak memory of a process includes that of its parent at the fork, so this
    // process must stay small.
    let own = std::env::current_exe()?;
    ResourceUsage::measure(Command::new(&own).arg(WRITE).args([&here, &there]))?;
    let count = |trace: &Path| -> io::Result<usize> {
        Ok(input::open(trace).map_err(io::Error::other)?.count())
    };
    let (sent, all) = (count(&here)?, count(&here)? + count(&there)?);
    let (one, measure_pair) = ([here.as_path()], [here.as_path(), there.as_path()]);
    println!("| program | traces | million packets/s | per CPU second | peak memory, MB |");
    println!("|---|---|---|---|---|");
    row("pillion", Command::new(&own).args(one), 1, sent);
    row("pillion", Command::new(&own).args(measure_pair), 2, all);
    row(
        "tcptrace -l -r",
        Command::new("tcptrace").args(["-l", "-r"]).args(one),
        1,
        sent,
    );
    let tshark = ["-q", "-z", "conv,tcp", "-r"];
    row(
        "tshark -q -z conv,tcp",
        Command::new("tshark").args(tshark).args(one),
        1,
        sent,
    );
    Ok(())
}

fn row(name: &str, command: &mut Command, traces: usize, packets: usize) {
    let rounds: Vec<ResourceUsage> = (0..ROUNDS)
        .map_while(|_| ResourceUsage::measure(command).ok())
        .collect();
    let fastest = |of: fn(&ResourceUsage) -> Duration| rounds.iter().map(of).min();
    let (Some(time), Some(cpu)) = (fastest(|cost| cost.time), fastest(|cost| cost.cpu)) else {
        println!("| {name} | {traces} | is not installed | | |");
        return;
    };
    let rate = |time: Duration| packets as f64 / time.as_secs_f64() / 1e6;
    let peak = rounds.iter().map(|cost| cost.memory_kb).max().unwrap_or(0);
    println!(
        "| {name} | {traces} | {:.2} | {:.2} | {:.0} |",
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
const THIN: u16 = 20;
const GREEDY: u16 = 5;
/// Payload of a segment.
const SEGMENT: u32 = 1448;
const MESSAGE: u32 = 120;

/// One packet at its sender: the fields that differ between packets.
struct Packet {
    at_ns: u64,
    stream: u16,
    data: bool,
    lost: bool,
    seq: u32,
    payload: u32,
    sack: Option<(u32, u32)>,
}

/// Writes about this many packets to each of two files.
fn write_traces(packets: usize, here: &Path, there: &Path) -> io::Result<()> {
    let mut random = Pcg64::seed_from_u64(1);
    // In 30 ms a thin stream sends one packet and receives one, a greedy one 30 and about 21.
    let ticks = packets as u64 / (2 * u64::from(THIN) + 51 * u64::from(GREEDY));
    let mut all = Vec::new();
    for stream in 0..THIN + GREEDY {
        let (every, size) = match stream {
            0..THIN => (30 * MS, MESSAGE),
            _ => (MS, SEGMENT),
        };
        let segments = ticks * 30 * MS / every;
        all.extend(conversation(stream, segments, every, size, &mut random));
    }
    trace(&mut all, true, here)?;
    trace(&mut all, false, there)
}

/// One stream: data at regular times, each loss retransmitted once, and one ACK per arrival.
fn conversation(
    stream: u16,
    segments: u64,
    every: u64,
    payload: u32,
    random: &mut Pcg64,
) -> Vec<Packet> {
    let mut packets = Vec::new();
    let mut arrivals = BTreeMap::new();
    for segment in 0..segments {
        let at_ns = segment * every + u64::from(stream) * 1000;
        let lost = random.random_ratio(1, 50);
        let seq = segment as u32 * payload;
        let first = Packet {
            at_ns,
            stream,
            data: true,
            lost,
            seq,
            payload,
            sack: None,
        };
        if lost {
            let at_ns = at_ns + REPAIR + MS / 2;
            arrivals.insert(at_ns + ONE_WAY, seq);
            packets.push(Packet {
                at_ns,
                lost: false,
                ..first
            });
        } else {
            arrivals.insert(at_ns + ONE_WAY, seq);
        }
        packets.push(first);
    }
    let (mut next, mut early, mut waiting) = (0, BTreeMap::new(), false);
    for (at_ns, seq) in arrivals {
        early.insert(seq, seq + payload);
        while let Some(end) = early.remove(&next) {
            next = end;
        }
        // A greedy stream acknowledges every second segment that arrives in order.
        waiting = early.is_empty() && payload == SEGMENT && !waiting;
        if !waiting {
            packets.push(Packet {
                at_ns,
                stream,
                data: false,
                lost: false,
                seq: next,
                payload: 0,
                sack: early.contains_key(&seq).then_some((seq, seq + payload)),
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
