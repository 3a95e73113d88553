//! The file of `--stats` while pillion runs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::attach::send_to;
use crate::common::*;
use crate::service::status;

/// Running `attach` that writes its statistics into its own folder.
struct Attached {
    process: Child,
    folder: TempDir,
}

impl Attached {
    fn begin(namespace: &pillion_lab::Namespace) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stats = folder.path().join("stats.json");
        let arguments = [
            "attach",
            "--port",
            "7001",
            "--stats",
            stats.to_str().unwrap(),
        ];
        let mut attach = pillion_in(namespace, &arguments);
        let process = attach.stderr(Stdio::piped()).spawn().unwrap();
        await_attached(process.id());
        eventually("the file exists", || stats.exists());
        Self { process, folder }
    }

    fn kill(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().cast_signed()), signal).unwrap();
    }

    fn stats(&self) -> serde_json::Value {
        read_json(&self.folder.path().join("stats.json"))
    }
}

#[test]
fn it_is_whole_at_any_moment_and_up_to_date_on_demand() {
    needs_root!();
    let pair = clean_pair();
    let mut attached = Attached::begin(&pair.sender.namespace);
    assert_eq!(attached.stats()["connections"], 0);
    send_to(&pair, &[7001]);
    attached.kill(Signal::SIGUSR1);
    eventually("the file shows both connections", || {
        attached.stats()["connections"] == 2
    });
    for _ in 0..200 {
        attached.kill(Signal::SIGUSR1);
        attached.stats();
    }
    attached.kill(Signal::SIGKILL);
    attached.process.wait().unwrap();
    assert_eq!(attached.stats()["connections"], 2);
    let left = fs::read_dir(attached.folder.path()).unwrap().count();
    assert!(
        left <= 2,
        "the file, and perhaps the one that was to replace it"
    );
}

#[test]
fn a_folder_that_goes_is_said_once_and_the_file_is_back_with_it() {
    needs_root!();
    let pair = clean_pair();
    let mut attached = Attached::begin(&pair.sender.namespace);
    let mut says = BufReader::new(attached.process.stderr.take().unwrap()).lines();
    assert!(
        says.next()
            .unwrap()
            .unwrap()
            .starts_with("pillion: bundling ")
    );
    fs::remove_dir_all(attached.folder.path()).unwrap();
    attached.kill(Signal::SIGUSR1);
    let line = says.next().unwrap().unwrap();
    assert!(
        line.starts_with("pillion: write --stats ") && line.ends_with("; trying again"),
        "{line}"
    );
    let namespace = &pair.sender.namespace;
    let what = format!("write --stats {}", attached.folder.path().display());
    let (fails, failed) = (format!("  fails: {what}"), format!(" ago: {what}"));
    eventually("status reports the failure", || {
        let (code, said) = status(namespace);
        code == Some(1) && said.contains(&fails) && said.contains(&failed)
    });
    fs::create_dir(attached.folder.path()).unwrap();
    attached.kill(Signal::SIGUSR1);
    eventually("the file exists again", || {
        attached.folder.path().join("stats.json").exists()
    });
    eventually("status reports the past failure", || {
        let (code, said) = status(namespace);
        code == Some(3) && !said.contains(&fails) && said.contains(&failed)
    });
    attached.kill(Signal::SIGTERM);
    assert!(attached.process.wait().unwrap().success());
    let line = says.next().unwrap().unwrap();
    assert!(
        line.starts_with("pillion: 0 connections"),
        "nothing more was said: {line}"
    );
}

/// Like a single file mounted into a container, which cannot be replaced by renaming.
#[test]
fn a_file_that_is_mounted_alone_is_written_to() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stats.json");
    fs::write(&file, "old").unwrap();
    let file = file.to_str().unwrap();
    let script =
        format!("mount --bind {file} {file} && exec {PILLION} run --dev lo --stats {file} -- true");
    let mut unshare = namespace.command("unshare");
    let output = unshare.args(["--mount", "sh", "-c", &script]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = fs::read_to_string(file).unwrap();
    let stats: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(stats.is_object(), "{text}");
}
