//! Keys that are options of the command line, under the same names and with the same values.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Range;

use clap::Parser;
use toml::de::{DeTable, DeValue};

use super::mistake::Mistake;
use super::value::{Read, Value, boolean, decimal, string, unsigned, wrong};

/// How a key's value is written.
#[derive(Clone, Copy)]
pub enum Form {
    Text,
    Number,
    Decimal,
    /// As on the command line, and a number without the quotes.
    TextOrDecimal,
    Flag,
}

/// The options of `A` that a table gives.
pub struct Given<A> {
    keys: &'static [(&'static str, Form)],
    beside: &'static [&'static str],
    /// As on the command line, by key, with the place in the file.
    arguments: BTreeMap<&'static str, (String, Range<usize>)>,
    options: PhantomData<A>,
}

impl<A> Clone for Given<A> {
    fn clone(&self) -> Self {
        Self {
            arguments: self.arguments.clone(),
            ..*self
        }
    }
}

impl<A: clap::Args> Given<A> {
    /// None of these keys yet; the arguments `beside` them hold in any case.
    pub fn new(keys: &'static [(&'static str, Form)], beside: &'static [&'static str]) -> Self {
        Self {
            keys,
            beside,
            arguments: BTreeMap::new(),
            options: PhantomData,
        }
    }

    /// Reads a table that has no other keys.
    pub fn read(&mut self, table: &DeTable, mistakes: &mut Vec<Mistake>) {
        for (key, value) in table {
            if !self.set(key.get_ref(), value, mistakes) {
                let known: Vec<_> = self.keys.iter().map(|(name, _)| *name).collect();
                let text = format!(
                    "unknown key `{}`; known: {}",
                    key.get_ref(),
                    known.join(", ")
                );
                mistakes.push(Mistake::new(key.span(), text));
            }
        }
    }

    /// Reads one option; false if there is none of this name.
    pub fn set(&mut self, key: &str, value: &Value, mistakes: &mut Vec<Mistake>) -> bool {
        let Some(&(name, form)) = self.keys.iter().find(|(name, _)| *name == key) else {
            return false;
        };
        match argument::<A>(name, form, value) {
            Ok(Some(argument)) => {
                self.arguments.insert(name, (argument, value.span()));
            }
            Ok(None) => {
                self.arguments.remove(name);
            }
            Err(mistake) => mistakes.push(mistake),
        }
        true
    }

    /// Where a key's value stands, if it is given.
    pub fn place(&self, key: &str) -> Option<Range<usize>> {
        self.arguments.get(key).map(|(_, place)| place.clone())
    }

    /// What a key says, as on the command line, if it is given.
    pub fn text(&self, key: &str) -> Option<&str> {
        let (argument, _) = self.arguments.get(key)?;
        argument.split_once('=').map(|(_, text)| text)
    }

    /// The same with those of `others` that it does not give itself and that fit.
    pub fn or(mut self, others: &Self, fits: impl Fn(&str) -> bool) -> Self {
        for (key, argument) in &others.arguments {
            if fits(key) {
                self.arguments.entry(key).or_insert(argument.clone());
            }
        }
        self
    }

    /// All of them together.
    ///
    /// # Errors
    /// In one line, what does not go together, and what is possible.
    pub fn parse(&self) -> Result<A, String> {
        let given = self.arguments.values().map(|(text, _)| &text[..]);
        let arguments: Vec<&str> = given.chain(self.beside.iter().copied()).collect();
        parse(&arguments)
    }
}

/// The option as on the command line; none for a flag that is off.
fn argument<A: clap::Args>(name: &str, form: Form, value: &Value) -> Read<Option<String>> {
    let argument = match form {
        Form::Flag => return Ok(boolean(value)?.then(|| format!("--{name}"))),
        Form::Text => format!("--{name}={}", string(value, "a string")?),
        Form::Number => {
            let number = unsigned(value)?;
            format!("--{name}={number}")
        }
        Form::Decimal => format!("--{name}={}", decimal(value, "a number, as in 0.1")?),
        Form::TextOrDecimal => match value.get_ref() {
            DeValue::String(text) => format!("--{name}={text}"),
            DeValue::Integer(_) | DeValue::Float(_) => {
                format!("--{name}={}", decimal(value, "a decimal number")?)
            }
            _ => return Err(wrong(value, "a number, or a string as on the command line")),
        },
    };
    match parse::<A>(&[&argument]) {
        Ok(_) => Ok(Some(argument)),
        Err(text) => Err(Mistake::new(value.span(), text)),
    }
}

#[derive(Parser)]
#[command(no_binary_name = true)]
struct CommandLine<A: clap::Args> {
    #[command(flatten)]
    options: A,
}

/// What is wrong, it says in one line, and what is possible.
fn parse<A: clap::Args>(arguments: &[&str]) -> Result<A, String> {
    let parsed = CommandLine::try_parse_from(arguments);
    parsed.map(|line| line.options).map_err(|error| {
        let text = error.to_string();
        let lines = text.lines().map(str::trim);
        let told: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        let told = told.join("; ").replace("'--", "'");
        told.trim_start_matches("error: ").to_owned()
    })
}

/// The names of all options of `A`.
#[cfg(test)]
pub fn options_of<A: clap::Args>() -> Vec<String> {
    use clap::CommandFactory;
    let command = CommandLine::<A>::command();
    let options = command.get_arguments().filter_map(clap::Arg::get_long);
    options.map(str::to_owned).collect()
}
