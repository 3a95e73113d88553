//! The links between the sending hosts and the bridge.

use std::time::Duration;

use pillion_settings::experiment::{Emulation, SendingHost};

use super::bottleneck::lacking;
use super::netem;
use super::{Node, devices::Port};
use crate::Error;

/// Gives a sending host's link its rate and its delay.
pub(super) fn build(host: &SendingHost, here: Port, bridge: Port) -> Result<(), Error> {
    let delayed = Emulation {
        delay: host.delay,
        ..Emulation::default()
    };
    let tc = |node: &Node, rest: String| node.run(&format!("tc {rest}")).map_err(lacking);
    let device = here.device;
    let mut parent = "root".to_owned();
    if let Some(rate) = host.rate_bps {
        // The size table is read behind pillion's program, which makes packets longer.
        let sized = "stab overhead 0 linklayer ethernet";
        tc(
            here.node,
            format!("qdisc add dev {device} root handle 1: {sized} htb default 1"),
        )?;
        tc(
            here.node,
            format!(
                "class add dev {device} parent 1: classid 1:1 htb rate {rate}bit \
                 burst 1520 cburst 1520 quantum 1514"
            ),
        )?;
        parent = "parent 1:1".to_owned();
    }
    if host.delay > Duration::ZERO {
        let netem = netem::words(&delayed);
        tc(
            here.node,
            format!("qdisc add dev {device} {parent} handle 20: {netem}"),
        )?;
        let device = bridge.device;
        tc(
            bridge.node,
            format!("qdisc add dev {device} root handle 20: {netem}"),
        )?;
    } else if host.rate_bps.is_some() {
        // As much as a device's queue holds by default.
        tc(
            here.node,
            format!("qdisc add dev {device} {parent} handle 20: pfifo limit 1000"),
        )?;
    }
    Ok(())
}
