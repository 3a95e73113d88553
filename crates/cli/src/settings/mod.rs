//! Settings: each field of a struct defines an option of the command line, a key of the file, its
//! help, its default and its validation.
//!
//! Files are TOML. All mistakes of a file are reported together, each with its position and a remedy
//! ([`BadInput`]). Keys that a table does not set come from `[defaults]`.

pub mod document;
pub mod host_name;
mod output;
pub mod policy;
pub mod text;
pub mod times;

use clap::{Args, Command, Id};
use pillion_bpf::{CopiesWhen, Level, Options, Reaction, TcpOptions};
use serde::{Deserialize, Serialize};

use crate::settings::document::known::flattened;

pub use output::{Endpoint, OutputConfig};

/// Invalid input of the user, as opposed to a failure.
///
/// The text has the mistake and the remedy. For a file it has one line per mistake:
/// `FILE:LINE:COLUMN: mistake; remedy`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

impl From<&str> for BadInput {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Returns the ids of all options of a struct, for `conflicts_with_all`.
pub fn arguments<A: Args>() -> Vec<Id> {
    let command = A::augment_args(Command::new(""));
    let options = command.get_arguments().map(clap::Arg::get_id);
    options.cloned().collect()
}

/// Bundling and TCP options of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Args, Serialize, Deserialize)]
#[serde(remote = "Self", default)]
pub struct Bundling {
    /// TCP options. They precede the others, so that experimental options are last in the help.
    #[command(flatten)]
    #[serde(flatten)]
    pub tcp_options: TcpOptions,

    /// Bundling options.
    #[command(flatten)]
    #[serde(flatten)]
    pub options: Options,
}

flattened!(Bundling);

/// Refuses options that disable congestion control, unless `allowed`.
///
/// # Errors
/// [`BadInput`] that names `--unsafe`.
pub fn refuse_unsafe(options: &Options, allowed: bool) -> Result<(), BadInput> {
    match options.reaction() {
        Reaction::None if !allowed => {
            Err("--reaction none takes streams out of congestion control; \
                 add --unsafe if you want that"
                .into())
        }
        _ => Ok(()),
    }
}

/// Option that has no effect, and the option with the value that it needs.
pub struct UnusedOption {
    /// Name of the ineffective option, which is also the key.
    pub name: &'static str,
    /// Name of the needed option.
    pub needs: &'static str,
    /// Its value.
    pub value: &'static str,
}

/// Returns the option that the others make ineffective, if any.
#[must_use]
pub fn unused_option(options: &Options) -> Option<UnusedOption> {
    let unused = |name, needs, value| Some(UnusedOption { name, needs, value });
    if options.target.is_some() && !matches!(options.level(), Level::Adaptive | Level::Auto) {
        return unused("target", "level", "auto");
    }
    if options.deadline.is_some() && options.level() != Level::Auto {
        return unused("deadline", "level", "auto");
    }
    if options.max_overhead.is_some() && options.level() != Level::Auto {
        return unused("max-overhead", "level", "auto");
    }
    if options.copies != 0 && options.level() == Level::Auto {
        return unused("copies", "level", "fixed");
    }
    if options.max_packets.is_some() && options.level() == Level::None {
        return unused("max-packets", "level", "fixed");
    }
    if options.copies_when != CopiesWhen::Always && options.copies == 0 {
        return unused("copies-when", "copies", "1");
    }
    if options.copy_delay.is_some() && options.copies == 0 && options.level() != Level::Auto {
        return unused("copy-delay", "copies", "1");
    }
    if options.level() == Level::None && options.copies == 0 {
        return unused("level", "copies", "1");
    }
    None
}

/// Returns the key that the others make ineffective, if any, and the remedy.
pub fn unused_key(options: &Options) -> Option<(&'static str, String)> {
    let UnusedOption { name, needs, value } = unused_option(options)?;
    let value = match value.parse::<u32>() {
        Ok(number) => number.to_string(),
        Err(_) => format!("{value:?}"),
    };
    let text = format!("`{name}` needs {needs} = {value}; set that as well, or remove it");
    Some((name, text))
}
