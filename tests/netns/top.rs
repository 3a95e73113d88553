//! `pillion top`, with and without a terminal.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
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
use crate::connection_limit::connect;
use crate::handover::exits_successfully;

nix::ioctl_write_int_bad!(control, libc::TIOCSCTTY);
nix::ioctl_write_ptr_bad!(resize, libc::TIOCSWINSZ, Winsize);

/// Bundled connection over loopback. Dropping it stops pillion.
struct BundledConnection {
    namespace: Namespace,
    attach: Child,
    sockets: [TcpStream; 2],
}

impl BundledConnection {
    fn start() -> Self {
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
            sockets: ends,
        }
    }

    fn local(&self) -> String {
        self.sockets[0].local_addr().unwrap().to_string()
    }
}

impl Drop for BundledConnection {
    fn drop(&mut self) {
        let _ = kill(
            Pid::from_raw(self.attach.id().cast_signed()),
            Signal::SIGTERM,
        );
        let _ = self.attach.wait();
    }
}

/// `pillion top` in its own terminal, and the terminal's screen.
struct TerminalSession {
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

impl TerminalSession {
    fn start(namespace: &Namespace, more: &[&str]) -> Self {
        let mut top = pillion_in(namespace, &["top", "--interval", "100ms"]);
        top.args(more);
        Self::open(top)
    }

    fn open(mut top: Command) -> Self {
        let pty = openpty(Some(&size(120, 30)), None).unwrap();
        let before = tcgetattr(&pty.slave).unwrap();
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
        let wait_shown = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = retry(|| screen.read(&mut bytes)) {
                wait_shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        let terminal = Self {
            top,
            keyboard,
            terminal: pty.slave,
            before,
            shown,
        };
        terminal.set_size(120, 30);
        terminal.wait_alternate_screen(true);
        terminal
    }

    /// Returns the CPU time that `top` has used.
    fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", self.top.id())).unwrap();
        Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
    }

    fn wait_alternate_screen(&self, own: bool) {
        eventually(&format!("the alternate screen: {own}"), || {
            self.shown.lock().unwrap().screen().alternate_screen() == own
        });
    }

    fn wait_shown(&self, text: &str) {
        self.wait_on_screen(text, true);
    }

    fn wait_hidden(&self, text: &str) {
        self.wait_on_screen(text, false);
    }

    fn wait_on_screen(&self, text: &str, expected: bool) {
        let shown = || self.shown.lock().unwrap().screen().contents();
        eventually(&format!("{text:?} on the screen: {expected}"), || {
            shown().contains(text) == expected
        });
    }

    fn send_signal(&self, signal: Signal) {
        send_signal(&self.top, signal);
    }

    fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    fn set_size(&self, columns: u16, rows: u16) {
        let mut shown = self.shown.lock().unwrap();
        let [high, wide] = [rows, columns].map(|it| it.try_into().unwrap());
        shown.screen_mut().set_size(high, wide);
        // SAFETY: it sets the size of a terminal that is open.
        unsafe { resize(self.keyboard.as_raw_fd(), &size(columns, rows)) }.unwrap();
    }

    /// Waits for the exit, and checks that the terminal's settings are restored.
    fn wait_exit(mut self) {
        let mut status = None;
        eventually("top exits", || {
            status = self.top.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success());
        self.wait_alternate_screen(false);
        assert_eq!(tcgetattr(&self.terminal).unwrap(), self.before);
    }
}

#[test]
fn top_shows_connections_and_restores_terminal() {
    needs_root!();
    let bundled = BundledConnection::start();
    // The filter hides connections of other tests, which might not fit on the screen.
    let local = bundled.local();
    let mut terminal = TerminalSession::start(&bundled.namespace, &["--filter", &local]);
    terminal.wait_shown(&local);
    terminal.press(b"\r");
    terminal.wait_shown("bundled:");
    terminal.set_size(90, 40);
    terminal.press(b"?");
    terminal.wait_shown("time that bundles saved compared to retransmissions");
    terminal.press(b" q");
    terminal.wait_exit();
}

#[test]
fn top_with_2000_connections_uses_little_cpu() {
    needs_root!();
    let bundled = BundledConnection::start();
    let _connections = connect(&bundled.namespace, 2000);
    let top = pillion_in(&bundled.namespace, &["top", "--interval", "1s"]);
    let mut terminal = TerminalSession::open(top);
    terminal.wait_shown("connections");
    let before = terminal.cpu_time();
    thread::sleep(Duration::from_secs(5));
    let share = (terminal.cpu_time() - before).as_secs_f64() / 5.0;
    println!("{:.1} % of a core", share * 100.0);
    assert!(share < 0.15, "{share}");
    terminal.press(b"q");
    terminal.wait_exit();
}

#[test]
fn top_without_utf8_locale_draws_ascii() {
    needs_root!();
    let bundled = BundledConnection::start();
    for (variable, value) in [("LC_ALL", "C"), ("TERM", "dumb")] {
        let arguments = ["top", "--batch", "--iterations", "1", "--interval", "10ms"];
        let mut top = pillion_in(&bundled.namespace, &arguments);
        let output = top.env("LC_ALL", "C.UTF-8").env(variable, value).output();
        let text = stdout(&output.unwrap());
        assert!(text.contains(&bundled.local()), "{variable}: {text}");
        assert!(text.is_ascii(), "{variable}: {text}");
    }
    let mut top = pillion_in(&bundled.namespace, &["top"]);
    top.env("LC_ALL", "C");
    let mut terminal = TerminalSession::open(top);
    terminal.wait_shown("^v select   <> sort");
    terminal.press(b"q");
    terminal.wait_exit();
}

/// crossterm's default event source loses the key if it reads the resize first.
#[test]
fn key_pressed_during_resize_is_handled() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut terminal = TerminalSession::start(&namespace, &[]);
    terminal.wait_shown("pillion top");
    for columns in 90..100 {
        // Makes both events arrive together.
        terminal.send_signal(Signal::SIGSTOP);
        terminal.set_size(columns, 40);
        terminal.press(b"?");
        terminal.send_signal(Signal::SIGCONT);
        let help = "time that bundles saved compared to retransmissions";
        terminal.wait_shown(help);
        terminal.press(b" ");
        terminal.wait_hidden(help);
    }
    terminal.press(b"q");
    terminal.wait_exit();
}

#[test]
fn signal_restores_terminal() {
    needs_root!();
    let namespace = namespace_with_loopback();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGQUIT,
        Signal::SIGABRT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        let terminal = TerminalSession::start(&namespace, &[]);
        terminal.wait_shown("pillion top");
        terminal.send_signal(signal);
        terminal.wait_exit();
    }
}

/// Closes the terminal of a running `top` that ignores SIGHUP, as under `nohup`. Returns its exit
/// status.
fn exit_status_on_terminal_close(is_controlling: bool) -> Option<i32> {
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
    let mut top = pillion_in(&namespace, &["top", "--interval", "100ms"]);
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
fn top_exits_when_terminal_closes() {
    needs_root!();
    for is_controlling in [true, false, true, false] {
        assert_eq!(exit_status_on_terminal_close(is_controlling), Some(0));
    }
}

#[test]
fn batch_output_is_text_or_json() {
    needs_root!();
    let bundled = BundledConnection::start();
    let batch = |arguments: &[&str]| {
        let mut all = vec!["top", "--batch", "--iterations", "2", "--interval", "10ms"];
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
        let connection = connections.iter().find(|it| it["local"] == local.as_str());
        let connection = connection.unwrap_or_else(|| panic!("{rounds}"));
        assert_eq!(connection["pid"], std::process::id());
        assert!(
            connection["data_packets"].as_u64() >= Some(1),
            "{connection}"
        );
        assert!(connection["srtt_us"].as_u64() > Some(0), "{connection}");
    }
}

#[test]
fn batch_exits_when_reader_closes_pipe() {
    needs_root!();
    for format in [&[][..], &["--json"]] {
        let namespace = namespace_with_loopback();
        let mut top = pillion_in(&namespace, &["top", "--batch", "--interval", "50ms"]);
        let mut top = top.args(format).stdout(Stdio::piped()).spawn().unwrap();
        let mut byte = [0];
        top.stdout.take().unwrap().read_exact(&mut byte).unwrap();
        assert!(exits_successfully(&mut top));
    }
}

#[test]
fn flows_of_two_processes_both_name_owner() {
    needs_root!();
    let bundled = BundledConnection::start();
    let mut second = pillion_in(&bundled.namespace, &["attach", "--all", "--dev", "lo"]);
    let mut second = second.stderr(Stdio::null()).spawn().unwrap();
    await_attached(second.id());
    let listed = pillion(&["flows", "--json"]);
    send_signal(&second, Signal::SIGTERM);
    second.wait().unwrap();
    let local = bundled.local();
    let flows: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let ours = flows.iter().filter(|flow| flow["local"] == local.as_str());
    let pids: Vec<_> = ours.map(|flow| flow["pid"].as_u64()).collect();
    assert_eq!(pids, [Some(std::process::id().into()); 2], "{flows:?}");
}

#[test]
fn top_reports_missing_terminal_and_invalid_sort() {
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
