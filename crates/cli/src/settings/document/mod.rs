//! TOML files: reports all mistakes together, each with line, column and a remedy.

pub mod known;
mod reader;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::settings::BadInput;
use known::{keys, unknown};

pub use reader::{read, read_key, read_valid, span_of, table, type_mismatch};

/// A value of a file, with its span there.
pub type Value<'i> = Spanned<DeValue<'i>>;

/// A mistake in a file, and its position.
#[derive(Debug)]
pub struct Mistake {
    /// In bytes from the start of the file.
    pub span: Range<usize>,
    /// The mistake, a semicolon, and the remedy.
    pub text: String,
}

impl Mistake {
    /// Creates a mistake. Escapes control characters, so that the text is one line and harmless on a
    /// terminal.
    pub fn new(span: Range<usize>, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.contains(char::is_control) {
            let escape = |c: char| match c.is_control() {
                true => c.escape_default().to_string(),
                false => c.to_string(),
            };
            text = text.chars().map(escape).collect();
        }
        Self { span, text }
    }

    /// Creates the mistake for a syntax error; `manual` is the page with an example.
    fn syntax(error: &toml::de::Error, manual: &str) -> Self {
        let message = error.message().replace('\n', ", ");
        Self::new(
            error.span().unwrap_or(0..0),
            format!("invalid TOML: {message}; {manual} shows an example of every key"),
        )
    }
}

/// Index of a text's lines, to find the position of a byte.
struct Lines<'a> {
    text: &'a str,
    /// In bytes from the start of the text, ascending.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(breaks).collect();
        Self { text, starts }
    }

    /// Returns the line of a byte, from 1.
    fn line(&self, byte: usize) -> usize {
        self.starts.partition_point(|start| *start <= byte)
    }

    /// Returns line and column of a byte, both from 1.
    fn position(&self, byte: usize) -> (usize, usize) {
        let line = self.line(byte);
        let start = self.starts[line - 1];
        let before = self.text[start..].char_indices();
        let column = before.take_while(|(at, _)| start + at < byte).count() + 1;
        (line, column)
    }
}

/// Maximum size of a file in MiB. Rules for every container of a node take less than two.
const MAX_MEBIBYTES: u64 = 16;
/// Maximum number of reported mistakes.
const MAX_REPORTED: usize = 100;

/// Loads a file by `read`, or standard input if the path is `-`; `manual` is the page that describes
/// its keys.
///
/// # Errors
/// [`BadInput`] with a line `FILE:LINE:COLUMN: mistake; remedy` for each mistake, or with the reason
/// why the file cannot be read.
pub fn load<T>(
    path: &Path,
    manual: &str,
    read: impl FnOnce(&DeTable, &mut Vec<Mistake>) -> T,
) -> Result<T, BadInput> {
    let (name, bytes) = match path == Path::new("-") {
        true => ("standard input".to_owned(), read_whole(io::stdin().lock())),
        false => {
            let bytes = File::open(path).and_then(read_whole);
            (path.display().to_string(), bytes)
        }
    };
    let bytes = bytes.map_err(|error| BadInput(format!("{name}: {error}")))?;
    load_bytes(&name, bytes, manual, read)
}

fn read_whole(file: impl Read) -> io::Result<Vec<u8>> {
    let max = MAX_MEBIBYTES << 20;
    let mut bytes = Vec::new();
    if file.take(max + 1).read_to_end(&mut bytes)? as u64 <= max {
        return Ok(bytes);
    }
    let why = format!("more than {MAX_MEBIBYTES} MiB; expected a TOML file of settings");
    Err(io::Error::new(io::ErrorKind::FileTooLarge, why))
}

/// Loads the contents of a file with this name.
///
/// # Errors
/// As for [`load`].
pub fn load_bytes<T>(
    name: &str,
    bytes: Vec<u8>,
    manual: &str,
    read: impl FnOnce(&DeTable, &mut Vec<Mistake>) -> T,
) -> Result<T, BadInput> {
    let mut mistakes = Vec::new();
    let (text, found) = match String::from_utf8(bytes) {
        Ok(text) => {
            let found = parse(&text, manual, read, &mut mistakes);
            (text, Some(found))
        }
        Err(error) => {
            let end = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(&error.as_bytes()[..end]).into_owned();
            mistakes.push(Mistake::new(end..end, "not UTF-8; save the file as UTF-8"));
            (text, None)
        }
    };
    if let (Some(found), true) = (found, mistakes.is_empty()) {
        return Ok(found);
    }
    mistakes.sort_by(|a, b| (a.span.start, &a.text).cmp(&(b.span.start, &b.text)));
    // A mistake in [defaults] appears once for each table that inherits it.
    mistakes.dedup_by(|a, b| a.span == b.span && a.text == b.text);
    let lines = Lines::new(&text);
    let reported = mistakes.iter().take(MAX_REPORTED).map(|mistake| {
        let (line, column) = lines.position(mistake.span.start);
        format!("{name}:{line}:{column}: {}", mistake.text)
    });
    let mut reported: Vec<_> = reported.collect();
    if let more @ 1.. = mistakes.len() - reported.len() {
        reported.push(format!(
            "{name}: {more} more mistakes; fix those above first"
        ));
    }
    Err(BadInput(reported.join("\n")))
}

fn parse<T>(
    text: &str,
    manual: &str,
    read: impl FnOnce(&DeTable, &mut Vec<Mistake>) -> T,
    mistakes: &mut Vec<Mistake>,
) -> T {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let found = read(document.get_ref(), mistakes);
    let syntax = syntax.iter().map(|error| Mistake::syntax(error, manual));
    let mut broken: Vec<Mistake> = syntax.collect();
    broken.sort_by_key(|mistake| mistake.span.start);
    let Some(first) = broken.first() else {
        return found;
    };
    let lines = Lines::new(text);
    let line = |mistake: &Mistake| lines.line(mistake.span.start);
    // After invalid TOML the parser guesses, so later mistakes are dropped. Values without a span are
    // made up by the parser.
    let first = line(first);
    mistakes.retain(|found| !found.span.is_empty() && line(found) < first);
    broken.dedup_by_key(|mistake| line(mistake));
    mistakes.extend(broken);
    found
}

// Inheritance of keys between tables.

/// Overrides keys of `base` with the keys of `over`, recursively.
pub fn merge<'i>(base: &mut DeTable<'i>, over: &DeTable<'i>) {
    for (key, value) in over {
        let existing = base.get_mut(&**key.get_ref()).map(Spanned::get_mut);
        match (existing, value.get_ref()) {
            (Some(DeValue::Table(existing)), DeValue::Table(over)) => merge(existing, over),
            _ => {
                // Insertion would keep the span of the old key.
                base.remove(&**key.get_ref());
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Copies the known keys of a table, and reports the others.
pub fn known_part<'i>(
    table: &DeTable<'i>,
    known: &[String],
    mistakes: &mut Vec<Mistake>,
) -> DeTable<'i> {
    let mut known_keys = DeTable::new();
    for (key, value) in table {
        if known.iter().any(|known| known == key.get_ref()) {
            known_keys.insert(key.clone(), value.clone());
        } else {
            let text = unknown(key.get_ref(), known);
            mistakes.push(Mistake::new(key.span(), text));
        }
    }
    known_keys
}

/// Reads `[defaults]` for tables of a type, except its `own` keys; returns the known keys, and their
/// values or the defaults.
pub fn defaults<'i, T: Default + Serialize + DeserializeOwned>(
    value: &Value<'i>,
    own: &[&str],
    mistakes: &mut Vec<Mistake>,
) -> (DeTable<'i>, T) {
    let Some(given) = table(value, mistakes) else {
        return Default::default();
    };
    let mut known = keys::<T>();
    known.retain(|key| !own.contains(&key.as_str()));
    let given = known_part(given, &known, mistakes);
    let whole = Spanned::new(value.span(), DeValue::Table(given.clone()));
    let found = read(&whole, mistakes).unwrap_or_default();
    (given, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_counted_in_characters() {
        let lines = Lines::new("ä = 1\n\nböse\n");
        let places = [0, 2, 3, 6, 7, 8, 11, 13, 99].map(|position| lines.position(position));
        let expected = [
            (1, 1),
            (1, 2),
            (1, 3),
            (1, 6),
            (2, 1),
            (3, 1),
            (3, 3),
            (3, 5),
            (4, 1),
        ];
        assert_eq!(places, expected);
    }
}
