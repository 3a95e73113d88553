//! Files in TOML: all their mistakes are told at once, each with line, column and a remedy.

mod error;
pub mod known;
mod lines;
mod load;
mod merge;
mod mistake;
mod read;
mod reader;

use toml::Spanned;
use toml::de::DeValue;

pub use load::{load, load_bytes};
pub use merge::{defaults, known_part, merge};
pub use mistake::Mistake;
pub use read::{read, read_key, read_sound, span_of, table, wrong};

/// A value of a file, with its span there.
pub type Value<'i> = Spanned<DeValue<'i>>;
