//! Two hosts of the guest, and a link between them that delays and loses packets.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{self, bpf_insn};
use libbpf_rs::{Xdp, XdpFlags};
use nix::net::if_::if_nametoindex;
use pillion_lab::Namespace;

/// One-way delay in milliseconds, at which the stream is thin.
const DELAY_MS: u32 = 40;

/// Loss of the sender's packets.
const LOSS_PERCENT: u32 = 10;

pub struct Link {
    pub sender: Namespace,
    pub receiver: Namespace,
}

impl Link {
    /// Joins the hosts by `devices` veth pairs: veth0, veth1 and so on. At the receiver veth0 has
    /// the addresses 10.77.0.2 and fd77::2.
    pub fn create(devices: usize) -> Result<Self, String> {
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
        let lossy = format!("delay {DELAY_MS}ms loss {LOSS_PERCENT}%");
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

/// Runs `ip` or `tc` commands in a namespace, one per line.
fn batch(namespace: &Namespace, tool: &str, lines: &str) -> Result<(), String> {
    let output = namespace.run(tool, &["-batch", "-"], lines);
    let output = output.map_err(|error| format!("{tool}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{tool}: {}", stderr.trim().replace('\n', "; ")))
}

/// Attaches a generic XDP program that passes every packet to a namespace's device.
pub fn pass_all(namespace: &Namespace, device: &str) -> Result<(), String> {
    let failed = |error: String| format!("XDP at {device}: {error}");
    let program = load().map_err(failed)?;
    let attached = namespace.enter(|| {
        let index = if_nametoindex(device).map_err(|errno| errno.to_string())?;
        let xdp = Xdp::new(program.as_fd());
        let attached = xdp.attach(index.cast_signed(), XdpFlags::SKB_MODE);
        attached.map_err(|error| error.to_string())
    });
    attached
        .map_err(|error| failed(error.to_string()))?
        .map_err(failed)
}

/// `return XDP_PASS`.
fn load() -> Result<OwnedFd, String> {
    const MOVE: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    let mut pass = bpf_insn {
        code: MOVE,
        imm: libbpf_sys::XDP_PASS.cast_signed(),
        ..bpf_insn::default()
    };
    pass.set_dst_reg(0);
    let exit = bpf_insn {
        code: EXIT,
        ..bpf_insn::default()
    };
    let program = [pass, exit];
    // SAFETY: all pointers are valid for the call; libbpf allows null options.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            c"pass_all".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as u64,
            std::ptr::null_mut(),
        )
    };
    if fd < 0 {
        return Err(std::io::Error::from_raw_os_error(-fd).to_string());
    }
    // SAFETY: libbpf just opened it for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
