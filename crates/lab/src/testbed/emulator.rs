use std::time::Duration;

use pillion_path::{Direction, Disorder, Ledger, OwnDelay, Path, PathConfig, Tap};

use super::devices::{Port, bridge, join};
use super::listed::ListedLoss;
use super::{Log, Node, netem, round_trips, source_port};
use crate::experiment::{Emulation, Loss, Run};
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
    /// pillion's own path in user space, where the kernel has none.
    Path(Path),
}

/// The emulator's device towards the router, on the machine with netem.
pub(super) const TO_ROUTER: &str = "router";
pub(super) const TO_RECEIVER: &str = "receiver";

impl Emulator {
    /// Joins router and receiver by the better emulator that this kernel has; makes their devices.
    pub(super) fn build(run: &Run, router: Port, receiver: Port, log: &Log) -> Result<Self, Error> {
        if netem::is_there()? {
            Self::netem(run, router, receiver, log)
        } else {
            Self::path(run, router, receiver)
        }
    }

    fn netem(run: &Run, router: Port, receiver: Port, log: &Log) -> Result<Self, Error> {
        let node = Node::create("emulator", log)?;
        for (end, device) in [(router, TO_ROUTER), (receiver, TO_RECEIVER)] {
            join(
                end,
                Port {
                    node: &node,
                    device,
                },
            )?;
        }
        bridge(&node, &[TO_ROUTER, TO_RECEIVER])?;
        let list = |device, emulation: &Emulation| match &emulation.loss {
            Some(Loss::Listed(numbers)) => ListedLoss::attach(&node, device, numbers).map(Some),
            _ => Ok(None),
        };
        let listed = [
            list(TO_ROUTER, &run.forward)?,
            list(TO_RECEIVER, &run.backward)?,
        ];
        netem::build(&node, TO_RECEIVER, &run.forward)?;
        match &round_trips::delays(run)?[..] {
            [] => netem::build(&node, TO_ROUTER, &run.backward)?,
            own => netem::build_by_stream(&node, TO_ROUTER, &run.backward, own)?,
        }
        Ok(Self::Netem { node, listed })
    }

    fn path(run: &Run, router: Port, receiver: Port) -> Result<Self, Error> {
        if run.hosts.iter().any(|host| !host.delay.is_zero()) {
            return Err(Error::Lacks {
                what: "netem, which delays the hosts' links".to_owned(),
                kernel: kernel_release(),
            });
        }
        let own_delays = round_trips::delays(run)?.into_iter();
        let own_delays = own_delays.map(|(stream, delay)| OwnDelay {
            port: source_port(stream),
            delay,
        });
        let config = PathConfig {
            forward: direction(&run.forward),
            backward: Direction {
                own_delays: own_delays.collect(),
                ..direction(&run.backward)
            },
            seed: run.seed,
        };
        config.validate().map_err(Error::PathConfig)?;
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

/// What pillion's own path does to one direction.
fn direction(emulation: &Emulation) -> Direction {
    Direction {
        jitter: emulation.jitter.map_or(Duration::ZERO, |jitter| jitter.sd),
        loss: emulation.loss.clone().unwrap_or(Loss::Uniform(0.0)),
        disorder: emulation.disturbance.map(|disturbance| Disorder {
            reorder: disturbance.reorder,
            duplicate: disturbance.duplicate,
            late: disturbance.late,
        }),
        ..Direction::delayed(emulation.delay)
    }
}
