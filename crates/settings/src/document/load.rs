use std::fs;
use std::io::{self, Read};
use std::path::Path;

use toml::de::DeTable;

use super::mistake::{Mistake, locate};
use crate::BadInput;

/// What `read` makes of a file, or of standard input where that is called `-`; `manual` describes
/// its keys.
///
/// # Errors
/// [`BadInput`] with a line for each mistake: `FILE:LINE:COLUMN: what; remedy`, or one
/// that says why the file cannot be read.
pub(crate) fn load<T>(
    path: &Path,
    manual: &str,
    read: impl FnOnce(&DeTable, &mut Vec<Mistake>) -> T,
) -> Result<T, BadInput> {
    let (name, bytes) = match path == Path::new("-") {
        true => {
            let mut bytes = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut bytes);
            ("standard input".to_owned(), read.map(|_| bytes))
        }
        false => (path.display().to_string(), fs::read(path)),
    };
    let bytes = bytes.map_err(|error| BadInput(format!("{name}: {error}")))?;
    load_bytes(&name, bytes, manual, read)
}

/// What `read` makes of what a file of this name says.
///
/// # Errors
/// As of [`load`].
pub(crate) fn load_bytes<T>(
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
    let lines = mistakes.iter().map(|mistake| {
        let (line, column) = locate(&text, mistake.span.start);
        format!("{name}:{line}:{column}: {}", mistake.text)
    });
    Err(BadInput(lines.collect::<Vec<_>>().join("\n")))
}

fn parse<T>(
    text: &str,
    manual: &str,
    read: impl FnOnce(&DeTable, &mut Vec<Mistake>) -> T,
    mistakes: &mut Vec<Mistake>,
) -> T {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let found = read(document.get_ref(), mistakes);
    let line = |mistake: &Mistake| locate(text, mistake.span.start).0;
    let syntax = syntax.iter().map(|error| Mistake::syntax(error, manual));
    let mut broken: Vec<Mistake> = syntax.collect();
    broken.sort_by_key(|mistake| mistake.span.start);
    broken.dedup_by_key(|mistake| line(mistake));
    if let Some(first) = broken.first().map(line) {
        // What is read behind a line that is no TOML is a guess, and so is what is wrong
        // with it; a value without a span in the file is made up.
        mistakes.retain(|found| !found.span.is_empty() && line(found) < first);
        mistakes.extend(broken);
    }
    found
}
