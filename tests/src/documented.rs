//! Commands of the documentation, checked against a program's own command line.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;

/// The README and the pages of docs/, with their text.
///
/// # Panics
/// If one cannot be read.
#[must_use]
pub fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = fs::read_dir(root.join("docs")).unwrap().flatten();
    let pages = docs.map(|page| page.path()).chain([root.join("README.md")]);
    let is_page = |path: &PathBuf| path.extension().is_some_and(|it| it == "md");
    let read = |path: PathBuf| {
        let page = fs::read_to_string(&path).unwrap();
        (path, page)
    };
    pages.filter(is_page).map(read).collect()
}

/// The code blocks of a page in this language; an empty one finds blocks without a language.
#[must_use]
pub fn blocks(page: &str, kind: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(of), None) => open = Some((of, String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take().filter(|(of, _)| *of == kind)),
            (None, Some((_, text))) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    blocks.into_iter().map(|(_, text)| text).collect()
}

/// Checks every line of a shell that starts this program; returns how many there are.
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
            if let Err(why) = check(&program, &words) {
                panic!("{}: {line}: {why}", path.display());
            }
            count += 1;
        }
    }
    count
}

/// The arguments of the program in a line of a shell.
fn arguments<'a>(line: &'a str, program: &str) -> Option<Vec<&'a str>> {
    let line = line.split(" # ").next()?.split(" && ").next()?;
    let words = line.trim_start_matches("sudo ").strip_prefix(program)?;
    let own = words.strip_prefix(' ')?.split(" -- ").next()?;
    Some(own.split_whitespace().collect())
}

fn check(program: &Command, words: &[&str]) -> Result<(), String> {
    let mut command = program;
    for (place, word) in words.iter().enumerate() {
        if let Some(option) = word.strip_prefix("--") {
            let name = option.split('=').next().unwrap_or(option);
            let has = |it: &clap::Arg| it.get_long() == Some(name);
            if !command.get_arguments().any(has) {
                return Err(format!("{} has no --{name}", command.get_name()));
            }
        } else if let Some(inner) = command.find_subcommand(word) {
            command = inner;
        } else if place == 0 {
            return Err(format!("there is no `{word}`"));
        }
    }
    Ok(())
}
