//! What the documentation has people type, held against the binary's own command line.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use pillion_settings::policy;

use crate::Cli;

/// The README and the pages of docs/.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).unwrap().flatten();
    let pages = docs.map(|page| page.path()).chain([root.join("README.md")]);
    let is_page = |path: &PathBuf| path.extension().is_some_and(|it| it == "md");
    let read = |path: PathBuf| {
        let page = fs::read_to_string(&path).unwrap();
        (path, page)
    };
    pages.filter(is_page).map(read).collect()
}

/// The blocks of a page whose fences begin so.
fn blocks(page: &str, kind: &str) -> Vec<String> {
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

/// What is typed to pillion in a line of a shell; nothing where that is given by another program.
fn typed(line: &str) -> Option<Vec<&str>> {
    let line = line.split(" # ").next()?.split(" && ").next()?;
    let words = line.trim_start_matches("sudo ").strip_prefix("pillion ")?;
    let own = words.split(" -- ").next()?;
    Some(own.split_whitespace().collect())
}

/// The subcommand, and the options of it that are named.
fn refuse(words: &[&str]) -> Result<(), String> {
    let mut command: Command = Cli::command();
    command.build();
    let mut command = &command;
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

#[test]
fn commands_and_options_of_the_documentation_are_there() {
    let mut count = 0;
    for (path, page) in pages() {
        let blocks = blocks(&page, "").concat();
        for line in blocks.lines() {
            // What pillion says begins with its name as well.
            let Some(words) = typed(line).filter(|_| !line.starts_with("pillion: ")) else {
                continue;
            };
            if let Err(why) = refuse(&words) {
                panic!("{}: {line}: {why}", path.display());
            }
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn rules_of_the_documentation_are_sound() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pillion.toml");
    let mut count = 0;
    for (path, page) in pages() {
        let blocks = blocks(&page, "toml");
        for rules in blocks.iter().filter(|it| it.contains("[[rule]]")) {
            fs::write(&file, rules).unwrap();
            if let Err(mistakes) = policy::load(&file, false) {
                panic!("{}: {mistakes}", path.display());
            }
            count += 1;
        }
    }
    assert!(count >= 4, "{count}");
}

#[test]
fn every_command_is_in_the_readme() {
    let pages = pages();
    let (_, readme) = pages
        .iter()
        .find(|(path, _)| path.ends_with("README.md"))
        .unwrap();
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        let is_shown = readme.contains(&format!("pillion {name}"));
        assert!(is_shown || ["help", "man"].contains(&name), "{name}");
    }
}

#[test]
fn every_file_of_tests_that_the_documentation_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["", "tests/netns", "tests/netns/lifecycle"].map(|it| root.join(it));
    let mut count = 0;
    for (path, page) in pages() {
        let named = page.split('`').skip(1).step_by(2);
        for name in named.filter(|it| it.ends_with(".rs") && !it.contains(char::is_whitespace)) {
            let is_there = folders.iter().any(|folder| folder.join(name).exists());
            assert!(is_there, "{}: {name}", path.display());
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}
