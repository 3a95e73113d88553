//! Streams through the devices, queueing disciplines and options that hosts put below TCP.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Output, Stdio};
use std::thread::{self, JoinHandle, ScopedJoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_lab::Namespace;

use super::Reporter;
use super::link::{Link, pass_all};
use super::streams::{self, STATS};
use super::{PILLION, PILLION_LAB, sockets};
use crate::catalogue::{Environment, Ip};
use crate::report::{Part, Report, Stream};

/// Messages through each environment.
const MESSAGES: usize = 10_000;

/// Streams in parallel.
const STREAMS: usize = 20;

/// Mean and standard deviation of the time between two messages of a stream, in milliseconds.
const ITT: &str = "40ms:4ms";

/// Brings up the device of an environment after its commands created it.
const BRING_UP: &str = "device=${device:-env0}; ip link set $device up";

const PORT: u16 = 7777;

/// Timeout in seconds for the last messages and the end of each connection; allows several
/// retransmission timeouts in a row.
const DRAIN: &str = "120s";

/// Runs each environment and reports its result; a failure does not stop the others.
pub fn run(environments: &[Environment], plain: bool, reporter: &Reporter) -> Result<(), String> {
    for environment in environments {
        for (number, ip) in environment.ip.iter().enumerate() {
            let bundler = match environment.sockets {
                _ if plain => Bundler::None,
                Some(_) => Bundler::Attach,
                None => [Bundler::Run, Bundler::Attach][number % 2],
            };
            let name = format!("{}, {}, {}", environment.name, bundler.name(), ip.name());
            match pass(environment, *ip, bundler, &name) {
                Ok(stream) => reporter.emit(&Report::Stream(stream))?,
                Err(reason) => reporter.emit(&Report::Failed(Part::Environments, reason))?,
            }
        }
    }
    Ok(())
}

/// Command that attaches pillion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bundler {
    None,
    Run,
    Attach,
}

impl Bundler {
    fn name(self) -> &'static str {
        match self {
            Self::None => "plain TCP",
            Self::Run => "run",
            Self::Attach => "attach",
        }
    }
}

/// Sends an environment's messages over one IP version, in separate namespaces.
fn pass(environment: &Environment, ip: Ip, bundler: Bundler, name: &str) -> Result<Stream, String> {
    let failed = |reason: String| format!("{name}: {reason}");
    let link = create(environment).map_err(failed)?;
    let address = match ip {
        Ip::V4 => format!("10.78.0.2:{PORT}"),
        Ip::V6 => format!("[fd78::2]:{PORT}"),
    };
    // A failure must not show the statistics of an earlier environment.
    let _ = fs::remove_file(STATS);
    let messages = MESSAGES / environment.ip.len();
    if let Some(sockets) = environment.sockets {
        let attached = (bundler == Bundler::Attach).then(|| RunningAttach::start(&link.sender));
        let attached = attached.transpose().map_err(failed)?;
        let address = address.parse().expect("a constant");
        let bytes = sockets::send(&link, sockets, address, STREAMS, messages / STREAMS);
        attached
            .map_or(Ok(()), RunningAttach::stop)
            .map_err(failed)?;
        let bytes = bytes.map_err(failed)?;
        return match bundler {
            Bundler::None => Ok(plain_stream(name, messages as u64, bytes)),
            _ => streams::judge_stats(name, messages as u64, bytes, environment.bundled),
        };
    }
    let wrapped = [&environment.wrapper[..], &[PILLION_LAB.to_owned()]].concat();
    let streams = STREAMS.to_string();
    let receiver = streams::receive(&link.receiver, &wrapped, &address, &streams);
    let receiver = receiver.map_err(failed)?;
    let each = (messages / STREAMS).to_string();
    let mut send = wrapped;
    let traffic = ["traffic", "send", "--json", "--to", &address, "--itt", ITT];
    let limits = [
        "--streams",
        &streams,
        "--messages",
        &each,
        "--drain-timeout",
        DRAIN,
    ];
    send.extend(traffic.into_iter().chain(limits).map(str::to_owned));
    if let Some(congestion) = &environment.congestion {
        send.extend(["--congestion".to_owned(), congestion.clone()]);
    }
    let sent = thread::scope(|scope| {
        let later = environment
            .later
            .as_ref()
            .map(|commands| scope.spawn(|| run_later(&link.sender, commands, messages as u64 / 4)));
        let sent = match bundler {
            Bundler::None => run_plain(&link.sender, &send),
            Bundler::Run => send_under_run(&link.sender, &send),
            Bundler::Attach => send_under_attach(&link.sender, &send),
        };
        match later.map(ScopedJoinHandle::join) {
            Some(Err(_)) => Err("a thread panicked".to_owned()),
            Some(Ok(Err(reason))) => Err(reason),
            Some(Ok(Ok(()))) | None => sent,
        }
    });
    let (messages, bytes) = streams::verified(name, &sent.map_err(failed)?, receiver)?;
    let stream = match bundler {
        Bundler::None => plain_stream(name, messages, bytes),
        _ => streams::judge_stats(name, messages, bytes, environment.bundled)?,
    };
    if let Some(counter) = &environment.counted
        && count(&link.sender, "netstat", counter).map_err(failed)? == 0
    {
        return Err(failed(format!("{counter} is 0")));
    }
    Ok(stream)
}

fn plain_stream(name: &str, messages: u64, bytes: u64) -> Stream {
    Stream {
        name: name.to_owned(),
        messages,
        bytes,
        redundant_bytes: 0,
        hidden_losses: 0,
        reactions: 0,
    }
}

/// Creates the environment at both ends of a link.
fn create(environment: &Environment) -> Result<Link, String> {
    let link = Link::create(environment.links)?;
    for (number, namespace) in [(1, &link.sender), (2, &link.receiver)] {
        let mut script = format!("n={number} o={}\n", 3 - number);
        script += &format!("{}\n{BRING_UP}\n", environment.commands);
        for ip in &environment.ip {
            script += match ip {
                Ip::V4 => "ip address add 10.78.0.$n/24 dev $device\n",
                Ip::V6 => "ip address add fd78::$n/64 dev $device nodad\n",
            };
        }
        shell(namespace, &script)?;
        if environment.xdp {
            pass_all(namespace, "veth0")?;
        }
    }
    Ok(link)
}

fn shell(namespace: &Namespace, script: &str) -> Result<(), String> {
    let output = namespace.run("sh", &["-e", "-c", script], "");
    let output = output.map_err(|error| format!("sh: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    Err(format!("sh: {}: {}", output.status, printed.trim()))
}

/// Runs commands after the namespace has sent this number of TCP segments.
fn run_later(namespace: &Namespace, commands: &str, segments: u64) -> Result<(), String> {
    const TIMEOUT: Duration = Duration::from_secs(120);
    let started = Instant::now();
    while started.elapsed() < TIMEOUT {
        if count(namespace, "snmp", "OutSegs")? >= segments {
            return shell(namespace, commands);
        }
        thread::sleep(Duration::from_millis(100));
    }
    Err(format!(
        "fewer than {segments} segments sent within {TIMEOUT:?}"
    ))
}

fn send_under_run(namespace: &Namespace, send: &[String]) -> Result<Output, String> {
    let mut run = namespace.command(PILLION);
    run.args(["run", "--stats", STATS, "--quiet", "--"]);
    let output = run.args(send).output();
    output.map_err(|error| format!("{PILLION}: {error}"))
}

/// All connections are newer than the attachment.
fn send_under_attach(namespace: &Namespace, send: &[String]) -> Result<Output, String> {
    let attached = RunningAttach::start(namespace)?;
    let output = run_plain(namespace, send);
    attached.stop()?;
    output
}

fn run_plain(namespace: &Namespace, send: &[String]) -> Result<Output, String> {
    let mut command = namespace.command(&send[0]);
    let output = command.args(&send[1..]).output();
    output.map_err(|error| format!("{}: {error}", send[0]))
}

/// Running `pillion attach`.
pub struct RunningAttach {
    process: Child,
    /// Thread that reads its messages, so that it never blocks on a full pipe.
    messages: JoinHandle<String>,
}

impl RunningAttach {
    /// Starts the command, and returns once all connections of the namespace are bundled.
    pub fn start(namespace: &Namespace) -> Result<Self, String> {
        let mut attach = namespace.command(PILLION);
        attach.args(["attach", "--all", "--stats", STATS]);
        let mut process = streams::start(attach.stderr(Stdio::piped()))?;
        let messages = process.stderr.take().ok_or("no pipe")?;
        let mut messages = BufReader::new(messages);
        let mut first = String::new();
        let _ = messages.read_line(&mut first);
        if !first.contains("bundling all connections") {
            let _ = messages.read_to_string(&mut first);
            let _ = process.wait();
            return Err(format!("pillion attach: {}", first.trim()));
        }
        let messages = thread::spawn(move || {
            let mut rest = String::new();
            let _ = messages.read_to_string(&mut rest);
            rest
        });
        Ok(Self { process, messages })
    }

    /// Stops the command, which then writes its statistics.
    pub fn stop(mut self) -> Result<(), String> {
        let process = Pid::from_raw(self.process.id().cast_signed());
        kill(process, Signal::SIGTERM).map_err(|errno| errno.to_string())?;
        let status = self.process.wait().map_err(|error| error.to_string())?;
        let messages = self.messages.join().unwrap_or_default();
        if status.success() {
            return Ok(());
        }
        Err(format!("pillion attach: {status}: {}", messages.trim()))
    }
}

/// Returns a counter of this file of the namespace's `/proc/net`.
fn count(namespace: &Namespace, file: &str, counter: &str) -> Result<u64, String> {
    let path = format!("/proc/thread-self/net/{file}");
    let text = namespace.enter(|| fs::read_to_string(path));
    let text = text.and_then(|it| it).map_err(|error| error.to_string())?;
    let lines: Vec<_> = text.lines().collect();
    let pairs = lines.chunks_exact(2).flat_map(|pair| {
        let (names, values) = (pair[0].split(' '), pair[1].split(' '));
        names.zip(values)
    });
    let value = pairs.into_iter().find(|(name, _)| *name == counter);
    let value = value.and_then(|(_, value)| value.parse().ok());
    value.ok_or_else(|| format!("no counter {counter}"))
}
