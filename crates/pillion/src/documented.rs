//! The documentation, checked against the command line and the keys of the rules.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use pillion_cli::settings::policy;
use pillion_tests::documented::{blocks, check_commands, pages};

use crate::Cli;

#[test]
fn commands_and_options_of_the_documentation_exist() {
    let count = check_commands(&Cli::command());
    assert!(count > 40, "{count}");
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
        assert!(
            is_shown || ["help", "man", "completions", "config"].contains(&name),
            "{name}"
        );
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
