//! Two hosts of the guest, and a link between them that delays and loses packets.

use pillion_lab::Namespace;

/// The device at each end.
pub const DEVICE: &str = "veth0";

/// Each way, in milliseconds; the stream is thin with that.
const DELAY_MS: u32 = 40;

/// Of what the sender sends.
const LOSS_PER_CENT: u32 = 10;

pub struct Link {
    pub sender: Namespace,
    pub receiver: Namespace,
}

impl Link {
    /// The receiver has the addresses 10.77.0.2 and fd77::2.
    pub fn make() -> Result<Self, String> {
        let namespace = || Namespace::create().map_err(|error| format!("a namespace: {error}"));
        let link = Self {
            sender: namespace()?,
            receiver: namespace()?,
        };
        let other = link.receiver.path();
        let pair = format!(
            "link add {DEVICE} type veth peer name {DEVICE} netns {}\n",
            other.display()
        );
        batch(&link.sender, "ip", &pair)?;
        for (number, namespace) in [(1, &link.sender), (2, &link.receiver)] {
            let set_up = format!(
                "link set lo up\n\
                 link set {DEVICE} up\n\
                 address add 10.77.0.{number}/24 dev {DEVICE}\n\
                 address add fd77::{number}/64 dev {DEVICE} nodad\n"
            );
            batch(namespace, "ip", &set_up)?;
        }
        let lossy = format!("delay {DELAY_MS}ms loss {LOSS_PER_CENT}%");
        for (namespace, how) in [
            (&link.sender, lossy),
            (&link.receiver, format!("delay {DELAY_MS}ms")),
        ] {
            let qdisc = format!("qdisc add dev {DEVICE} root netem limit 1000 {how}\n");
            batch(namespace, "tc", &qdisc)?;
        }
        Ok(link)
    }
}

/// Has `ip` or `tc` do what the lines say, in a namespace.
fn batch(namespace: &Namespace, tool: &str, lines: &str) -> Result<(), String> {
    let output = namespace.run(tool, &["-batch", "-"], lines);
    let output = output.map_err(|error| format!("{tool}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{tool}: {}", said.trim().replace('\n', "; ")))
}
