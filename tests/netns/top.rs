//! `pillion top`, in a terminal and without one.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::{Pid, setsid};
use pillion_lab::Namespace;

use crate::common::*;

nix::ioctl_write_int_bad!(control, libc::TIOCSCTTY);
nix::ioctl_write_ptr_bad!(resize, libc::TIOCSWINSZ, Winsize);

/// A connection over loopback that is bundled; ends with the child.
struct Bundled {
    namespace: Namespace,
    attach: Child,
    ends: [TcpStream; 2],
}

impl Bundled {
    fn begin() -> Self {
        let namespace = namespace_with_loopback();
        let mut attach = pillion_in(&namespace, &["attach", "--all", "--dev", "lo"]);
        let attach = attach.stderr(Stdio::null()).spawn().unwrap();
        await_attached(attach.id());
        let ends = namespace.enter(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            [near, listener.accept().unwrap().0]
        });
        let mut ends = ends.unwrap();
        ends[0].write_all(b"move").unwrap();
        ends[1].read_exact(&mut [0; 4]).unwrap();
        Self {
            namespace,
            attach,
            ends,
        }
    }

    fn local(&self) -> String {
        self.ends[0].local_addr().unwrap().to_string()
    }
}

impl Drop for Bundled {
    fn drop(&mut self) {
        let _ = kill(
            Pid::from_raw(self.attach.id().cast_signed()),
            Signal::SIGTERM,
        );
        let _ = self.attach.wait();
    }
}

/// `pillion top` in a terminal of its own, and what that was told so far.
struct InTerminal {
    top: Child,
    keyboard: File,
    terminal: OwnedFd,
    before: Termios,
    told: Arc<Mutex<String>>,
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl InTerminal {
    fn begin(namespace: &Namespace, more: &[&str]) -> Self {
        let pty = openpty(Some(&size(120, 30)), None).unwrap();
        let before = tcgetattr(&pty.slave).unwrap();
        let mut top = pillion_in(namespace, &["top", "--interval", "100"]);
        top.args(more);
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        top.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            top.pre_exec(|| {
                setsid()?;
                control(0, 0)?;
                Ok(())
            })
        };
        let top = top.spawn().unwrap();
        let told = Arc::new(Mutex::new(String::new()));
        let mut screen = File::from(pty.master);
        let keyboard = screen.try_clone().unwrap();
        let hears = Arc::clone(&told);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                hears.lock().unwrap().push_str(&text);
            }
        });
        Self {
            top,
            keyboard,
            terminal: pty.slave,
            before,
            told,
        }
    }

    fn is_told(&self, what: &str) {
        let told = || self.told.lock().unwrap().contains(what);
        eventually(&format!("the terminal is told {what:?}"), told);
    }

    /// Once it has ended, the terminal is as it was before.
    fn ends(mut self) {
        assert!(self.top.wait().unwrap().success());
        self.is_told("\u{1b}[?1049l");
        assert_eq!(tcgetattr(&self.terminal).unwrap(), self.before);
    }
}

#[test]
fn a_terminal_shows_connections_and_is_as_it_was_afterwards() {
    needs_root!();
    let bundled = Bundled::begin();
    // Without those of other tests, for which the terminal may have no room.
    let local = bundled.local();
    let mut terminal = InTerminal::begin(&bundled.namespace, &["--filter", &local]);
    terminal.is_told("\u{1b}[?1049h");
    terminal.is_told(&local);
    terminal.keyboard.write_all(b"\r").unwrap();
    terminal.is_told("bundled:");
    // SAFETY: it sets the size of a terminal that is open.
    unsafe { resize(terminal.keyboard.as_raw_fd(), &size(90, 40)) }.unwrap();
    terminal.keyboard.write_all(b"?").unwrap();
    terminal.is_told("retransmissions");
    terminal.keyboard.write_all(b" q").unwrap();
    terminal.ends();
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let terminal = InTerminal::begin(&namespace, &[]);
    terminal.is_told("connections");
    kill(
        Pid::from_raw(terminal.top.id().cast_signed()),
        Signal::SIGTERM,
    )
    .unwrap();
    terminal.ends();
}

#[test]
fn rounds_are_text_or_json_without_a_terminal() {
    needs_root!();
    let bundled = Bundled::begin();
    let batch = |arguments: &[&str]| {
        let mut all = vec!["top", "--batch", "--rounds", "2", "--interval", "10"];
        all.extend(arguments);
        let output = pillion_in(&bundled.namespace, &all).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let local = bundled.local();
    let text = batch(&["--filter", &local]);
    assert_eq!(text.matches("hidden losses").count(), 2, "{text}");
    assert!(text.contains(&local), "{text}");
    let rounds = batch(&["--json", "--filter", &local, "--sort", "process"]);
    assert_eq!(rounds.lines().count(), 2, "{rounds}");
    for round in rounds.lines() {
        let round: serde_json::Value = serde_json::from_str(round).unwrap();
        let connections = round.as_array().unwrap();
        let one = connections.iter().find(|it| it["local"] == local.as_str());
        let one = one.unwrap_or_else(|| panic!("{rounds}"));
        assert_eq!(one["pid"], std::process::id());
        assert!(one["data_packets"].as_u64() >= Some(1), "{one}");
        assert!(one["srtt_us"].as_u64() > Some(0), "{one}");
    }
}

#[test]
fn what_top_needs_is_said() {
    let output = pillion(&["top"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--batch"), "{}", stderr(&output));
    let output = pillion(&["top", "--batch", "--sort", "speed"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("hidden-losses"),
        "{}",
        stderr(&output)
    );
}
