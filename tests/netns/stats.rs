//! The file of `--stats` while pillion runs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::attach::send_to;
use crate::common::*;
use crate::service::status;

/// Running `attach` that writes its statistics into its own folder.
struct AttachWithStats {
    process: Child,
    folder: TempDir,
}

impl AttachWithStats {
    fn start(namespace: &pillion_lab::Namespace) -> Self {
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
        send_signal(&self.process, signal);
    }

    fn stats(&self) -> serde_json::Value {
        read_json(&self.folder.path().join("stats.json"))
    }
}

#[test]
fn stats_file_is_always_complete_and_updated_on_sigusr1() {
    needs_root!();
    let pair = clean_pair();
    let mut attach = AttachWithStats::start(&pair.sender.namespace);
    assert_eq!(attach.stats()["connections"], 0);
    send_to(&pair, &[7001]);
    attach.kill(Signal::SIGUSR1);
    eventually("the file shows both connections", || {
        attach.stats()["connections"] == 2
    });
    for _ in 0..200 {
        attach.kill(Signal::SIGUSR1);
        attach.stats();
    }
    attach.kill(Signal::SIGKILL);
    attach.process.wait().unwrap();
    assert_eq!(attach.stats()["connections"], 2);
    let files = fs::read_dir(attach.folder.path()).unwrap().count();
    assert!(
        files <= 2,
        "the file, and perhaps the one that was to replace it"
    );
}

#[test]
fn removed_folder_is_reported_once_and_file_is_rewritten() {
    needs_root!();
    let pair = clean_pair();
    let mut attach = AttachWithStats::start(&pair.sender.namespace);
    let mut log = BufReader::new(attach.process.stderr.take().unwrap()).lines();
    assert!(
        log.next()
            .unwrap()
            .unwrap()
            .starts_with("pillion: bundling ")
    );
    fs::remove_dir_all(attach.folder.path()).unwrap();
    attach.kill(Signal::SIGUSR1);
    let line = log.next().unwrap().unwrap();
    assert!(
        line.starts_with("pillion: warning: write --stats ") && line.ends_with("; retrying"),
        "{line}"
    );
    let namespace = &pair.sender.namespace;
    let failure = format!("write --stats {}", attach.folder.path().display());
    let (fails, failed) = (format!("  fails: {failure}"), format!(" ago: {failure}"));
    eventually("status reports the failure", || {
        let (code, text) = status(namespace);
        code == Some(1) && text.contains(&fails) && text.contains(&failed)
    });
    fs::create_dir(attach.folder.path()).unwrap();
    attach.kill(Signal::SIGUSR1);
    eventually("the file exists again", || {
        attach.folder.path().join("stats.json").exists()
    });
    eventually("status reports the past failure", || {
        let (code, text) = status(namespace);
        code == Some(3) && !text.contains(&fails) && text.contains(&failed)
    });
    attach.kill(Signal::SIGTERM);
    assert!(attach.process.wait().unwrap().success());
    let line = log.next().unwrap().unwrap();
    assert!(
        line.starts_with("pillion: 0 connections"),
        "nothing more is logged: {line}"
    );
}

/// Like a single file mounted into a container, which cannot be replaced by renaming.
#[test]
fn bind_mounted_stats_file_is_written() {
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
