//! Settings of experiments and of traffic, from files and from options of the command line.

pub mod experiment;
mod numbers;
mod time_text;
pub mod traffic;

pub use numbers::{Rate, parse_host_port};
pub use time_text::Itt;
pub(crate) use time_text::parse_time_ms;

/// Checks that apply to every field of the settings.
#[cfg(test)]
mod tests {
    use clap::{Args, Command};
    use serde::Serialize;

    use crate::settings::traffic::{Group, ReceiverOptions};
    use pillion_cli::settings::Bundling;
    use pillion_cli::settings::document::known::keys;

    /// Checks that every option has a help text, and that options and keys have the same names.
    /// Only files have the keys in `own`.
    fn options_are_keys<A: Args + Default + Serialize>(own: &[&str]) {
        let command = A::augment_args(Command::new(""));
        let mut options = own.iter().map(ToString::to_string).collect::<Vec<_>>();
        for option in command.get_arguments() {
            let name = option.get_long().unwrap_or_default();
            let help = option.get_help().map(ToString::to_string);
            assert!(help.is_some_and(|help| help.len() > 10), "{name}");
            options.push(name.to_owned());
        }
        let mut keys = keys::<A>();
        options.sort_unstable();
        keys.sort_unstable();
        assert_eq!(options, keys);
    }

    #[test]
    fn bundling_options_match_keys() {
        options_are_keys::<Bundling>(&[]);
    }

    #[test]
    fn group_options_match_keys() {
        options_are_keys::<Group>(&["name", "start", "duration"]);
    }

    #[test]
    fn receiver_options_match_keys() {
        options_are_keys::<ReceiverOptions>(&[]);
    }
}
