//! Checks commands in the documentation against a program's command line.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;

/// Returns the README and the pages below docs/, with their text.
///
/// # Panics
/// If a page cannot be read.
#[must_use]
pub fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths = vec![root.join("README.md")];
    add_pages(&root.join("docs"), &mut paths);
    let read = |path: PathBuf| {
        let page = fs::read_to_string(&path).unwrap();
        (path, page)
    };
    paths.into_iter().map(read).collect()
}

fn add_pages(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_pages(&path, paths);
        } else if path.extension().is_some_and(|it| it == "md") {
            paths.push(path);
        }
    }
}

/// Returns the code blocks of a page in this language; an empty one selects blocks without a
/// language.
#[must_use]
pub fn blocks(page: &str, kind: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => open = Some((language, String::new())),
            (Some(_), Some(_)) => {
                blocks.extend(open.take().filter(|(language, _)| *language == kind));
            }
            (None, Some((_, text))) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    blocks.into_iter().map(|(_, text)| text).collect()
}

/// Checks every shell line that starts this program. Returns the number of such lines.
///
/// # Panics
/// If a subcommand or an option does not exist.
#[must_use]
pub fn check_commands(program: &Command) -> usize {
    let mut program = program.clone();
    program.build();
    let mut count = 0;
    for (path, page) in pages() {
        let message = format!("{}: ", program.get_name());
        for line in blocks(&page, "").concat().lines() {
            let words = arguments(line, program.get_name());
            let Some(words) = words.filter(|_| !line.starts_with(&message)) else {
                continue;
            };
            if let Err(reason) = check(&program, &words) {
                panic!("{}: {line}: {reason}", path.display());
            }
            count += 1;
        }
    }
    count
}

/// Returns the program's arguments in a shell line.
fn arguments<'a>(line: &'a str, program: &str) -> Option<Vec<&'a str>> {
    let line = line.split(" # ").next()?.split(" && ").next()?;
    let words = line.trim_start_matches("sudo ").strip_prefix(program)?;
    let own = words.strip_prefix(' ')?.split(" -- ").next()?;
    Some(own.split_whitespace().collect())
}

fn check(program: &Command, words: &[&str]) -> Result<(), String> {
    let mut command = program;
    for (index, word) in words.iter().enumerate() {
        if let Some(option) = word.strip_prefix("--") {
            let name = option.split('=').next().unwrap_or(option);
            let is_option = |it: &clap::Arg| it.get_long() == Some(name);
            if !command.get_arguments().any(is_option) {
                return Err(format!("{} has no option --{name}", command.get_name()));
            }
        } else if let Some(inner) = command.find_subcommand(word) {
            command = inner;
        } else if index == 0 {
            return Err(format!("no such subcommand `{word}`"));
        }
    }
    Ok(())
}
