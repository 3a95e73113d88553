//! Files in TOML: all their mistakes are told at once, each with line, column and a remedy.

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

pub use reader::{read, read_key, read_sound, span_of, table, wrong};

/// A value of a file, with its span there.
pub type Value<'i> = Spanned<DeValue<'i>>;

/// Something wrong in a file, and where.
#[derive(Debug)]
pub struct Mistake {
    /// In bytes from the file's beginning.
    pub span: Range<usize>,
    /// What it is; and after a semicolon, what to do.
    pub text: String,
}

impl Mistake {
    /// Of what the file says, control characters are told as Rust writes them: a mistake is one line,
    /// and a terminal obeys none of it.
    pub fn new(span: Range<usize>, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.contains(char::is_control) {
            let told = |c: char| match c.is_control() {
                true => c.escape_default().to_string(),
                false => c.to_string(),
            };
            text = text.chars().map(told).collect();
        }
        Self { span, text }
    }

    /// What the parser found to be no TOML; `manual` has an example.
    fn syntax(error: &toml::de::Error, manual: &str) -> Self {
        let what = error.message().replace('\n', ", ");
        Self::new(
            error.span().unwrap_or(0..0),
            format!("no TOML: {what}; {manual} has an example of every key"),
        )
    }
}

/// The lines of a text, and where in them its bytes are.
struct Lines<'a> {
    text: &'a str,
    /// In bytes from the text's beginning, in rising order.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(breaks).collect();
        Self { text, starts }
    }

    /// The line of a position given in bytes, from 1.
    fn line(&self, position: usize) -> usize {
        self.starts.partition_point(|start| *start <= position)
    }

    /// Its line and its column, both from 1.
    fn place(&self, position: usize) -> (usize, usize) {
        let line = self.line(position);
        let start = self.starts[line - 1];
        let before = self.text[start..].char_indices();
        let column = before.take_while(|(at, _)| start + at < position).count() + 1;
        (line, column)
    }
}

/// Mebibytes that a file may have: rules for every container of a node take less than two.
const MOST_MEBIBYTES: u64 = 16;
/// Mistakes that are told of a file.
const MOST_TOLD: usize = 100;

/// What `read` makes of a file, or of standard input where that is called `-`; `manual` describes
/// its keys.
///
/// # Errors
/// [`BadInput`] with a line for each mistake: `FILE:LINE:COLUMN: what; remedy`, or one
/// that says why the file cannot be read.
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
    let most = MOST_MEBIBYTES << 20;
    let mut bytes = Vec::new();
    if file.take(most + 1).read_to_end(&mut bytes)? as u64 <= most {
        return Ok(bytes);
    }
    let what = format!("more than {MOST_MEBIBYTES} MiB; give a file of settings in TOML");
    Err(io::Error::new(io::ErrorKind::FileTooLarge, what))
}

/// What `read` makes of what a file of this name says.
///
/// # Errors
/// As of [`load`].
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
    // One in [defaults] shows in each table that takes it from there.
    mistakes.dedup_by(|a, b| a.span == b.span && a.text == b.text);
    let lines = Lines::of(&text);
    let told = mistakes.iter().take(MOST_TOLD).map(|mistake| {
        let (line, column) = lines.place(mistake.span.start);
        format!("{name}:{line}:{column}: {}", mistake.text)
    });
    let mut told: Vec<_> = told.collect();
    if let more @ 1.. = mistakes.len() - told.len() {
        told.push(format!(
            "{name}: {more} more mistakes; mend those above first"
        ));
    }
    Err(BadInput(told.join("\n")))
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
    let lines = Lines::of(text);
    let line = |mistake: &Mistake| lines.line(mistake.span.start);
    // What is read behind a line that is no TOML is a guess, and so is what is wrong with it;
    // a value without a span in the file is made up.
    let first = line(first);
    mistakes.retain(|found| !found.span.is_empty() && line(found) < first);
    broken.dedup_by_key(|mistake| line(mistake));
    mistakes.extend(broken);
    found
}

// What a table says, and what it takes from another.

/// Puts what `over` says in place of what `base` says, table by table.
pub fn merge<'i>(base: &mut DeTable<'i>, over: &DeTable<'i>) {
    for (key, value) in over {
        let there = base.get_mut(&**key.get_ref()).map(Spanned::get_mut);
        match (there, value.get_ref()) {
            (Some(DeValue::Table(there)), DeValue::Table(over)) => merge(there, over),
            _ => {
                // So that the key is the one beside the value.
                base.remove(&**key.get_ref());
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The table without keys that are not known, each of which is told.
pub fn known_part<'i>(
    table: &DeTable<'i>,
    known: &[String],
    mistakes: &mut Vec<Mistake>,
) -> DeTable<'i> {
    let mut fitting = DeTable::new();
    for (key, value) in table {
        if known.iter().any(|known| known == key.get_ref()) {
            fitting.insert(key.clone(), value.clone());
        } else {
            let text = unknown(key.get_ref(), known);
            mistakes.push(Mistake::new(key.span(), text));
        }
    }
    fitting
}

/// What `[defaults]` say of tables of a kind, but for the keys that each such table has for itself;
/// and the same as far as it is sound.
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
        let lines = Lines::of("ä = 1\n\nböse\n");
        let places = [0, 2, 3, 6, 7, 8, 11, 13, 99].map(|position| lines.place(position));
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
