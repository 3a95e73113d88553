use crate::path::{Ledger, Path, Tap};
use crate::settings::experiment::{Emulation, Loss, Plan};

use super::bottleneck::{ListedLoss, lacking, netem_is_there, netem_lines, netem_lines_by_stream};
use super::node::{Port, build_bridge};
use super::{Log, Node};
use crate::{Error, kernel_release};

/// What lies between router and receiver.
#[derive(Debug)]
pub enum Emulator {
    /// The kernel's netem, on a machine of its own.
    Netem {
        /// The machine that netem is on.
        node: Node,
        /// What drops listed packets before netem: in the direction to the receiver, and in that
        /// back.
        listed: [Option<ListedLoss>; 2],
    },
    /// pillion's own path in user space, where the kernel has none; for jitter, which netem has
    /// packet by packet: each that is much delayed there holds up or is overtaken by those behind;
    /// and where packets of streams with round-trip times of their own are held back.
    Path(Path),
}

/// The emulator's device towards the router, on the machine with netem.
pub(super) const TO_ROUTER: &str = "router";
const TO_RECEIVER: &str = "receiver";

impl Emulator {
    /// Joins router and receiver by netem if it is there and can do what is asked, or else, or if
    /// that is wanted, by pillion's own path; makes their devices.
    pub(super) fn build(
        plan: &Plan,
        own_path: bool,
        router: Port,
        receiver: Port,
        log: &Log,
    ) -> Result<Self, Error> {
        let has_netem = netem_is_there()?;
        if !has_netem && plan.hosts.iter().any(|host| !host.delay.is_zero()) {
            return Err(Error::Lacks {
                what: "netem, which delays the hosts' links".to_owned(),
                kernel: kernel_release(),
            });
        }
        let own: Vec<_> = plan.own_emulations().collect();
        let ways = own.iter().flat_map(|(_, ways)| ways);
        let beyond_netem = [&plan.forward, &plan.backward]
            .into_iter()
            .chain(ways)
            .any(|way| {
                let reorders = way.disturbance.is_some_and(|it| it.reorder > 0.0);
                way.jitter.is_some() || reorders && !own.is_empty()
            });
        if !own_path && has_netem && !beyond_netem {
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
        let ways = [
            (TO_RECEIVER, &plan.forward, "proto-src", to),
            (TO_ROUTER, &plan.backward, "proto-dst", back),
        ];
        let lines = ways
            .iter()
            .flat_map(|(device, way, port, own)| match &own[..] {
                [] => netem_lines(device, way),
                own => netem_lines_by_stream(device, way, port, own),
            });
        node.run_batch("tc", &lines.collect::<Vec<_>>())
            .map_err(lacking)?;
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

    /// What pillion's own path has counted; `None` with netem.
    pub(crate) fn ledger(&self) -> Option<Ledger> {
        match self {
            Self::Netem { .. } => None,
            Self::Path(path) => Some(path.ledger()),
        }
    }

    /// Packets that were dropped because they are listed, to the receiver and back.
    pub(crate) fn dropped_as_listed(&self) -> [u64; 2] {
        match self {
            Self::Netem { listed, .. } => {
                let dropped = |it: &Option<ListedLoss>| it.as_ref().map_or(0, ListedLoss::dropped);
                listed.each_ref().map(dropped)
            }
            Self::Path(_) => [0; 2],
        }
    }

    /// The handle of the second netem, which holds packets back.
    pub(crate) const BEHIND: &'static str = "2:";

    /// What the emulator is called in files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Netem { .. } => "netem",
            Self::Path(_) => "path",
        }
    }
}
