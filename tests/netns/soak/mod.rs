//! The soak: connections and pillions that come and go for a long time.
//!
//! On two hosts with a lossy path, clients and a server hold connections of every kind and verify
//! each byte by its position. Meanwhile pillions start, bundle and exit, a third of them by `kill
//! -9`, and devices appear, change and vanish. No byte may be wrong, no connection lost, nothing
//! left behind, and memory may not grow.
//!
//! `make soak` takes an hour. `make storm` takes ten minutes with far more events. Both accept a
//! number of minutes. `cargo test` runs one minute of storm.

mod device_churn;
mod endpoint;
mod environment;
mod events;
mod host_state;
mod instance;
mod memory;
mod plan;
mod summary;

use std::env;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use device_churn::DeviceChurn;
use endpoint::{ClientTask, TIMEOUT};
use environment::{Context, EndpointProcess, Environment, Event};
use events::ConnectionLedger;
use host_state::{HostState, KernelLog};
use instance::{CLIENTS, InstanceConfig, choose};
use memory::{Sample, Samples};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use summary::Summary;

use crate::common::needs_root;

/// Environment variables: minutes of real time (default: one minute of storm).
const SOAK: &str = "PILLION_SOAK_MINUTES";
const STORM: &str = "PILLION_STORM_MINUTES";
/// Environment variable: seed for everything except the kernel's own scheduling.
const SEED: &str = "PILLION_SOAK_SEED";

/// An hour has 10,000 connections and 1,000 attachments.
fn soak(minutes: u64) -> SoakSettings {
    SoakSettings {
        time: Duration::from_secs(60 * minutes),
        connections_per_hour: 4_500,
        pillions_per_hour: 1_200,
        device_changes_per_hour: 1_200,
    }
}

fn storm(minutes: u64) -> SoakSettings {
    SoakSettings {
        time: Duration::from_secs(60 * minutes),
        connections_per_hour: 9_000,
        pillions_per_hour: 4_000,
        device_changes_per_hour: 7_200,
    }
}

fn number(variable: &str) -> Option<u64> {
    let given = env::var(variable).ok()?;
    Some(given.parse().expect(variable))
}

#[test]
fn soak_finds_no_corruption_loss_growth_or_leftovers() {
    needs_root!();
    let seed = number(SEED).unwrap_or(1);
    let (settings, repeat) = match (number(SOAK), number(STORM)) {
        (Some(minutes), _) => (soak(minutes), format!("make soak MINUTES={minutes}")),
        (None, minutes) => {
            let minutes = minutes.unwrap_or(1);
            (storm(minutes), format!("make storm MINUTES={minutes}"))
        }
    };
    if let Err(violation) = run(settings, seed) {
        panic!("{violation}\nrepeat with: {repeat} SEED={seed}");
    }
}

/// Duration and event rates of a soak.
#[derive(Debug, Clone, Copy)]
pub struct SoakSettings {
    pub time: Duration,
    /// Connections per hour of each of the two long-lived clients.
    pub connections_per_hour: u32,
    /// Pillions per hour. About a fifth run their own client, with a dozen connections.
    pub pillions_per_hour: u32,
    /// Device changes per hour.
    pub device_changes_per_hour: u32,
}

/// Connections of each client that last as long as the client.
const LONG_LIVED_CONNECTIONS: u32 = 5;

/// Interval between memory samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);

/// How long grown memory may take to shrink while nothing new starts. On slow machines more
/// pillions run at the same time, and the kernel frees their memory later.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum bytes of kernel memory left after all processes have exited; the kernel retains some for
/// each.
const MAX_KERNEL_BYTES_LEFT: u64 = 2 << 20;

struct Soak {
    settings: SoakSettings,
    context: Context,
    events: Receiver<Event>,
    endpoints: Vec<EndpointProcess>,
    ledger: ConnectionLedger,
    summary: Summary,
    samples: Samples,
    kernel: KernelLog,
    churn: DeviceChurn,
    /// Pillions started so far, and those still running.
    started: u64,
    running: u64,
}

/// Runs the soak and prints the summary. An error describes a violation.
fn run(settings: SoakSettings, seed: u64) -> Result<(), String> {
    let environment =
        Environment::create(seed).map_err(|error| format!("create the environment: {error}"))?;
    let before = HostState::now(&environment);
    let (sender, events) = channel();
    let mut soak = Soak {
        settings,
        context: Context::new(environment, sender),
        events,
        endpoints: Vec::new(),
        ledger: ConnectionLedger::default(),
        summary: Summary::default(),
        samples: Samples::default(),
        kernel: KernelLog::from_now(),
        churn: DeviceChurn::start().map_err(|error| format!("device churn: {error}"))?,
        started: 0,
        running: 0,
    };
    let random = &mut Pcg64::seed_from_u64(seed);
    let long_lived_pid = soak.start(random)?;
    soak.run(random, long_lived_pid)?;
    soak.context.stop();
    soak.finish(&before)?;
    let path = soak.context.environment.pair.path.stats();
    let table = soak
        .summary
        .table(&soak.ledger, &path, &soak.samples, settings.samples());
    print!("{}", table.to_text());
    let summary = &soak.summary;
    if summary.bundles == 0 || summary.connections == 0 {
        return Err("nothing was bundled".to_owned());
    }
    Ok(())
}

/// Returns a random time until the next of `times` events per hour.
fn random_interval(times: f64, random: &mut Pcg64) -> Duration {
    Duration::from_secs_f64(3600.0 / times * random.random_range(0.0..2.0))
}

impl SoakSettings {
    /// Returns the total number of memory samples.
    fn samples(self) -> usize {
        (self.time.as_secs_f64() / SAMPLE_INTERVAL.as_secs_f64()) as usize
    }
}

impl Drop for Soak {
    fn drop(&mut self) {
        self.context.stop();
        self.context.environment.remove_all();
    }
}

impl Soak {
    /// Starts the server, the clients and the long-lived pillion, whose PID it returns.
    fn start(&mut self, random: &mut Pcg64) -> Result<u32, String> {
        let server = EndpointProcess::server(&self.context)?;
        self.endpoints.push(server);
        for name in CLIENTS {
            let task = ClientTask {
                seed: random.random(),
                per_hour: self.settings.connections_per_hour,
                long_lived: LONG_LIVED_CONNECTIONS,
                seconds: u32::MAX,
            };
            let client = EndpointProcess::client(&self.context, name, task)?;
            self.endpoints.push(client);
        }
        self.start_instance(InstanceConfig::long_lived());
        loop {
            if let Some(process) = self.receive(TIMEOUT)? {
                return Ok(process);
            }
        }
    }

    fn start_instance(&mut self, config: InstanceConfig) {
        self.started += 1;
        self.running += 1;
        self.context.start_instance(config, self.started);
    }

    /// Waits for an event and processes it. Returns the PID of a pillion that has just attached.
    fn receive(&mut self, timeout: Duration) -> Result<Option<u32>, String> {
        match self.events.recv_timeout(timeout) {
            Ok(Event::Endpoint(event)) => self.ledger.handle(event)?,
            Ok(Event::Attached(process)) => return Ok(Some(process)),
            Ok(Event::Ended(outcome)) => {
                self.running -= 1;
                self.summary.add(&outcome?);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err("no sender is left".to_owned()),
        }
        Ok(None)
    }

    fn run(&mut self, random: &mut Pcg64, long_lived_pid: u32) -> Result<(), String> {
        let started = Instant::now();
        let time = self.settings.time;
        let mut next = [
            Duration::ZERO,
            Duration::ZERO,
            PROGRESS_INTERVAL,
            Duration::ZERO,
        ];
        while started.elapsed() < time {
            let now = started.elapsed();
            let [config, sample, minute, change] = next.map(|it| it <= now);
            if config {
                let configs = choose(random, self.started, &self.churn.namespace_path());
                let rate = f64::from(self.settings.pillions_per_hour) / configs.len() as f64;
                next[0] += random_interval(rate, random);
                configs
                    .into_iter()
                    .for_each(|config| self.start_instance(config));
            }
            if sample {
                next[1] += SAMPLE_INTERVAL;
                self.sample(long_lived_pid)?;
            }
            if minute {
                next[2] += PROGRESS_INTERVAL;
                println!("{}", self.summary.line(&self.ledger, now));
                self.endpoints
                    .iter_mut()
                    .try_for_each(EndpointProcess::check)?;
                self.check_memory(long_lived_pid)?;
                self.kernel.check()?;
                next = next.map(|it| it.max(started.elapsed()));
            }
            if change {
                next[3] += random_interval(self.settings.device_changes_per_hour.into(), random);
                self.churn.change(&self.context.environment, random)?;
            }
            let until = next.iter().min().copied().unwrap_or_default();
            self.receive(until.saturating_sub(started.elapsed()))?;
        }
        self.sample(long_lived_pid)?;
        self.check_memory(long_lived_pid)
    }

    /// Returns an error if memory has grown and does not shrink while nothing new starts.
    fn check_memory(&mut self, long_lived_pid: u32) -> Result<(), String> {
        let started = Instant::now();
        loop {
            match self.samples.check(self.settings.samples()) {
                Err(grown) if started.elapsed() < SETTLE_TIMEOUT => {
                    println!("waiting for memory to shrink: {grown}");
                }
                checked => return checked,
            }
            let sampled = Instant::now();
            while sampled.elapsed() < SAMPLE_INTERVAL {
                self.receive(SAMPLE_INTERVAL.saturating_sub(sampled.elapsed()))?;
            }
            self.sample(long_lived_pid)?;
        }
    }

    fn sample(&mut self, long_lived_pid: u32) -> Result<(), String> {
        let sample = Sample::take(long_lived_pid, &self.context.environment.kernel_memory);
        let sample = sample.map_err(|error| format!("long-lived pillion: {error}"))?;
        self.samples.add(sample);
        Ok(())
    }

    /// Stops the pillions, the clients and the server, in this order. Then checks that nothing is
    /// left.
    fn finish(&mut self, before: &HostState) -> Result<(), String> {
        let started = Instant::now();
        while self.running > 0 {
            self.receive(Duration::from_secs(1))?;
            if started.elapsed() > 3 * TIMEOUT {
                return Err(format!("{} pillions do not exit", self.running));
            }
        }
        for endpoint in self.endpoints.drain(..).rev() {
            endpoint.stop()?;
        }
        while let Ok(Event::Endpoint(event)) = self.events.try_recv() {
            self.ledger.handle(event)?;
        }
        self.ledger.check_complete()?;
        self.churn.remove_all(&self.context.environment)?;
        let left = HostState::now(&self.context.environment).added_since(before);
        if !left.is_empty() {
            return Err(format!("left behind: {left:?}"));
        }
        self.kernel.check()?;
        let kernel_memory = &self.context.environment.kernel_memory;
        kernel_memory.reclaim();
        let left = kernel_memory.kernel_bytes().unwrap_or(0);
        println!("{left} bytes of kernel memory left");
        match left {
            0..MAX_KERNEL_BYTES_LEFT => Ok(()),
            _ => Err(format!("left behind: {left} bytes of kernel memory")),
        }
    }
}
