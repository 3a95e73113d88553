use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Emulation, Loss};
use pillion_cli::settings::times;

/// What the packets of a group meet in one direction, where that differs from the path's: for each
/// of its streams apart from others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct OwnWay {
    /// The standard deviation of the delay; packets of a stream keep their order.
    #[serde(with = "times::milliseconds")]
    pub jitter: Option<Duration>,
    /// Which packets are lost.
    #[serde(with = "loss")]
    pub loss: Option<Loss>,
}

impl OwnWay {
    /// Whether all is as the path has it.
    pub(super) fn is_common(&self) -> bool {
        *self == Self::default()
    }

    /// What is done to packets of a stream that has this delay, where others have `common`.
    pub(super) fn emulation(&self, common: &Emulation, delay: Option<Duration>) -> Emulation {
        Emulation {
            delay: delay.unwrap_or(common.delay),
            jitter: self.jitter.map_or(common.jitter, |own| {
                Some(own).filter(|jitter| !jitter.is_zero())
            }),
            loss: self.loss.clone().or_else(|| common.loss.clone()),
            disturbance: common.disturbance,
        }
    }
}

/// As the path has it, but that no list can be of one group's packets, and that 0 says that none of
/// them is lost, whatever the path loses.
mod loss {
    use serde::Deserializer;
    use serde::de::Error;

    use super::super::{Loss, loss};

    pub(super) use loss::serialize;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Loss>, D::Error> {
        match loss::deserialize(from)? {
            Some(Loss::Listed(_)) => Err(D::Error::custom(
                "a list counts the packets of the whole path; list them in [path]",
            )),
            loss => Ok(loss.or(Some(Loss::Uniform(0.0)))),
        }
    }
}
