//! Help and manual pages.

use std::fs::{self, File};
use std::process::Command;

use crate::common::*;

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    for arguments in [&["help"][..], &["run", "--help"], &["--version"]] {
        let mut help = Command::new(PILLION);
        let full = full.try_clone().unwrap();
        let output = help.args(arguments).stdout(full).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(
            said.starts_with("pillion: write to standard output: "),
            "{said}"
        );
    }
}

#[test]
fn columns_that_no_line_fits_into_are_not_kept_to() {
    for columns in ["0", "1", "20"] {
        let mut help = Command::new(PILLION);
        help.args(["run", "--help"]).env("COLUMNS", columns);
        let output = help.output().unwrap();
        let told = stdout(&output);
        assert!(
            told.starts_with("Run a command with its TCP connections bundled\n"),
            "{columns}: {told}"
        );
    }
}

#[test]
fn lab_subcommands_are_named_and_not_started() {
    for (words, named) in [
        (
            &["analyse", "--list", "a.pcap"][..],
            "`pillion analyse` is `pillion-lab analyse`",
        ),
        (&["traffic"], "`pillion traffic` is `pillion-lab traffic`"),
        (&["lab", "demo"], "`pillion lab` is `pillion-lab`"),
    ] {
        let output = pillion(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert_eq!(stderr(&output), format!("pillion: {named}\n"));
    }
    let help = stdout(&lab(&["--help"]));
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    // Continuation lines of descriptions are indented.
    let listed = commands.filter(|line| !line.starts_with("    "));
    let listed = listed.filter_map(|line| line.split_whitespace().next());
    let own = ["run", "completions", "man", "help"];
    let listed: Vec<_> = listed.filter(|name| !own.contains(name)).collect();
    assert!(listed.len() >= 14, "{listed:?}");
    for name in listed {
        let said = stderr(&pillion(&[name]));
        assert_eq!(
            said,
            format!("pillion: `pillion {name}` is `pillion-lab {name}`\n")
        );
    }
    let unknown = pillion(&["nonsense"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("unrecognized subcommand"));
}

#[test]
fn manual_pages_are_written_into_a_folder_that_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("not/yet");
    let output = pillion(&["man", pages.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = fs::read_to_string(pages.join("pillion-attach.1")).unwrap();
    assert!(page.contains("pillion\\-attach"), "{page}");
}
