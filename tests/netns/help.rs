//! Help and manual pages.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::common::*;

#[test]
fn help_write_error_is_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    for arguments in [&["help"][..], &["run", "--help"], &["--version"]] {
        let mut help = Command::new(PILLION);
        let full = full.try_clone().unwrap();
        let output = help.args(arguments).stdout(full).output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(
            message.starts_with("pillion: error: write to standard output: "),
            "{message}"
        );
    }
}

#[test]
fn cli_reference_page_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let programs = Path::new(PILLION).parent().unwrap();
    let mut generator = Command::new(root.join("scripts/reference"));
    let output = generator.arg(programs).output().unwrap();
    let page = fs::read_to_string(root.join("docs/reference/cli.md")).unwrap();
    assert!(
        output.status.success() && page == stdout(&output),
        "run `scripts/reference target/debug > docs/reference/cli.md`: {}",
        stderr(&output)
    );
}

#[test]
fn too_narrow_columns_are_ignored() {
    for columns in ["0", "1", "20"] {
        let mut help = Command::new(PILLION);
        help.args(["run", "--help"]).env("COLUMNS", columns);
        let output = help.output().unwrap();
        let text = stdout(&output);
        assert!(
            text.starts_with("Run a command with its TCP connections bundled\n"),
            "{columns}: {text}"
        );
    }
}

#[test]
fn lab_subcommands_are_reported_not_run() {
    for (words, expected) in [
        (
            &["analyse", "--list", "a.pcap"][..],
            "`pillion analyse` is `pillion-lab analyse`",
        ),
        (&["traffic"], "`pillion traffic` is `pillion-lab traffic`"),
        (&["lab", "demo"], "`pillion lab` is `pillion-lab`"),
    ] {
        let output = pillion(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert_eq!(stderr(&output), format!("pillion: error: {expected}\n"));
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
        let message = stderr(&pillion(&[name]));
        assert_eq!(
            message,
            format!("pillion: error: `pillion {name}` is `pillion-lab {name}`\n")
        );
    }
    let unknown = pillion(&["nonsense"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("unrecognized subcommand"));
}

#[test]
fn man_creates_folder_for_pages() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("not/yet");
    let output = pillion(&["man", pages.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = fs::read_to_string(pages.join("pillion-attach.1")).unwrap();
    assert!(page.contains("pillion\\-attach"), "{page}");
}
