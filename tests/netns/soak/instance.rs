//! One pillion of the soak: its randomly chosen configuration, and its life until nothing of it is
//! left.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::{Rng, RngExt};
use serde_json::Value;
use tempfile::TempDir;

use super::endpoint;
use super::endpoint::{ClientTask, TIMEOUT};
use super::environment::{Cgroup, Context, Event};
use super::plan::Side;
use crate::common::{PILLION, all_bpf_objects, bpf_objects, reset_signals};

/// How a pillion is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Termination {
    Terminated,
    Interrupted,
    /// SIGHUP, which stops `run`; `attach` reloads, and SIGTERM stops it later.
    HungUp,
    Killed,
    /// Killed, possibly while it starts.
    KilledEarly,
}

impl Termination {
    pub fn name(self) -> &'static str {
        match self {
            Self::Terminated => "SIGTERM",
            Self::Interrupted => "SIGINT",
            Self::HungUp => "SIGHUP",
            Self::Killed => "kill -9",
            Self::KilledEarly => "kill -9 during the start",
        }
    }

    pub fn is_killed(self) -> bool {
        matches!(self, Self::Killed | Self::KilledEarly)
    }

    /// Chooses SIGTERM for a third, another signal for a third, and a kill for a third.
    fn choose(random: &mut impl Rng, number: u64) -> Self {
        let is_early = random.random_range(0..4) == 0;
        match (number % 3, random.random()) {
            (0, _) => Self::Terminated,
            (1, _) if is_early => Self::KilledEarly,
            (1, _) => Self::Killed,
            (_, true) => Self::Interrupted,
            (_, false) => Self::HungUp,
        }
    }

    /// Returns the signal that stops a pillion. `attach` exits on SIGHUP only if its terminal
    /// closes.
    pub fn signal(self, is_attach: bool) -> Signal {
        match self {
            Self::Terminated => Signal::SIGTERM,
            Self::Interrupted => Signal::SIGINT,
            Self::HungUp if is_attach => Signal::SIGTERM,
            Self::HungUp => Signal::SIGHUP,
            Self::Killed | Self::KilledEarly => Signal::SIGKILL,
        }
    }
}

/// Connections that a pillion bundles.
#[derive(Debug, Clone)]
pub enum Selection {
    /// All connections of a host.
    All,
    /// Connections of the cgroup with this name, by a rules file.
    Cgroup(&'static str),
    /// Connections of a client that it runs.
    Run(ClientTask),
}

#[derive(Debug, Clone)]
pub struct InstanceConfig {
    pub selection: Selection,
    /// Host on which it runs.
    pub side: Side,
    pub options: Vec<String>,
    pub termination: Termination,
    /// How long it stays attached; `None` until the end of the soak.
    pub duration: Option<Duration>,
    /// Interval between reloads.
    pub reloads_every: Option<Duration>,
}

/// Long-lived clients, each in its own cgroup.
pub const CLIENTS: [&str; 2] = ["blue", "green"];

impl InstanceConfig {
    fn choose(random: &mut impl Rng, number: u64, selection: Selection, side: Side) -> Self {
        let has_file = matches!(selection, Selection::Cgroup(_));
        let duration = Duration::from_millis(random.random_range(200..9000));
        let termination = Termination::choose(random, number);
        let reloads = has_file && termination == Termination::HungUp;
        Self {
            options: options(random, has_file),
            selection,
            side,
            termination,
            duration: Some(duration),
            reloads_every: reloads.then(|| duration.mul_f64(0.4)),
        }
    }

    /// Returns the configuration of the pillion that stays and reloads its rules all the time.
    pub fn long_lived() -> Self {
        Self {
            selection: Selection::Cgroup(CLIENTS[0]),
            side: Side::Client,
            options: Vec::new(),
            termination: Termination::Terminated,
            duration: None,
            reloads_every: Some(Duration::from_secs(5)),
        }
    }
}

/// Chooses one pillion to start, or two on different cgroups, numbered from `first`. Some also
/// serve the network namespace `name`.
pub fn choose(random: &mut impl Rng, first: u64, name: &Path) -> Vec<InstanceConfig> {
    let selections = match random.random_range(0..10) {
        0..4 => vec![(Selection::All, Side::Client)],
        4..6 => vec![(Selection::All, Side::Server)],
        6..8 => CLIENTS
            .map(|client| (Selection::Cgroup(client), Side::Client))
            .into(),
        _ => {
            let task = ClientTask {
                seed: random.random(),
                per_hour: 7200,
                long_lived: 1,
                seconds: 10,
            };
            vec![(Selection::Run(task), Side::Client)]
        }
    };
    let numbered = (first..).zip(selections);
    let choose = |(number, (selection, side))| {
        let mut config = InstanceConfig::choose(random, number, selection, side);
        if matches!(config.selection, Selection::All) && random.random_bool(0.4) {
            let named = format!("--netns={}", name.display());
            config
                .options
                .extend([named, "--netns=/proc/self/ns/net".to_owned()]);
        }
        config
    };
    numbered.map(choose).collect()
}

/// Chooses bundling options for the command line; with a rules file only the hook remains.
fn options(random: &mut impl Rng, has_file: bool) -> Vec<String> {
    let mut choose_option = |option: &str, all: &[&str]| {
        let value = all[random.random_range(0..all.len())];
        format!("--{option}={value}")
    };
    let hook = choose_option("hook", &["auto", "auto", "clsact"]);
    if has_file {
        return vec![hook];
    }
    let mut options = vec![
        hook,
        choose_option("thin", &["always", "dpifl:10", "spifl:4"]),
        choose_option("level", &["fixed", "fixed", "adaptive"]),
        choose_option("max-packets", &["0", "1", "1", "3"]),
        choose_option("reaction", &["cwr", "cwr", "tfrc-sp"]),
    ];
    if random.random_bool(0.2) {
        options.push("--bundle-retransmissions".to_owned());
    }
    options
}

/// Returns the rules after this number of reloads.
pub fn rules(cgroup: &str, reloads: u64) -> String {
    let options = match reloads % 3 {
        0 => "thin = \"always\"\nmax-packets = 2\n",
        1 => "level = \"adaptive\"\nreaction = \"tfrc-sp\"\n",
        _ => "mode = \"never\"\n",
    };
    format!("[[rule]]\ncgroup = \"/{cgroup}\"\n{options}")
}

/// Result of one pillion's life.
#[derive(Debug)]
pub struct InstanceResult {
    pub termination: Termination,
    /// The pillion was certainly attached when it was stopped.
    pub attached: bool,
    pub reloads: u64,
    /// The pillion's statistics, unless it was killed.
    pub stats: Option<Value>,
}

pub struct Instance<'a> {
    context: &'a Context,
    config: &'a InstanceConfig,
    folder: TempDir,
    cgroup: Cgroup,
    process: Child,
    /// Lines of pillion's standard error, and of its command's output.
    lines: Receiver<String>,
    reloads: u64,
}

impl<'a> Instance<'a> {
    /// Starts, runs and stops one pillion. An error describes a violation.
    pub fn run(
        context: &'a Context,
        config: &'a InstanceConfig,
        number: u64,
    ) -> Result<InstanceResult, String> {
        let instance = Self::spawn(context, config, number);
        let mut instance = instance.map_err(|error| format!("pillion {number}: {error}"))?;
        let result = instance
            .run_attached()
            .and_then(|attached| instance.stop(attached));
        result.map_err(|violation| format!("pillion {number} ({config:?}): {violation}"))
    }

    fn spawn(
        context: &'a Context,
        config: &'a InstanceConfig,
        number: u64,
    ) -> std::io::Result<Self> {
        let folder = TempDir::new()?;
        let cgroup = context
            .environment
            .cgroup(&format!("pillion-number-{number}"))?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let mut words = vec![PILLION.to_owned()];
        let subcommand = match config.selection {
            Selection::Run(_) => "run",
            Selection::All | Selection::Cgroup(_) => "attach",
        };
        words.extend([subcommand.to_owned(), format!("--stats={}", path("stats"))]);
        words.extend(config.options.clone());
        match &config.selection {
            Selection::All => words.push("--all".to_owned()),
            Selection::Cgroup(cgroup) => {
                fs::write(path("rules"), rules(cgroup, 0))?;
                words.push(format!("--config={}", path("rules")));
            }
            Selection::Run(_) => {
                words.push("--".to_owned());
                words.extend(endpoint::endpoint_command("client_process"));
            }
        }
        let host = match config.side {
            Side::Client => &context.environment.pair.sender.namespace,
            Side::Server => &context.environment.pair.receiver.namespace,
        };
        let mut command = context.environment.isolated_command(host, &cgroup, &words);
        reset_signals(&mut command);
        if let Selection::Run(task) = config.selection {
            endpoint::set_task(&mut command, task);
        }
        let mut process = command.stderr(Stdio::piped()).spawn()?;
        let (sender, lines) = channel();
        if let Some(stdout) = process.stdout.take() {
            context.forward_events(stdout, sender.clone());
        }
        if let Some(stderr) = process.stderr.take() {
            forward(stderr, sender);
        }
        Ok(Self {
            context,
            config,
            folder,
            cgroup,
            process,
            lines,
            reloads: 0,
        })
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Keeps pillion running. Returns true if it is certainly attached at the end.
    fn run_attached(&mut self) -> Result<bool, String> {
        let duration = self.config.duration.unwrap_or(Duration::MAX);
        if self.config.termination == Termination::KilledEarly {
            // The start takes about half a second.
            thread::sleep(duration / 9);
            return Ok(false);
        }
        match self.config.selection {
            Selection::Run(_) => self.await_line("soak: opened")?,
            Selection::All | Selection::Cgroup(_) => self.await_line("pillion: bundling")?,
        }
        self.context.send(Event::Attached(self.pid()));
        let started = Instant::now();
        while started.elapsed() < duration && !self.context.is_stopping() {
            let reloads = self
                .config
                .reloads_every
                .map(|every| every * (self.reloads + 1) as u32);
            if reloads.is_some_and(|due| started.elapsed() >= due) {
                self.reload()?;
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(true)
    }

    fn reload(&mut self) -> Result<(), String> {
        let Selection::Cgroup(cgroup) = &self.config.selection else {
            return Ok(());
        };
        self.reloads += 1;
        let file = self.folder.path().join("rules");
        fs::write(file, rules(cgroup, self.reloads)).map_err(|error| error.to_string())?;
        self.signal(nix::sys::signal::Signal::SIGHUP)?;
        self.await_line("pillion: reloaded")
    }

    fn await_line(&mut self, prefix: &str) -> Result<(), String> {
        let mut log = Vec::new();
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(line) if line.starts_with(prefix) => return Ok(()),
                Ok(line) => log.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("did not log `{prefix}`, but {log:?}"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.process.wait();
                    return Err(format!("exited unexpectedly: {status:?}, {log:?}"));
                }
            }
        }
    }

    fn signal(&self, signal: nix::sys::signal::Signal) -> Result<(), String> {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).map_err(|errno| errno.to_string())
    }

    fn stop(&mut self, attached: bool) -> Result<InstanceResult, String> {
        let objects = bpf_objects(self.pid());
        if attached && objects.is_empty() {
            return Err("attached without any program".to_owned());
        }
        let is_attach = !matches!(self.config.selection, Selection::Run(_));
        self.signal(self.config.termination.signal(is_attach))?;
        let status = self.wait_exit()?;
        if !self.config.termination.is_killed() && !status.success() {
            let log: Vec<_> = self.lines.try_iter().collect();
            return Err(format!("{status}; its log: {log:?}"));
        }
        self.check_removed(&objects)?;
        Ok(InstanceResult {
            termination: self.config.termination,
            attached,
            reloads: self.reloads,
            stats: self.stats()?,
        })
    }

    fn wait_exit(&mut self) -> Result<ExitStatus, String> {
        let started = Instant::now();
        loop {
            let status = self.process.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = status {
                return Ok(status);
            }
            if started.elapsed() > TIMEOUT {
                return Err(format!(
                    "does not exit after {}",
                    self.config.termination.name()
                ));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until no program, map or link is left, and no process or cgroup after its command has
    /// exited.
    fn check_removed(&self, objects: &BTreeSet<String>) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let all = all_bpf_objects();
            let left: Vec<_> = objects.intersection(&all).collect();
            if left.is_empty() {
                break;
            }
            if started.elapsed() > TIMEOUT {
                return Err(format!("left behind: {left:?}"));
            }
            thread::sleep(Duration::from_millis(50));
        }
        self.cgroup.remove()
    }

    fn stats(&self) -> Result<Option<Value>, String> {
        if self.config.termination.is_killed() {
            return Ok(None);
        }
        let file: PathBuf = self.folder.path().join("stats");
        let text = fs::read_to_string(&file).map_err(|error| format!("its statistics: {error}"))?;
        let stats =
            serde_json::from_str(&text).map_err(|error| format!("its statistics: {error}"))?;
        Ok(Some(stats))
    }
}

fn forward(from: impl Read + Send + 'static, to: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // The receiver may be gone; the pipe is drained anyway.
            let _ = to.send(line);
        }
    });
}
