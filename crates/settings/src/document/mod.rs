//! Files in TOML: all their mistakes are told at once, each with its place and a remedy.

mod error;
pub(crate) mod known;
mod load;
mod merge;
mod mistake;
mod read;
mod reader;

use toml::Spanned;
use toml::de::DeValue;

pub(crate) use load::load;
pub(crate) use merge::{defaults, known_part, merge};
pub(crate) use mistake::Mistake;
pub(crate) use read::{place_of, read, read_key, read_sound, table, wrong};

/// A value of a file, with its place.
pub(crate) type Value<'i> = Spanned<DeValue<'i>>;
