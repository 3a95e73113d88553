use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a run writes down, beside the traffic's own account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Measure {
    /// Bytes kept of each packet, in a trace at the bridge and one at the receiver; `None` takes
    /// no traces.
    #[serde(with = "traces")]
    pub traces: Option<u32>,
    /// The time between two samples of every stream's socket; `None` takes none.
    #[serde(with = "sockets")]
    pub sockets: Option<Duration>,
    /// Every packet that enters and leaves the bottleneck's queue.
    pub queue: bool,
    /// Every message's delivery latency.
    pub records: bool,
}

impl Default for Measure {
    /// Traces of the headers, samples ten times a second, the queue, and the records.
    fn default() -> Self {
        Self {
            traces: Some(128),
            sockets: Some(Duration::from_millis(100)),
            queue: true,
            records: true,
        }
    }
}

/// A number, or whether at all.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Switched {
    Whether(bool),
    Number(f64),
}

mod traces {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Measure, Switched};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
        match Switched::deserialize(from) {
            Ok(Switched::Whether(true)) => Ok(Measure::default().traces),
            Ok(Switched::Whether(false)) => Ok(None),
            Ok(Switched::Number(bytes))
                if (64.0..=65_535.0).contains(&bytes) && bytes.fract() == 0.0 =>
            {
                Ok(Some(bytes as u32))
            }
            _ => Err(D::Error::custom(
                "expected bytes kept of each packet, 64 to 65535, or false",
            )),
        }
    }

    pub(super) fn serialize<S: Serializer>(bytes: &Option<u32>, to: S) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => bytes.serialize(to),
            None => false.serialize(to),
        }
    }
}

mod sockets {
    use std::time::Duration;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Measure, Switched};
    use pillion_cli::settings::times::{milliseconds, of_ms};

    pub(super) fn deserialize<'de, D>(from: D) -> Result<Option<Duration>, D::Error>
    where
        D: Deserializer<'de>,
    {
        let every = match Switched::deserialize(from) {
            Ok(Switched::Whether(true)) => return Ok(Measure::default().sockets),
            Ok(Switched::Whether(false)) => return Ok(None),
            Ok(Switched::Number(ms)) => of_ms(ms).filter(|every| every.as_millis() >= 1),
            Err(_) => None,
        };
        let expected = "expected milliseconds between samples, at least 1, or false";
        every.map(Some).ok_or_else(|| D::Error::custom(expected))
    }

    pub(super) fn serialize<S: Serializer>(
        every: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match every {
            Some(every) => milliseconds::serialize(every, to),
            None => false.serialize(to),
        }
    }
}
