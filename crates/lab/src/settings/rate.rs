use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

use pillion_cli::settings::{BadInput, text};

/// Bits per second; Mbit/s in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Rate {
    bps: u64,
}

impl Rate {
    /// In bits per second.
    #[must_use]
    pub fn bps(self) -> u64 {
        self.bps
    }
}

impl TryFrom<f64> for Rate {
    type Error = BadInput;

    fn try_from(mbit: f64) -> Result<Self, BadInput> {
        match (mbit * 1e6).round() {
            bits if (1.0..=1e12).contains(&bits) => Ok(Self { bps: bits as u64 }),
            _ => Err("expected Mbit/s above 0, as in 5".into()),
        }
    }
}

impl FromStr for Rate {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        text.parse().unwrap_or(f64::NAN).try_into()
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        text::serialize(&(self.bps as f64 / 1e6), to)
    }
}
