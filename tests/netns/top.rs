//! `pillion top`, with and without a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags};
use nix::pty::{Winsize, grantpt, openpty, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::{Pid, setsid};
use pillion_bpf::host::interruption::{poll, retry};
use pillion_lab::Namespace;

use crate::common::*;
use crate::succession::ends_well;

nix::ioctl_write_int_bad!(control, libc::TIOCSCTTY);
nix::ioctl_write_ptr_bad!(resize, libc::TIOCSWINSZ, Winsize);

/// Bundled connection over loopback. Dropping it stops pillion.
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

/// `pillion top` in its own terminal, and the terminal's screen.
struct InTerminal {
    top: Child,
    keyboard: File,
    terminal: OwnedFd,
    before: Termios,
    shown: Arc<Mutex<vt100::Parser>>,
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
        let shown = Arc::new(Mutex::new(vt100::Parser::default()));
        let mut screen = File::from(pty.master);
        let keyboard = screen.try_clone().unwrap();
        let shows = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = retry(|| screen.read(&mut bytes)) {
                shows.lock().unwrap().process(&bytes[..count]);
            }
        });
        let terminal = Self {
            top,
            keyboard,
            terminal: pty.slave,
            before,
            shown,
        };
        terminal.is_resized(120, 30);
        terminal.has_its_own_screen(true);
        terminal
    }

    fn has_its_own_screen(&self, own: bool) {
        eventually(&format!("the alternate screen: {own}"), || {
            self.shown.lock().unwrap().screen().alternate_screen() == own
        });
    }

    fn shows(&self, what: &str) {
        self.has_on_screen(what, true);
    }

    fn hides(&self, what: &str) {
        self.has_on_screen(what, false);
    }

    fn has_on_screen(&self, what: &str, expected: bool) {
        let shown = || self.shown.lock().unwrap().screen().contents();
        eventually(&format!("{what:?} on the screen: {expected}"), || {
            shown().contains(what) == expected
        });
    }

    fn is_sent(&self, signal: Signal) {
        kill(Pid::from_raw(self.top.id().cast_signed()), signal).unwrap();
    }

    fn presses(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    fn is_resized(&self, columns: u16, rows: u16) {
        let mut shown = self.shown.lock().unwrap();
        let [high, wide] = [rows, columns].map(|it| it.try_into().unwrap());
        shown.screen_mut().set_size(high, wide);
        // SAFETY: it sets the size of a terminal that is open.
        unsafe { resize(self.keyboard.as_raw_fd(), &size(columns, rows)) }.unwrap();
    }

    /// Waits for the exit, and checks that the terminal's settings are restored.
    fn ends(mut self) {
        let mut status = None;
        eventually("top exits", || {
            status = self.top.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success());
        self.has_its_own_screen(false);
        assert_eq!(tcgetattr(&self.terminal).unwrap(), self.before);
    }
}

#[test]
fn a_terminal_shows_connections_and_is_as_it_was_afterwards() {
    needs_root!();
    let bundled = Bundled::begin();
    // The filter hides connections of other tests, which might not fit on the screen.
    let local = bundled.local();
    let mut terminal = InTerminal::begin(&bundled.namespace, &["--filter", &local]);
    terminal.shows(&local);
    terminal.presses(b"\r");
    terminal.shows("bundled:");
    terminal.is_resized(90, 40);
    terminal.presses(b"?");
    terminal.shows("sooner bundles had them there than retransmissions would");
    terminal.presses(b" q");
    terminal.ends();
}

/// crossterm's default event source loses the key if it reads the resize first.
#[test]
fn a_key_pressed_while_the_terminal_is_resized_is_seen() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut terminal = InTerminal::begin(&namespace, &[]);
    terminal.shows("pillion top");
    for columns in 90..100 {
        // Makes both events arrive together.
        terminal.is_sent(Signal::SIGSTOP);
        terminal.is_resized(columns, 40);
        terminal.presses(b"?");
        terminal.is_sent(Signal::SIGCONT);
        let help = "sooner bundles had them there than retransmissions would";
        terminal.shows(help);
        terminal.presses(b" ");
        terminal.hides(help);
    }
    terminal.presses(b"q");
    terminal.ends();
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    needs_root!();
    let namespace = namespace_with_loopback();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGQUIT,
        Signal::SIGABRT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        let terminal = InTerminal::begin(&namespace, &[]);
        terminal.shows("pillion top");
        terminal.is_sent(signal);
        terminal.ends();
    }
}

/// Closes the terminal of a running `top` that ignores SIGHUP, as under `nohup`. Returns its exit
/// status.
fn when_its_terminal_is_closed(is_controlling: bool) -> Option<i32> {
    let namespace = namespace_with_loopback();
    // Close-on-exec: otherwise processes of other tests would keep the terminal open.
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let mut screen = posix_openpt(flags).unwrap();
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    let terminal = options.open(ptsname_r(&screen).unwrap()).unwrap();
    // SAFETY: it sets the size of a terminal that is open.
    unsafe { resize(screen.as_raw_fd(), &size(120, 30)) }.unwrap();
    let mut top = pillion_in(&namespace, &["top", "--interval", "100"]);
    let end = || Stdio::from(terminal.try_clone().unwrap());
    top.stdin(end()).stdout(end()).stderr(end());
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        top.pre_exec(move || {
            setsid()?;
            if is_controlling {
                control(0, 0)?;
            }
            signal(Signal::SIGHUP, SigHandler::SigIgn)?;
            Ok(())
        })
    };
    let mut child = top.spawn().unwrap();
    // The command holds the terminal's end as well.
    drop((top, terminal));
    let mut shown = Vec::new();
    // Wait for constant text: of lines that change with other tests' connections only differences
    // are drawn.
    while !String::from_utf8_lossy(&shown).contains("pillion top") {
        let mut bytes = [0; 4096];
        let mut fds = [PollFd::new(screen.as_fd(), PollFlags::POLLIN)];
        let timeout = Duration::from_secs(10);
        assert_eq!(poll(&mut fds, Some(timeout)), Ok(1), "nothing is drawn");
        let count = retry(|| screen.read(&mut bytes)).unwrap();
        shown.extend_from_slice(&bytes[..count]);
    }
    drop(screen);
    for _ in 0..100 {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("top runs on without a terminal");
}

#[test]
fn it_ends_with_its_terminal() {
    needs_root!();
    for is_controlling in [true, false, true, false] {
        assert_eq!(when_its_terminal_is_closed(is_controlling), Some(0));
    }
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
fn rounds_end_with_their_reader() {
    needs_root!();
    for format in [&[][..], &["--json"]] {
        let namespace = namespace_with_loopback();
        let mut top = pillion_in(&namespace, &["top", "--batch", "--interval", "50"]);
        let mut top = top.args(format).stdout(Stdio::piped()).spawn().unwrap();
        let mut byte = [0];
        top.stdout.take().unwrap().read_exact(&mut byte).unwrap();
        assert!(ends_well(&mut top));
    }
}

#[test]
fn a_connection_of_two_pillions_has_its_process_with_both() {
    needs_root!();
    let bundled = Bundled::begin();
    let mut second = pillion_in(&bundled.namespace, &["attach", "--all", "--dev", "lo"]);
    let mut second = second.stderr(Stdio::null()).spawn().unwrap();
    await_attached(second.id());
    let listed = pillion(&["flows", "--json"]);
    kill(Pid::from_raw(second.id().cast_signed()), Signal::SIGTERM).unwrap();
    second.wait().unwrap();
    let local = bundled.local();
    let flows: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let ours = flows.iter().filter(|flow| flow["local"] == local.as_str());
    let pids: Vec<_> = ours.map(|flow| flow["pid"].as_u64()).collect();
    assert_eq!(pids, [Some(std::process::id().into()); 2], "{flows:?}");
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
