//! What is asked of both commands.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Arg;
use pillion_bpf::{NamespaceName, Namespaces, Observing, Policy, Selection};
use pillion_cli::output_file::OutputFile;
use pillion_cli::settings::BadInput;
use pillion_cli::settings::policy;
use pillion_cli::settings::times::{parse_ms, parse_s};

use super::config::Conditions;
use crate::bundling::BundlingArgs;
use crate::chosen::{ChoiceArgs, NamespaceArgs, in_order};

/// Which connections are observed, how, and how long.
#[derive(clap::Args)]
#[command(mut_arg("ports", with_its_default))]
pub struct ObserveArgs {
    #[command(flatten)]
    pub choice: ChoiceArgs,

    #[command(flatten)]
    pub namespaces: NamespaceArgs,

    /// End after so many seconds
    #[arg(long, value_name = "S", value_parser = parse_s)]
    pub duration: Option<Duration>,

    /// Milliseconds beyond the least RTT that are not called late: receivers may take so long to
    /// acknowledge
    #[arg(long, value_name = "MS", default_value = "50", value_parser = parse_us)]
    pub grace: u32,

    /// Milliseconds of ACK latency beyond which a segment stalls
    #[arg(long, value_name = "MS", default_value = "300", value_parser = parse_us)]
    pub stall: u32,

    /// Keep the account of what was done in FILE, as JSON: each ten seconds, on SIGUSR1, and at the
    /// end
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,

    /// Print JSON at the end
    #[arg(long)]
    pub json: bool,

    /// Write a report with figures as well, one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Here, where nothing is chosen, all is.
fn with_its_default(choice: Arg) -> Arg {
    let help = choice.get_help().cloned().unwrap_or_default();
    choice.help(format!("{help} [default: all connections]"))
}

/// Whole microseconds of a time in milliseconds.
fn parse_us(text: &str) -> Result<u32, BadInput> {
    let time = parse_ms(text)?;
    match time <= Duration::from_secs(3600) {
        true => Ok(time.as_micros() as u32),
        false => Err("at most an hour".into()),
    }
}

impl ObserveArgs {
    /// The report's file, of which it is found out before anything is begun that it can be written.
    pub fn report(&self) -> Result<Option<OutputFile>> {
        let file = self.html.as_deref();
        file.map(|file| OutputFile::page("--html", file))
            .transpose()
    }

    /// The connections that are chosen, in words, alike in whatever order they are named.
    pub fn chosen(&self) -> String {
        let words = self.choice.in_order().words();
        words.unwrap_or_else(|| "all connections".to_owned())
    }

    /// Devices and network namespaces that are named, in words.
    pub fn places(&self, bundling: &BundlingArgs) -> String {
        let devices = bundling.devices.iter();
        let devices: Vec<_> = devices.map(|it| it.to_string_lossy()).collect();
        let (devices, namespaces) = (in_order(&devices), in_order(&self.said_namespaces()));
        match (devices.is_empty(), namespaces.is_empty()) {
            (true, true) => "all devices of its own network namespace".to_owned(),
            (true, false) => format!("all devices of {}", namespaces.join(", ")),
            (false, true) => devices.join(", "),
            (false, false) => format!("{} of {}", devices.join(", "), namespaces.join(", ")),
        }
    }

    /// The network namespaces, as they were named.
    fn said_namespaces(&self) -> Vec<String> {
        let said = |name: &NamespaceName| name.as_said().to_string_lossy().into_owned();
        self.namespaces.named.iter().map(said).collect()
    }

    /// All of that, for rules that are to choose no others.
    pub fn conditions(&self) -> Conditions {
        let containers = self.choice.containers();
        Conditions {
            rule: policy::Rule {
                peers: self.choice.peers.clone(),
                cgroup: self.choice.cgroups.clone(),
                container: containers.names,
                container_label: containers.labels,
                ..policy::Rule::default()
            },
            namespaces: self.namespaces.named.clone(),
        }
    }

    /// Where they are.
    pub fn namespaces(&self) -> Namespaces {
        let containers = Some(self.choice.containers());
        Namespaces {
            named: self.namespaces.named.clone(),
            of_containers: containers.into_iter().filter(|it| !it.is_empty()).collect(),
        }
    }

    pub fn policy(
        &self,
        bundling: &BundlingArgs,
        selection: &Selection,
        observing: Observing,
    ) -> Result<Policy> {
        let options = bundling.options()?;
        Ok(Policy {
            rules: vec![self.choice.rule(&bundling.how, options)],
            otherwise: pillion_bpf::Mode::LeaveAlone,
            max_connections: bundling.max_connections,
            observing: Some(observing),
            governing: true,
            ..Policy::default()
        }
        .at(selection))
    }
}
