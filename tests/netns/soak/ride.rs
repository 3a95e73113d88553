//! One pillion of the soak: its randomly chosen configuration, and its life until nothing of it is
//! left.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use rand::{Rng, RngExt};

use super::ends::Task;
use super::plan::Side;

/// How a pillion is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Terminated,
    Interrupted,
    /// SIGHUP, which stops `run`; `attach` reloads, and SIGTERM stops it later.
    HungUp,
    Killed,
    /// Killed, possibly while it starts.
    KilledEarly,
}

impl End {
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
    fn draw(random: &mut impl Rng, number: u64) -> Self {
        let is_rare = random.random_range(0..4) == 0;
        match (number % 3, random.random()) {
            (0, _) => Self::Terminated,
            (1, _) if is_rare => Self::KilledEarly,
            (1, _) => Self::Killed,
            (_, true) => Self::Interrupted,
            (_, false) => Self::HungUp,
        }
    }

    /// Returns the signal that stops a pillion. `attach` exits on SIGHUP only if its terminal
    /// closes.
    pub fn signal(self, stays: bool) -> Signal {
        match self {
            Self::Terminated => Signal::SIGTERM,
            Self::Interrupted => Signal::SIGINT,
            Self::HungUp if stays => Signal::SIGTERM,
            Self::HungUp => Signal::SIGHUP,
            Self::Killed | Self::KilledEarly => Signal::SIGKILL,
        }
    }
}

/// Connections that a pillion bundles.
#[derive(Debug, Clone)]
pub enum Whom {
    /// All connections of a host.
    All,
    /// Connections of the cgroup with this name, by a rules file.
    Cgroup(&'static str),
    /// Connections of a client that it runs.
    Run(Task),
}

#[derive(Debug, Clone)]
pub struct Ride {
    pub whom: Whom,
    /// Host on which it runs.
    pub side: Side,
    pub options: Vec<String>,
    pub end: End,
    /// How long it stays attached; `None` until the end of the soak.
    pub lasts: Option<Duration>,
    /// Interval between reloads.
    pub reloads_every: Option<Duration>,
}

/// Long-lived clients, each in its own cgroup.
pub const CLIENTS: [&str; 2] = ["blue", "green"];

impl Ride {
    fn draw(random: &mut impl Rng, number: u64, whom: Whom, side: Side) -> Self {
        let has_file = matches!(whom, Whom::Cgroup(_));
        let lasts = Duration::from_millis(random.random_range(200..9000));
        let end = End::draw(random, number);
        let reloads = has_file && end == End::HungUp;
        Self {
            options: options(random, has_file),
            whom,
            side,
            end,
            lasts: Some(lasts),
            reloads_every: reloads.then(|| lasts.mul_f64(0.4)),
        }
    }

    /// Returns the configuration of the pillion that stays and reloads its rules all the time.
    pub fn that_stays() -> Self {
        Self {
            whom: Whom::Cgroup(CLIENTS[0]),
            side: Side::Client,
            options: Vec::new(),
            end: End::Terminated,
            lasts: None,
            reloads_every: Some(Duration::from_secs(5)),
        }
    }
}

/// Chooses one pillion to start, or two on different cgroups, numbered from `first`. Some also
/// serve the network namespace `name`.
pub fn draw(random: &mut impl Rng, first: u64, name: &Path) -> Vec<Ride> {
    let whoms = match random.random_range(0..10) {
        0..4 => vec![(Whom::All, Side::Client)],
        4..6 => vec![(Whom::All, Side::Server)],
        6..8 => CLIENTS
            .map(|client| (Whom::Cgroup(client), Side::Client))
            .into(),
        _ => {
            let task = Task {
                seed: random.random(),
                hourly: 7200,
                long: 1,
                seconds: 10,
            };
            vec![(Whom::Run(task), Side::Client)]
        }
    };
    let numbered = (first..).zip(whoms);
    let draw = |(number, (whom, side))| {
        let mut ride = Ride::draw(random, number, whom, side);
        if matches!(ride.whom, Whom::All) && random.random_bool(0.4) {
            let named = format!("--netns={}", name.display());
            ride.options
                .extend([named, "--netns=/proc/self/ns/net".to_owned()]);
        }
        ride
    };
    numbered.map(draw).collect()
}

/// Chooses bundling options for the command line; with a rules file only the hook remains.
fn options(random: &mut impl Rng, has_file: bool) -> Vec<String> {
    let mut pick = |option: &str, all: &[&str]| {
        let value = all[random.random_range(0..all.len())];
        format!("--{option}={value}")
    };
    let hook = pick("hook", &["auto", "auto", "clsact"]);
    if has_file {
        return vec![hook];
    }
    let mut options = vec![
        hook,
        pick("thin", &["always", "dpifl:10", "spifl:4"]),
        pick("level", &["fixed", "fixed", "adaptive"]),
        pick("max-packets", &["0", "1", "1", "3"]),
        pick("reaction", &["cwr", "cwr", "tfrc-sp"]),
    ];
    if random.random_bool(0.2) {
        options.push("--retransmissions".to_owned());
    }
    options
}

/// Returns the rules after this number of reloads.
pub fn rules(cgroup: &str, reloads: u64) -> String {
    let how = match reloads % 3 {
        0 => "thin = \"always\"\nmax-packets = 2\n",
        1 => "level = \"adaptive\"\nreaction = \"tfrc-sp\"\n",
        _ => "mode = \"leave-alone\"\n",
    };
    format!("[[rule]]\ncgroup = \"/{cgroup}\"\n{how}")
}
