//! What chance decides about one pillion: whom it bundles and how, for how long, and its end.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use rand::{Rng, RngExt};

use super::ends::Task;
use super::plan::Side;

/// How a pillion ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Terminated,
    Interrupted,
    /// SIGHUP ends it, or has it read its rules again before another signal ends it.
    HungUp,
    Killed,
    /// Killed while it still begins, perhaps.
    KilledEarly,
}

impl End {
    pub fn name(self) -> &'static str {
        match self {
            Self::Terminated => "SIGTERM",
            Self::Interrupted => "SIGINT",
            Self::HungUp => "SIGHUP",
            Self::Killed => "kill -9",
            Self::KilledEarly => "kill -9 at its beginning",
        }
    }

    pub fn is_killed(self) -> bool {
        matches!(self, Self::Killed | Self::KilledEarly)
    }

    /// A third of them by SIGTERM, a third by another signal, and a third killed.
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

    /// The signal that ends a pillion, which stays or has a command: `attach` ends on SIGHUP only
    /// with its terminal.
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

/// Whom a pillion bundles.
#[derive(Debug, Clone)]
pub enum Whom {
    /// All connections of a host.
    All,
    /// Those of the cgroup of this name, by a file of rules.
    Cgroup(&'static str),
    /// Those of a client that it runs.
    Run(Task),
}

#[derive(Debug, Clone)]
pub struct Ride {
    pub whom: Whom,
    /// The host.
    pub side: Side,
    pub options: Vec<String>,
    pub end: End,
    /// How long it is at work; none, until the soak is over.
    pub lasts: Option<Duration>,
    /// How often it reads its rules again.
    pub reloads_every: Option<Duration>,
}

/// Two clients that stay, each in its own cgroup.
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

    /// One that stays as long as the soak, and reads its rules again and again.
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

/// What begins at one moment: one, or two on different cgroups. They are numbered from `first` on,
/// and some serve the network namespace of a name as well.
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

/// How to bundle, on the command line; where a file says that, only what remains.
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

/// The rules that a pillion has before or after it has read them again so often.
pub fn rules(cgroup: &str, reloads: u64) -> String {
    let how = match reloads % 3 {
        0 => "thin = \"always\"\nmax-packets = 2\n",
        1 => "level = \"adaptive\"\nreaction = \"tfrc-sp\"\n",
        _ => "mode = \"leave-alone\"\n",
    };
    format!("[[rule]]\ncgroup = \"/{cgroup}\"\n{how}")
}
