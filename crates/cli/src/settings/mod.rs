//! What can be set, each once: a field of a struct is the option of the command line, the key of
//! the file, its help, its default and its check.
//!
//! Files are TOML. Whatever is wrong in one is told at once, a line for each mistake with its
//! position and a remedy ([`BadInput`]); what a table leaves out is taken from `[defaults]`, key by
//! key.

pub mod document;
pub mod host_name;
pub mod policy;
mod telling;
pub mod text;
pub mod times;

use clap::{Args, Command, Id};
use pillion_bpf::{Companions, Level, Options, Reaction};
use serde::{Deserialize, Serialize};

use crate::settings::document::known::flattened;

pub use telling::{Endpoint, Telling};

/// A mistake in what the user asked for, rather than a failure to do it.
///
/// The text says what is wrong and what to do; of a file, in a line for each mistake,
/// `FILE:LINE:COLUMN: what; remedy`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

impl From<&str> for BadInput {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// All options of a struct, as other options refer to them.
pub fn arguments<A: Args>() -> Vec<Id> {
    let command = A::augment_args(Command::new(""));
    let options = command.get_arguments().map(clap::Arg::get_id);
    options.cloned().collect()
}

/// How connections are bundled, and what of TCP's own they get beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Args, Serialize, Deserialize)]
#[serde(remote = "Self", default)]
pub struct Bundling {
    /// Companions. They come first, so that the options of experiments are last in the help.
    #[command(flatten)]
    #[serde(flatten)]
    pub companions: Companions,

    /// How they are bundled.
    #[command(flatten)]
    #[serde(flatten)]
    pub options: Options,
}

flattened!(Bundling);

/// Refuses what takes a stream out of congestion control, unless that is allowed.
///
/// # Errors
/// [`BadInput`] that tells what to say to have it.
pub fn refuse_unsafe(options: &Options, allowed: bool) -> Result<(), BadInput> {
    match options.reaction {
        Reaction::None if !allowed => {
            Err("--reaction none takes streams out of congestion control; \
                 if that is what you want, say --unsafe as well"
                .into())
        }
        _ => Ok(()),
    }
}

/// The option, if there is one, that has no effect beside the others.
#[must_use]
pub fn idle_option(options: &Options) -> Option<&'static str> {
    (options.level == Level::Fixed && options.target.is_some()).then_some("target")
}

/// The key of a file, if there is one, that has no effect beside the others, and what to do.
pub fn idle_key(options: &Options) -> Option<(&'static str, String)> {
    let key = idle_option(options)?;
    let text = format!("`{key}` is for level = \"adaptive\"; give that, too, or remove it");
    Some((key, text))
}
