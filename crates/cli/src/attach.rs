use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ipnet::IpNet;
use nix::sys::signal::{SigSet, Signal};
use pillion_bundler::{Attachment, Device, Policy, Programs, Scope, cgroup2_mount};

use crate::bundling::{BundlingArgs, reasons, summary};
use crate::exit::BadInput;

/// Bundle chosen connections of the whole host, until a signal ends it
///
/// Connections of this network namespace are chosen by port (local or remote) and by
/// peer; those that exist already are taken in. Nothing stays behind when pillion ends,
/// however it ends.
#[derive(clap::Args)]
pub struct Args {
    /// Connections with this local or remote port; repeat for more
    #[arg(long = "port", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,

    /// Connections with a peer in this network, as in 192.0.2.0/24; repeat for more
    #[arg(long = "peer", value_name = "CIDR", value_parser = parse_peer)]
    peers: Vec<IpNet>,

    /// All connections
    #[arg(long, conflicts_with_all = ["ports", "peers"])]
    all: bool,

    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    bundling: BundlingArgs,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        if !self.all && self.ports.is_empty() && self.peers.is_empty() {
            let why = "choose connections with --port or --peer, or take them all with --all";
            return Err(BadInput(why.to_owned()).into());
        }
        let options = self.bundling.options()?;
        let devices = Device::select(&self.bundling.devices)?;
        let mount = cgroup2_mount()?;
        if self.dry_run {
            println!("would bundle {} on {}", self.connections(), names(&devices));
            println!("would attach to the cgroup {}", mount.display());
            println!("with {}", serde_json::to_string(&options)?);
            return Ok(ExitCode::SUCCESS);
        }
        self.bundling.prepare_stats()?;
        // Blocked first: a signal that comes early must not be lost, nor kill.
        let endings = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        endings.thread_block().context("block signals")?;

        let policy = Policy {
            ports: self.ports.clone(),
            peers: self.peers.clone(),
            scope: Scope::ThisNamespace,
        };
        let programs = Programs::load(options, &policy)?;
        let cgroup = File::open(&mount).with_context(|| format!("open {}", mount.display()))?;
        let mut attachment = Attachment::new(programs, cgroup.as_fd(), &devices)?;
        attachment.adopt()?;
        eprintln!(
            "pillion: bundling {} on {}; end with Ctrl-C",
            self.connections(),
            names(&devices)
        );

        endings.wait().context("wait for a signal")?;
        attachment.detach();
        let totals = attachment.totals()?;
        eprintln!("pillion: {}", summary(&totals));
        let reasons = reasons(&totals);
        if !reasons.is_empty() {
            eprintln!("pillion: not bundled: {reasons}");
        }
        self.bundling.write_stats(&totals)?;
        Ok(ExitCode::SUCCESS)
    }

    fn connections(&self) -> String {
        let list = |kind: &str, values: Vec<String>| {
            (!values.is_empty()).then(|| format!("{kind} {}", values.join(" or ")))
        };
        let ports = list("port", self.ports.iter().map(ToString::to_string).collect());
        let peers = list("peer", self.peers.iter().map(ToString::to_string).collect());
        let conditions: Vec<_> = [ports, peers].into_iter().flatten().collect();
        if conditions.is_empty() {
            return "all connections".to_owned();
        }
        format!("connections with {}", conditions.join(" and "))
    }
}

fn names(devices: &[Device]) -> String {
    devices
        .iter()
        .map(|device| device.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

fn parse_peer(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse::<IpNet>().or_else(|_| address()).map_err(|_| {
        "expected an address or a network, as in 192.0.2.0/24 or 2001:db8::/32".to_owned()
    })
}
