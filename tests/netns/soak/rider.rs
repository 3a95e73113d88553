
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::ends;
use super::field::{Field, News};
use super::ground::Group;
use super::plan::Side;
use super::ride::{End, Ride, Whom, rules};
use super::talk::PATIENCE;
use crate::common::{PILLION, all_bpf_objects, bpf_objects, hears_all_signals};

/// Result of one pillion's life.
#[derive(Debug)]
pub struct Outcome {
    pub end: End,
    /// The pillion was certainly attached when it was stopped.
    pub attached: bool,
    pub reloads: u64,
    /// The pillion's statistics, unless it was killed.
    pub stats: Option<Value>,
}

pub struct Rider<'a> {
    field: &'a Field,
    ride: &'a Ride,
    folder: TempDir,
    group: Group,
    process: Child,
    /// Lines of pillion's standard error, and of its command's output.
    lines: Receiver<String>,
    reloads: u64,
}

impl<'a> Rider<'a> {
    /// Starts, runs and stops one pillion. An error describes a violation.
    pub fn go(field: &'a Field, ride: &'a Ride, number: u64) -> Result<Outcome, String> {
        let rider = Self::begin(field, ride, number);
        let mut rider = rider.map_err(|error| format!("pillion {number}: {error}"))?;
        let outcome = rider.work().and_then(|attached| rider.end(attached));
        outcome.map_err(|what| format!("pillion {number} ({ride:?}): {what}"))
    }

    fn begin(field: &'a Field, ride: &'a Ride, number: u64) -> std::io::Result<Self> {
        let folder = TempDir::new()?;
        let group = field.ground.group(&format!("pillion-number-{number}"))?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let mut words = vec![PILLION.to_owned()];
        let verb = match ride.whom {
            Whom::Run(_) => "run",
            Whom::All | Whom::Cgroup(_) => "attach",
        };
        words.extend([verb.to_owned(), format!("--stats={}", path("stats"))]);
        words.extend(ride.options.clone());
        match &ride.whom {
            Whom::All => words.push("--all".to_owned()),
            Whom::Cgroup(cgroup) => {
                fs::write(path("rules"), rules(cgroup, 0))?;
                words.push(format!("--config={}", path("rules")));
            }
            Whom::Run(_) => {
                words.push("--".to_owned());
                words.extend(ends::this("a_client"));
            }
        }
        let host = match ride.side {
            Side::Client => &field.ground.pair.sender.namespace,
            Side::Server => &field.ground.pair.receiver.namespace,
        };
        let mut command = field.ground.cell(host, &group, &words);
        hears_all_signals(&mut command);
        if let Whom::Run(task) = ride.whom {
            ends::give(&mut command, task);
        }
        let mut process = command.stderr(Stdio::piped()).spawn()?;
        let (say, lines) = channel();
        if let Some(stdout) = process.stdout.take() {
            field.listen(stdout, say.clone());
        }
        if let Some(stderr) = process.stderr.take() {
            forward(stderr, say);
        }
        Ok(Self {
            field,
            ride,
            folder,
            group,
            process,
            lines,
            reloads: 0,
        })
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Keeps pillion running. Returns true if it is certainly attached at the end.
    fn work(&mut self) -> Result<bool, String> {
        let lasts = self.ride.lasts.unwrap_or(Duration::MAX);
        if self.ride.end == End::KilledEarly {
            // The start takes about half a second.
            thread::sleep(lasts / 9);
            return Ok(false);
        }
        match self.ride.whom {
            Whom::Run(_) => self.await_line("soak: opened")?,
            Whom::All | Whom::Cgroup(_) => self.await_line("pillion: bundling")?,
        }
        self.field.tell(News::Attached(self.pid()));
        let begun = Instant::now();
        while begun.elapsed() < lasts && !self.field.is_over() {
            let reloads = self
                .ride
                .reloads_every
                .map(|every| every * (self.reloads + 1) as u32);
            if reloads.is_some_and(|due| begun.elapsed() >= due) {
                self.reload()?;
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(true)
    }

    fn reload(&mut self) -> Result<(), String> {
        let Whom::Cgroup(cgroup) = &self.ride.whom else {
            return Ok(());
        };
        self.reloads += 1;
        let file = self.folder.path().join("rules");
        fs::write(file, rules(cgroup, self.reloads)).map_err(|error| error.to_string())?;
        self.signal(nix::sys::signal::Signal::SIGHUP)?;
        self.await_line("pillion: reloaded")
    }

    fn await_line(&mut self, begins: &str) -> Result<(), String> {
        let mut said = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.starts_with(begins) => return Ok(()),
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("did not log `{begins}`, but {said:?}"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.process.wait();
                    return Err(format!("exited unexpectedly: {status:?}, {said:?}"));
                }
            }
        }
    }

    fn signal(&self, signal: nix::sys::signal::Signal) -> Result<(), String> {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).map_err(|errno| errno.to_string())
    }

    fn end(&mut self, attached: bool) -> Result<Outcome, String> {
        let objects = bpf_objects(self.pid());
        if attached && objects.is_empty() {
            return Err("attached without any program".to_owned());
        }
        let stays = !matches!(self.ride.whom, Whom::Run(_));
        self.signal(self.ride.end.signal(stays))?;
        let status = self.status()?;
        if !self.ride.end.is_killed() && !status.success() {
            let said: Vec<_> = self.lines.try_iter().collect();
            return Err(format!("{status}; its log: {said:?}"));
        }
        self.nothing_left(&objects)?;
        Ok(Outcome {
            end: self.ride.end,
            attached,
            reloads: self.reloads,
            stats: self.stats()?,
        })
    }

    fn status(&mut self) -> Result<ExitStatus, String> {
        let begun = Instant::now();
        loop {
            let status = self.process.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = status {
                return Ok(status);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("does not exit after {}", self.ride.end.name()));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until no program, map or link is left, and no process or cgroup after its command has
    /// exited.
    fn nothing_left(&self, objects: &BTreeSet<String>) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let all = all_bpf_objects();
            let left: Vec<_> = objects.intersection(&all).collect();
            if left.is_empty() {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("left behind: {left:?}"));
            }
            thread::sleep(Duration::from_millis(50));
        }
        self.group.remove()
    }

    fn stats(&self) -> Result<Option<Value>, String> {
        if self.ride.end.is_killed() {
            return Ok(None);
        }
        let file: PathBuf = self.folder.path().join("stats");
        let text = fs::read_to_string(&file).map_err(|error| format!("its statistics: {error}"))?;
        let stats = serde_json::from_str(&text).map_err(|error| format!("its statistics: {error}"))?;
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
