//! What can be set of experiments and of traffic: files, and what options have in common with them.

pub mod experiment;
mod numbers;
pub mod traffic;

pub use numbers::{Itt, Rate, parse_host_port};

/// What must hold of every field, whatever it is called.
#[cfg(test)]
mod tests {
    use clap::{Args, Command};
    use serde::Serialize;

    use crate::settings::traffic::{Group, Receiving};
    use pillion_cli::settings::Bundling;
    use pillion_cli::settings::document::known::keys;

    /// Every option has a help text, and is a key of the same name but `own` ones, which files alone
    /// have.
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
    fn what_says_how_to_bundle_on_the_command_line_is_a_key() {
        options_are_keys::<Bundling>(&[]);
    }

    #[test]
    fn what_describes_streams_on_the_command_line_is_a_key() {
        options_are_keys::<Group>(&["name", "start", "duration"]);
    }

    #[test]
    fn what_describes_the_receiver_on_the_command_line_is_a_key() {
        options_are_keys::<Receiving>(&[]);
    }
}
