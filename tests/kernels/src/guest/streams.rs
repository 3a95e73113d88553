//! End-to-end streams: every byte is verified, and bundles must occur.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_lab::Namespace;
use serde_json::Value;

use super::Reporter;
use super::link::Link;
use super::{PILLION, PILLION_LAB};
use crate::report::{Report, Stream};

/// One message of the default size every 20 ms.
const TRAFFIC: [&str; 3] = ["--itt", "20ms:2ms", "--duration"];

/// File for pillion's statistics.
pub const STATS: &str = "/tmp/stats.json";

/// Runs an IPv4 stream that is bundled from its first byte, and an IPv6 stream that is adopted
/// later.
pub fn run(reporter: &Reporter) -> Result<(), String> {
    let link = Link::create(1)?;
    // On a busy host an emulated processor takes long to load the programs.
    for planned in [
        (
            "run, IPv4",
            "10.77.0.2:7777",
            "10s",
            send_under_run as BundledSend,
        ),
        ("attach, IPv6", "[fd77::2]:7778", "40s", send_under_attach),
    ] {
        send(&link, planned, reporter)?;
    }
    Ok(())
}

/// Runs a stream in a kernel that lets no program read its memory.
pub fn run_locked_down(reporter: &Reporter) -> Result<(), String> {
    let planned = (
        "locked down, IPv4",
        "10.77.0.2:7779",
        "10s",
        send_under_run as BundledSend,
    );
    send(&Link::create(1)?, planned, reporter)
}

/// Sends with these arguments of `pillion-lab traffic`, under a bundler.
type BundledSend = fn(&Namespace, &[&str]) -> Result<Output, String>;

fn send(
    link: &Link,
    (name, address, seconds, bundled): (&str, &str, &str, BundledSend),
    reporter: &Reporter,
) -> Result<(), String> {
    let receiver = receive(&link.receiver, &[PILLION_LAB.to_owned()], address, "1")?;
    let traffic = ["traffic", "send", "--json", "--to", address];
    let sent = bundled(&link.sender, &[&traffic[..], &TRAFFIC, &[seconds]].concat())?;
    let stream = judge(name, &sent, receiver)?;
    reporter.emit(&Report::Stream(stream))
}

fn send_under_run(namespace: &Namespace, traffic: &[&str]) -> Result<Output, String> {
    let mut run = namespace.command(PILLION);
    run.args(["run", "--stats", STATS, "--quiet", "--", PILLION_LAB])
        .args(traffic);
    run.output().map_err(|error| format!("{PILLION}: {error}"))
}

/// Attaches pillion when the connection is one second old.
fn send_under_attach(namespace: &Namespace, traffic: &[&str]) -> Result<Output, String> {
    let failed = |error: io::Error| error.to_string();
    let mut send = namespace.command(PILLION_LAB);
    let sending = start(
        send.args(traffic)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    )?;
    thread::sleep(Duration::from_secs(1));
    let mut attach = namespace.command(PILLION);
    attach.args(["attach", "--all", "--stats", STATS]);
    let mut attached = start(attach.stderr(Stdio::null()))?;
    let output = sending.wait_with_output().map_err(failed);
    let attach = Pid::from_raw(attached.id().cast_signed());
    kill(attach, Signal::SIGTERM).map_err(|errno| errno.to_string())?;
    attached.wait().map_err(failed)?;
    output
}

/// Starts a receiver of `streams` streams with this command line, and returns when it listens.
pub fn receive(
    namespace: &Namespace,
    lab: &[String],
    address: &str,
    streams: &str,
) -> Result<Child, String> {
    let mut command = namespace.command(&lab[0]);
    command.args(&lab[1..]).args([
        "traffic",
        "receive",
        "--listen",
        address,
        "--streams",
        streams,
        "--json",
    ]);
    let mut child = start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let mut line = String::new();
    let stderr = child.stderr.take().map(BufReader::new);
    stderr.map(|mut stderr| stderr.read_line(&mut line));
    if line.contains("listening on") {
        return Ok(child);
    }
    Err(format!("the receiver does not listen: {}", line.trim()))
}

/// Starts a command.
pub fn start(command: &mut Command) -> Result<Child, String> {
    command
        .spawn()
        .map_err(|error| format!("{PILLION}: {error}"))
}

/// Checks that everything sent has arrived, and that bundles contributed.
pub fn judge(name: &str, sent: &Output, receiver: Child) -> Result<Stream, String> {
    let (messages, bytes) = verified(name, sent, receiver)?;
    judge_stats(name, messages, bytes, true)
}

/// Returns how many messages and bytes arrived; an error unless everything did.
pub fn verified(name: &str, sent: &Output, mut receiver: Child) -> Result<(u64, u64), String> {
    let failed = |reason: String| format!("{name}: {reason}");
    if !sent.status.success() {
        let _ = receiver.kill();
        let _ = receiver.wait();
        let stderr = String::from_utf8_lossy(&sent.stderr);
        let errors = connection_errors(&read(&sent.stdout));
        return Err(failed(format!(
            "the sender: {}: {}",
            sent.status,
            [stderr.trim(), &errors].join("")
        )));
    }
    let mut received = Vec::new();
    let output = receiver.stdout.take();
    output.map(|mut output| output.read_to_end(&mut received));
    let status = receiver.wait().map_err(|error| failed(error.to_string()))?;
    let (sent, received) = (read(&sent.stdout), read(&received));
    let all = number(&sent, "bytes");
    match all {
        Some(bytes) if status.success() && all == number(&received, "bytes") => {
            let messages = number(&received, "messages").unwrap_or_default();
            Ok((messages, bytes))
        }
        _ => Err(failed(format!("sent {sent}, received {received}"))),
    }
}

fn connection_errors(report: &Value) -> String {
    let streams = report["streams"].as_array();
    let streams = streams.into_iter().flatten();
    let errors =
        streams.filter_map(|it| Some(format!("{}: {}", it["stream"], it["error"].as_str()?)));
    errors.collect::<Vec<_>>().join("; ")
}

fn read(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_default()
}

fn number(report: &Value, key: &str) -> Option<u64> {
    report[key].as_u64()
}

/// Returns pillion's statistics for verified messages. With `bundled`, at least one bundle must
/// have repaired a loss; otherwise nothing may have been bundled.
pub fn judge_stats(name: &str, messages: u64, bytes: u64, bundled: bool) -> Result<Stream, String> {
    let failed = |reason: String| format!("{name}: {reason}");
    let stats = fs::read(STATS).map_err(|error| failed(format!("{STATS}: {error}")))?;
    let stats = read(&stats);
    let count = |key: &str| number(&stats, key).unwrap_or_default();
    let stream = Stream {
        name: name.to_owned(),
        messages,
        bytes,
        redundant_bytes: count("redundant_bytes"),
        hidden_losses: count("hidden_losses"),
        reactions: count("reactions"),
    };
    if !bundled && stream.redundant_bytes > 0 {
        return Err(failed(format!("something was bundled: {stats}")));
    }
    if bundled && (stream.redundant_bytes == 0 || stream.hidden_losses == 0) {
        return Err(failed(format!(
            "nothing was bundled, or no loss repaired: {stats}"
        )));
    }
    Ok(stream)
}
