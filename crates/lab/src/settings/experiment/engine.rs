use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

/// What makes runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Kernels of the lab, in virtual time
    Virtual,
    /// This host's kernel, in real time
    Live,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        value.map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}
