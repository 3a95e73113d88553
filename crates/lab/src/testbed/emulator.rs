use crate::path::{Path, PathStats, Tap};
use crate::settings::experiment::{Emulation, Loss, Plan};

use super::bottleneck::{
    ListedLoss, is_netem_available, missing_discipline, netem_commands, netem_commands_by_stream,
};
use super::node::{Port, build_bridge};
use super::{Log, Node};
use crate::{Error, kernel_release};

/// The emulator between router and receiver.
#[derive(Debug)]
pub enum Emulator {
    /// The kernel's netem, on a separate machine.
    Netem {
        /// The machine with netem.
        node: Node,
        /// Programs that drop listed packets before netem: towards the receiver, and back.
        listed: [Option<ListedLoss>; 2],
    },
    /// pillion's own path in user space. It replaces netem if the kernel lacks it. It also handles
    /// jitter, because netem delays each packet independently, so that packets wait for or overtake
    /// each other. It also handles reordered packets of streams with their own round-trip times, loss
    /// in steps, and recorded links.
    Path(Path),
}

/// Name of the emulator's device towards the router, on the machine with netem.
pub(super) const TO_ROUTER: &str = "router";
const TO_RECEIVER: &str = "receiver";

impl Emulator {
    /// Connects router and receiver and creates their devices. Uses netem if the kernel has it and
    /// it supports the plan; otherwise, or if `own_path` is set, uses pillion's own path.
    pub(super) fn build(
        plan: &Plan,
        own_path: bool,
        router: Port,
        receiver: Port,
        log: &Log,
    ) -> Result<Self, Error> {
        let has_netem = is_netem_available()?;
        if !has_netem && plan.hosts.iter().any(|host| !host.delay.is_zero()) {
            return Err(Error::Unsupported {
                feature: "netem, which delays the hosts' links".to_owned(),
                kernel: kernel_release(),
            });
        }
        let own: Vec<_> = plan.stream_emulations().collect();
        let directions = own.iter().flat_map(|(_, directions)| directions);
        let exceeds_netem = [&plan.forward, &plan.backward]
            .into_iter()
            .chain(directions)
            .any(|direction| {
                let reorders = direction.impairments.is_some_and(|it| it.reorder > 0.0);
                let has_steps = matches!(direction.loss, Some(Loss::Steps(_)));
                direction.jitter.is_some() || has_steps || reorders && !own.is_empty()
            });
        let is_recorded = plan.is_recorded().contains(&true);
        if !own_path && has_netem && !exceeds_netem && !is_recorded {
            Self::netem(plan, own, router, receiver, log)
        } else {
            Self::path(plan, router, receiver)
        }
    }

    fn netem(
        plan: &Plan,
        own: Vec<(u32, [Emulation; 2])>,
        router: Port,
        receiver: Port,
        log: &Log,
    ) -> Result<Self, Error> {
        let node = Node::create("emulator", log)?;
        let node_end = |device| Port {
            node: &node,
            device,
        };
        build_bridge(&[
            [router, node_end(TO_ROUTER)],
            [receiver, node_end(TO_RECEIVER)],
        ])?;
        let list = |device, emulation: &Emulation| match &emulation.loss {
            Some(Loss::Listed(numbers)) => ListedLoss::attach(&node, device, numbers).map(Some),
            _ => Ok(None),
        };
        let listed = [
            list(TO_ROUTER, &plan.forward)?,
            list(TO_RECEIVER, &plan.backward)?,
        ];
        let (to, back): (Vec<_>, Vec<_>) = own
            .into_iter()
            .map(|(stream, [to, back])| ((stream, to), (stream, back)))
            .unzip();
        let directions = [
            (TO_RECEIVER, &plan.forward, "proto-src", to),
            (TO_ROUTER, &plan.backward, "proto-dst", back),
        ];
        let lines = directions
            .iter()
            .flat_map(|(device, direction, port, own)| match &own[..] {
                [] => netem_commands(device, direction),
                own => netem_commands_by_stream(device, direction, port, own),
            });
        node.run_batch("tc", &lines.collect::<Vec<_>>())
            .map_err(missing_discipline)?;
        Ok(Self::Netem { node, listed })
    }

    fn path(plan: &Plan, router: Port, receiver: Port) -> Result<Self, Error> {
        let config = plan.path();
        let tap = |port: Port| -> Result<Tap, Error> {
            let device = port.device.to_owned();
            let tap = port.node.enter(move || Tap::open(&device))??;
            port.send_whole_segments()?;
            Ok(tap)
        };
        let (near, far) = (tap(router)?, tap(receiver)?);
        Ok(Self::Path(Path::start(near, far, &config)?))
    }

    /// Returns the statistics of pillion's own path; `None` with netem.
    pub(crate) fn stats(&self) -> Option<PathStats> {
        match self {
            Self::Netem { .. } => None,
            Self::Path(path) => Some(path.stats()),
        }
    }

    /// Returns the number of listed packets that were dropped, towards the receiver and back.
    pub(crate) fn listed_drops(&self) -> [u64; 2] {
        match self {
            Self::Netem { listed, .. } => {
                let dropped = |it: &Option<ListedLoss>| it.as_ref().map_or(0, ListedLoss::dropped);
                listed.each_ref().map(dropped)
            }
            Self::Path(_) => [0; 2],
        }
    }

    /// The handle of the second netem, which reorders packets.
    pub(crate) const REORDER_HANDLE: &'static str = "2:";

    /// Returns the emulator's name in files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Netem { .. } => "netem",
            Self::Path(_) => "path",
        }
    }
}
