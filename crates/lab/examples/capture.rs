//! Traces at both ends of thin streams on a lossy path: three plain, three that bundle.
//! `cargo run -p pillion-lab --example capture -- PILLION FOLDER`, as root, leaves sender.pcap and
//! receiver.pcap of both groups in FOLDER.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use pillion_lab::{Host, HostPair};
use pillion_path::{Direction, Loss, PathConfig};

const STREAMS: &str = "3";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pillion, folder] = &arguments[..] else {
        return Err("give the pillion binary and a folder".into());
    };
    for (group, port) in [("plain", "7000"), ("bundled", "7001")] {
        let pair = HostPair::create(group, &path())?;
        let file = |end: &str| format!("{folder}/{group}-{end}.pcap");
        let captures = [
            capture(&pair.sender, &file("sender"))?,
            capture(&pair.receiver, &file("receiver"))?,
        ];
        thread::sleep(Duration::from_secs(1));
        let address = format!("{}:{port}", pair.receiver.address);
        let receiver = traffic(&pair.receiver, pillion, &["receive", "--listen", &address])
            .args(["--streams", STREAMS])
            .stdout(Stdio::null())
            .spawn()?;
        thread::sleep(Duration::from_millis(500));
        let sending = ["send", "--to", &address, "--streams", STREAMS];
        let mut sender = match group {
            "plain" => traffic(&pair.sender, pillion, &sending),
            _ => {
                let mut bundling = pair.sender.namespace.command(pillion);
                bundling.args(["run", "--dev", "tap0", "--", pillion, "traffic"]);
                bundling.args(sending);
                bundling
            }
        };
        sender.args(["--itt", "30:3", "--size", "120", "--duration", "20"]);
        let sent = sender.status()?;
        let received = receiver.wait_with_output()?;
        thread::sleep(Duration::from_secs(1));
        for mut capture in captures {
            end(&capture);
            capture.wait()?;
        }
        if !sent.success() || !received.status.success() {
            return Err(format!("the {group} streams failed").into());
        }
    }
    Ok(())
}

fn path() -> PathConfig {
    let direction = |loss| Direction {
        loss: Loss::Uniform(loss),
        ..Direction::delayed(Duration::from_millis(75))
    };
    PathConfig {
        forward: direction(0.05),
        backward: direction(0.0),
        seed: 1,
    }
}

fn capture(host: &Host, file: &str) -> std::io::Result<Child> {
    host.namespace
        .command("tcpdump")
        .args(["-i", "tap0", "-s", "128", "-U", "-w", file, "tcp"])
        .stderr(Stdio::null())
        .spawn()
}

fn traffic(host: &Host, pillion: &str, arguments: &[&str]) -> Command {
    let mut command = host.namespace.command(pillion);
    command.arg("traffic").args(arguments);
    command
}

fn end(child: &Child) {
    let _ = Command::new("kill").arg(child.id().to_string()).status();
}
