//! Streams that containers send with this host's programs.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pillion_lab::Namespace;
use pillion_tests::HostPair;
use serde_json::Value;

use crate::common::*;
use crate::containers::Beside;
use crate::namespaces::Resident;

/// Folders of this host's programs and their libraries.
pub const PROGRAMS: [&str; 4] = ["/usr", "/bin", "/lib", "/lib64"];

/// Command that sends a thin stream to the receiver of a [`Stream`].
pub const SEND: [&str; 9] = [
    "/pillion-lab",
    "traffic",
    "send",
    "--to",
    "10.77.0.2:7777",
    "--itt",
    "10",
    "--duration",
    "60",
];

/// Creates a root folder for containers. This host's programs are mounted there, so no image is
/// needed.
pub fn root_of_a_container(below: &Path) -> PathBuf {
    let root = below.join("root");
    for folder in [
        "bin", "dev", "etc", "lib", "lib64", "proc", "run", "sys", "tmp", "usr", "var",
    ] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    root
}

/// Returns the `--volume` options for these programs and for pillion.
pub fn volumes() -> Vec<String> {
    let programs = PROGRAMS.map(|it| format!("{it}:{it}:ro"));
    let pillion = [
        format!("{PILLION}:/pillion:ro"),
        format!("{PILLION_LAB}:/pillion-lab:ro"),
    ];
    programs.into_iter().chain(pillion).collect()
}

/// Path with some data loss, and a receiver at its end.
pub struct Stream {
    pub pair: HostPair,
    /// Idle process in the sender's namespace.
    pub resident: Resident,
    _listener: TcpListener,
}

impl Stream {
    pub fn prepare() -> Self {
        let pair = lossy_pair(0.05);
        let receiver = &pair.receiver.namespace;
        let listener = receiver.enter(|| TcpListener::bind("10.77.0.2:7777"));
        Self {
            resident: Resident::of(&pair.sender.namespace),
            _listener: listener.unwrap().unwrap(),
            pair,
        }
    }

    /// Returns a flow of the sender's namespace; other pillions of this host may list theirs too.
    pub fn flow(&self, host: &Beside, here: &Namespace) -> Value {
        let namespace = format!("/proc/{}/ns/net", self.resident.pid());
        let namespace = fs::metadata(namespace).unwrap().ino();
        let flows = host.json(here, &["flows", "--json"]);
        let mut flows = flows.as_array().unwrap().iter();
        let flow = flows.find(|flow| flow["netns"] == namespace);
        flow.cloned().unwrap_or_default()
    }
}

/// Counts bundles rather than repairs: on a slow machine bundles are large, the receiver delays its
/// ACKs, and these reveal few losses.
pub fn has_bundled(flow: &Value) -> bool {
    flow["outcomes"]["bundled"].as_u64() > Some(20)
}
