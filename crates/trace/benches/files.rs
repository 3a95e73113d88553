//! Two traces of 1.1 million packets each, from the file to all measures, and what tcptrace and
//! tshark need for one of them, if they are installed: `cargo bench -p pillion-trace --bench files`.

#[path = "files/streams.rs"]
mod streams;

use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pillion_trace::measure::{self, Meter};
use pillion_trace::{Analysis, input, pair};

const PACKETS: usize = 1_100_000;
/// Says that the traces are to be written.
const WRITE: &str = "write";
/// The best of so many rounds.
const ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match &files[..] {
        [word, here, there] if word == Path::new(WRITE) => {
            Ok(streams::write(PACKETS, here, there)?)
        }
        [here, there] if here.exists() => two(here, there),
        [here] if here.exists() => one(here),
        _ => compare(),
    }
}

/// A round of its own process: memory is counted for each.
fn two(here: &Path, there: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (here, there) = (input::open(here)?, input::open(there)?);
    let meter = Meter::new(measure::Options::default());
    let (meter, finding) = pair::analyse(here, there, &pair::Options::default(), meter);
    black_box(meter.finish_pair(&finding.clock));
    Ok(())
}

fn one(trace: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut analysis = Analysis::new(Meter::new(measure::Options::default()));
    for packet in input::open(trace)? {
        analysis.packet(&packet);
    }
    black_box(analysis.finish().finish());
    Ok(())
}

fn compare() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let [here, there] = ["here", "there"].map(|name| folder.path().join(name));
    // The most memory that a process had is also said of those that it starts, so this one must
    // not be the one that needs much.
    let own = std::env::current_exe()?;
    Cost::of(Command::new(&own).arg(WRITE).args([&here, &there]))?;
    let count = |trace: &Path| -> io::Result<usize> {
        Ok(input::open(trace).map_err(io::Error::other)?.count())
    };
    let (sent, all) = (count(&here)?, count(&here)? + count(&there)?);
    let (one, two) = ([here.as_path()], [here.as_path(), there.as_path()]);
    println!("| what | traces | million packets/s | per CPU second | most memory, MB |");
    println!("|---|---|---|---|---|");
    row("pillion", Command::new(&own).args(one), 1, sent);
    row("pillion", Command::new(&own).args(two), 2, all);
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
    let rounds: Vec<Cost> = (0..ROUNDS).map_while(|_| Cost::of(command).ok()).collect();
    let least = |of: fn(&Cost) -> Duration| rounds.iter().map(of).min();
    let (Some(time), Some(cpu)) = (least(|cost| cost.time), least(|cost| cost.cpu)) else {
        println!("| {name} | {traces} | is not installed | | |");
        return;
    };
    let rate = |time: Duration| packets as f64 / time.as_secs_f64() / 1e6;
    let most = rounds.iter().map(|cost| cost.memory_kb).max().unwrap_or(0);
    println!(
        "| {name} | {traces} | {:.2} | {:.2} | {:.0} |",
        rate(time),
        rate(cpu),
        most as f64 / 1e3
    );
}

/// What a command took.
struct Cost {
    time: Duration,
    cpu: Duration,
    memory_kb: i64,
}

impl Cost {
    fn of(command: &mut Command) -> io::Result<Self> {
        let begin = Instant::now();
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
            time: begin.elapsed(),
            cpu: Duration::from_secs_f64(seconds(usage.ru_utime) + seconds(usage.ru_stime)),
            memory_kb: usage.ru_maxrss,
        })
    }
}
