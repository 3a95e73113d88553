use std::time::Duration;

use crate::traffic::Distribution;
use clap::Args;
use pillion_bpf::{Reaction, ThinTest, parse_bytes, parse_packets};

use super::path::parse_rtt;
use super::{Experiment, Extent, Limit, Loss, Planned, Rate, Run, Share, of_text};
use crate::Part;
use crate::settings::Itt;
use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::Length;

/// The experiment, with a run that is plain and one that is bundled.
const FILE: &str = include_str!("../../../../../experiments/demo.toml");

/// The experiment's group.
const GROUP: &str = "thin";

/// Options of `pillion-lab demo` that replace values of its experiment file.
#[derive(Debug, Clone, Default, Args)]
pub struct Demo {
    /// Streams in each group [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    streams: Option<u16>,

    /// Inter-transmission time in milliseconds, and its standard deviation [default: 30:3]
    #[arg(long, value_name = "MS[:SD]")]
    itt: Option<Itt>,

    /// Payload of a message in bytes [default: 120]
    #[arg(long, value_name = "BYTES")]
    size: Option<u32>,

    /// Round-trip time in milliseconds [default: 150]
    #[arg(long, value_name = "MS", value_parser = parse_rtt)]
    rtt: Option<Duration>,

    /// Packets lost in the data direction, in per cent [default: 5]
    #[arg(long, value_name = "PERCENT")]
    loss: Option<Share>,

    /// Seconds of sending [default: 30]
    #[arg(long, value_name = "S")]
    duration: Option<Length>,

    /// Rate of each path in Mbit/s [default: no limit]
    #[arg(long, value_name = "MBIT/S")]
    rate: Option<Rate>,

    /// Packets that may wait for that rate [default: 63]
    #[arg(long, value_name = "PACKETS")]
    queue: Option<u32>,

    /// Congestion control of all streams [default: reno]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,

    /// Previous segments that ride along at most; 0 for no limit [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_packets)]
    max_packets: Option<u32>,

    /// Bytes of payload in a segment with its bundle at most; 0: the MSS alone limits [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    max_bytes: Option<u32>,

    /// When to bundle, as for `pillion run` [default: dpifl:10]
    #[arg(long, value_name = "TEST")]
    thin: Option<ThinTest>,

    /// What follows from losses that bundles hid, as for `pillion run` [default: cwr]
    #[arg(long, value_name = "REACTION", value_enum)]
    reaction: Option<Reaction>,

    /// Seed of losses and inter-transmission times [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
}

impl Demo {
    /// The plain run, and the one that is otherwise alike and bundled.
    ///
    /// # Errors
    /// [`BadInput`] with the first thing that cannot be.
    pub fn runs(&self) -> Result<[Planned; 2], BadInput> {
        let Experiment { mut runs, .. } = of_text("experiments/demo.toml", FILE, Extent::Default)?;
        for planned in &mut runs {
            let variant = planned.name.parts().next().map(Part::as_str);
            planned.name = variant.unwrap_or_default().into();
            self.change(&mut planned.run);
            planned.plan = planned.run.plan().map_err(|it| BadInput(it.text))?;
        }
        let two = runs.try_into();
        two.map_err(|_| BadInput("experiments/demo.toml: expected two runs".to_owned()))
    }

    fn change(&self, run: &mut Run) {
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

    fn demo(arguments: &[impl AsRef<str>]) -> Result<Demo, clap::Error> {
        let command = Demo::augment_args(Command::new("demo").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments.iter().map(AsRef::as_ref))?;
        Demo::from_arg_matches(&matches)
    }

    fn runs(arguments: &[String]) -> Result<[Planned; 2], BadInput> {
        demo(arguments).unwrap().runs()
    }

    #[test]
    fn the_defaults_that_the_help_tells_are_those_of_the_file() {
        let command = Demo::augment_args(Command::new("demo"));
        let mut told = Vec::new();
        for option in command.get_arguments() {
            let help = option.get_help().unwrap().to_string();
            let (_, default) = help.split_once("[default: ").expect("a default");
            let default = default.trim_end_matches(']');
            if default != "no limit" {
                let name = option.get_long().unwrap();
                told.extend([format!("--{name}"), default.to_owned()]);
            }
        }
        let plain = |runs: [Planned; 2]| runs.map(|it| (it.name, it.plan));
        assert_eq!(plain(runs(&told).unwrap()), plain(runs(&[]).unwrap()));
    }

    #[test]
    fn both_runs_are_alike_but_for_the_bundling() {
        let told = "--streams 3 --itt 50 --size 99 --rtt 80 --loss 2 --duration 7 --rate 2 --queue 9 \
                    --congestion cubic --max-packets 0 --max-bytes 500 --thin always \
                    --reaction none --seed 5";
        let told: Vec<String> = told.split(' ').map(str::to_owned).collect();
        let [plain, mut bundled] = runs(&told).unwrap();
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
    fn options_have_the_limits_that_they_have_elsewhere() {
        for (option, most, beyond) in [
            ("--max-packets", "2047", "4294967295"),
            ("--max-bytes", "2", "1"),
            ("--duration", "0.5", "0"),
        ] {
            demo(&[option, most]).unwrap();
            let said = demo(&[option, beyond]).unwrap_err().to_string();
            assert!(said.contains(": expected"), "{said}");
        }
    }

    #[test]
    fn what_cannot_be_is_told() {
        let told = ["--size", "0"].map(str::to_owned);
        let mistake = runs(&told).unwrap_err().0;
        assert!(mistake.contains("size"), "{mistake}");
    }
}
