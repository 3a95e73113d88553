//! State that must not change: the kernel's log, devices, filters and pins.

use std::collections::BTreeSet;
use std::fs;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use pillion_bpf::host::interruption::retry;
use pillion_lab::Namespace;
use pillion_tests::faults;

use super::environment::Environment;

/// Kernel messages since its creation; `None` if they cannot be read.
#[derive(Debug)]
pub struct KernelLog(Option<File>);

impl KernelLog {
    pub fn from_now() -> Self {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let opened = options.open("/dev/kmsg");
        let at_end = opened.and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file));
        if let Err(error) = &at_end {
            println!("kernel messages are not checked: {error}");
        }
        Self(at_end.ok())
    }

    /// Returns an error with the first message that reports a fault.
    pub fn check(&mut self) -> Result<(), String> {
        let Some(file) = &mut self.0 else {
            return Ok(());
        };
        // Each read returns one message, and none is longer.
        let mut message = [0; 8192];
        loop {
            match retry(|| file.read(&mut message)) {
                Ok(settings) => {
                    let text = String::from_utf8_lossy(&message[..settings]);
                    if let Some(line) = faults(&text).first() {
                        return Err(format!("kernel message: {line}"));
                    }
                }
                // Some messages were overwritten before they were read.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(format!("read kernel messages: {error}")),
            }
        }
    }
}

/// Devices of both hosts with their qdiscs and filters, and pinned objects.
#[derive(Debug, PartialEq, Eq)]
pub struct HostState(BTreeSet<String>);

impl HostState {
    pub fn now(environment: &Environment) -> Self {
        let mut all = BTreeSet::new();
        for (host, label) in [
            (&environment.pair.sender, "sender"),
            (&environment.pair.receiver, "receiver"),
        ] {
            for words in [
                "ip -oneline link show",
                "tc qdisc show",
                "tc filter show dev tap0 ingress",
                "tc filter show dev tap0 egress",
            ] {
                let event = event(&host.namespace, words);
                let lines = event.lines().filter(|line| !is_empty_discipline(line));
                all.extend(lines.map(|line| format!("{label}: {words}: {line}")));
            }
        }
        add_pinned(Path::new("/sys/fs/bpf"), &mut all);
        Self(all)
    }

    /// Returns everything that exists now but not before.
    pub fn added_since(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }
}

/// True for a clsact without filters. One stays if a pillion created it and another used it, or if
/// its creator was killed (docs/reference/devices.md).
fn is_empty_discipline(line: &str) -> bool {
    line.starts_with("qdisc clsact ")
}

fn event(host: &Namespace, words: &str) -> String {
    let words: Vec<_> = words.split(' ').collect();
    let output = host.run(words[0], &words[1..], "").expect("it runs");
    let event = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&event).into_owned()
}

fn add_pinned(folder: &Path, all: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            add_pinned(&path, all);
        } else if path.to_string_lossy().contains("pillion") {
            all.insert(format!("pinned: {}", path.display()));
        }
    }
}
