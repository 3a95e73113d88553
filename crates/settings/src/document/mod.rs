//! Files in TOML: all their mistakes are told at once, each with line, column and a remedy.

mod error;
pub(crate) mod known;
mod lines;
mod load;
mod merge;
mod mistake;
mod read;
mod reader;

use toml::Spanned;
use toml::de::DeValue;

pub(crate) use load::{load, load_bytes};
pub(crate) use merge::{defaults, known_part, merge};
pub(crate) use mistake::Mistake;
pub(crate) use read::{read, read_key, read_sound, span_of, table, wrong};

/// A value of a file, with its span there.
pub(crate) type Value<'i> = Spanned<DeValue<'i>>;
