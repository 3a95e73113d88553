//! The keys that say how to bundle, and beside what: those options of the command line, under
//! the same names and with the same values.

use std::ops::Range;

use pillion_bundler::{Companions, Options};
use pillion_settings::Bundling;

use crate::toml_file::value::Read;
use crate::toml_file::{self, Form, Mistake};

/// The options that a file gives, those of a rule in place of the defaults.
pub type Given = toml_file::Given<Bundling>;

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

/// What a file begins with.
pub fn none() -> Given {
    Given::new(&KEYS, &[])
}

/// All of them together; the group stands at `place`.
pub fn all(given: &Given, place: Range<usize>) -> Read<(Options, Companions)> {
    let bundling = given.parse().map_err(|text| Mistake::new(place, text))?;
    Ok((bundling.options, bundling.companions))
}
