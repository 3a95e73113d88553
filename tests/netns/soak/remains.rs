
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pillion_lab::Namespace;

use super::ground::Ground;

/// Devices of both hosts with their qdiscs and filters, and pinned objects.
#[derive(Debug, PartialEq, Eq)]
pub struct Remains(BTreeSet<String>);

impl Remains {
    pub fn now(ground: &Ground) -> Self {
        let mut all = BTreeSet::new();
        for (host, of) in [
            (&ground.pair.sender, "sender"),
            (&ground.pair.receiver, "receiver"),
        ] {
            for words in [
                "ip -oneline link show",
                "tc qdisc show",
                "tc filter show dev tap0 ingress",
                "tc filter show dev tap0 egress",
            ] {
                let said = said(&host.namespace, words);
                let lines = said.lines().filter(|line| !is_empty_discipline(line));
                all.extend(lines.map(|line| format!("{of}: {words}: {line}")));
            }
        }
        pinned(Path::new("/sys/fs/bpf"), &mut all);
        Self(all)
    }

    /// Returns everything that exists now but not before.
    pub fn beyond(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }
}

/// True for a clsact without filters. One stays if a pillion created it and another used it, or if
/// its creator was killed (docs/devices.md).
fn is_empty_discipline(line: &str) -> bool {
    line.starts_with("qdisc clsact ")
}

fn said(host: &Namespace, words: &str) -> String {
    let words: Vec<_> = words.split(' ').collect();
    let output = host.run(words[0], &words[1..], "").expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).into_owned()
}

fn pinned(folder: &Path, all: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            pinned(&path, all);
        } else if path.to_string_lossy().contains("pillion") {
            all.insert(format!("pinned: {}", path.display()));
        }
    }
}
