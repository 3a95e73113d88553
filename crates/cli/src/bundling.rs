//! What `run` and `attach` share: options of bundling, and the account at the end.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use pillion_bundler::{
    Hook, Level, LossRule, Options, Outcome, Policy, Reaction, ThinRtt, ThinTest, Totals,
};

use crate::companions::{self, CompanionArgs};
use crate::exit::BadInput;
use crate::lent::refuse;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReactionArg {
    Cwr,
    TfrcSp,
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RttArg {
    Min,
    Smoothed,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LevelArg {
    Fixed,
    Adaptive,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LossRuleArg {
    Auto,
    Ack,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HookArg {
    Auto,
    Tcx,
    Clsact,
}

#[derive(Args)]
#[command(next_help_heading = "Bundling")]
pub struct BundlingArgs {
    /// Bundle while the stream is thin: `dpifl[:MS]`, packets in flight x MS < minimum
    /// RTT; `spifl:N`, at most N packets in flight; `always`, for experiments
    #[arg(long, value_name = "TEST", default_value = "dpifl:10", value_parser = parse_thin)]
    thin: ThinTest,

    /// The RTT that dpifl takes: the connection's minimum, or the smoothed one
    #[arg(long, value_name = "RTT", default_value = "min")]
    rtt: RttArg,

    /// Bundle only after the connection's first retransmission
    #[arg(long)]
    wait_for_loss: bool,

    /// How many previous segments ride along: `fixed`, as --max-packets says; `adaptive`, the
    /// fewest that the runs of losses seen demand, up to --max-packets and 8
    #[arg(long, value_name = "LEVEL", default_value = "fixed")]
    level: LevelArg,

    /// With --level adaptive: the per cent of segments that may be lost and not repaired
    #[arg(long, value_name = "PERCENT", default_value = "0.1", value_parser = parse_percent)]
    target: f64,

    /// Previous segments that ride along at most; 0 for no limit [default: 1, or 0 with
    /// --level adaptive]
    #[arg(long, value_name = "N")]
    max_packets: Option<u32>,

    /// Bytes of payload in a segment with its bundle at most; 0: the MSS alone limits
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    max_bytes: u32,

    /// What follows from a loss that a bundle hid: `cwr`, the kernel reduces the congestion
    /// window; `tfrc-sp`, the same, but only if the stream sends more than its fair share
    /// (RFC 4828); `none`, nothing, for experiments (with --unsafe)
    #[arg(long, value_name = "REACTION", default_value = "cwr")]
    reaction: ReactionArg,

    /// Allow what takes a stream out of congestion control
    #[arg(long = "unsafe")]
    pub allow_unsafe: bool,

    /// How hidden losses are found: `auto`, by the receiver's reports of duplicates where it
    /// makes them, else as `ack`; `ack`, an ACK of several segments means loss
    #[arg(long, value_name = "RULE", default_value = "auto")]
    loss_rule: LossRuleArg,

    /// Bundle even where the peer does not offer SACK
    #[arg(long)]
    without_sack: bool,

    /// Bundle into retransmissions as well: that of the first unacknowledged segment takes
    /// along whole segments that follow it, within the same limits
    #[arg(long)]
    retransmissions: bool,

    /// A network device to bundle on, whatever device has this name at the time; repeat for
    /// more [default: all that are up, but lo, and those that come up later]
    #[arg(long = "dev", value_name = "IF")]
    pub devices: Vec<OsString>,

    /// Where in a device's path to stand: `tcx` (Linux 6.6), `clsact` for older kernels, or the
    /// better one that the kernel has
    #[arg(long, value_name = "HOOK", default_value = "auto")]
    hook: HookArg,

    /// Connections that something is kept for at a time, of one user half as many; 4.5 KiB of
    /// the kernel's memory each, charged to pillion's own cgroup. The others stay plain
    #[arg(long, value_name = "N", default_value_t = Policy::MAX_CONNECTIONS,
          value_parser = clap::value_parser!(u32).range(2..))]
    pub max_connections: u32,

    /// Write the account of what was done to FILE, as JSON, at the end
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,

    #[command(flatten)]
    pub companions: CompanionArgs,
}

impl BundlingArgs {
    /// The options, unless they are unsafe and that is not allowed.
    pub fn options(&self) -> Result<Options> {
        if self.reaction == ReactionArg::None && !self.allow_unsafe {
            let why = "--reaction none takes streams out of congestion control; \
                       if that is what you want, say --unsafe as well";
            return Err(BadInput(why.to_owned()).into());
        }
        Ok(Options {
            thin: self.thin,
            thin_rtt: match self.rtt {
                RttArg::Min => ThinRtt::Min,
                RttArg::Smoothed => ThinRtt::Smoothed,
            },
            wait_for_loss: self.wait_for_loss,
            level: match self.level {
                LevelArg::Fixed => Level::Fixed,
                LevelArg::Adaptive => Level::Adaptive {
                    target_ppm: (self.target * 1e4) as u32,
                },
            },
            max_packets: self.max_packets.unwrap_or(match self.level {
                LevelArg::Fixed => 1,
                LevelArg::Adaptive => 0,
            }),
            max_bytes: self.max_bytes,
            reaction: match self.reaction {
                ReactionArg::Cwr => Reaction::Cwr,
                ReactionArg::TfrcSp => Reaction::TfrcSp,
                ReactionArg::None => Reaction::None,
            },
            loss_rule: match self.loss_rule {
                LossRuleArg::Auto => LossRule::Auto,
                LossRuleArg::Ack => LossRule::Ack,
            },
            without_sack: self.without_sack,
            retransmissions: self.retransmissions,
        })
    }

    /// Where the programs are to stand.
    pub fn hook(&self) -> Hook {
        match self.hook {
            HookArg::Auto => Hook::of_this_kernel(),
            HookArg::Tcx => Hook::Tcx,
            HookArg::Clsact => Hook::Clsact,
        }
    }

    /// Finds out before anything is begun whether the account can be written.
    pub fn prepare_stats(&self) -> Result<()> {
        let Some(path) = &self.stats else {
            return Ok(());
        };
        refuse("--stats")?;
        write(path, "")
    }

    pub fn write_stats(&self, totals: &Totals) -> Result<()> {
        let Some(path) = &self.stats else {
            return Ok(());
        };
        let mut text = serde_json::to_string_pretty(totals)?;
        text.push('\n');
        write(path, &text)
    }
}

/// A pipe without a reader is no place to wait at.
fn write(path: &Path, text: &str) -> Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    let file = options.custom_flags(libc::O_NONBLOCK).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("write --stats {}", path.display()))
}

/// One line: segments, bundled, redundant bytes and their share, losses, the time
/// that their repair saved, reactions.
pub fn summary(totals: &Totals) -> String {
    let counters = &totals.counters;
    let mut line = format!(
        "{} connections, {} segments, {} bundled, {} redundant bytes ({:.1} %), \
         {} hidden losses, an estimated {} s saved, {} reactions",
        totals.connections,
        counters.segments(),
        counters.of(Outcome::Bundled),
        counters.redundant_bytes,
        counters.redundant_share() * 100.0,
        counters.hidden_losses,
        seconds(counters.saved_us),
        counters.reactions,
    );
    let retransmissions = counters.of(Outcome::RetransmissionBundled);
    if retransmissions > 0 {
        line += &format!(", {retransmissions} retransmissions bundled");
    }
    if let Some(decision) = totals.decision {
        line += &format!(
            ", {} spared (last time {} of {} bytes/s allowed)",
            counters.reactions_spared, decision.rate_sent, decision.rate_allowed
        );
    }
    if totals.connections_refused > 0 {
        line += &format!(
            "; {} connections not bundled for want of kernel memory",
            totals.connections_refused
        );
    }
    if totals.over_limit > 0 {
        line += &format!(
            "; {} times more connections than --max-connections allows",
            totals.over_limit
        );
    }
    line + &companions::summary(totals)
}

/// Whole tenths, rounded down: an estimate that is to be never too high.
fn seconds(us: u64) -> String {
    let tenths = us / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Why the others were not, most frequent first; empty if all were.
pub fn reasons(totals: &Totals) -> String {
    let mut reasons: Vec<_> = totals
        .counters
        .outcomes
        .iter()
        .filter(|(outcome, _)| {
            !matches!(outcome, Outcome::Bundled | Outcome::RetransmissionBundled)
        })
        .collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let words: Vec<_> = reasons
        .iter()
        .map(|(outcome, count)| format!("{} {count}", outcome.label()))
        .collect();
    words.join(", ")
}

fn parse_percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err(format!("`{text}` is no per cent, 0 to 100")),
    }
}

fn parse_thin(text: &str) -> Result<ThinTest, String> {
    let (test, value) = text
        .split_once(':')
        .map_or((text, None), |(test, value)| (test, Some(value)));
    match (test, value) {
        ("dpifl", None) => Ok(ThinTest::default()),
        ("dpifl", Some(value)) => match value.parse::<f64>() {
            Ok(ms) if ms > 0.0 && ms <= 60_000.0 => Ok(ThinTest::Dpifl {
                itt_min: Duration::from_secs_f64(ms / 1000.0),
            }),
            _ => Err(format!(
                "`{value}` is no time in milliseconds between 0 and 60000"
            )),
        },
        ("spifl", Some(value)) => match value.parse() {
            Ok(limit) => Ok(ThinTest::Spifl { limit }),
            Err(_) => Err(format!("`{value}` is no number of packets")),
        },
        ("spifl", None) => Err("spifl needs a limit, as in spifl:4".to_owned()),
        ("always", None) => Ok(ThinTest::Always),
        _ => Err("expected dpifl[:MS], spifl:N or always".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thin_tests_are_read_as_documented() {
        let dpifl = |ms| {
            Ok(ThinTest::Dpifl {
                itt_min: Duration::from_millis(ms),
            })
        };
        assert_eq!(parse_thin("dpifl"), dpifl(10));
        assert_eq!(parse_thin("dpifl:20"), dpifl(20));
        assert_eq!(parse_thin("spifl:7"), Ok(ThinTest::Spifl { limit: 7 }));
        assert_eq!(parse_thin("always"), Ok(ThinTest::Always));
    }

    #[test]
    fn seconds_are_rounded_down() {
        assert_eq!(seconds(99_999), "0.0");
        assert_eq!(seconds(12_399_999), "12.3");
    }

    #[test]
    fn mistakes_in_thin_tests_are_refused() {
        for mistake in [
            "",
            "dpifl:",
            "dpifl:0",
            "dpifl:-1",
            "dpifl:NaN",
            "spifl",
            "spifl:x",
            "always:1",
        ] {
            assert!(parse_thin(mistake).is_err(), "{mistake}");
        }
    }
}
