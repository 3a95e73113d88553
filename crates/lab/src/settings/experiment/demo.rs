use std::time::Duration;

use crate::traffic::Distribution;
use clap::Args;
use pillion_bpf::{Reaction, ThinTest, parse_bytes, parse_packets};

use super::path::parse_rtt;
use super::values::parse_share;
use super::{Experiment, Limit, Loss, PlannedRun, Rate, Run, RunScale, Share, of_text};
use crate::Part;
use crate::settings::Itt;
use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::PositiveDuration;

/// Experiment with a plain and a bundled run.
const FILE: &str = include_str!("../../../../../experiments/demo.toml");

/// Name of the experiment's group.
const GROUP: &str = "thin";

/// Options of `pillion-lab demo` that replace values of its experiment file.
#[derive(Debug, Clone, Default, Args)]
pub struct DemoOptions {
    /// Streams in each group [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    streams: Option<u16>,

    /// Inter-transmission time and its standard deviation [default: 30ms:3ms]
    #[arg(long, value_name = "TIME[:SD]")]
    itt: Option<Itt>,

    /// Payload of a message in bytes [default: 120]
    #[arg(long, value_name = "BYTES")]
    size: Option<u32>,

    /// Round-trip time [default: 150ms]
    #[arg(long, value_name = "DURATION", value_parser = parse_rtt)]
    rtt: Option<Duration>,

    /// Share of packets lost in the data direction [default: 5%]
    #[arg(long, value_name = "PERCENT", value_parser = parse_share)]
    loss: Option<Share>,

    /// Time of sending [default: 30s]
    #[arg(long, value_name = "DURATION")]
    duration: Option<PositiveDuration>,

    /// Rate of each path, as in 5mbit [default: no limit]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,

    /// Maximum packets in the queue in front of that rate [default: 63]
    #[arg(long, value_name = "PACKETS")]
    queue: Option<u32>,

    /// Congestion control of all streams [default: reno]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,

    /// Maximum previous segments in a bundle; 0: no limit [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_packets)]
    max_packets: Option<u32>,

    /// Maximum payload of a segment with its bundle, in bytes; 0: up to the MSS [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    max_bytes: Option<u32>,

    /// When to bundle, as for `pillion run` [default: dpifl:10]
    #[arg(long, value_name = "TEST")]
    thin: Option<ThinTest>,

    /// Reaction of congestion control to hidden losses, as for `pillion run` [default: cwr]
    #[arg(long, value_name = "REACTION", value_enum)]
    reaction: Option<Reaction>,

    /// Seed of losses and inter-transmission times [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
}

impl DemoOptions {
    /// Returns the plain and the bundled run, which are otherwise equal.
    ///
    /// # Errors
    /// [`BadInput`] with the first invalid value.
    pub fn runs(&self) -> Result<[PlannedRun; 2], BadInput> {
        let Experiment { mut runs, .. } =
            of_text("experiments/demo.toml", FILE, RunScale::Default)?;
        for planned in &mut runs {
            let variant = planned.name.parts().next().map(Part::as_str);
            planned.name = variant.unwrap_or_default().into();
            self.apply(&mut planned.run);
            planned.plan = planned.run.plan().map_err(|it| BadInput(it.text))?;
        }
        let two = runs.try_into();
        two.map_err(|_| BadInput("experiments/demo.toml: expected two runs".to_owned()))
    }

    fn apply(&self, run: &mut Run) {
        set(&mut run.duration, self.duration);
        set(&mut run.seed, self.seed);
        set(&mut run.path.rtt, self.rtt);
        let loss = self.loss.map(Share::get);
        let uniform = |share: f64| (share > 0.0).then_some(Loss::Uniform(share));
        set(&mut run.path.forward.loss, loss.map(uniform));
        set(&mut run.bottleneck.forward.rate, self.rate.map(Some));
        let queue = self.queue.map(Limit::Packets);
        set(&mut run.bottleneck.forward.limit, queue.map(Some));
        let Some(group) = run.group.get_mut(GROUP) else {
            return;
        };
        let traffic = &mut group.traffic;
        set(&mut traffic.streams, self.streams);
        set(&mut traffic.itt, self.itt.map(|itt| Some(itt.into())));
        let size = self.size.map(|size| Distribution::constant(size.into()));
        set(&mut traffic.size, size.map(Some));
        set(&mut traffic.congestion, self.congestion.clone().map(Some));
        if let Some(bundling) = &mut group.bundle {
            let options = &mut bundling.options;
            set(&mut options.max_packets, self.max_packets.map(Some));
            set(&mut options.max_bytes, self.max_bytes);
            set(&mut options.thin, self.thin);
            set(&mut options.reaction, self.reaction);
        }
    }
}

fn set<T>(value: &mut T, other: Option<T>) {
    if let Some(other) = other {
        *value = other;
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    fn demo(arguments: &[impl AsRef<str>]) -> Result<DemoOptions, clap::Error> {
        let command = DemoOptions::augment_args(Command::new("demo").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments.iter().map(AsRef::as_ref))?;
        DemoOptions::from_arg_matches(&matches)
    }

    fn runs(arguments: &[String]) -> Result<[PlannedRun; 2], BadInput> {
        demo(arguments).unwrap().runs()
    }

    #[test]
    fn demo_defaults_in_help_match_file() {
        let command = DemoOptions::augment_args(Command::new("demo"));
        let mut defaults = Vec::new();
        for option in command.get_arguments() {
            let help = option.get_help().unwrap().to_string();
            let (_, default) = help.split_once("[default: ").expect("a default");
            let default = default.trim_end_matches(']');
            if default != "no limit" {
                let name = option.get_long().unwrap();
                defaults.extend([format!("--{name}"), default.to_owned()]);
            }
        }
        let plain = |runs: [PlannedRun; 2]| runs.map(|it| (it.name, it.plan));
        assert_eq!(plain(runs(&defaults).unwrap()), plain(runs(&[]).unwrap()));
    }

    #[test]
    fn demo_runs_differ_only_in_bundling() {
        let arguments = "--streams 3 --itt 50ms --size 99 --rtt 80ms --loss 2% --duration 7s --rate 2mbit --queue 9 \
                    --congestion cubic --max-packets 0 --max-bytes 500 --thin always \
                    --reaction none --seed 5";
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let [plain, mut bundled] = runs(&arguments).unwrap();
        assert_eq!(plain.name.as_str(), "plain");
        assert_eq!(plain.plan.streams[0].bundling, None);
        let bundling = bundled.plan.streams[0].bundling.take().unwrap();
        assert_eq!(bundling.options.max_packets, Some(0));
        assert_eq!(bundling.options.reaction, Reaction::None);
        assert_eq!(plain.plan, bundled.plan);
        assert_eq!(plain.plan.seed, 5);
        assert_eq!(plain.plan.rtt(), Duration::from_millis(80));
        assert_eq!(plain.plan.bottleneck.limit, Some(Limit::Packets(9)));
        assert_eq!(plain.plan.streams[0].traffic.streams, 3);
    }

    #[test]
    fn demo_options_have_usual_limits() {
        for (option, max, invalid) in [
            ("--max-packets", "2047", "4294967295"),
            ("--max-bytes", "2", "1"),
            ("--duration", "0.5s", "0s"),
        ] {
            demo(&[option, max]).unwrap();
            let error = demo(&[option, invalid]).unwrap_err().to_string();
            assert!(error.contains(": expected"), "{error}");
        }
    }

    #[test]
    fn demo_reports_invalid_size() {
        let arguments = ["--size", "0"].map(str::to_owned);
        let error = runs(&arguments).unwrap_err().0;
        assert!(error.contains("size"), "{error}");
    }
}
