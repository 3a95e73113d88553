use std::time::Duration;

use crate::traffic::Distribution;
use clap::Args;
use pillion_bpf::Options;

use super::path::parse_rtt;
use super::values::parse_share;
use super::{Experiment, Limit, Loss, PlannedRun, Rate, Run, RunScale, Share, of_text};
use crate::Part;
use crate::settings::Itt;
use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::PositiveDuration;

/// Experiment with the variants `plain`, `published` and `pillion`.
const FILE: &str = include_str!("../../../../../experiments/demo.toml");

/// Name of the experiment's group.
const GROUP: &str = "thin";

/// Options of `pillion-lab demo` that replace values of its experiment file.
#[derive(Debug, Clone, Default, Args)]
pub struct DemoOptions {
    /// Streams in each group [default: 10]
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

    /// Time of sending [default: 60s]
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

    /// Seed of losses and inter-transmission times [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,

    #[command(flatten)]
    bundling: Options,
}

impl DemoOptions {
    /// Returns three runs that differ only in their bundling: none, as published, and pillion's.
    ///
    /// # Errors
    /// [`BadInput`] with the first invalid value.
    pub fn runs(&self) -> Result<[PlannedRun; 3], BadInput> {
        let Experiment { mut runs, .. } =
            of_text("experiments/demo.toml", FILE, RunScale::Default)?;
        for planned in &mut runs {
            let variant = planned.name.parts().next().map(Part::as_str);
            planned.name = variant.unwrap_or_default().into();
            self.apply(&mut planned.run, planned.name.as_str() == "pillion");
            planned.plan = planned.run.plan().map_err(|it| BadInput(it.text))?;
        }
        let three = runs.try_into();
        three.map_err(|_| BadInput("experiments/demo.toml: expected three runs".to_owned()))
    }

    fn apply(&self, run: &mut Run, is_pillion: bool) {
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
        if let Some(bundling) = group.bundle.as_mut().filter(|_| is_pillion) {
            bundling.options = self.bundling;
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
    use pillion_bpf::Reaction;

    use super::*;

    fn demo(arguments: &[impl AsRef<str>]) -> Result<DemoOptions, clap::Error> {
        let command = DemoOptions::augment_args(Command::new("demo").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments.iter().map(AsRef::as_ref))?;
        DemoOptions::from_arg_matches(&matches)
    }

    fn runs(arguments: &[String]) -> Result<[PlannedRun; 3], BadInput> {
        demo(arguments).unwrap().runs()
    }

    #[test]
    fn demo_defaults_in_help_match_file() {
        let command = DemoOptions::augment_args(Command::new("demo"));
        let mut defaults = Vec::new();
        let own = command.get_arguments();
        for option in own.filter(|it| it.get_help_heading().is_none()) {
            let help = option.get_help().unwrap().to_string();
            let (_, default) = help.split_once("[default: ").expect("a default");
            let default = default.trim_end_matches(']');
            if default != "no limit" {
                let name = option.get_long().unwrap();
                defaults.extend([format!("--{name}"), default.to_owned()]);
            }
        }
        let plain = |runs: [PlannedRun; 3]| runs.map(|it| (it.name, it.plan));
        assert_eq!(plain(runs(&defaults).unwrap()), plain(runs(&[]).unwrap()));
    }

    #[test]
    fn demo_runs_differ_only_in_bundling() {
        let arguments = "--streams 3 --itt 50ms --size 99 --rtt 80ms --loss 2% --duration 7s --rate 2mbit --queue 9 \
                    --congestion cubic --max-packets 0 --max-bytes 500 --thin always \
                    --reaction none --seed 5";
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let planned = runs(&arguments).unwrap();
        let names = planned.each_ref().map(|it| it.name.as_str());
        assert_eq!(names, ["plain", "published", "pillion"]);
        let mut plans = planned.map(|it| it.plan);
        let bundling = plans.each_mut().map(|it| it.streams[0].bundling.take());
        let [None, Some(published), Some(pillion)] = bundling.map(|it| it.map(|it| it.options))
        else {
            panic!("{plans:?}");
        };
        assert!(published.published && !pillion.published);
        assert_eq!(
            [published, pillion].map(|it| (it.max_packets, it.max_bytes, it.reaction())),
            [(Some(1), 0, Reaction::Cwr), (Some(0), 500, Reaction::None)]
        );
        let [plain, published, pillion] = plans;
        assert_eq!((&plain, &plain), (&published, &pillion));
        assert_eq!(plain.seed, 5);
        assert_eq!(plain.rtt(), Duration::from_millis(80));
        assert_eq!(plain.bottleneck.limit, Some(Limit::Packets(9)));
        assert_eq!(plain.streams[0].traffic.streams, 3);
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
