//! The keys that say how to bundle, and beside what: those options of the command line, under
//! the same names and with the same values.

use std::ops::Range;

use pillion_bundler::{Companions, Options};

use crate::bundling::BundlingArgs;
use crate::toml_file::value::Read;
use crate::toml_file::{self, Form, Mistake};

/// The options that a file gives, those of a rule in place of the defaults.
pub type Given = toml_file::Given<BundlingArgs>;

const KEYS: [(&str, Form); 17] = [
    ("thin", Form::Text),
    ("rtt", Form::Text),
    ("wait-for-loss", Form::Flag),
    ("level", Form::Text),
    ("target", Form::Decimal),
    ("max-packets", Form::Number),
    ("max-bytes", Form::Number),
    ("reaction", Form::Text),
    ("loss-rule", Form::Text),
    ("without-sack", Form::Flag),
    ("retransmissions", Form::Flag),
    ("linear-timeouts", Form::Flag),
    ("nodelay", Form::Flag),
    ("rto-min", Form::Decimal),
    ("delack-max", Form::Decimal),
    ("user-timeout", Form::Decimal),
    ("congestion", Form::Text),
];

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter().map(|(name, _)| name)
}

/// What a file begins with.
pub fn none(allow_unsafe: bool) -> Given {
    let beside: &[_] = if allow_unsafe { &["--unsafe"] } else { &[] };
    Given::new(&KEYS, beside)
}

/// All of them together; the rule stands at `place`.
pub fn all(given: &Given, place: Range<usize>) -> Read<(Options, Companions)> {
    let place = given.place("reaction").unwrap_or(place);
    let bundling = given
        .parse()
        .map_err(|text| Mistake::new(place.clone(), text))?;
    let options = bundling.options();
    options
        .map(|options| (options, bundling.companions.companions()))
        .map_err(|error| Mistake::new(place, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_how_to_bundle_on_the_command_line_is_a_key() {
        let options = toml_file::options_of::<BundlingArgs>();
        let others = ["unsafe", "dev", "hook", "max-connections", "stats"];
        let mut options: Vec<_> = options
            .into_iter()
            .filter(|name| !others.contains(&&name[..]))
            .collect();
        let mut keys: Vec<_> = names().collect();
        options.sort_unstable();
        keys.sort_unstable();
        assert_eq!(options, keys);
    }

    #[test]
    fn no_key_may_be_given_on_the_command_line_beside_the_file() {
        for name in names() {
            let option = name.replace('-', "_");
            assert!(crate::attach::IN_THE_FILE.contains(&&option[..]), "{name}");
        }
    }
}
