//! Run time per packet of each program, as counted by the kernel (bpf_enable_stats, equal to sysctl
//! kernel.bpf_stats_enabled). It includes two readings of the clock by the kernel. The run time of
//! an empty program, on the same packets at the same time, shows how long these take.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Stdio};
use std::time::Duration;
use std::{fs, thread};

use libbpf_rs::query::{ProgInfoIter, ProgramInfo};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_bpf::Device;
use pillion_lab::path::{Direction, PathConfig};
use pillion_tests::HostPair;

use crate::{PILLION, PILLION_LAB};

/// Cases: name, and arguments of pillion.
const CASES: [(&str, &str); 8] = [
    ("other port", "attach --port 1"),
    (
        "not bundled (not thin)",
        "attach --port 7777 --thin dpifl:10000",
    ),
    ("observed (advise)", "advise --port 7777 --thin always"),
    (
        "1 previous",
        "attach --port 7777 --thin always --level fixed",
    ),
    (
        "no limit",
        "attach --port 7777 --thin always --level fixed --max-packets 0",
    ),
    (
        "1 previous, a cap",
        "attach --port 7777 --thin always --level fixed --max-redundancy-rate 1gbit",
    ),
    (
        "1 previous and a copy",
        "attach --port 7777 --thin always --level fixed --copies 1",
    ),
    ("auto", "attach --port 7777 --thin always --level auto"),
];

/// Programs that run for each packet: two on egress, two on ingress.
const PROGRAMS: [&str; 4] = [
    "pillion_egress",
    "pillion_transmit",
    "pillion_dsack",
    "pillion_ingress",
];

/// Inter-transmission times of a stream.
const ITTS: [&str; 2] = ["30ms", "2ms"];

pub fn print() {
    let _counting = enable_statistics();
    println!("20 streams, 120 B messages, RTT 40 ms; ns per packet in each program");
    print!(
        "{:<24} {:>6} {:>11} {:>8}",
        "case", "ITT", "redundant B", "empty"
    );
    for name in PROGRAMS {
        print!(" {name:>15}");
    }
    println!();
    for itt in ITTS {
        for (name, arguments) in CASES {
            let measurement = measure(arguments, itt);
            let Measurement {
                redundant_bytes,
                empty,
                ..
            } = measurement;
            print!("{name:<24} {itt:>6} {redundant_bytes:>11.0} {empty:>8.0}");
            for nanoseconds in measurement.nanoseconds {
                print!(" {nanoseconds:>15.0}");
            }
            println!();
        }
    }
}

struct Measurement {
    /// Average number of redundant bytes in a bundled segment.
    redundant_bytes: f64,
    /// Nanoseconds per packet of an empty program.
    empty: f64,
    /// Nanoseconds per packet of each of [`PROGRAMS`].
    nanoseconds: [f64; PROGRAMS.len()],
}

fn measure(arguments: &str, itt: &str) -> Measurement {
    let direction = || Direction::delayed(Duration::from_millis(20));
    let path = PathConfig {
        forward: direction(),
        backward: direction(),
        seed: 1,
    };
    let pair = HostPair::create(&path);
    let folder = tempfile::tempdir().expect("a folder");
    let stats = folder.path().join("stats.json");
    let mut attach = pair.sender.namespace.command(PILLION);
    attach
        .args(arguments.split(' '))
        .arg("--stats")
        .arg(&stats)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut attach = attach.spawn().expect("pillion runs");
    let programs = await_programs(&mut attach);
    let empty = pair
        .sender
        .namespace
        .enter(attach_empty_program)
        .expect("enter");

    let listen = [
        "traffic",
        "receive",
        "--listen",
        "10.77.0.2:7777",
        "--streams",
        "20",
    ];
    let mut receiver = pair.receiver.namespace.command(PILLION_LAB);
    let mut receiver = receiver
        .args(listen)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let send = [
        "traffic",
        "send",
        "--to",
        "10.77.0.2:7777",
        "--streams",
        "20",
        "--duration",
        "5s",
    ];
    let mut sender = pair.sender.namespace.command(PILLION_LAB);
    let status = sender
        .args(send)
        .args(["--itt", itt])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(status.expect("it runs").success());
    assert!(receiver.wait().expect("it ends").success());

    let nanoseconds = programs.map(per_packet);
    let empty = per_packet(empty.id);
    kill(Pid::from_raw(attach.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    attach.wait().expect("it ends");
    let stats: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(stats).expect("its account")).expect("JSON");
    let bundled = stats["outcomes"]["bundled"].as_f64().unwrap_or(0.0);
    let redundant = stats["redundant_bytes"].as_f64().unwrap_or(0.0);
    Measurement {
        redundant_bytes: redundant / bundled.max(1.0),
        empty,
        nanoseconds,
    }
}

/// Empty program, attached to tap0 until dropped.
struct Empty {
    id: u32,
    _link: OwnedFd,
}

fn attach_empty_program() -> Empty {
    // r0 = TCX_NEXT; exit
    let set = libbpf_sys::bpf_insn {
        code: 0xb7,
        imm: -1,
        ..Default::default()
    };
    let exit = libbpf_sys::bpf_insn {
        code: 0x95,
        ..Default::default()
    };
    let device = Device::select(&["tap0".to_owned()]).expect("the device");
    // SAFETY: the instructions outlive the call; results are checked.
    let program = owned_fd(unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            c"empty".as_ptr(),
            c"GPL".as_ptr(),
            [set, exit].as_ptr(),
            2,
            std::ptr::null_mut(),
        )
    });
    // SAFETY: plain values and no options.
    let link = owned_fd(unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            device[0].index.cast_signed(),
            libbpf_sys::BPF_TCX_EGRESS,
            std::ptr::null(),
        )
    });
    let id = libbpf_rs::Program::id_from_fd(program.as_fd()).expect("its id");
    Empty { id, _link: link }
}

fn owned_fd(fd: i32) -> OwnedFd {
    assert!(fd >= 0, "{}", std::io::Error::from_raw_os_error(-fd));
    // SAFETY: a new file descriptor without another owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Enables the kernel's run-time statistics until the result is dropped.
fn enable_statistics() -> OwnedFd {
    // SAFETY: a system call without pointers; the result is checked.
    owned_fd(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) })
}

/// Waits until a pillion has attached, and returns the ids of its programs.
fn await_programs(pillion: &mut Child) -> [u32; PROGRAMS.len()] {
    loop {
        let ended = pillion.try_wait().expect("a child");
        assert!(ended.is_none(), "pillion has ended: {ended:?}");
        let folder = format!("/proc/{}/fdinfo", pillion.id());
        let texts = fs::read_dir(folder).expect("it runs").flatten();
        let texts: Vec<_> = texts
            .filter_map(|file| fs::read_to_string(file.path()).ok())
            .collect();
        let ids = |name: &str| -> Vec<u32> {
            let lines = texts.iter().flat_map(|text| text.lines());
            lines
                .filter_map(|line| line.strip_prefix(name)?.trim().parse().ok())
                .collect()
        };
        let programs = ids("prog_id:");
        let named = |name: &str| {
            // The kernel stores 15 bytes of a name.
            let stored = &name.as_bytes()[..name.len().min(15)];
            let matches = |info: &ProgramInfo| {
                info.name.as_encoded_bytes() == stored && programs.contains(&info.id)
            };
            ProgInfoIter::default()
                .find(matches)
                .map_or(0, |info| info.id)
        };
        let program_ids = PROGRAMS.map(named);
        // The link of the connection tracker is attached last.
        if !program_ids.contains(&0) && ids("link_id:").len() > PROGRAMS.len() {
            return program_ids;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the average nanoseconds per packet of a program.
fn per_packet(program: u32) -> f64 {
    let info = ProgInfoIter::default()
        .find(|info| info.id == program)
        .expect("it is loaded");
    info.run_time_ns as f64 / info.run_cnt as f64
}
