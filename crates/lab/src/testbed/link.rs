//! The links between the sending hosts and the bridge.

use std::time::Duration;

use crate::settings::experiment::{Emulation, SendingHost};

use super::bottleneck::lacking;
use super::devices::Port;
use super::netem;
use crate::Error;

/// Gives a sending host's link its rate and its delay.
pub(super) fn build(host: &SendingHost, here: Port, bridge: Port) -> Result<(), Error> {
    let delayed = Emulation {
        delay: host.delay,
        ..Emulation::default()
    };
    let device = here.device;
    let mut lines = Vec::new();
    let mut parent = "root";
    if let Some(rate) = host.rate_bps {
        // The size table is read behind pillion's program, which makes packets longer.
        let sized = "stab overhead 0 linklayer ethernet";
        lines.push(format!(
            "qdisc add dev {device} root handle 1: {sized} htb default 1"
        ));
        lines.push(format!(
            "class add dev {device} parent 1: classid 1:1 htb rate {rate}bit \
             burst 1520 cburst 1520 quantum 1514"
        ));
        parent = "parent 1:1";
    }
    if host.delay > Duration::ZERO {
        let netem = netem::words(&delayed);
        lines.push(format!(
            "qdisc add dev {device} {parent} handle 20: {netem}"
        ));
        let back = format!("qdisc add dev {} root handle 20: {netem}", bridge.device);
        bridge.node.run_batch("tc", &[back]).map_err(lacking)?;
    } else if host.rate_bps.is_some() {
        // As much as a device's queue holds by default.
        lines.push(format!(
            "qdisc add dev {device} {parent} handle 20: pfifo limit 1000"
        ));
    }
    here.node.run_batch("tc", &lines).map_err(lacking)
}
