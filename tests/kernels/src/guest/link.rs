//! Two hosts of the guest, and a link between them that delays and loses packets.

use pillion_lab::Namespace;

/// Each way, in milliseconds; the stream is thin with that.
const DELAY_MS: u32 = 40;

/// Of what the sender sends.
const LOSS_PER_CENT: u32 = 10;

pub struct Link {
    pub sender: Namespace,
    pub receiver: Namespace,
}

impl Link {
    /// Joins the hosts by this number of devices: veth0, veth1 and so on. At the receiver veth0 has the
    /// addresses 10.77.0.2 and fd77::2.
    pub fn make(devices: usize) -> Result<Self, String> {
        let namespace = || Namespace::create().map_err(|error| format!("a namespace: {error}"));
        let link = Self {
            sender: namespace()?,
            receiver: namespace()?,
        };
        let other = link.receiver.path();
        let devices: Vec<_> = (0..devices).map(|number| format!("veth{number}")).collect();
        for device in &devices {
            let pair = format!(
                "link add {device} type veth peer name {device} netns {}\n",
                other.display()
            );
            batch(&link.sender, "ip", &pair)?;
        }
        let first = &devices[0];
        for (number, namespace) in [(1, &link.sender), (2, &link.receiver)] {
            let set_up = format!(
                "link set lo up\n\
                 link set {first} up\n\
                 address add 10.77.0.{number}/24 dev {first}\n\
                 address add fd77::{number}/64 dev {first} nodad\n"
            );
            batch(namespace, "ip", &set_up)?;
        }
        let lossy = format!("delay {DELAY_MS}ms loss {LOSS_PER_CENT}%");
        for (namespace, how) in [
            (&link.sender, lossy),
            (&link.receiver, format!("delay {DELAY_MS}ms")),
        ] {
            for device in &devices {
                let qdisc = format!("qdisc add dev {device} root netem limit 1000 {how}\n");
                batch(namespace, "tc", &qdisc)?;
            }
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
