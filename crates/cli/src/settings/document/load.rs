use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use toml::de::DeTable;

use super::lines::Lines;
use super::mistake::Mistake;
use crate::settings::BadInput;

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
