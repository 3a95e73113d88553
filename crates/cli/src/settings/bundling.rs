use clap::Args;
use pillion_bpf::{Companions, Level, Options, Reaction};
use serde::{Deserialize, Serialize};

use crate::settings::BadInput;
use crate::settings::document::known::flattened;

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
